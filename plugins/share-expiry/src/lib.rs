//! Built-in task `share-expiry`: ends shares when they expire, never before.
//!
//! The scan plans shares that expire within the window as items with a due time, and the host
//! executes each item at its due time. This file reads and proposes; [`decide`] computes windows
//! and limits.
//!
//! A scan has several parts: shares whose `limit` passes before the end of the window, and, of the
//! shares that start later, those whose own `limit_seconds` is shorter. So the next scan finds a
//! share with any limit. With an index by limit, each limit that occurs is a part; otherwise all
//! shares that start later are one, of which the host examines every row.
//!
//! `unshared_at` is the due time if the item is executed on time, and the present if it is late,
//! because the share could be used until then and an audit has to show that. The notes record the
//! delay.

pub mod decide;

use besom_sdk::prelude::*;
use besom_sdk::{FromValue as _, Page, scanned};
use decide::{Decision, Limits, Share};

/// The time until a share that changed before the commit is decided again.
const RETRY_MS: u64 = 200;

/// The optional index by the limits of shares.
const BY_LIMIT: &str = "by_unshared_limit";
/// Maximum number of different limits of a project's shares that are read one by one.
const LIMITS_MAX: u32 = 256;
/// Maximum number of parts that are read for one page.
const PARTS_MAX: usize = 64;

const COLUMNS: [&str; 3] = ["start_date", "limit_seconds", "unshared_at"];

/// The task, with [`Limits`] from its settings.
#[derive(Debug)]
pub struct ShareExpiry;

fn limits(ctx: &Context) -> Result<Limits> {
    Ok(Limits {
        limit_ms: ctx.duration_ms("limit")?,
        limit_min_ms: ctx.duration_ms("limit_min")?,
        window_max_ms: ctx.duration_ms("window_max")?,
    })
}

fn share(row: &Row) -> Result<Share> {
    Ok(Share {
        start_us: row.get::<Time>("start_date")?.micros(),
        limit_s: row.get("limit_seconds")?,
        unshared_us: row.get::<Option<Time>>("unshared_at")?.map(Time::micros),
    })
}

/// The shares that have not ended, by their start.
fn open_shares() -> Range {
    Range::of("shares")
        .index("by_unshared_start")
        .prefix(Value::Null)
        .columns(["share_id"])
        .columns(COLUMNS)
}

/// A part of a scan.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// The shares that expire by the limit of the task.
    Task,
    /// Those that start later and have this limit of their own, in seconds.
    Own(i64),
    /// Those that start later and have any shorter limit of their own.
    Shorter,
}

impl Part {
    /// As the beginning of a cursor.
    fn pack(&self) -> Vec<u8> {
        match self {
            Part::Task => vec![0],
            Part::Own(limit) => [&[1][..], &limit.to_le_bytes()].concat(),
            Part::Shorter => vec![2],
        }
    }

    /// The part, and the position in it.
    fn unpack(cursor: &[u8]) -> Option<(Part, Option<Vec<u8>>)> {
        let (kind, rest) = cursor.split_first()?;
        let (part, after) = match kind {
            0 => (Part::Task, rest),
            1 => {
                let (limit, after) = rest.split_first_chunk()?;
                (Part::Own(i64::from_le_bytes(*limit)), after)
            }
            _ => (Part::Shorter, rest),
        };
        Some((part, (!after.is_empty()).then(|| after.to_vec())))
    }
}

/// What a scan reads.
struct Parts {
    limits: Limits,
    /// The end of the window, in microseconds.
    until: i64,
    /// The starts of shares with a shorter limit; none: no share may have one.
    later: Option<(i64, i64)>,
}

impl Parts {
    fn of(ctx: &Context) -> Result<Parts> {
        let limits = limits(ctx)?;
        let until = limits.planned_until_us(ctx.now.micros(), ctx.horizon_ms);
        Ok(Parts { until, later: limits.shorter_starts_us(until), limits })
    }

