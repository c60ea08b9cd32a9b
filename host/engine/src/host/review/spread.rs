//! Chooses the items of a plan that are examined: the first, the last, and others spread evenly between them.

use std::cmp::Ordering;
use std::time::Instant;

use besom_core::item::Item;
use besom_core::proposal::Verdict;
use besom_core::review::SAMPLES_MAX;
use besom_core::time::Time;
use besom_ports::guests::Fault;

use super::{ITEMS_MAX, ROWS_MAX};

/// Number of items that are kept at most; of a longer plan, some are left out evenly.
const KEPT_MAX: usize = 2 * ITEMS_MAX as usize;
/// Size of the items that are kept at most, in bytes.
const KEPT_BYTES: usize = 16 << 20;
/// Number of items from the beginning of a plan, and from its end, that are kept in any case.
const ENDS: usize = 2;

/// An item, with what its plugin has said about it.
pub(super) struct Asked {
    pub(super) item: Item,
    /// The time as of which it is judged.
    pub(super) at: Time,
    /// Number of rows that it asks for, at most.
    pub(super) rows: u64,
    /// What its plugin has said, and when; none: it has to be asked again.
    pub(super) said: Option<(Instant, Result<Verdict, Fault>)>,
    /// Its place among the items of the plan, from 1; 0: it is not known yet.
    pub(super) place: u64,
}

impl Asked {
    fn bytes(&self) -> usize {
        self.item.payload.len() + self.item.identity.key.len() + self.item.route.len()
    }

    /// The order of the plan. The items of a held run are read from several streams, so their places are not known;
    /// those of one page of its scan are planned at the same time.
    fn order(&self, other: &Asked) -> Ordering {
        let of = |asked: &Asked| (asked.item.planned_at, asked.place);
        let (one, two) = (of(self), of(other));
        let by_key = || natural(&self.item.identity.key, &other.item.identity.key);
        one.0.cmp(&two.0).then_with(|| match (one.1, two.1) {
            (0, 0) => by_key(),
            (a, b) => a.cmp(&b),
        })
    }
}

/// The order of texts in which numbers are compared by their values.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut one, mut two) = (a, b);
    loop {
        let (number, other) = (digits(&mut one), digits(&mut two));
        let by_number = number.len().cmp(&other.len()).then_with(|| number.cmp(other));
        let next = |text: &mut &str| {
            let mut all = text.chars();
            let first = all.next();
            *text = all.as_str();
            first
        };
        let (c, d) = (next(&mut one), next(&mut two));
        match by_number.then_with(|| c.cmp(&d)) {
            Ordering::Equal if c.is_none() => return a.cmp(b),
            Ordering::Equal => {}
            other => return other,
        }
    }
}

/// Takes the digits at the beginning of a text, without leading zeros.
fn digits<'t>(text: &mut &'t str) -> &'t str {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let (number, rest) = text.split_at(text.len() - rest.len());
    *text = rest;
    number.trim_start_matches('0')
}

/// Items of a plan, spread evenly over it however long it is, with the first and the last ones.
#[derive(Default)]
pub(super) struct Spread {
    kept: Vec<(u64, Asked)>,
    /// Every so many items are kept.
    every: u64,
    seen: u64,
    bytes: usize,
}

/// The items to be examined.
pub(super) struct Chosen {
    /// The first and the last, then those between them, and so on: wherever the examination ends, it has covered the
    /// whole plan.
    pub(super) items: Vec<Asked>,
    /// Number of rows of each that are examined at most; none: all.
    pub(super) share: Option<u64>,
}

impl Spread {
    pub(super) fn add(&mut self, asked: Asked) {
        self.bytes += asked.bytes();
        self.kept.push((self.seen, asked));
        self.seen += 1;
        if self.kept.len() > KEPT_MAX || self.bytes > KEPT_BYTES {
            self.thin(KEPT_MAX / 4 * 3, KEPT_BYTES / 4 * 3);
        }
    }

    /// The number of items that were added.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Leaves out items evenly until at most so many are left.
    fn thin(&mut self, most: usize, bytes: usize) {
        self.kept.sort_by(|(_, a), (_, b)| a.order(b));
        loop {
            let (every, last) = (self.every.max(1), self.kept.len().saturating_sub(ENDS));
            let mut at = 0..;
            self.kept.retain(|(number, _)| {
                let is_of_an_end = at.next().is_some_and(|at| at < ENDS || at >= last);
                is_of_an_end || number % every == 0
            });
            self.bytes = self.kept.iter().map(|(_, asked)| asked.bytes()).sum();
            let fits = self.kept.len() <= most && self.bytes <= bytes;
            if fits || self.kept.len() <= 2 * ENDS {
                return;
            }
            self.every = every * 2;
        }
    }

