//! Single rules, as exact lists of writes.

use std::borrow::Cow;

use super::*;
use crate::ids::{Incarnation, OwnerEpoch, RunId};
use crate::item::{Candidate, Identity};
use crate::proposal::{Change, OnGuardFailed, Proposal, Settle};
use crate::queue::Decision;

pub(super) fn item(key: &str) -> Item {
    Item {
        identity: Identity { task: "t".into(), tenant: None, key: key.into(), due: None },
        route: key.into(),
        partition: Partition(0),
        version: "v".into(),
        payload: Vec::new(),
        run: RunId(7),
        planned_at: Time::EPOCH,
        attempts: 0,
        guard_retries: 0,
        deaths: 0,
        errors: Vec::new(),
    }
}

fn skip(settled: bool) -> Settle {
    Settle::Skip { reason: "no".into(), settled }
}

pub(super) fn apply(changes: Vec<Change>, otherwise: Settle) -> Decision {
    let on_guard_failed = OnGuardFailed::Skip(String::new());
    let proposal = Proposal { guards: Vec::new(), changes, on_guard_failed, notes: Vec::new() };
    Decision::Apply {
        proposal,
        on_guard_failed: otherwise.clone(),
        on_violation: otherwise,
        undo: false,
    }
}

pub(super) fn entry_of(item: Item, source: Source, decision: Decision) -> Entry {
    Entry { source, item, epoch: OwnerEpoch(1), decision }
}

fn entry(key: &str, source: Source, decision: Decision) -> Entry {
    entry_of(item(key), source, decision)
}

fn by() -> Incarnation {
    Incarnation::from("n")
}

const NOTHING: Blocks = Blocks { settled: false, dead: false };

#[test]
fn a_commit_lifts_every_block_of_its_identity_and_sends_its_messages() {
    let emit = Change::Emit { topic: "o".into(), key: "k".into(), payload: vec![1] };
    let entries = [entry("a", Source::Timer(3), apply(vec![emit], skip(false)))];
    let closed = close(&entries, [Ok(Judged::Held)], |_| Blocks::UNKNOWN, &by());
    let item = &entries[0].item;
    let end = End::Committed;
    let expected = [
        Write::Remove { item, source: Source::Timer(3) },
        Write::Lift { item },
        Write::Resolve { item },
        Write::History { at: 0, item, end, settled: false, reason: None, notes: &[] },
        Write::Emit { at: 0, item, topic: "o", key: "k", payload: &[1] },
    ];
    assert_eq!(
        (closed.writes.as_slice(), closed.outcomes.as_slice()),
        (&expected[..], &[Outcome::Committed][..])
    );
    let closed = close(&entries, [Ok(Judged::Held)], |_| NOTHING, &by());
    assert_eq!(closed.writes.len(), 3, "what cannot be blocked is not looked up");
}

#[test]
fn a_settled_skip_replaces_what_blocked_its_identity() {
    let entries = [entry("a", Source::Retry(3), Decision::Settle(skip(true)))];
    let closed = close(&entries, [Ok(Judged::Held)], |_| Blocks::UNKNOWN, &by());
    let item = &entries[0].item;
    let (end, reason) = (End::Skipped, Some(Cow::Borrowed("no")));
    let expected = [
        Write::Remove { item, source: Source::Retry(3) },
        Write::Lift { item },
        Write::Block { item, given_up: false },
        Write::History { at: 0, item, end, settled: true, reason, notes: &[] },
    ];
    assert_eq!(closed.writes, expected);
    let entries = [entry("a", Source::Retry(3), Decision::Settle(skip(false)))];
    let closed = close(&entries, [Ok(Judged::Held)], |_| Blocks::UNKNOWN, &by());
    assert!(!closed.writes.iter().any(|write| matches!(write, Write::Lift { .. })));
}

#[test]
fn a_violation_is_told_in_the_words_of_the_database() {
    let dead = Settle::Dead { attempts: 5, reason: "violation".into() };
    let entries = [entry("a", Source::Timer(3), apply(Vec::new(), dead))];
    let said = Judged::Violated("not null".into());
    let closed = close(&entries, [Ok(said)], |_| NOTHING, &by());
    assert_eq!(closed.outcomes, [Outcome::Dead("violation: not null".into())]);
    let counted = closed.tally.counters.values().next().copied();
    assert_eq!(counted, Some(Delta { timers: -1, dead: 1, ..Delta::default() }));
    assert!(closed.tally.runs.is_empty(), "a dead letter still refers to its run");
}