    /// The shares that expire by the limit of the task.
    fn by_task(&self) -> Range {
        open_shares().upper(Time(self.limits.latest_start_us(self.until)))
    }

    /// The rows of a part; none: the settings exclude it.
    fn range(&self, part: &Part) -> Option<Range> {
        let open = open_shares();
        Some(match part {
            Part::Task => self.by_task(),
            Part::Own(limit) => {
                let (from, to) = self.later?;
                let latest = self.limits.due_us(0, Some(*limit));
                open.index(BY_LIMIT)
                    .prefix(*limit)
                    .lower(Time(from))
                    .upper(Time(to.min(self.until.saturating_sub(latest))))
            }
            Part::Shorter => {
                let (from, to) = self.later?;
                let limit = self.limits.shorter_limit_s();
                open.lower(Time(from)).upper(Time(to)).at_most("limit_seconds", limit)
            }
        })
    }

    /// The open shares with a shorter limit of their own, by limit.
    fn by_limit(&self) -> Range {
        open_shares().index(BY_LIMIT).upper(self.limits.shorter_limit_s())
    }

    /// The part after this one, in a tenant.
    fn after(&self, ctx: &Context, part: &Part) -> Result<Option<Part>> {
        if self.later.is_none() || *part == Part::Shorter {
            return Ok(None);
        }
        let limits = match part {
            Part::Own(limit) => {
                store::distinct(None, &self.by_limit(), Some(&Value::from(*limit)), 1)?
            }
            _ if has_index(ctx) => store::distinct(None, &self.by_limit(), None, LIMITS_MAX + 1)?,
            _ => return Ok(Some(Part::Shorter)),
        };
        Ok(match limits.len() > LIMITS_MAX as usize {
            true => Some(Part::Shorter),
            false => limits.first().and_then(i64::from_value).map(Part::Own),
        })
    }
}

/// Whether the shares are mapped with an index by their own limit.
fn has_index(ctx: &Context) -> bool {
    let shares = ctx.described("shares");
    shares.is_ok_and(|shares| shares.indexes.iter().any(|(name, _)| name == BY_LIMIT))
}

impl Task for ShareExpiry {
    fn describe() -> Manifest {
        Manifest::new("share-expiry", env!("CARGO_PKG_VERSION"))
            .doc("Ends shares at start_date plus their limit.")
            .lane(Lane::Due)
            .setting(
                Setting::duration("limit", "7d")
                    .at_least("10ms")
                    .doc("The duration of a share without limit_seconds."),
            )
            .setting(Setting::duration("limit_min", "0s").doc(
                "The shortest limit_seconds that a share may have: shares that started more \
                 recently are not read. 0s: no minimum.",
            ))
            .setting(
                Setting::duration("window_max", "1d")
                    .at_least("1ms")
                    .doc("How far ahead shares are planned at most, if the schedule allows it."),
            )
            .collection(Access::to("shares").described().read().update().columns([
                "share_id",
                "start_date",
                "limit_seconds",
                "unshared_at",
            ]))
    }

    /// The shares that expire by the limit of the task; [`Parts`] adds those with a shorter limit.
    fn candidates(ctx: &Context) -> Result<Range> {
        Ok(Parts::of(ctx)?.by_task())
    }

    fn tenants(ctx: &Context, after: Option<&str>, limit: u32) -> Result<Vec<String>> {
        let parts = Parts::of(ctx)?;
        let shorter = match has_index(ctx) {
            true => parts.later.map(|_| parts.by_limit()),
            false => parts.range(&Part::Shorter),
        };
        let mut tenants = store::tenants(&parts.by_task(), after, limit)?;
        if let Some(shorter) = shorter {
            tenants.extend(store::tenants(&shorter, after, limit)?);
        }
        tenants.sort_unstable();
        tenants.dedup();
        tenants.truncate(limit as usize);
        Ok(tenants)
    }

