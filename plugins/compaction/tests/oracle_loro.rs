//! Loro's own JavaScript package, of another release than the crate that compacts, writes documents
//! with all of its features and verifies the results; the verification itself is tested too.

use std::path::Path;

use besom_compaction::loro;
use besom_compaction::outcome::{Job, Settings, Wish};
use besom_oracle::loro::{documents, seen_vectors, write_results};
use besom_oracle::trace::{NAMES, Trace};
use besom_oracle::{Oracle, parse_log, run, slices, write_log};

use ::loro::{ExportMode, LoroDoc, LoroValue};

fn oracle() -> Oracle {
    Oracle::under(env!("CARGO_TARGET_TMPDIR"))
}

/// Merged and, with nobody attached or those vectors, trimmed where that was possible.
fn compacted(rows: &[Vec<u8>], vectors: &[Vec<u8>]) -> [Option<Vec<u8>>; 2] {
    let (rows, vectors, settings) = (slices(rows), slices(vectors), Settings::default());
    let compact = |wish| {
        loro::compact(&Job { updates: &rows, wish, settings: &settings }).expect("compacted")
    };
    let trimmed = compact(Wish::Trim(&vectors));
    let trim = trimmed.merged_because.is_none().then_some(trimmed.update);
    [Some(compact(Wish::Merge).update), trim]
}

fn version(rows: &[Vec<u8>]) -> Vec<u8> {
    built(rows).oplog_vv().encode()
}

fn built(rows: &[Vec<u8>]) -> LoroDoc {
    let doc = LoroDoc::new();
    doc.import_batch(rows).unwrap();
    doc
}

#[test]
fn what_loro_has_written_is_the_same_after_compaction() {
    let oracle = oracle();
    let directory = oracle.scratch("loro_generated");
    let output = run(oracle.script("loro-generate.mjs").arg(&directory));
    let names = String::from_utf8(output.stdout).unwrap();
    let documents = documents(&directory);
    assert!(documents.len() > 20 && names.lines().count() == documents.len(), "{names}");
    let mut results = Vec::new();
    let mut trimmed = Vec::new();
    for (document, name) in documents.iter().zip(names.lines()) {
        let vectors = seen_vectors(document, version);
        results.push(compacted(&document.rows, &vectors));
        if results.last().is_some_and(|[_, trim]| trim.is_some()) {
            trimmed.push(name);
        }
    }
    assert!(trimmed.len() * 2 > documents.len(), "only these were trimmed: {trimmed:?}");
    write_results(&directory, &results);
    run(oracle.script("loro-judge.mjs").arg(&directory));
}

#[test]
fn public_editing_traces_are_the_same_after_compaction() {
    let oracle = oracle();
    let mut logs = Vec::new();
    // The longest takes minutes where nothing is optimised; the example has it.
    for trace in NAMES[1..].iter().filter_map(|name| Trace::named(name)) {
        logs.push((replayed(&trace), trace.end));
    }
    if logs.is_empty() {
        return;
    }
    let directory = oracle.scratch("loro_traces");
    let nobody = besom_oracle::encode_log(&[]);
    let packed: Vec<Vec<u8>> = logs
        .iter()
        .flat_map(|(rows, _)| [besom_oracle::encode_log(&slices(rows)), nobody.clone()])
        .collect();
    write_log(&directory.join("documents.pack"), &slices(&packed));
    let mut results = Vec::new();
    for (rows, end) in &logs {
        let result = compacted(rows, &[]);
        for update in result.iter().map(|update| update.clone().expect("in both modes")) {
            assert_eq!(&built(&[update]).get_text("text").to_string(), end);
        }
        results.push(result);
    }
    write_results(&directory, &results);
    run(oracle.script("loro-judge.mjs").arg("--brief").arg(&directory));
}

/// One row for each transaction, by one replica for each agent.
fn replayed(trace: &Trace) -> Vec<Vec<u8>> {
    let replicas: Vec<LoroDoc> = (0..trace.agents).map(|agent| author(agent as u64 + 1)).collect();
    let mut rows: Vec<Vec<u8>> = Vec::with_capacity(trace.transactions.len());
    // What each has pulled: a transaction's ancestors are rows before it.
    let mut has = vec![std::collections::BTreeSet::new(); trace.agents];
    for (index, transaction) in trace.transactions.iter().enumerate() {
        let doc = &replicas[transaction.agent];
        let mut wanted = transaction.parents.clone();
        let mut news = Vec::new();
        while let Some(row) = wanted.pop() {
            if has[transaction.agent].insert(row) {
                news.push(row);
                wanted.extend(&trace.transactions[row].parents);
            }
        }
        news.sort_unstable();
        let news: Vec<Vec<u8>> = news.into_iter().map(|row| rows[row].clone()).collect();
        doc.import_batch(&news).unwrap();
        let before = doc.oplog_vv();
        for patch in &transaction.patches {
            let text = doc.get_text("text");
            text.delete(patch.position, patch.deleted).unwrap();
            text.insert(patch.position, &patch.inserted).unwrap();
        }
        doc.commit();
        rows.push(doc.export(ExportMode::updates(&before)).unwrap());
        has[transaction.agent].insert(index);
    }
    rows
}

