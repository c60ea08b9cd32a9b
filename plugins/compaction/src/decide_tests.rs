use super::*;

/// Rows from `"1e 2p 4e"`; the payload of an edit is its number, the Lamport time ten times
/// as much.
fn rows(text: &str) -> Vec<Row> {
    text.split_whitespace()
        .map(|word| {
            let (number, kind) = word.split_at(word.len() - 1);
            let server_seq = number.parse().unwrap();
            let kind = if kind == "e" { Kind::Edit } else { Kind::Presence };
            Row {
                server_seq,
                kind,
                lamport: server_seq * 10,
                payload: vec![server_seq as u8].into(),
            }
        })
        .collect()
}

fn document(server_seq: i64, compacted_seq: i64) -> Document {
    Document { epoch: 0, server_seq, compacted_seq }
}

/// What is decided, as text: `at 4 to 5 fed 1 2 4`.
fn decided(text: &str, document: Document, snapshot: Option<i64>, passed: i64) -> String {
    decided_in(Mode::Merge, text, document, snapshot, passed)
}

fn decided_in(
    mode: Mode,
    text: &str,
    document: Document,
    snapshot: Option<i64>,
    passed: i64,
) -> String {
    let snapshot = snapshot
        .map(|server_seq| Snapshot { server_seq, payload: vec![100 + server_seq as u8].into() });
    in_words(&decide(&document, snapshot.as_ref(), &rows(text), passed, mode))
}

fn in_words(decision: &Decision<'_>) -> String {
    match decision {
        Decision::Compact(plan) => {
            let fed: Vec<String> = plan.feed.iter().map(|p| p[0].to_string()).collect();
            format!("at {} to {} fed {}", plan.server_seq, plan.target, fed.join(" "))
        }
        Decision::Shrink { plan, otherwise } => {
            format!("shrink {} to {} or {}", plan.server_seq, plan.target, rest(otherwise))
        }
        Decision::Rest(other) => rest(other),
    }
}

fn rest(rest: &Rest) -> String {
    match rest {
        Rest::Prune { target, snapshots: true } => format!("prune to {target}"),
        Rest::Prune { target, snapshots: false } => {
            format!("prune to {target}, keep the snapshot")
        }
        Rest::Settled(reason) => reason.to_string(),
        Rest::Gap { missing } => format!("gap {missing}"),
    }
}

#[test]
fn the_base_and_everything_behind_it_are_fed() {
    let cases = [
        // rows, server_seq, compacted_seq, snapshot, expected
        ("1e 2e 3p 4e 5p", 5, 0, None, "at 4 to 5 fed 1 2 4"),
        ("3p 4e 5p 6e 7e 8p", 8, 5, None, "at 7 to 8 fed 4 6 7"),
        // Numbers at or below compacted_seq may be missing, those behind it may not.
        ("4e 7e", 7, 6, None, "at 7 to 7 fed 4 7"),
        ("4e 7e", 7, 5, None, "gap 6"),
        ("1e 3e", 3, 0, None, "gap 2"),
        ("1e 2e", 3, 0, None, "gap 3"),
        ("2e 3e", 3, 0, None, "gap 1"),
        // A snapshot stands for what is at or below it.
        ("5p 6e 7e", 7, 0, Some(4), "at 7 to 7 fed 104 6 7"),
        ("6e 7p 8e", 8, 0, Some(4), "gap 5"),
        ("3e 4e 5e", 5, 0, Some(4), "at 5 to 5 fed 104 3 4 5"),
        ("4e 6e", 6, 5, Some(5), "at 6 to 6 fed 105 4 6"),
        // ... but not one before the base row, nor one beyond the target.
        ("4e 6e", 6, 5, Some(3), "at 6 to 6 fed 4 6"),
        ("1e 2e", 2, 0, Some(3), "at 2 to 2 fed 1 2"),
        // What came after the document row was read waits for the next time.
        ("1e 2e 3e", 2, 0, None, "at 2 to 2 fed 1 2"),
    ];
    for (text, server_seq, compacted_seq, snapshot, expected) in cases {
        let document = document(server_seq, compacted_seq);
        assert_eq!(decided(text, document, snapshot, server_seq), expected, "{text} {snapshot:?}");
    }
}

#[test]
fn one_row_is_fed_again_where_a_mode_may_make_it_smaller() {
    let compact = Reason::AlreadyCompact.to_string();
    let cases = [
        // rows, server_seq, compacted_seq, snapshot, passed, expected
        ("4e 6p", 6, 5, None, 6, "shrink 4 to 6 or prune to 6".to_owned()),
        ("4e 6p 7p", 7, 5, None, 5, "shrink 4 to 7 or prune to 7".to_owned()),
        ("4e 6p", 6, 5, None, 5, format!("shrink 4 to 6 or {compact}")),
        ("1e", 1, 0, None, 1, format!("shrink 1 to 1 or {compact}")),
        ("4e 6p 7e", 7, 5, None, 5, "at 7 to 7 fed 4 7".to_owned()),
        // Nothing to be fed, or nothing that the new row could stand for.
        ("1p 2p", 2, 0, None, 2, "prune to 2".to_owned()),
        ("", 9, 0, Some(9), 9, "prune to 9, keep the snapshot".to_owned()),
        ("4e 7p", 7, 5, None, 5, "gap 6".to_owned()),
    ];
    for (text, server_seq, compacted_seq, snapshot, passed, expected) in cases {
        let document = document(server_seq, compacted_seq);
        for mode in [Mode::Trim, Mode::Reset] {
            let decided = decided_in(mode, text, document, snapshot, passed);
            assert_eq!(decided, expected, "{mode} {text} {document:?}");
        }
    }
}

