//! Decides one run's path through the tenants: where it begins, how long it stays, when it ends.
//!
//! The cycle continues where the previous run ended, wraps around once, and visits no tenant twice.
//! Within a tenant it takes pages until the quota is planned or the scan ends; the cursor inside
//! the tenant is durable and belongs to the store. Nothing here knows what a candidate is.
//!
//! The order of the tenants is the database's, by a collation that this module does not know, so
//! tenants are never compared for order. The cycle is complete when a tenant comes that came
//! before.
//!
//! ```text
//!            cursor                          a run of three tenants
//!   a  b  c  |  d  e                         visits d, e, a and ends at a
//! ```

use std::collections::{HashSet, VecDeque};

use crate::ids::Tenant;

/// The quotas of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Tenants that one run visits at most.
    pub tenants: u32,
    /// Items planned per tenant at most.
    pub candidates: u64,
    /// Candidates requested per page.
    pub page: u32,
    /// Pages in sequence of which nothing can be planned, per tenant at most.
    pub pages: u32,
}

/// An input of the cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The requested tenants.
    Tenants(Vec<Tenant>),
    /// The requested page was planned.
    Page {
        /// Items planned.
        planned: u64,
        /// Candidates left out because the quota was used up.
        left: u64,
        /// Whether the scan has more pages.
        more: bool,
    },
    /// The last command failed.
    Failed(String),
}

/// An output of the cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Request tenants that may have candidates, in order.
    Tenants {
        /// Only tenants after this one.
        after: Option<Tenant>,
        /// The maximum number of tenants.
        limit: u32,
    },
    /// Scan and plan a page, starting at the tenant's cursor.
    Scan {
        /// The tenant; none for a task without tenants.
        tenant: Option<Tenant>,
        /// The maximum number of candidates.
        limit: u32,
        /// The maximum number of items to plan.
        quota: u64,
    },
    /// The scan of the run has ended.
    End {
        /// The next run's cycle begins after this tenant.
        cursor: Option<Tenant>,
        /// The first failure, if any.
        error: Option<String>,
        /// Tenants that have more candidates than the run was allowed to plan.
        cut: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Asking,
    Scanning { tenant: Option<Tenant>, planned: u64, pages: u32 },
    Ended,
}

/// The cycle of one run.
#[derive(Debug, Clone)]
pub struct Cycle {
    quota: Quota,
    /// Where the cycle began; the wrapped half ends here, inclusive.
    begin: Option<Tenant>,
    at: Option<Tenant>,
    /// The tenant visited last: the next run begins after it.
    last: Option<Tenant>,
    wrapped: bool,
    exhausted: bool,
    waiting: VecDeque<Tenant>,
    /// Every tenant that was listed in this run.
    seen: HashSet<Tenant>,
    visited: u32,
    cut: u32,
    error: Option<String>,
    pending: Option<Command>,
    state: State,
}

impl Cycle {
    /// Tenants requested at a time.
    const TENANTS_PAGE: u32 = 256;

    /// A cycle through the tenants after `begin`. Pushes the first command.
    pub fn over_tenants(quota: Quota, begin: Option<Tenant>, out: &mut Vec<Command>) -> Cycle {
        let mut cycle = Cycle::new(quota, begin, false);
        cycle.next(out);
        cycle
    }

    /// The scan of a task without tenants. Pushes the first command.
    pub fn single(quota: Quota, out: &mut Vec<Command>) -> Cycle {
        let mut cycle = Cycle::new(quota, None, true);
        cycle.scan(None, 0, 0, out);
        cycle
    }

    fn new(quota: Quota, begin: Option<Tenant>, exhausted: bool) -> Cycle {
        Cycle {
            quota,
            wrapped: begin.is_none(),
            at: begin.clone(),
            last: begin.clone(),
            begin,
            exhausted,
            waiting: VecDeque::new(),
            seen: HashSet::new(),
            visited: 0,
            cut: 0,
            error: None,
            pending: None,
            state: State::Asking,
        }
    }