#[test]
fn a_stream_is_acknowledged_once_and_not_if_it_is_left_out() {
    let log = |key, seq| entry(key, Source::Log(Seq(seq)), Decision::Settle(skip(false)));
    let entries = [log("a", 4), log("b", 5), log("c", 6)];
    let closed = close(&entries, [const { Ok(Judged::Held) }; 3], |_| NOTHING, &by());
    let (after, upto) = (Seq(3), Seq(6));
    let task = &entries[0].item.identity.task;
    let last = Write::Acknowledge { task, partition: Partition(0), after, upto };
    assert_eq!(closed.writes.last(), Some(&last));
    assert_eq!(closed.tally.runs[&RunId(7)], Leaving { log: 3, ended: 3 });
    let closed = close(&entries, [const { Err(LeftOut::NotThere) }; 3], |_| NOTHING, &by());
    assert!(closed.writes.is_empty() && closed.tally == Tally::default());
}

#[test]
fn the_newest_letter_of_an_identity_is_due_at_once_with_a_clean_past() {
    let letter = |id: u64, key: &str| {
        let item = Item { attempts: 5, guard_retries: 2, deaths: 3, ..item(key) };
        DeadLetter {
            id,
            item,
            at: Time::EPOCH,
            resolved_at: None,
            context: LetterContext::default(),
        }
    };
    let letters = [letter(3, "a"), letter(2, "b"), letter(1, "a")];
    let now = Time::from_secs(60);
    let past = Past { attempts: 0, guard_retries: 0, deaths: 0 };
    let revive = |at: usize| {
        let DeadLetter { id, item, .. } = &letters[at];
        Write::Revive { at, letter: *id, item, run_at: now, past }
    };
    assert_eq!(retry(&letters, None, now), [revive(0), revive(1)]);
}

#[test]
fn what_waits_is_known_before_what_blocks() {
    for (waits, settled, dead, known) in [
        (false, false, false, Known::New),
        (false, true, false, Known::Blocked),
        (false, false, true, Known::Blocked),
        (true, false, false, Known::Waits),
        (true, true, true, Known::Waits),
    ] {
        let found = Found { waits, settled, dead };
        assert_eq!(found.known(), known, "{found:?}");
    }
}

#[test]
fn a_candidate_beyond_the_quota_is_left_and_one_that_waits_is_not() {
    let candidate = |key: &str| Candidate {
        tenant: None,
        key: key.into(),
        route: key.into(),
        due: None,
        version: String::new(),
        payload: Vec::new(),
    };
    let page = PlanPage {
        run: RunId(1),
        task: "t".into(),
        tenant: None,
        candidates: ["a", "a", "w", "b", "c"].map(candidate).into(),
        cursor: None,
        scanned: 0,
        quota: 1,
    };
    let mut asked = Vec::new();
    let known = |at: usize, room| {
        asked.push((at, room));
        Ok::<_, ()>(if at == 2 { Known::Waits } else { Known::New })
    };
    let admitted = admit(&page, 1, known).unwrap();
    let Planned { planned, deduplicated, left, .. } = admitted.planned;
    assert_eq!((planned, deduplicated, left), (1, 2, 2));
    assert_eq!(asked, [(0, true), (2, false), (3, false)]);
    assert_eq!(admitted.cursor, CursorMove::Stay);
    for (at, moves) in [(None, CursorMove::Begin), (Some(vec![7]), CursorMove::To(&[7]))] {
        let page = PlanPage { quota: 3, cursor: at.clone(), ..page.clone() };
        let admitted = admit(&page, 1, |_, _| Ok::<_, ()>(Known::New)).unwrap();
        let cursor = (admitted.planned.left == 0).then_some(admitted.cursor);
        assert_eq!(cursor, None, "one of the four is left");
        let page = PlanPage { quota: 4, ..page };
        let admitted = admit(&page, 1, |_, _| Ok::<_, ()>(Known::New)).unwrap();
        assert_eq!(admitted.cursor, moves);
    }
}