    /// The items to be examined, with their places.
    pub(super) fn chosen(mut self) -> Chosen {
        self.thin(usize::MAX, usize::MAX);
        let (kept, seen) = (self.kept.len(), self.seen);
        let rows: u64 = self.kept.iter().map(|(_, asked)| asked.rows).sum();
        let all = kept as u64;
        let (mut most, mut share) = (all.min(ITEMS_MAX), None);
        if rows > ROWS_MAX {
            most = most.min(ROWS_MAX * all / rows);
            let least = all.min(SAMPLES_MAX as u64);
            if most < least {
                // Few items have many rows: of each, a part.
                (most, share) = (least, Some(ROWS_MAX / least));
            }
        }
        let (most, before) = (most as usize, all.saturating_sub(1));
        let mut items: Vec<Option<Asked>> = self.kept.into_iter().map(|(_, a)| Some(a)).collect();
        for (at, asked) in items.iter_mut().enumerate() {
            if let Some(asked) = asked.as_mut().filter(|asked| asked.place == 0) {
                asked.place = 1 + (at as u64 * (seen - 1)).checked_div(before).unwrap_or(0);
            }
        }
        let place = |at: usize| (at * (kept - 1)).checked_div(most - 1).unwrap_or(0);
        let items = halved(most).into_iter().filter_map(|at| items[place(at)].take()).collect();
        Chosen { items, share }
    }
}

/// The numbers below `count`: the first, the last, the one between them, those between these, and so on.
fn halved(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = [0, count.saturating_sub(1)].into_iter().take(count).collect();
    let mut between = std::collections::VecDeque::from([(0, count.saturating_sub(1))]);
    while let Some((from, to)) = between.pop_front() {
        let middle = from + (to - from) / 2;
        if middle > from {
            order.push(middle);
            between.extend([(from, middle), (middle, to)]);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use besom_core::ids::{Partition, RunId};
    use besom_core::item::Identity;

    use super::*;

    fn asked(key: &str, rows: u64, place: u64) -> Asked {
        let identity = Identity { task: "t".into(), tenant: None, key: key.to_owned(), due: None };
        let item = Item {
            identity,
            route: String::new(),
            partition: Partition(0),
            version: String::new(),
            payload: Vec::new(),
            run: RunId::NONE,
            planned_at: Time::EPOCH,
            attempts: 0,
            guard_retries: 0,
            deaths: 0,
            errors: Vec::new(),
        };
        Asked { item, at: Time::EPOCH, rows, said: None, place }
    }

    /// Chooses among so many items of so many rows; their places in the order in which they are examined.
    fn places(count: u64, rows: u64) -> (Vec<u64>, Option<u64>) {
        let mut spread = Spread::default();
        (1..=count).for_each(|place| spread.add(asked("k", rows, place)));
        let Chosen { items, share } = spread.chosen();
        (items.iter().map(|asked| asked.place).collect(), share)
    }

    #[test]
    fn a_plan_within_the_bounds_is_examined_as_a_whole() {
        for (count, rows) in [(1, 10_000), (10, 1_000), (10_000, 1), (0, 0), (500, 0)] {
            let (mut places, share) = places(count, rows);
            places.sort_unstable();
            assert_eq!((places, share), ((1..=count).collect(), None), "{count} of {rows}");
        }
    }

    #[test]
    fn a_large_plan_is_examined_from_its_first_to_its_last_item() {
        let (chosen, share) = places(100, 1_000);
        assert_eq!((&chosen[..3], share), (&[1, 100, 45][..], None));
        let mut sorted = chosen;
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 12, 23, 34, 45, 56, 67, 78, 89, 100]);
        // Items that have more rows than are examined at all: a part of each.
        let (places_of_few, share) = places(3, 100_000);
        assert_eq!((&places_of_few[..], share), (&[1, 3, 2][..], Some(3_333)));
    }

    #[test]
    fn a_plan_longer_than_what_is_kept_is_thinned_evenly() {
        for count in [20_001, 100_000, 300_000] {
            let (chosen, share) = places(count, 1);
            assert_eq!((&chosen[..2], share), (&[1, count][..], None));
            assert!((7_000..=10_000).contains(&chosen.len()), "{count}: {}", chosen.len());
            let mut sorted = chosen;
            sorted.sort_unstable();
            let gap = sorted.windows(2).map(|two| two[1] - two[0]).max();
            assert!(gap <= Some(count / 5_000 + 1), "{count}: {gap:?}");
        }
    }

    /// The items of a held run come from several streams.
    #[test]
    fn items_without_places_are_in_the_order_of_their_keys() {
        let mut spread = Spread::default();
        for stream in 0..4 {
            (1..=25).for_each(|at| spread.add(asked(&format!("#{}", at * 4 - stream), 1_000, 0)));
        }
        let chosen = spread.chosen().items;
        let keys: Vec<&str> = chosen.iter().map(|one| one.item.identity.key.as_str()).collect();
        assert_eq!(keys[..3], ["#1", "#100", "#45"]);
        assert_eq!((chosen[1].place, chosen[2].place), (100, 45));
    }

    #[test]
    fn numbers_in_keys_are_compared_by_their_values() {
        let all = [
            "",
            "!2026-01-31T08:00:00Z/#9",
            "!2026-01-31T08:00:00Z/#10",
            "!2026-02-01T00:00:00Z",
            "#007",
            "#7",
            "#8",
            "#10",
            "#10/a",
        ];
        for (at, one) in all.iter().enumerate() {
            for (other_at, other) in all.iter().enumerate() {
                let is = natural(one, other);
                let expected = at.cmp(&other_at);
                assert_eq!(is, expected, "{one} {other}");
            }
        }
    }
}
