//! Text in the engine's own tables. PostgreSQL's text cannot contain NUL, but a key may be any
//! text: what PostgreSQL cannot store, and what separates the parts of the name of a sequence, is
//! escaped, and all other text is unchanged.
//!
//! A missing tenant is stored as the empty text, a missing due time as the smallest number, so that
//! both are ordinary values in a unique key.

use std::borrow::Cow;

use besom_core::ids::Tenant;
use besom_core::time::Time;

const ESCAPE: char = '\u{1}';
/// Between tenant, topic and key in the name of a sequence of messages.
const SEPARATOR: char = '\u{2}';
const EMPTY: &str = "\u{1}e";

/// The stored due time of an item without one.
pub(super) const NO_DUE: i64 = i64::MIN;

/// Encodes any text for PostgreSQL; [`plain`] reverses it.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|b| b <= 2) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\0' => out.extend([ESCAPE, '0']),
            ESCAPE => out.extend([ESCAPE, '1']),
            SEPARATOR => out.extend([ESCAPE, '2']),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

/// Reverses [`escaped`].
pub(super) fn plain(text: String) -> String {
    if !text.contains(ESCAPE) {
        return text;
    }
    text.replace("\u{1}0", "\0").replace("\u{1}2", "\u{2}").replace("\u{1}1", "\u{1}")
}

/// A tenant as stored in the engine's tables.
pub(super) fn tenant_text(tenant: Option<&Tenant>) -> Cow<'_, str> {
    match tenant {
        None => Cow::Borrowed(""),
        Some(tenant) if tenant.as_str().is_empty() => Cow::Borrowed(EMPTY),
        Some(tenant) => escaped(tenant.as_str()),
    }
}

/// Reverses [`tenant_text`].
pub(super) fn tenant_of(text: String) -> Option<Tenant> {
    match text.as_str() {
        "" => None,
        EMPTY => Some(Tenant::from("")),
        _ => Some(Tenant::from(plain(text))),
    }
}

/// A due time as stored in the engine's tables.
pub(super) fn due_number(due: Option<Time>) -> i64 {
    due.map_or(NO_DUE, |t| t.0)
}

/// Reverses [`due_number`].
pub(super) fn due_of(number: i64) -> Option<Time> {
    (number != NO_DUE).then_some(Time(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_as_it_was_and_holds_no_nul() {
        for text in ["", "plain", "\0", "\u{1}", "\u{1}0", "a\0b\u{1}1c", "\u{1}\0\u{1}"] {
            let stored = escaped(text).into_owned();
            assert!(!stored.contains('\0'), "{text:?}");
            assert_eq!(plain(stored), text, "{text:?}");
        }
    }

    #[test]
    fn no_tenant_is_different_from_every_tenant() {
        let all = [None, Some(""), Some("a"), Some("\u{1}e"), Some("\0")];
        let stored: Vec<_> =
            all.iter().map(|t| tenant_text(t.map(Tenant::from).as_ref()).into_owned()).collect();
        for (text, tenant) in stored.iter().zip(all) {
            assert_eq!(tenant_of(text.clone()), tenant.map(Tenant::from), "{tenant:?}");
        }
        let distinct: std::collections::BTreeSet<_> = stored.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
