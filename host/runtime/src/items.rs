//! The items of one `act`, as they are passed to the guest. Pure.
//!
//! Their texts are copied once for the whole batch, and the guest's memory is written from there:
//! a text of its own for each field would be a sixth of what the host allocates for an item.

use std::ops::Range;
use std::sync::Arc;

use besom_core::item::Item;
use besom_core::time::Time;
use wasmtime::component::{ComponentType, Lower};

use super::bindings::besom::task::types as wit;

/// `item` of the contract, with borrowed texts.
#[derive(ComponentType, Lower, Clone, Copy)]
#[component(record)]
pub(super) struct Lent<'a> {
    tenant: Option<&'a str>,
    key: &'a str,
    route: &'a str,
    due: Option<i64>,
    version: &'a str,
    payload: &'a [u8],
    run: u64,
    attempt: u32,
    #[component(name = "guard-retries")]
    guard_retries: u32,
    #[component(name = "planned-at")]
    planned_at: i64,
    extra: &'a [wit::Field],
}

/// Items that can be passed to a guest, in any part and order.
#[derive(Clone)]
pub(super) struct Items {
    packed: Arc<Packed>,
    places: Vec<Place>,
}

#[derive(Default)]
struct Packed {
    texts: String,
    payloads: Vec<u8>,
}

/// An item, with the places of its texts and of its payload.
#[derive(Clone)]
struct Place {
    tenant: Option<Range<usize>>,
    key: Range<usize>,
    route: Range<usize>,
    version: Range<usize>,
    payload: Range<usize>,
    due: Option<i64>,
    run: u64,
    attempt: u32,
    guard_retries: u32,
    planned_at: i64,
}

impl Packed {
    fn text(&mut self, text: &str) -> Range<usize> {
        let start = self.texts.len();
        self.texts.push_str(text);
        start..self.texts.len()
    }

    fn payload(&mut self, payload: &[u8]) -> Range<usize> {
        let start = self.payloads.len();
        self.payloads.extend_from_slice(payload);
        start..self.payloads.len()
    }

    fn item(&mut self, item: &Item) -> Place {
        let key = self.text(&item.identity.key);
        Place {
            tenant: item.identity.tenant.as_ref().map(|tenant| self.text(tenant.as_str())),
            // The key is the route of most items.
            route: match item.route == item.identity.key {
                true => key.clone(),
                false => self.text(&item.route),
            },
            key,
            version: self.text(&item.version),
            payload: self.payload(&item.payload),
            due: item.identity.due.map(Time::micros),
            run: item.run.0,
            // The attempt after those that failed.
            attempt: item.attempts.saturating_add(1),
            guard_retries: item.guard_retries,
            planned_at: item.planned_at.micros(),
        }
    }
}

impl Items {
    /// Copies the items.
    pub(super) fn of(items: &[Item]) -> Items {
        let mut packed = Packed::default();
        let places = items.iter().map(|item| packed.item(item)).collect();
        Items { packed: Arc::new(packed), places }
    }

    /// The number of items.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Some of the items.
    pub(super) fn some(&self, which: &[usize]) -> Items {
        let places = which.iter().map(|at| self.places[*at].clone()).collect();
        Items { packed: Arc::clone(&self.packed), places }
    }

    /// The items of a range, as arguments of `act`.
    pub(super) fn lend(&self, range: Range<usize>) -> Vec<Lent<'_>> {
        let Packed { texts, payloads } = &*self.packed;
        let text = |range: &Range<usize>| &texts[range.clone()];
        let lent = |place: &Place| Lent {
            tenant: place.tenant.as_ref().map(text),
            key: text(&place.key),
            route: text(&place.route),
            due: place.due,
            version: text(&place.version),
            payload: &payloads[place.payload.clone()],
            run: place.run,
            attempt: place.attempt,
            guard_retries: place.guard_retries,
            planned_at: place.planned_at,
            extra: &[],
        };
        self.places[range].iter().map(lent).collect()
    }
}

#[cfg(test)]
mod tests {
    use besom_core::ids::{Partition, RunId, TaskName, Tenant};
    use besom_core::item::Identity;

    use super::*;

    fn item(key: &str, route: &str, tenant: Option<&str>, payload: &[u8]) -> Item {
        Item {
            identity: Identity {
                task: TaskName::from("t"),
                tenant: tenant.map(Tenant::from),
                key: key.into(),
                due: Some(Time(7)),
            },
            route: route.into(),
            partition: Partition(0),
            version: format!("{key}@1"),
            payload: payload.to_vec(),
            run: RunId(3),
            planned_at: Time(5),
            attempts: 2,
            guard_retries: 4,
            deaths: 0,
            errors: vec![],
        }
    }

    #[test]
    fn each_item_keeps_its_texts_in_every_part_of_a_batch() {
        let items = Items::of(&[
            item("a", "a", None, b""),
            item("é", "route", Some("one"), b"\x00\xff"),
            item("c", "", Some(""), b"c"),
        ]);
        let shown = |items: &Items, range| {
            let lent = items.lend(range);
            let text = |l: &Lent<'_>| {
                let Lent { tenant, key, route, version, payload, .. } = l;
                format!("{tenant:?} {key} {route} {version} {payload:?}")
            };
            lent.iter().map(text).collect::<Vec<_>>()
        };
        let a = "None a a a@1 []".to_owned();
        let e = "Some(\"one\") é route é@1 [0, 255]".to_owned();
        let c = "Some(\"\") c  c@1 [99]".to_owned();
        assert_eq!(shown(&items, 0..items.len()), [a.clone(), e.clone(), c.clone()]);
        assert_eq!(shown(&items, 1..2), [e]);
        assert_eq!(shown(&items.some(&[2, 0]), 0..2), [c, a]);
        let lent = items.lend(0..1)[0];
        let Lent { due, run, attempt, guard_retries, planned_at, .. } = lent;
        assert_eq!((due, run, attempt, guard_retries, planned_at), (Some(7), 3, 3, 4, 5));
    }
}
