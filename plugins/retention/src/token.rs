//! Splits a text into names, values and symbols.

use std::borrow::Cow;
use std::ops::Range;

use crate::condition::Fault;
use crate::hints;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word of the language or a column.
    Name,
    /// A column in double quotes.
    Quoted,
    /// A text in single quotes.
    Text,
    /// A number, or a span such as `30d`.
    Number,
    /// A sign.
    Symbol,
}

/// A token of a text.
#[derive(Debug, Clone)]
pub(crate) struct Token<'a> {
    pub(crate) sort: Kind,
    /// Its content, without quotes.
    pub(crate) text: Cow<'a, str>,
    /// Its bytes in the text.
    pub(crate) range: Range<usize>,
}

/// Longest first.
const SYMBOLS: [&str; 11] = ["!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", ",", "+"];

/// All tokens of a text.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, Fault> {
    let mut all: Vec<Token<'_>> = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        // A minus belongs to a number, except behind `now`.
        let behind_now = all.last().is_some_and(|token| {
            token.sort == Kind::Name && token.text.eq_ignore_ascii_case("now")
        });
        let is_negative =
            c == '-' && !behind_now && rest[1..].starts_with(|next: char| next.is_ascii_digit());
        let (sort, content, length) = match c {
            '\'' | '"' => {
                let (content, length) = quoted(rest, c).ok_or_else(|| {
                    let message =
                        format!("the quote {c} is not closed; a {c} within it is written {c}{c}");
                    Fault::new(at..text.len(), message)
                })?;
                (if c == '"' { Kind::Quoted } else { Kind::Text }, content, length)
            }
            c if c.is_alphabetic() || c == '_' => {
                let length =
                    rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                (Kind::Name, Cow::Borrowed(&rest[..length]), length)
            }
            c if c.is_ascii_digit() || is_negative => {
                let end = rest[1..].find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
                let length = end.map_or(rest.len(), |end| end + 1);
                (Kind::Number, Cow::Borrowed(&rest[..length]), length)
            }
            '-' => (Kind::Symbol, Cow::Borrowed("-"), 1),
            _ => match SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
                Some(symbol) => (Kind::Symbol, Cow::Borrowed(symbol), symbol.len()),
                None => {
                    let range = at..at + c.len_utf8();
                    let hint = hints::sign(c, rest);
                    return Err(Fault::new(range, format!("`{c}` means nothing here{hint}")));
                }
            },
        };
        let range = at..at + length;
        if sort == Kind::Number && !is_number(&content) {
            let span = content.strip_prefix('-').filter(|span| is_number(span));
            let hint = span
                .map(|span| format!(": a time ago is written `now - {span}`"))
                .unwrap_or_default();
            let message = format!("`{content}` is neither a number nor a span{hint}");
            return Err(Fault::new(range, message));
        }
        all.push(Token { sort, text: content, range });
        at += length;
    }
    Ok(all)
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let all = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    (all(whole) && all(fraction)) || besom_sdk::parse_duration_ms(text).is_some()
}

/// The content of a text in quotes, and its length with them.
fn quoted(rest: &str, quote: char) -> Option<(Cow<'_, str>, usize)> {
    let mut from = 1;
    loop {
        let end = from + rest[from..].find(quote)?;
        if rest[end + 1..].starts_with(quote) {
            from = end + 2;
            continue;
        }
        let content = &rest[1..end];
        let doubled = [quote; 2].iter().collect::<String>();
        let content = match content.contains(&doubled) {
            true => Cow::Owned(content.replace(&doubled, &quote.to_string())),
            false => Cow::Borrowed(content),
        };
        return Some((content, end + 1));
    }
}