    /// Scans first the shares that expire by the limit of the task, then those with a shorter
    /// limit.
    fn scan(ctx: &Context, cursor: Option<Vec<u8>>, limit: u32) -> Result<Page> {
        let parts = Parts::of(ctx)?;
        let (mut part, mut after) = match cursor {
            None => (Part::Task, None),
            Some(cursor) => Part::unpack(&cursor)
                .ok_or_else(|| Error::permanent("malformed-cursor", "it names no part"))?,
        };
        let mut page = Page { candidates: Vec::new(), next: None, scanned: 0, extra: Vec::new() };
        for _ in 0..PARTS_MAX {
            // A change of the settings may have removed the cursor's part.
            if let Some(mut range) = parts.range(&part) {
                (range.limit, range.after) = (limit - page.candidates.len() as u32, after.take());
                let found = scanned(&range, |row| Self::candidate(ctx, row))?;
                page.scanned += found.scanned;
                page.candidates.extend(found.candidates);
                if let Some(after) = found.next {
                    page.next = Some([part.pack(), after].concat());
                    return Ok(page);
                }
            }
            let Some(next) = parts.after(ctx, &part)? else {
                page.next = None;
                return Ok(page);
            };
            part = next;
            page.next = Some(part.pack());
            if page.candidates.len() >= limit as usize {
                break;
            }
        }
        Ok(page)
    }

    fn candidate(ctx: &Context, row: &Row) -> Result<Option<Candidate>> {
        let (limits, share) = (limits(ctx)?, share(row)?);
        let due_us = limits.due_us(share.start_us, share.limit_s);
        if due_us > limits.planned_until_us(ctx.now.micros(), ctx.horizon_ms) {
            return Ok(None);
        }
        let own = share.limit_s.map_or_else(|| "-".to_owned(), |seconds| seconds.to_string());
        Ok(Some(
            Candidate::of(&[row.value("share_id")?])?
                .due(Time(due_us))
                .version(format_args!("{}|{own}", share.start_us)),
        ))
    }

    fn act(ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>> {
        let limits = limits(ctx)?;
        let rows = store::get_each(items, "shares", &COLUMNS, Item::key_values)?;
        let verdicts = each(items, rows, |item, row| {
            let seen = row.as_ref().map(share).transpose()?;
            Ok(match decide::decide(seen, &limits, ctx.now.micros()) {
                Decision::Gone => Verdict::skip("the share is gone"),
                Decision::AlreadyUnshared => Verdict::skip("already unshared"),
                Decision::Extended { due_us } => {
                    let later_ms = (due_us - ctx.now.micros()).div_euclid(1_000);
                    Verdict::skip(format!("extended: expires in {later_ms} ms"))
                }
                Decision::Unshare { due_us } => {
                    let Some(row) = row else { return Ok(Verdict::skip("the share is gone")) };
                    unshare(ctx, item.key_values()?, &row, due_us)?
                }
            })
        })?;
        log::batch(items, &verdicts, "shares", "to be ended", "");
        Ok(verdicts)
    }
}

/// Ends the share only as it was read: not if it was extended, restarted or ended since.
fn unshare(ctx: &Context, key: Vec<Value>, row: &Row, due_us: i64) -> Result<Verdict> {
    let as_read = Guard::row("shares", key.clone())
        .equal("unshared_at", Value::Null)
        .equal("start_date", row.value("start_date")?)
        .equal("limit_seconds", row.value("limit_seconds")?);
    Ok(Proposal::new()
        .guard(as_read)
        .update("shares", key, [("unshared_at", ctx.now.into())])
        .or_retry(RETRY_MS)
        .note("due", Time(due_us))
        .note("late_us", ctx.now.micros().saturating_sub(due_us))
        .into())
}

besom_sdk::export!(ShareExpiry);

#[cfg(test)]
mod tests {
    use besom_sdk::testing::Fixture;
    use besom_sdk::{Change, GuardFailed, Proposal};

