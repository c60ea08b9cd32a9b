//! Checks the results of `scan` and `tenants` against the contract. Pure.

use std::collections::HashSet;

use besom_core::ids::Tenant;
use besom_core::item::{Candidate, PAYLOAD_BYTES_MAX};
use besom_core::time::Time;
use besom_snapshot::LeftOut;

use super::bindings::besom::task::types as wit;
use super::bounds::shown;

/// Maximum length of a key, a route, a version and a tenant, in bytes: they are columns of indexes.
const NAME_BYTES_MAX: usize = 1_024;
/// Maximum size of a cursor, in bytes. It is stored with every page of each tenant and only has to
/// hold a position in an index.
pub(super) const CURSOR_BYTES_MAX: usize = 4 * 1024;

/// Maximum distance of a due time from the epoch, in either direction: 100,000 years. A store marks
/// items without a due time by a later value.
const DUE_MICROS_MAX: i64 = 100_000 * 366 * 86_400 * 1_000_000;

/// Maximum length of what a task says of a row without a key, in characters.
const WHY_CHARS_MAX: usize = 200;

/// A violation of the contract: the cause of the fault, and its message.
pub(super) type Violation = (&'static str, String);

fn name(what: &str, text: &str, empty: bool) -> Result<(), Violation> {
    if text.is_empty() && !empty {
        return Err(("contract", format!("{what} is empty")));
    }
    if text.len() > NAME_BYTES_MAX {
        return Err((
            "limit",
            format!("{what} has {} bytes: at most {NAME_BYTES_MAX}", text.len()),
        ));
    }
    if text.contains('\0') {
        return Err(("contract", format!("{what} contains a NUL byte, which cannot be stored")));
    }
    Ok(())
}

/// The candidates of a page, the next cursor, and what was left out.
type Found = (Vec<Candidate>, Option<Vec<u8>>, LeftOut);

/// Checks the candidates of a scan of that tenant (`None`: of all), and the next cursor. Those that cannot become items,
/// because of their keys, are counted: a row with an invalid key must not block the others.
pub(super) fn candidates(
    page: wit::Page,
    tenant: Option<&Tenant>,
    limit: u32,
) -> Result<Found, Violation> {
    if page.candidates.len() > limit as usize {
        let count = page.candidates.len();
        return Err((
            "contract",
            format!("scan: returned {count} candidates; the limit is {limit}"),
        ));
    }
    if let Some(next) = &page.next
        && next.len() > CURSOR_BYTES_MAX
    {
        let bytes = next.len();
        return Err((
            "limit",
            format!("scan: a cursor of {bytes} bytes: at most {CURSOR_BYTES_MAX}"),
        ));
    }
    let mut left_out = LeftOut::default();
    let mut candidates = Vec::with_capacity(page.candidates.len());
    for c in page.candidates {
        match name("its key", &c.key, false) {
            Ok(()) => candidates.push(candidate(c, tenant)?),
            Err((_, mut why)) => {
                // The SDK says so why it makes no key of a row.
                if c.key.is_empty() && !c.version.is_empty() {
                    why.push_str(": ");
                    why.extend(c.version.chars().take(WHY_CHARS_MAX));
                }
                let first = shown(&c.key);
                tracing::warn!(key = first, why, "a candidate is left out");
                left_out.add(&LeftOut { rows: 1, first, why, ..LeftOut::default() });
            }
        }
    }
    Ok((candidates, page.next, left_out))
}

fn candidate(c: wit::Candidate, scanned: Option<&Tenant>) -> Result<Candidate, Violation> {
    let of = |what: &str| format!("scan: the {what} of the candidate `{}`", c.key);
    name(&of("route"), c.route.as_deref().unwrap_or(&c.key), false)?;
    name(&of("version"), &c.version, true)?;
    if c.payload.len() > PAYLOAD_BYTES_MAX {
        let (of, bytes) = (of("payload"), c.payload.len());
        return Err(("limit", format!("{of} has {bytes} bytes: at most {PAYLOAD_BYTES_MAX}")));
    }
    let tenant = match (scanned, c.tenant) {
        (Some(scanned), Some(named)) if scanned.as_str() != named => {
            let message = format!(
                "scan: the candidate `{}` belongs to the tenant `{}`, but the scan is for \
                 `{scanned}`",
                c.key,
                shown(&named)
            );
            return Err(("contract", message));
        }
        (Some(scanned), _) => Some(scanned.clone()),
        (None, Some(named)) => {
            name(&of("tenant"), &named, true)?;
            Some(Tenant::from(named))
        }
        (None, None) => None,
    };
    Ok(Candidate {
        tenant,
        route: c.route.unwrap_or_else(|| c.key.clone()),
        key: c.key,
        due: c.due.map(|due| Time(due.clamp(-DUE_MICROS_MAX, DUE_MICROS_MAX))),
        version: c.version,
        payload: c.payload,
    })
}

/// Whether items of a tenant can be stored.
pub(super) fn is_tenant(text: &str) -> Result<(), Violation> {
    name("a tenant", text, true)
}

/// Checks the tenants that may have candidates. `given`: the names that `store.tenants` returned
/// during the call; only these are allowed. `None`: the task may see all tenants and name any.
///
/// An invented name could carry data of one tenant into a call for another.
pub(super) fn tenants(
    names: Vec<String>,
    limit: u32,
    given: Option<&HashSet<String>>,
) -> Result<Vec<Tenant>, Violation> {
    if names.len() > limit as usize {
        let count = names.len();
        return Err((
            "contract",
            format!("tenants: returned {count} tenants; the limit is {limit}"),
        ));
    }
    for n in &names {
        name("tenants: a tenant", n, true)?;
    }
    if let Some(given) = given
        && let Some(other) = names.iter().find(|name| !given.contains(*name))
    {
        let shown = shown(other);
        return Err((
            "contract",
            format!(
                "tenants: `{shown}` was not returned by `store.tenants` during this call: grant \
                 `all_tenants` to a task that knows tenants from elsewhere"
            ),
        ));
    }
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(("contract", format!("tenants: `{}` is named twice", twice[0])));
    }
    Ok(names.into_iter().map(Tenant::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(candidates: Vec<wit::Candidate>) -> wit::Page {
        wit::Page { candidates, next: None, scanned: 0, extra: vec![] }
    }

    fn plain(key: &str) -> wit::Candidate {
        wit::Candidate {
            key: key.into(),
            tenant: None,
            route: None,
            due: None,
            version: String::new(),
            payload: vec![],
            extra: vec![],
        }
    }

    #[test]
    fn a_candidate_out_of_bounds_is_named() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let other = Some("other".to_owned());
        let cases = [
            (
                wit::Candidate { payload: vec![0; 4097], ..plain("k") },
                "limit",
                "`k` has 4097 bytes",
            ),
            (wit::Candidate { tenant: other, ..plain("k") }, "contract", "tenant `other`"),
            (wit::Candidate { version: long.clone(), ..plain("k") }, "limit", "version"),
            (wit::Candidate { route: Some(String::new()), ..plain("k") }, "contract", "route"),
        ];
        for (candidate, cause, part) in cases {
            let tenant = Tenant::from("scanned");
            let violation = candidates(page(vec![candidate]), Some(&tenant), 10).unwrap_err();
            assert_eq!(violation.0, cause);
            assert!(violation.1.contains(part), "{violation:?} does not say {part:?}");
        }
    }

    #[test]
    fn a_key_that_no_store_takes_leaves_out_its_candidate_alone() {
        let long = "k".repeat(NAME_BYTES_MAX + 1);
        let all = vec![plain(""), plain("a"), plain(&long), plain("a\0b"), plain("b")];
        let of = |all| candidates(page(all), Some(&Tenant::from("t")), 10).unwrap();
        let (found, _, left_out) = of(all);
        assert_eq!((left_out.rows, left_out.first.as_str()), (3, ""));
        let why =
            |version: &str| of(vec![wit::Candidate { version: version.into(), ..plain("") }]).2.why;
        assert_eq!((&*why(""), &*why("NULL")), ("its key is empty", "its key is empty: NULL"));
        assert_eq!(of(vec![plain(&long)]).2.why, "its key has 1025 bytes: at most 1024");
        let keys: Vec<_> = found.iter().map(|candidate| candidate.key.as_str()).collect();
        assert_eq!(keys, ["a", "b"]);
    }

    #[test]
    fn a_moment_beyond_all_calendars_is_the_last_that_a_store_keeps() {
        let due = |due| wit::Candidate { due: Some(due), ..plain("k") };
        let all = vec![due(i64::MAX), due(i64::MIN), due(7)];
        let (found, ..) = candidates(page(all), Some(&Tenant::from("t")), 10).unwrap();
        let dues: Vec<_> = found.iter().filter_map(|candidate| candidate.due).collect();
        assert_eq!(dues, [Time(DUE_MICROS_MAX), Time(-DUE_MICROS_MAX), Time(7)]);
    }

    #[test]
    fn the_route_is_the_key_and_the_tenant_that_of_the_scan() {
        let tenant = Tenant::from("t");
        let (found, next, _) = candidates(page(vec![plain("k")]), Some(&tenant), 1).unwrap();
        assert_eq!((found[0].route.as_str(), found[0].tenant.as_ref()), ("k", Some(&tenant)));
        assert_eq!(next, None);
        assert!(candidates(page(vec![plain("k"), plain("l")]), None, 1).is_err());
    }

    #[test]
    fn tenants_come_once_and_no_more_than_asked_for() {
        let names = |all: &[&str]| all.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(tenants(names(&["b", "a"]), 2, None).unwrap().len(), 2);
        assert!(tenants(names(&["a", "b", "a"]), 9, None).unwrap_err().1.contains("twice"));
        assert!(tenants(names(&["a", "b"]), 1, None).is_err());
    }

    #[test]
    fn only_tenants_that_the_store_gave_are_taken() {
        let given: HashSet<String> = ["a".to_owned(), "b".to_owned()].into();
        let of = |name: &str| tenants(vec![name.to_owned()], 9, Some(&given));
        assert_eq!(of("b").unwrap(), [Tenant::from("b")]);
        let (cause, message) = of(&"x".repeat(1_000)).unwrap_err();
        assert_eq!(cause, "contract");
        assert!(message.contains("was not returned") && message.len() < 300, "{message}");
    }

    #[test]
    fn a_cursor_that_is_no_place_in_an_index_is_refused() {
        let of = |bytes: usize| {
            let page = wit::Page { next: Some(vec![0; bytes]), ..page(vec![]) };
            candidates(page, None, 1)
        };
        assert_eq!(of(4_096).unwrap().1.map(|next| next.len()), Some(4_096));
        assert!(of(4_097).unwrap_err().1.contains("a cursor of 4097 bytes: at most 4096"));
    }
}