    /// The last command, if it has no answer yet; it may be repeated.
    pub fn pending(&self) -> Option<Command> {
        self.pending.clone()
    }

    /// Ends the scan after the command under way; pushes the end.
    pub fn stop(&mut self, out: &mut Vec<Command>) {
        if self.state != State::Ended {
            self.end(out);
        }
    }

    /// Takes the answer to the last command and pushes the next one.
    pub fn step(&mut self, event: Event, out: &mut Vec<Command>) {
        match (std::mem::replace(&mut self.state, State::Ended), event) {
            (State::Asking, Event::Tenants(tenants)) => {
                self.take_in(tenants);
                self.next(out);
            }
            (State::Asking, Event::Failed(error)) => {
                self.error.get_or_insert(error);
                self.end(out);
            }
            (
                State::Scanning { tenant, planned, pages },
                Event::Page { planned: more_planned, left, more },
            ) => {
                let planned = planned + more_planned;
                let pages = if more_planned > 0 { 0 } else { pages + 1 };
                let is_left = more || left > 0;
                let may_plan =
                    left == 0 && planned < self.quota.candidates && pages < self.quota.pages;
                if is_left && may_plan {
                    self.scan(tenant, planned, pages, out);
                } else {
                    self.cut += u32::from(is_left);
                    self.next(out);
                }
            }
            (State::Scanning { tenant, .. }, Event::Failed(error)) => {
                // An unreadable tenant must stall neither the cycle nor the tenants behind it.
                self.error.get_or_insert_with(|| match &tenant {
                    Some(tenant) => format!("tenant {tenant}: {error}"),
                    None => error,
                });
                self.next(out);
            }
            (state @ State::Asking, Event::Page { .. })
            | (state @ State::Scanning { .. }, Event::Tenants(_))
            | (state @ State::Ended, _) => self.state = state,
        }
    }

    fn take_in(&mut self, tenants: Vec<Tenant>) {
        let full = tenants.len() >= Self::TENANTS_PAGE as usize;
        let last = tenants.last().cloned();
        let mut new = false;
        for tenant in tenants {
            let begins = self.begin.as_ref() == Some(&tenant);
            if self.seen.insert(tenant.clone()) {
                new = true;
                self.waiting.push_back(tenant);
                if begins && self.wrapped {
                    self.exhausted = true;
                    return;
                }
            } else if self.wrapped && self.begin.is_some() {
                // The first half again: the tenant where the cycle began no longer exists.
                self.exhausted = true;
                return;
            }
        }
        // A page that lists only known tenants makes no progress.
        if full && new {
            self.at = last;
        } else if self.wrapped {
            self.exhausted = true;
        } else {
            self.wrapped = true;
            self.at = None;
        }
    }

    fn next(&mut self, out: &mut Vec<Command>) {
        if self.visited < self.quota.tenants {
            if let Some(tenant) = self.waiting.pop_front() {
                self.visited += 1;
                self.scan(Some(tenant), 0, 0, out);
                return;
            }
            if !self.exhausted {
                self.state = State::Asking;
                let after = self.at.clone();
                self.push(Command::Tenants { after, limit: Self::TENANTS_PAGE }, out);
                return;
            }
        }
        self.end(out);
    }

    fn scan(&mut self, tenant: Option<Tenant>, planned: u64, pages: u32, out: &mut Vec<Command>) {
        let quota = self.quota.candidates - planned;
        let limit = u32::try_from(quota).unwrap_or(u32::MAX).min(self.quota.page);
        self.push(Command::Scan { tenant: tenant.clone(), limit, quota }, out);
        if tenant.is_some() {
            self.last.clone_from(&tenant);
        }
        self.state = State::Scanning { tenant, planned, pages };
    }

    fn push(&mut self, command: Command, out: &mut Vec<Command>) {
        self.pending = Some(command.clone());
        out.push(command);
    }

