//! Whether keys, such as workspaces, are in use right now.

pub use crate::bindings::besom::task::activity::State;
use crate::store::by_tenant;
use crate::{Error, Item, Result, host};

/// The state of each key, in the order of the keys; `of` as in [`crate::store`].
///
/// # Errors
/// An error of the host, for instance if activity is not granted.
pub fn states(of: Option<&Item>, keys: &[String]) -> Result<Vec<State>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    host::states(of.map(|item| item.index), keys)
}

/// The state of each item's activity key, in the order of the items, with one call per tenant. An
/// item for which `key` fails gets that error; the other items are read.
///
/// # Errors
/// An error of the host, which concerns the whole batch.
pub fn states_each(
    items: &[Item],
    key: impl Fn(&Item) -> Result<String>,
) -> Result<Vec<Result<State>>> {
    let keys: Vec<Result<String>> = items.iter().map(key).collect();
    let mut known_states: Vec<Option<State>> = vec![None; items.len()];
    for group in by_tenant(items) {
        let known: Vec<usize> = group.into_iter().filter(|&at| keys[at].is_ok()).collect();
        let Some(&first) = known.first() else { continue };
        let asked: Vec<String> = known.iter().flat_map(|&at| keys[at].clone()).collect();
        let found = states(Some(&items[first]), &asked)?;
        for (at, state) in known.into_iter().zip(found) {
            known_states[at] = Some(state);
        }
    }
    Ok(keys
        .into_iter()
        .zip(known_states)
        .map(|(key, state)| key.and_then(|key| state.ok_or_else(|| unanswered("activity", &key))))
        .collect())
}

/// The error of an item for which the host returned no answer.
pub(crate) fn unanswered(what: &str, key: &str) -> Error {
    Error::transient("no-answer", format!("the host returned no {what} for {key}"))
}