fn author(peer: u64) -> LoroDoc {
    let doc = LoroDoc::new();
    doc.set_peer_id(peer).unwrap();
    doc
}

#[test]
fn the_judge_notices_a_document_that_is_not_the_same() {
    let oracle = oracle();
    let directory = oracle.scratch("loro_different");
    let written = |edit: &dyn Fn(&LoroDoc)| {
        let doc = author(1);
        doc.get_text("text").insert(0, "some text").unwrap();
        edit(&doc);
        doc.get_text("text").delete(0, 4).unwrap();
        doc.commit();
        doc.export(ExportMode::all_updates()).unwrap()
    };
    let put =
        |value: LoroValue| written(&|doc| doc.get_map("map").insert("key", value.clone()).unwrap());
    let marked = |value: LoroValue| {
        written(&|doc| doc.get_text("text").mark(1..7, "bold", value.clone()).unwrap())
    };
    let plain = written(&|_| ());
    let pairs = [
        ("0 for -0", put((-0.0).into()), put((0.0).into())),
        ("1 for NaN", put(f64::NAN.into()), put(1.into())),
        ("another mark", marked(true.into()), marked(false.into())),
        ("a mark for none", plain.clone(), marked(true.into())),
        ("an empty document", plain.clone(), author(1).export(ExportMode::Snapshot).unwrap()),
        ("another tree", written(&|doc| drop(doc.get_tree("tree").create(None))), {
            written(&|doc| {
                let tree = doc.get_tree("tree");
                tree.enable_fractional_index(8);
                tree.create(None).unwrap();
            })
        }),
        ("another count", written(&|doc| doc.get_counter("c").increment(1.0).unwrap()), {
            written(&|doc| doc.get_counter("c").increment(2.0).unwrap())
        }),
        ("another message", written(&|doc| doc.set_next_commit_message("a")), {
            written(&|doc| doc.set_next_commit_message("b"))
        }),
    ];
    for (what, former, other) in pairs {
        let [merged, _] = compacted(std::slice::from_ref(&other), &[]);
        assert!(!judged(&oracle, &directory, &former, &[], merged), "{what} passed");
        let [merged, _] = compacted(std::slice::from_ref(&former), &[]);
        assert!(judged(&oracle, &directory, &former, &[], merged), "{what}: the same did not pass");
    }
    // Trimmed beyond what an attached client has.
    let doc = author(1);
    let long: String = (0..5_000).map(|nth| format!("{} ", nth * nth)).collect();
    doc.get_text("text").insert(0, &long).unwrap();
    doc.commit();
    let seen = doc.export(ExportMode::all_updates()).unwrap();
    doc.get_text("text").delete(0, long.len() - 10).unwrap();
    doc.commit();
    let all = doc.export(ExportMode::all_updates()).unwrap();
    let [_, beyond] = compacted(std::slice::from_ref(&all), &[]);
    assert!(beyond.is_some());
    assert!(!judged(&oracle, &directory, &all, &[seen], beyond.clone()), "beyond a client passed");
    assert!(judged(&oracle, &directory, &all, std::slice::from_ref(&all), beyond));
}

/// Whether the judge lets `result` pass for a document of one row.
fn judged(
    oracle: &Oracle,
    directory: &Path,
    row: &[u8],
    seen: &[Vec<u8>],
    result: Option<Vec<u8>>,
) -> bool {
    let seen: Vec<Vec<u8>> = seen.iter().map(|row| besom_oracle::encode_log(&[row])).collect();
    let entries = [besom_oracle::encode_log(&[row]), besom_oracle::encode_log(&slices(&seen))];
    assert_eq!(parse_log(&entries[0]), [row]);
    write_log(&directory.join("documents.pack"), &slices(&entries));
    write_results(directory, &[[result, None]]);
    let output = oracle.script("loro-judge.mjs").arg(directory).output().unwrap();
    let code = output.status.code();
    assert!(code == Some(0) || code == Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    code == Some(0)
}