    fn end(&mut self, out: &mut Vec<Command>) {
        self.state = State::Ended;
        let (cursor, error) = (self.last.clone(), self.error.take());
        let command = Command::End { cursor, error, cut: self.cut };
        self.push(command, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Quota = Quota { tenants: 3, candidates: 10, page: 4, pages: 8 };

    /// Runs one cycle over tenants with so many candidates each and returns the visits in
    /// order, as (tenant, planned), and the end.
    fn run(
        quota: Quota,
        world: &[(&str, u64)],
        begin: Option<&str>,
    ) -> (Vec<(String, u64)>, Command) {
        let mut out = Vec::new();
        let mut cycle = Cycle::over_tenants(quota, begin.map(Tenant::from), &mut out);
        let mut visits: Vec<(String, u64)> = Vec::new();
        for _ in 0..10_000 {
            let command = out.pop().expect("one command at a time");
            assert!(out.is_empty(), "one command at a time");
            let event = match command {
                Command::Tenants { after, limit } => Event::Tenants(
                    world
                        .iter()
                        .map(|(name, _)| Tenant::from(*name))
                        .filter(|tenant| after.as_ref().is_none_or(|after| tenant > after))
                        .take(limit as usize)
                        .collect(),
                ),
                Command::Scan { tenant, limit, quota } => {
                    let tenant = tenant.expect("a tenant");
                    let done = match visits.last_mut() {
                        Some((name, done)) if *name == tenant.as_str() => done,
                        _ => {
                            visits.push((tenant.to_string(), 0));
                            &mut visits.last_mut().expect("just pushed").1
                        }
                    };
                    let total =
                        world.iter().find(|(name, _)| *name == tenant.as_str()).map_or(0, |w| w.1);
                    let found = (total - *done).min(u64::from(limit));
                    let planned = found.min(quota);
                    *done += planned;
                    Event::Page { planned, left: found - planned, more: *done < total }
                }
                end @ Command::End { .. } => {
                    assert_eq!(cycle.state, State::Ended);
                    return (visits, end);
                }
            };
            cycle.step(event, &mut out);
        }
        panic!("the cycle does not end");
    }

    fn names(visits: &[(String, u64)]) -> Vec<&str> {
        visits.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn a_run_goes_on_after_the_last_tenant_and_wraps_around() {
        let world = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)];
        for (begin, expected, cursor) in [
            (None, vec!["a", "b", "c"], "c"),
            (Some("c"), vec!["d", "e", "a"], "a"),
            (Some("e"), vec!["a", "b", "c"], "c"),
            (Some("bb"), vec!["c", "d", "e"], "e"),
        ] {
            let (visits, end) = run(QUOTA, &world, begin);
            assert_eq!(names(&visits), expected, "after {begin:?}");
            assert_eq!(end, Command::End { cursor: Some(cursor.into()), error: None, cut: 0 });
        }
    }

    #[test]
    fn no_tenant_is_visited_twice_however_few_there_are() {
        let quota = Quota { tenants: 100, ..QUOTA };
        for begin in [None, Some("a"), Some("b"), Some("0"), Some("z")] {
            let (mut visits, _) = run(quota, &[("a", 1), ("b", 1)], begin);
            visits.sort();
            assert_eq!(names(&visits), ["a", "b"], "after {begin:?}");
        }
        let (visits, end) = run(quota, &[], Some("m"));
        assert!(visits.is_empty());
        assert_eq!(end, Command::End { cursor: Some("m".into()), error: None, cut: 0 });
    }

    /// Tenants of a database whose order is anything: `order[i]` is the i-th.
    fn visits_of(order: &[String], quota: u32, begin: Option<Tenant>) -> (Vec<Tenant>, Command) {
        let mut out = Vec::new();
        let quota = Quota { tenants: quota, ..QUOTA };
        let mut cycle = Cycle::over_tenants(quota, begin, &mut out);
        let mut visits = Vec::new();
        loop {
            let event = match out.pop().expect("a command") {
                Command::Tenants { after, limit } => {
                    let behind = after.map_or(0, |after| {
                        let at = order.iter().position(|name| *name == after.as_str());
                        at.expect("a tenant of this database") + 1
                    });
                    let page = order[behind..].iter().take(limit as usize);
                    Event::Tenants(page.map(|name| Tenant::from(name.as_str())).collect())
                }
                Command::Scan { tenant, .. } => {
                    visits.extend(tenant);
                    Event::Page { planned: 0, left: 0, more: false }
                }
                end @ Command::End { .. } => return (visits, end),
            };
            cycle.step(event, &mut out);
        }
    }

    #[test]
    fn whatever_the_order_of_the_database_every_tenant_has_its_turn() {
        // A small generator of our own: the order is arbitrary, and the same in every run.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for _ in 0..300 {
            let count = 1 + random(600);
            let mut order: Vec<String> = (0..count).map(|n| format!("t{n:03}")).collect();
            for at in (1..count).rev() {
                order.swap(at, random(at + 1));
            }
            let quota = 1 + random(2 * count);
            let mut cursor = Some(order[random(count)].as_str().into());
            let mut turns = Vec::new();
            // So many runs have room for every tenant.
            for _ in 0..count.div_ceil(quota) {
                let (visits, end) = visits_of(&order, quota as u32, cursor);
                let mut each = visits.clone();
                each.sort();
                each.dedup();
                assert_eq!(each.len(), visits.len(), "one run visits no tenant twice");
                assert_eq!(visits.len(), quota.min(count), "a run uses its quota");
                let Command::End { cursor: next, error: None, cut: 0 } = end else {
                    panic!("{end:?}")
                };
                assert_eq!(next.as_ref(), visits.last());
                cursor = next;
                turns.extend(visits);
            }
            turns.sort();
            turns.dedup();
            assert_eq!(turns.len(), count, "quota {quota} of {order:?}");
        }
    }

