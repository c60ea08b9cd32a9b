//! Read sets: the keys of the rows that a call has read, kept by the host, so that a quarter of a
//! million keys cross the boundary at most once. An id is valid only within its call.

use std::sync::Arc;

use besom_core::ids::Tenant;
use besom_core::proposal::ReadSet;
use besom_core::value::{RowKey, Value};

use super::access::Refusal;

/// Maximum number of read sets per call.
const READ_SETS_MAX: usize = 4_096;

/// The read sets of one call, by id.
#[derive(Default)]
pub(super) struct ReadSets(Vec<Collected>);

struct Collected {
    tenant: Option<Tenant>,
    set: Arc<ReadSet>,
}

impl ReadSets {
    /// Adds the keys of rows that were read to a new set, or to `into`, which must have the same
    /// collection and tenant. Returns the id of the set.
    pub(super) fn collect(
        &mut self,
        into: Option<u64>,
        collection: &str,
        tenant: Option<&Tenant>,
        keys: Vec<RowKey>,
    ) -> Result<u64, Refusal> {
        let id = match into {
            Some(id) => id,
            None if self.0.len() >= READ_SETS_MAX => {
                return Err(Refusal::new(
                    "limit-exceeded",
                    format!("one call may collect at most {READ_SETS_MAX} read sets"),
                ));
            }
            None => {
                let set = ReadSet { collection: collection.into(), prefix: vec![], rest: vec![] };
                self.0.push(Collected { tenant: tenant.cloned(), set: Arc::new(set) });
                self.0.len() as u64 - 1
            }
        };
        self.get(id, collection, tenant)?;
        // Only the call holds the set while it runs, so nothing is copied.
        let set = Arc::make_mut(&mut self.0[id as usize].set);
        extend(set, keys);
        Ok(id)
    }

    /// Checks that rows may be added to the set, before they are read.
    pub(super) fn get(
        &self,
        id: u64,
        collection: &str,
        tenant: Option<&Tenant>,
    ) -> Result<(), Refusal> {
        let set = self.of(id, tenant)?;
        if set.collection != collection {
            return Err(Refusal::new(
                "no-such-read-set",
                format!(
                    "read set {id} contains rows of `{}`, not of `{collection}`",
                    set.collection
                ),
            ));
        }
        Ok(())
    }

    /// The set, if it was read for that tenant: in another tenant its keys would refer to other
    /// rows.
    pub(super) fn of(&self, id: u64, tenant: Option<&Tenant>) -> Result<&Arc<ReadSet>, Refusal> {
        let collected = usize::try_from(id).ok().and_then(|id| self.0.get(id));
        let Some(collected) = collected else {
            return Err(Refusal::new(
                "no-such-read-set",
                format!("the read set {id} was not returned by any read of this call"),
            ));
        };
        if collected.tenant.as_ref() != tenant {
            return Err(Refusal::new(
                "no-such-read-set",
                format!("read set {id} was read for another tenant"),
            ));
        }
        Ok(&collected.set)
    }
}

/// Appends keys and shortens the common prefix where they differ from it. The last value of a key
/// is never part of the prefix.
fn extend(set: &mut ReadSet, keys: Vec<RowKey>) {
    let mut keys = keys.into_iter().peekable();
    if set.is_empty()
        && let Some(first) = keys.peek()
    {
        set.prefix = first[..first.len().saturating_sub(1)].to_vec();
    }
    for mut key in keys {
        let shared = set.prefix.iter().zip(&key).take_while(|(a, b)| a == b).count();
        if shared < set.prefix.len() {
            let moved: Vec<Value> = set.prefix.drain(shared..).collect();
            for rest in &mut set.rest {
                rest.splice(..0, moved.iter().cloned());
            }
        }
        key.drain(..shared);
        set.rest.push(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(values: &[i64]) -> RowKey {
        values.iter().map(|v| Value::Integer(*v)).collect()
    }

    #[test]
    fn the_prefix_is_what_all_keys_share() {
        let cases: &[(&[&[i64]], usize)] = &[
            (&[], 0),
            (&[&[1, 2, 3]], 2),
            (&[&[1, 2, 3], &[1, 2, 4]], 2),
            (&[&[1, 2, 3], &[1, 3, 3], &[1, 3, 4]], 1),
            (&[&[1, 2, 3], &[1, 2, 4], &[2, 2, 5]], 0),
            (&[&[7], &[8]], 0),
        ];
        for (keys, prefix) in cases {
            let mut sets = ReadSets::default();
            let all: Vec<RowKey> = keys.iter().map(|k| key(k)).collect();
            // In pages of one row, so that every page may shorten the prefix.
            let id = sets.collect(None, "c", None, vec![]).unwrap();
            for k in &all {
                assert_eq!(sets.collect(Some(id), "c", None, vec![k.clone()]).unwrap(), id);
            }
            let set = sets.of(id, None).unwrap();
            assert_eq!(set.prefix.len(), *prefix, "{keys:?}");
            assert_eq!(set.keys().collect::<Vec<_>>(), all);
        }
    }

    #[test]
    fn a_set_stays_with_its_collection_and_tenant() {
        let (a, b) = (Tenant::from("a"), Tenant::from("b"));
        let mut sets = ReadSets::default();
        let id = sets.collect(None, "c", Some(&a), vec![key(&[1])]).unwrap();
        assert!(sets.collect(Some(id), "c", Some(&b), vec![]).is_err());
        assert!(sets.collect(Some(id), "d", Some(&a), vec![]).is_err());
        assert!(sets.collect(Some(id + 1), "c", Some(&a), vec![]).is_err());
        assert!(sets.of(id, Some(&b)).is_err());
        assert!(sets.of(id, None).is_err());
        assert_eq!(sets.of(id, Some(&a)).unwrap().len(), 1);
    }
}
