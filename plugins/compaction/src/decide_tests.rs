use super::*;

/// Rows from `"1e 2p 4e"`; the payload of an edit is its number, the Lamport time ten times
/// as much.
fn rows(text: &str) -> Vec<Row> {
    text.split_whitespace()
        .map(|word| {
            let (number, kind) = word.split_at(word.len() - 1);
            let server_seq = number.parse().unwrap();
            let kind = if kind == "e" { Kind::Edit } else { Kind::Presence };
            Row { server_seq, kind, lamport: server_seq * 10, payload: vec![server_seq as u8] }
        })
        .collect()
}

fn document(server_seq: i64, compacted_seq: i64) -> Document {
    Document { epoch: 0, server_seq, compacted_seq }
}

/// What is decided, as text: `at 4 to 5 fed 1 2 4`.
fn decided(text: &str, document: Document, snapshot: Option<i64>, passed: i64) -> String {
    let snapshot =
        snapshot.map(|server_seq| Snapshot { server_seq, payload: vec![100 + server_seq as u8] });
    match decide(&document, snapshot.as_ref(), &rows(text), passed) {
        Decision::Compact(plan) => {
            let fed: Vec<String> = plan.feed.iter().map(|p| p[0].to_string()).collect();
            format!("at {} to {} fed {}", plan.server_seq, plan.target, fed.join(" "))
        }
        Decision::Prune { target } => format!("prune to {target}"),
        Decision::Settled(reason) => reason.to_string(),
        Decision::Gap { missing } => format!("gap {missing}"),
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
fn one_row_is_left_alone_but_presence_behind_it_goes() {
    assert_eq!(decided("1e", document(1, 0), None, 1), Reason::AlreadyCompact.to_string());
    assert_eq!(decided("4e 6p", document(6, 5), None, 6), "prune to 6");
    // A client has not passed the presence row.
    assert_eq!(decided("4e 6p", document(6, 5), None, 5), Reason::AlreadyCompact.to_string());
    assert_eq!(decided("1p 2p", document(2, 0), None, 2), Reason::NoEdits.to_string());
}

#[test]
fn the_new_row_has_the_highest_lamport_of_all_rows() {
    let rows = rows("1e 2e 3p");
    match decide(&document(3, 0), None, &rows, 3) {
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