    #[test]
    fn a_source_that_repeats_itself_does_not_hold_the_run() {
        let names: Vec<Tenant> = (0..256).map(|n| Tenant::from(format!("{n:04}"))).collect();
        for begin in [None, Some("0003".into())] {
            let mut out = Vec::new();
            let quota = Quota { tenants: u32::MAX, ..QUOTA };
            let mut cycle = Cycle::over_tenants(quota, begin, &mut out);
            let mut visits = 0;
            while cycle.state != State::Ended {
                let event = match out.pop().expect("a command") {
                    Command::Tenants { .. } => Event::Tenants(names.clone()),
                    _ => {
                        visits += 1;
                        Event::Page { planned: 0, left: 0, more: false }
                    }
                };
                cycle.step(event, &mut out);
            }
            assert_eq!(visits, 256);
        }
    }

    #[test]
    fn every_tenant_of_more_than_a_page_is_visited_once() {
        let names: Vec<String> = (0..700).map(|n| format!("{n:04}")).collect();
        let world: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let quota = Quota { tenants: u32::MAX, ..QUOTA };
        for begin in [None, Some("0255"), Some("0256"), Some("0600")] {
            let (mut visits, _) = run(quota, &world, begin);
            visits.sort();
            visits.dedup();
            assert_eq!(visits.len(), 700, "after {begin:?}");
        }
    }

    #[test]
    fn a_huge_tenant_gets_its_quota_and_no_more() {
        let (visits, end) = run(QUOTA, &[("a", 1_000), ("b", 3), ("c", 10)], None);
        assert_eq!(visits, [("a".to_owned(), 10), ("b".into(), 3), ("c".into(), 10)]);
        assert_eq!(end, Command::End { cursor: Some("c".into()), error: None, cut: 1 });
    }