    use super::*;

    const DAY_US: i64 = 86_400_000_000;
    const NOW: Time = Time(1_750_000_000_000_000);

    /// Without an index by limit.
    fn shares(rows: &[(&str, i64, Option<i64>, Option<i64>)]) -> Fixture {
        let index = ("by_unshared_start", &["unshared_at", "start_date"][..]);
        shares_with(&[index], rows)
    }

    fn shares_by_limit(rows: &[(&str, i64, Option<i64>, Option<i64>)]) -> Fixture {
        let by_start = ("by_unshared_start", &["unshared_at", "start_date"][..]);
        let by_limit = ("by_unshared_limit", &["unshared_at", "limit_seconds", "start_date"][..]);
        shares_with(&[by_start, by_limit], rows)
    }

    fn shares_with(
        indexes: &[(&str, &[&str])],
        rows: &[(&str, i64, Option<i64>, Option<i64>)],
    ) -> Fixture {
        let fixture = Fixture::new(NOW).table("shares", &["share_id"], indexes);
        let fixture = fixture.described("shares", &[("share_id", "text")]);
        rows.iter().fold(fixture, |fixture, (id, start, limit, unshared)| {
            let row = [
                ("share_id", Value::from(*id)),
                ("start_date", Time(*start).into()),
                ("limit_seconds", (*limit).into()),
                ("unshared_at", unshared.map(Time).into()),
            ];
            fixture.row("shares", "t", row)
        })
    }

    fn planned(fixture: &mut Fixture) -> Vec<(String, i64)> {
        let mut found: Vec<_> = fixture
            .scan::<ShareExpiry>("t")
            .unwrap()
            .into_iter()
            .map(|c| (c.key, c.due.unwrap()))
            .collect();
        found.sort();
        found
    }

    #[test]
    fn the_scan_plans_what_ends_within_the_window_inclusive() {
        let edge = NOW.0 - 6 * DAY_US;
        let mut fixture = shares(&[
            ("at-the-edge", edge, None, None),
            ("beyond", edge + 1, None, None),
            ("overdue", NOW.0 - 30 * DAY_US, None, None),
            ("ended", NOW.0 - 30 * DAY_US, None, Some(NOW.0)),
            ("longer", edge, Some(8 * 86_400), None),
        ]);
        let expected = [
            ("at-the-edge".to_owned(), NOW.0 + DAY_US),
            ("overdue".to_owned(), NOW.0 - 23 * DAY_US),
        ];
        assert_eq!(planned(&mut fixture), expected);
        assert_eq!(fixture.tenants::<ShareExpiry>().unwrap(), ["t"]);
    }

    #[test]
    fn shares_with_a_short_limit_of_their_own_are_found_by_default() {
        let rows = [
            ("hour", NOW.0 - 3_500_000_000, Some(3_600), None),
            ("minute", NOW.0 - 10_000_000, Some(60), None),
            ("next-week", NOW.0 - 10_000_000, Some(6 * 86_400), None),
            ("ordinary", NOW.0 - 10_000_000, None, None),
        ];
        let hour = ("hour".to_owned(), NOW.0 + 100_000_000);
        let minute = ("minute".to_owned(), NOW.0 + 50_000_000);
        for shares in [shares, shares_by_limit] {
            let mut fixture = shares(&rows);
            assert_eq!(planned(&mut fixture), [hour.clone(), minute.clone()]);
            assert_eq!(fixture.tenants::<ShareExpiry>().unwrap(), ["t"]);
            // With a known shortest limit, shares that started more recently are not read.
            let fixture = shares(&rows).setting("limit_min", 3_600_000i64);
            let mut far = fixture.clone().horizon_ms(86_400_000);
            assert_eq!(planned(&mut far), [hour.clone(), minute.clone()]);
            let mut fixture = fixture.setting("window_max", 1_000i64);
            assert_eq!(planned(&mut fixture), []);
            let mut none = shares(&rows).setting("limit_min", 7 * 86_400_000i64);
            assert_eq!(planned(&mut none), []);
        }
    }

