//! Tests of traces. The small ones are committed; the public ones are used if they are present.

use std::io::Write;
use std::path::PathBuf;

use super::*;
use crate::authors::{apply, replica};

fn committed(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

/// The public traces: in `BESOM_SHARED_DATA`, or beside the workspace.
fn public(name: &str) -> PathBuf {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var_os("BESOM_SHARED_DATA").map_or_else(beside, PathBuf::from);
    data.join("editing-traces").join(name)
}

fn replay(path: &Path) -> Result<(Trace, UpdateLog), Error> {
    let trace = load(path)?;
    let log = trace.replay(&mut |_, _| ())?;
    Ok((trace, log))
}

/// The text of a log, from a replica that is independent of the replay.
fn text(log: &UpdateLog) -> String {
    use yrs::{GetString, Transact};
    let doc = replica(1);
    let text = doc.get_or_insert_text(replicas::ROOT);
    for edit in &log.edits {
        apply(&doc, &edit.payload).unwrap();
    }
    text.get_string(&doc.transact())
}

#[test]
fn committed_traces_end_as_they_promise_in_any_writing_system() {
    // The transaction without patches sends nothing; the initial text is an update. In the
    // concurrent trace, agent 0 has two branches and so becomes two authors.
    for (name, edits, authors) in [("sequential.json", 6, 1), ("concurrent.json", 8, 3)] {
        let (trace, log) = replay(&committed(name)).unwrap();
        assert_eq!((log.edits.len(), log.authors.len()), (edits, authors), "{name}");
        assert_eq!(text(&log), trace.end, "{name}");
        assert_eq!(trace.name(), name.strip_suffix(".json").unwrap());
    }
}

#[test]
fn public_traces_end_as_they_promise() {
    let expected = [
        ("sveltecomponent.json.gz", 18_335, 1),
        ("friendsforever.json.gz", 26_078, 2),
        ("automerge-paper.json.gz", 259_778, 1),
    ];
    for (name, edits, authors) in expected {
        if !public(name).exists() {
            continue;
        }
        let (trace, log) = replay(&public(name)).unwrap();
        assert_eq!((log.edits.len(), log.authors.len()), (edits, authors), "{name}");
        assert!(text(&log) == trace.end, "{name}");
    }
}

#[test]
fn a_gzipped_trace_is_known_by_its_first_bytes() {
    let json = std::fs::read(committed("concurrent.json")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&json).unwrap();
    let gzip = gzip.finish().unwrap();
    std::fs::write(&path, &gzip).unwrap();
    let plain = load(&committed("concurrent.json")).unwrap();
    assert_eq!(load(&path).unwrap().transactions, plain.transactions);

    std::fs::write(&path, &gzip[..gzip.len() / 2]).unwrap();
    let error = load(&path).unwrap_err();
    assert!(matches!(error, Error::Gzip { .. }), "{error}");
    assert!(error.to_string().contains("truncated"), "{error}");
}

#[test]
fn what_is_wrong_with_a_trace_is_said_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.json");
    let sequential =
        |txns: &str| format!(r#"{{"startContent":"añb","endContent":"añb","txns":[{txns}]}}"#);
    let concurrent = |txns: &str| {
        format!(r#"{{"kind":"concurrent","endContent":"","numAgents":2,"txns":[{txns}]}}"#)
    };
    let cases = [
        ("hello".to_owned(), "not a valid editing trace: expected value at line 1 column 1"),
        ("[]".to_owned(), "not a valid editing trace"),
        (r#"{"txns":[]}"#.to_owned(), "`endContent` is missing"),
        (r#"{"endContent":""}"#.to_owned(), "`txns` is missing"),
        (
            r#"{"kind":"rich","endContent":"","txns":[]}"#.to_owned(),
            "the kind `rich` is not supported",
        ),
        (r#"{"kind":"concurrent","endContent":"","txns":[]}"#.to_owned(), "`numAgents` is missing"),
        (sequential(r#"{"patches":[]},{"patches":7}"#), "transaction 1: invalid type: integer `7`"),
        (sequential(r#"{"patches":[[-1,0,""]]}"#), "transaction 0: invalid value: integer `-1`"),
        (
            sequential(r#"{"patches":[]},{"patches":[[2,2,""]]}"#),
            "transaction 1: it replaces 2 characters at position 2, but the text has 3",
        ),
        (sequential(r#"{"patches":[[4294967295,1,""]]}"#), "transaction 0: it replaces 1"),
        (sequential(r#"{"patches":[[1,1,"n"]]}"#), "differs from endContent at character 1"),
        (concurrent(r#"{"agent":0,"patches":[]}"#), "transaction 0: `parents` is missing"),
        (concurrent(r#"{"parents":[],"patches":[]}"#), "transaction 0: `agent` is missing"),
        (concurrent(r#"{"parents":[0],"agent":0,"patches":[]}"#), "its parent 0 does not precede"),
        (concurrent(r#"{"parents":[],"agent":2,"patches":[]}"#), "agent 2 is out of range"),
    ];
    for (json, expected) in cases {
        std::fs::write(&path, &json).unwrap();
        let error = replay(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{json}\n{error}");
        assert!(error.contains("bad.json"), "{error}");
    }
    let missing = replay(&dir.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("none"), "{missing}");
}

#[test]
fn more_branches_than_bounded_are_refused() {
    let agent = |_| Transaction { parents: Vec::new(), agent: 0, patches: Vec::new() };
    let trace = Trace {
        path: "wide.json".into(),
        start: String::new(),
        end: String::new(),
        kind: Kind::Concurrent { agents: 1 },
        transactions: (0..=replay::AUTHORS_MAX).map(agent).collect(),
    };
    let error = trace.replay(&mut |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("transaction 1024: more than 1024 branches"), "{error}");
}