    #[test]
    fn without_a_quota_the_window_is_completed() {
        let quota = Quota { tenants: u32::MAX, candidates: u64::MAX, page: 100, pages: u32::MAX };
        let (visits, _) = run(quota, &[("a", 12_345)], None);
        assert_eq!(visits, [("a".to_owned(), 12_345)]);
    }

    #[test]
    fn pages_without_anything_to_plan_are_bounded() {
        let mut out = Vec::new();
        let mut cycle = Cycle::single(QUOTA, &mut out);
        let mut pages = 0;
        while cycle.state != State::Ended {
            pages += 1;
            cycle.step(Event::Page { planned: 0, left: 0, more: true }, &mut out);
        }
        assert_eq!(pages, QUOTA.pages);
        assert_eq!(out.last(), Some(&Command::End { cursor: None, error: None, cut: 1 }));
    }

    #[test]
    fn pages_that_were_planned_are_bounded_by_the_quota_alone() {
        let quota = Quota { candidates: 1_000, ..QUOTA };
        let mut out = Vec::new();
        let mut cycle = Cycle::single(quota, &mut out);
        let mut planned = 0;
        while cycle.state != State::Ended {
            planned += 4;
            cycle.step(Event::Page { planned: 4, left: 0, more: true }, &mut out);
        }
        assert_eq!(planned, 1_000);
    }

    #[test]
    fn an_unreadable_tenant_is_named_and_those_behind_it_are_visited() {
        let mut out = Vec::new();
        let mut cycle = Cycle::over_tenants(QUOTA, None, &mut out);
        cycle.step(Event::Tenants(vec!["a".into(), "b".into()]), &mut out);
        cycle.step(Event::Failed("broken".into()), &mut out);
        let scan = Command::Scan { tenant: Some("b".into()), limit: 4, quota: 10 };
        assert_eq!(out.last(), Some(&scan));
        cycle.step(Event::Page { planned: 0, left: 0, more: false }, &mut out);
        let error = Some("tenant a: broken".into());
        let end = Command::End { cursor: Some("b".into()), error, cut: 0 };
        assert_eq!(out.last(), Some(&end));
    }

    #[test]
    fn tenants_may_come_and_go_while_the_cycle_runs() {
        let names = |range: std::ops::Range<u32>| -> Vec<Tenant> {
            range.map(|n| Tenant::from(format!("{n:04}"))).collect()
        };
        let quota = Quota { tenants: u32::MAX, ..QUOTA };
        let mut out = Vec::new();
        // The run before ended at a tenant that is gone by now.
        let mut cycle = Cycle::over_tenants(quota, Some("0300".into()), &mut out);
        let mut visited = Vec::new();
        let mut asked = 0;
        while let Some(command) = out.pop() {
            let event = match command {
                Command::Tenants { after, limit } => {
                    asked += 1;
                    // 0010 to 0299 and, from the second question on, 0600 to 0649 as well: behind
                    // the first page's end, they wait for the next run.
                    let mut world = names(10..300);
                    world.extend(names(301..500));
                    if asked > 1 {
                        world.extend(names(600..650));
                    }
                    let page = world
                        .into_iter()
                        .filter(|tenant| after.as_ref().is_none_or(|after| tenant > after))
                        .take(limit as usize);
                    Event::Tenants(page.collect())
                }
                Command::Scan { tenant, .. } => {
                    let tenant = tenant.expect("a tenant");
                    visited.push(tenant.clone());
                    // Removed between the question and its turn: its scan finds nothing.
                    Event::Page { planned: 0, left: 0, more: false }
                }
                Command::End { cursor, error, cut } => {
                    assert_eq!((cursor, error, cut), (Some("0299".into()), None, 0));
                    break;
                }
            };
            cycle.step(event, &mut out);
        }
        let mut expected = names(301..500);
        expected.extend(names(10..300));
        assert_eq!(visited, expected, "each once, from behind the one that is gone, around");
    }
}