    /// Limits below 0 and those of thousands of shares, in more pages and parts than one call reads.
    #[test]
    fn both_ways_to_find_shares_plan_the_same() {
        let names: Vec<String> = (0..400).map(|n| format!("s{n}")).collect();
        for kinds in [1_i64, 7, 300] {
            let share = |(n, name)| {
                let limit = (n % kinds) * 3_000 - 3_000;
                let start = NOW.0 - (n * 7_919 % 700) * 1_000_000_000;
                let own = (n % 11 != 0).then_some(limit);
                let ended = (n % 13 == 0).then_some(NOW.0);
                (name, start, own, ended)
            };
            let rows: Vec<_> = (0..).zip(names.iter().map(String::as_str)).map(share).collect();
            let expected = planned(&mut shares(&rows));
            assert!(expected.len() > 50, "{}", expected.len());
            assert_eq!(planned(&mut shares_by_limit(&rows)), expected, "{kinds} limits");
        }
    }

    fn only_proposal(verdicts: Vec<Verdict>) -> Proposal {
        match <[Verdict; 1]>::try_from(verdicts) {
            Ok([Verdict::Propose(proposal)]) => proposal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_proposal_ends_only_the_share_that_was_read() {
        let start = NOW.0 - 7 * DAY_US;
        let mut fixture = shares(&[("s", start, None, None)]);
        let candidate = fixture.scan::<ShareExpiry>("t").unwrap().remove(0);
        let proposal = only_proposal(fixture.act::<ShareExpiry>(&[("t", candidate)]).unwrap());
        let key = vec![Value::from("s")];
        let guard = Guard::row("shares", key.clone())
            .equal("unshared_at", Value::Null)
            .equal("start_date", Time(start))
            .equal("limit_seconds", Value::Null);
        assert_eq!(proposal.guards, [Guard::from(guard)]);
        assert_eq!(proposal.on_guard_failed, GuardFailed::Retry(RETRY_MS));
        let [Change::Update(update)] = &proposal.changes[..] else { panic!("{proposal:?}") };
        assert_eq!((&update.key, &update.fields[0].name[..]), (&key, "unshared_at"));
        assert_eq!(update.fields[0].value, Value::from(NOW));
    }

    #[test]
    fn what_was_extended_ended_or_removed_since_is_left_alone() {
        let start = NOW.0 - 7 * DAY_US;
        let mut before = shares(&[("a", start, None, None)]);
        let candidate = before.scan::<ShareExpiry>("t").unwrap().remove(0);
        for (mut after, reason) in [
            (shares(&[]), "the share is gone"),
            (shares(&[("a", start, None, Some(NOW.0 - 1))]), "already unshared"),
            (shares(&[("a", start + 5_000, None, None)]), "extended: expires in 5 ms"),
        ] {
            let verdicts = after.act::<ShareExpiry>(&[("t", candidate.clone())]).unwrap();
            assert_eq!(verdicts, [Verdict::skip(reason)]);
        }
    }

    #[test]
    fn a_batch_costs_one_read_per_tenant() {
        let start = NOW.0 - 8 * DAY_US;
        let names: Vec<String> = (0..50).map(|n| format!("s{n}")).collect();
        let rows: Vec<_> = names.iter().map(|name| (&name[..], start, None, None)).collect();
        let mut fixture = shares(&rows);
        let found = fixture.scan::<ShareExpiry>("t").unwrap();
        let items: Vec<_> = found.into_iter().map(|candidate| ("t", candidate)).collect();
        let before = fixture.calls();
        assert_eq!(fixture.act::<ShareExpiry>(&items).unwrap().len(), 50);
        assert_eq!(fixture.calls() - before, 1);
    }
}