#[test]
fn without_edits_to_exchange_the_mark_moves_and_passed_presence_goes() {
    let compact = Reason::AlreadyCompact.to_string();
    let no_edits = Reason::NoEdits.to_string();
    let cases = [
        // rows, server_seq, compacted_seq, snapshot, passed, expected
        ("4e 6p", 6, 5, None, 6, "prune to 6"),
        ("1p 2p", 2, 0, None, 2, "prune to 2"),
        // Nobody has passed the presence: it stays, and yet the mark moves.
        ("4e 6p 7p", 7, 5, None, 5, "prune to 7"),
        ("1e 2p 3p 4p 5p", 5, 0, None, 0, "prune to 5"),
        ("1p 2p", 2, 0, None, 0, "prune to 2"),
        // Of what stayed, what is passed by now goes, though nothing is new.
        ("3p 4e 5p", 5, 5, None, 3, "prune to 5"),
        // A snapshot that is the content stays; one before the base row goes.
        ("", 9, 0, Some(9), 9, "prune to 9, keep the snapshot"),
        ("5p 6p", 6, 0, Some(4), 0, "prune to 6, keep the snapshot"),
        ("4e 6p 7p", 7, 5, Some(3), 5, "prune to 7"),
        // A number is missing all the same.
        ("1e 2p 4p", 4, 0, None, 0, "gap 3"),
        // At most one change: the next one doubles that, so nothing waits.
        ("1e", 1, 0, None, 1, &compact),
        ("4e 6p", 6, 5, None, 5, &compact),
        ("3p 4e 5p", 5, 5, None, 2, &compact),
        ("1p", 1, 0, None, 0, &no_edits),
        ("", 0, 0, None, 0, &no_edits),
    ];
    for (text, server_seq, compacted_seq, snapshot, passed, expected) in cases {
        let document = document(server_seq, compacted_seq);
        assert_eq!(decided(text, document, snapshot, passed), expected, "{text} {document:?}");
    }
}

/// A document whose presence nobody passes, and edits that come one by one: how many are
/// waiting at most, when it is scanned after each and an item is planned as the host does.
#[test]
fn no_more_edits_wait_than_the_minimum_whatever_somebody_has_yet_to_pass() {
    const MIN_CHANGES: i64 = 5;
    for (start, edits_at_the_start) in [("e p p p p", 1), ("p p p p p", 0), ("e p p p p p p", 1)] {
        let mut log: Vec<String> =
            (1..).zip(start.split(' ')).map(|(n, kind)| format!("{n}{kind}")).collect();
        let mut d = document(log.len() as i64, 0);
        let (mut settled, mut waiting) = (None, edits_at_the_start);
        for _ in 0..100 {
            let version = version(&d, MIN_CHANGES, "s");
            if d.pending() >= MIN_CHANGES && settled.as_ref() != Some(&version) {
                match decide(&d, None, &rows(&log.join(" ")), 0, Mode::Merge) {
                    Decision::Rest(Rest::Prune { target, .. }) => {
                        (d.compacted_seq, waiting) = (target, 0);
                    }
                    Decision::Compact(plan) => {
                        log.retain(|row| row.ends_with('p'));
                        log.push(format!("{}e", plan.server_seq));
                        (d.compacted_seq, waiting) = (plan.target, 0);
                    }
                    Decision::Rest(Rest::Settled(_)) => settled = Some(version),
                    other => panic!("{other:?} of {log:?}"),
                }
            }
            assert!(waiting < MIN_CHANGES, "{waiting} edits wait: {d:?} {log:?}");
            d.server_seq += 1;
            log.push(format!("{}e", d.server_seq));
            waiting += 1;
        }
    }
}

#[test]
fn the_new_row_has_the_highest_lamport_of_all_rows() {
    let rows = rows("1e 2e 3p");
    match decide(&document(3, 0), None, &rows, 3, Mode::Merge) {
        Decision::Compact(plan) => assert_eq!((plan.server_seq, plan.lamport), (2, 30)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn presence_goes_up_to_the_lowest_checkpoint() {
    assert_eq!(presence_until(9, None), 9);
    assert_eq!(presence_until(9, Some(4)), 4);
    assert_eq!(presence_until(9, Some(12)), 9);
}

#[test]
fn the_version_changes_when_the_log_has_doubled() {
    let version =
        |server_seq, compacted_seq| version(&document(server_seq, compacted_seq), 100, "s");
    assert_eq!(version(100, 0), "0.0.0.s");
    assert_eq!(version(199, 0), version(100, 0));
    assert_ne!(version(200, 0), version(100, 0));
    assert_eq!(version(399, 0), version(200, 0));
    assert_ne!(version(300, 100), version(200, 0));
    // Fewer than the minimum: somebody triggered it by hand.
    assert_eq!(version(3, 0), "0.0.0.s");
}

#[test]
fn gaps_are_below_the_edits_from_hole_to_hole_and_above_them() {
    let min = i64::MIN;
    for (edits, target, expected) in [
        ("", 5, vec![min..=5]),
        ("1e 2e 3e", 3, vec![min..=0]),
        ("4e 5e", 9, vec![min..=3, 6..=9]),
        ("1e 3e 4e", 4, vec![min..=0, 2..=2]),
        ("2e 4e 5e 6e 9e", 12, vec![min..=1, 3..=8, 10..=12]),
    ] {
        assert_eq!(gaps(&rows(edits), target), expected, "{edits}");
    }
    // At the ends of what a number can be.
    let mut edges = rows("1e 2e");
    (edges[0].server_seq, edges[1].server_seq) = (i64::MIN, i64::MAX);
    assert_eq!(gaps(&edges, i64::MAX)[1], i64::MIN + 1..=i64::MAX - 1);
}
