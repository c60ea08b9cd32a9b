//! The memory that a compaction needs is estimated beforehand, and a guest with less leaves the log
//! unchanged. Tests the component in the sandbox.

use besom_core::proposal::Settle;
use besom_oracle::shapes::{Shape, automerge, loro, yjs};
use besom_ports::store::{Decision, Outcome};

use besom_tests::site::{Decided, Site};

/// This much memory is too little for the documents here.
const LITTLE: u64 = 12 << 20;
/// The step between two limits that are tried until the rows can be read.
const STEP: u64 = 4 << 20;
/// The bytes that an allocator may lose at the ends of one large piece.
const SLACK: u64 = 512 << 10;

/// The component's answer.
#[derive(Debug, PartialEq)]
enum Said {
    Compacted,
    /// Left alone, because it needs this many bytes.
    Needs(u64),
    OutOfMemory,
}

fn said(decided: &Decided) -> Said {
    match &decided.decision {
        Decision::Apply { .. } => Said::Compacted,
        Decision::Settle(Settle::Skip { reason, settled: true }) => {
            let (_, words) = reason.split_once("too-large: ").unwrap_or_else(|| panic!("{reason}"));
            Said::Needs(bytes_of(words).unwrap_or_else(|| panic!("{reason}")))
        }
        Decision::Settle(Settle::Retry { reason, .. }) if reason.contains("memory") => {
            Said::OutOfMemory
        }
        other => panic!("{other:?}"),
    }
}

/// The number of bytes that the reason names.
fn bytes_of(words: &str) -> Option<u64> {
    let (_, rest) = words.split_once("up to ")?;
    let (number, rest) = rest.split_once(' ')?;
    let unit = if rest.starts_with("MiB") { 1 << 20 } else { 1 };
    Some(number.parse::<u64>().ok()? * unit)
}

/// Compacts each document, a fraction of the shape's full size, with exactly the memory that the
/// reason names.
async fn check(format: &str, shapes: &[Shape], fraction: usize) {
    let site = Site::new().await;
    let mut refused = 0;
    for shape in shapes {
        let rows = (shape.rows)((shape.count / fraction).max(4));
        site.document_of(format, shape.name, &rows);
        // One row alone is no candidate.
        let rest = (rows.len() < 2).then(|| rows[0].clone());
        rest.iter().for_each(|row| site.append(shape.name, "edit", row));
        site.plan().await;
        let waiting = site.waiting().await;
        let [waiting] = &waiting[..] else { panic!("{}: {waiting:?}", shape.name) };
        let (mut limit, mut was_refused) = (LITTLE, false);
        let decided = loop {
            let decided = site.decide_within(limit, waiting).await;
            limit = match said(&decided) {
                Said::Compacted => break decided,
                Said::Needs(bytes) => {
                    was_refused = true;
                    decided.usage.memory_bytes + bytes + SLACK
                }
                Said::OutOfMemory if !was_refused => limit + STEP,
                Said::OutOfMemory => {
                    panic!("{format}, {}: out of memory within {limit} bytes", shape.name)
                }
            };
        };
        refused += usize::from(was_refused);
        assert_eq!(site.commit(&decided).await, Outcome::Committed, "{format}, {}", shape.name);
    }
    assert!(refused * 3 > shapes.len(), "only {refused} of {} {format} were refused", shapes.len());
}

#[tokio::test]
async fn what_a_yjs_document_is_said_to_need_is_enough() {
    check("yjs", yjs::SHAPES, 4).await;
}

#[tokio::test]
async fn what_a_loro_document_is_said_to_need_is_enough() {
    check("loro", loro::SHAPES, 8).await;
}

#[tokio::test]
async fn what_an_automerge_document_is_said_to_need_is_enough() {
    check("automerge", automerge::SHAPES, 8).await;
}

/// Rows that do not fit into the memory of the guest at all, in every format.
#[tokio::test]
async fn a_guest_that_runs_out_of_memory_leaves_the_log_untouched() {
    let of = |shapes: &[Shape], name| {
        let shape = shapes.iter().find(|shape| shape.name == name).expect("a shape");
        (shape.rows)(shape.count)
    };
    for (format, rows) in [
        ("yjs", of(yjs::SHAPES, "letters in front, a row each")),
        ("loro", of(loro::SHAPES, "keys")),
        ("automerge", of(automerge::SHAPES, "bytes")),
    ] {
        let site = Site::new().await;
        site.document_of(format, "d", &rows);
        site.plan().await;
        for attempt in 1..=site.attempts_max() {
            let waiting = site.waiting().await;
            let decided = site.decide_within(4 << 20, &waiting[0]).await;
            let reason = match &decided.decision {
                Decision::Settle(Settle::Retry { reason, .. } | Settle::Dead { reason, .. }) => {
                    reason.clone()
                }
                other => panic!("{format}, attempt {attempt}: {other:?}"),
            };
            let outcome = site.commit(&decided).await;
            let is_last = attempt == site.attempts_max();
            assert_eq!(matches!(outcome, Outcome::Dead(_)), is_last, "{format}: {outcome:?}");
            assert!(reason.contains("memory; the limit is 4194304"), "{format}: {reason}");
        }
        assert!(site.waiting().await.is_empty());
        let product = site.product();
        let mut kept = product.prepare("SELECT payload FROM changes ORDER BY server_seq").unwrap();
        let kept: Vec<Vec<u8>> =
            kept.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert!(kept == rows, "{format}: {} rows of {}", kept.len(), rows.len());
        let shown = site.shown("d").await;
        assert!(shown.left_alone.is_some_and(|words| words.contains("memory")), "{format}");
        site.balanced().await;
    }
}
