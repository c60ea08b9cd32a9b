//! The cost of the sandbox and the store for a compaction: one document or many, from the opening
//! of the snapshot to the return of the commit, in every format and mode. Compared in turns with:
//!
//! - the same job as a program of its own would do it: rows read from SQLite, the same decision
//!   natively, the rows kept aside and replaced in a durable transaction, without guards, terms
//!   and books;
//! - that decision alone;
//! - the library alone, which neither reads what it has written nor compares.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use besom_compaction::format::Format;
use besom_compaction::outcome::{BYTES_MAX_DEFAULT, Job, Mode, Settings, Wish};
use besom_core::value::Value;
use besom_oracle::replay;
use besom_oracle::trace::{NAMES, Trace};
use besom_ports::store::Outcome;
use besom_tests::site::{Place, Site, notes};
use rusqlite::{TransactionBehavior, params};
use yrs::block::ClientID;
use yrs::updates::decoder::Decode;
use yrs::{Doc, OffsetKind, Options, ReadTxn, StateVector, Text, Transact, Update};

use super::report::{Figures, median, ms};

/// Turns of each case; in a turn each way is measured once.
const TURNS: u32 = 5;
/// Small documents that are compacted in one call, and the edits of each.
const SMALL: usize = 64;
const SMALL_EDITS: usize = 100;
/// Edits that each stand before all others: no two of them become one block.
const PREPENDS: usize = 100_000;

/// An update log.
type Log = Vec<Vec<u8>>;

/// Documents that are compacted in one call.
struct Case {
    name: String,
    format: Format,
    mode: Mode,
    log: Log,
    documents: usize,
}

impl Case {
    fn merged(name: String, log: Log, documents: usize) -> Case {
        Case { name, format: Format::Yjs, mode: Mode::Merge, log, documents }
    }

    fn wish(&self) -> Wish<'static> {
        match self.mode {
            Mode::Merge => Wish::Merge,
            Mode::Reset => Wish::Reset,
            // Nobody is attached.
            Mode::Trim => Wish::Trim(&[]),
        }
    }

    fn what(&self) -> String {
        format!("{}, {} {}", self.name, self.format.as_str(), self.mode.as_str())
    }

    fn settings(&self) -> String {
        let (format, mode) = (self.format.as_str(), self.mode.as_str());
        format!("min_changes = 2\nmode_{format} = \"{mode}\"")
    }
}

/// Every case.
pub async fn run() -> Result<()> {
    let small = typed(SMALL_EDITS, |n, length| (length, format!("word {n} ")));
    compare(&Case::merged(format!("{SMALL} documents of {SMALL_EDITS} edits"), small, SMALL))
        .await?;
    for path in traces() {
        let trace = besom_demo::trace::load(&path)?;
        let log = trace.replay(&mut |_, _| {})?;
        let log: Log = log.edits.into_iter().map(|edit| edit.payload).collect();
        compare(&Case::merged(trace.name(), log.clone(), 1)).await?;
        let reset = Case { mode: Mode::Reset, ..Case::merged(trace.name(), log, 1) };
        compare(&reset).await?;
    }
    let prepends = typed(PREPENDS, |_, _| (0, "a".to_owned()));
    compare(&Case::merged(format!("{PREPENDS} prepends"), prepends, 1)).await?;
    let mut named: Vec<(&str, Trace)> =
        NAMES.iter().filter_map(|name| Some((*name, Trace::named(name)?))).collect();
    named.sort_by_key(|(_, trace)| trace.transactions.len());
    for (name, trace) in &named {
        others(name, trace).await?;
    }
    Ok(())
}

/// A trace in the other formats, in each of their modes.
async fn others(name: &str, trace: &Trace) -> Result<()> {
    for (format, log) in
        [(Format::Loro, replay::loro(trace)), (Format::Automerge, replay::automerge(trace))]
    {
        for mode in format.modes() {
            let (name, log) = (name.to_owned(), log.clone());
            let case = Case { name, format, mode: *mode, log, documents: 1 };
            if let Err(error) = compare(&case).await {
                // The largest come near the limits of a call: the others are still of interest.
                Figures::of("compaction", format!("{}: {error:#}", case.what())).show();
            }
        }
    }
    Ok(())
}

/// The public editing traces, where they are present.
fn traces() -> Vec<PathBuf> {
    let shared = std::env::var_os("BESOM_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        PathBuf::from,
    );
    let Ok(entries) = std::fs::read_dir(shared.join("editing-traces")) else { return vec![] };
    let mut traces: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    traces.retain(|path| path.to_string_lossy().ends_with(".json.gz"));
    traces.sort();
    traces
}

/// What one sends who inserts so many times; `change` has the place and the words.
fn typed(edits: usize, change: impl Fn(usize, u32) -> (u32, String)) -> Log {
    let doc = Doc::with_client_id(7);
    let text = doc.get_or_insert_text("text");
    let update = |n: usize| {
        let mut txn = doc.transact_mut();
        let (place, words) = change(n, text.len(&txn));
        text.insert(&mut txn, place, &words);
        txn.encode_update_v1()
    };
    (0..edits).map(update).collect()
}

/// Measures the three ways by turns, so that what else the machine does meets all of them.
async fn compare(case: &Case) -> Result<()> {
    let Case { format, mode, log, documents, .. } = case;
    let documents = *documents;
    let what = case.what();
    let updates: Vec<&[u8]> = log.iter().map(Vec::as_slice).collect();
    let bytes_before = updates.iter().map(|update| update.len()).sum::<usize>();
    if bytes_before > BYTES_MAX_DEFAULT {
        Figures::of("compaction", format!("{what}: above max_bytes"))
            .with("bytes_before", bytes_before as f64)
            .show();
        return Ok(());
    }
    let (mut acts, mut commits, mut jobs, mut natives, mut alones) =
        (vec![], vec![], vec![], vec![], vec![]);
    let (mut ratios, mut to_decision, mut fastest) = (vec![], vec![], [f64::INFINITY; 2]);
    let site = Site::on(Place::Sqlite, &case.settings()).await;
    let settings = Settings::default();
    let job = Job { updates: &updates, wish: case.wish(), settings: &settings };
    let (mut bytes_after, mut memory) = (0, 0);
    for turn in 0..TURNS {
        for number in 0..documents {
            site.create(&name(turn, number), format.as_str(), log).await;
        }
        ensure!(site.plan().await == documents as u64, "every document is planned");
        let waiting = site.waiting().await;
        let began = Instant::now();
        let decided = site.decide_all(&waiting).await;
        let act = began.elapsed();
        let outcomes = site.commit_all(&decided).await;
        let both = began.elapsed();
        ensure!(outcomes.iter().all(|outcome| *outcome == Outcome::Committed), "{outcomes:?}");

        let mut compacted = 0;
        let native = timed(documents, || {
            let done = format.compact(black_box(&job)).map_err(|why| anyhow!("{why:?}"))?;
            ensure!(done.mode == *mode, "{:?} natively: {:?}", done.mode, done.merged_because);
            compacted = done.update.len();
            Ok(())
        })?;
        let alone = timed(documents, || alone(*format, black_box(&updates)))?;
        let whole = native_job(&site, case, turn)?;

        let shown = site.shown(&name(turn, 0)).await;
        let notes = notes(&shown);
        ensure!(notes["mode"] == Value::Text(mode.as_str().into()), "{notes:?}");
        (bytes_after, memory) = (compacted, decided[0].usage.memory_bytes);
        acts.push(ms(act));
        commits.push(ms(both.saturating_sub(act)));
        natives.push(ms(native));
        alones.push(ms(alone));
        jobs.push(ms(whole));
        ratios.push(ms(both) / ms(whole));
        to_decision.push(ms(both) / ms(native));
        fastest = [fastest[0].min(ms(both)), fastest[1].min(ms(whole))];
    }
    let each = documents as f64;
    let native = median(natives);
    Figures::of("compaction", what)
        .with("act_ms", median(acts) / each)
        .with("commit_ms", median(commits) / each)
        .with("native_job_ms", median(jobs) / each)
        .with("native_ms", native / each)
        .with("library_alone_ms", median(alones) / each)
        .with("end_to_end_to_native_job", median(ratios))
        .with("fastest_to_fastest_native_job", fastest[0] / fastest[1])
        .with("end_to_end_to_native", median(to_decision))
        .with("bytes_before", bytes_before as f64)
        .with("bytes_after", bytes_after as f64)
        .with("guest_mib", memory as f64 / f64::from(1 << 20))
        .show();
    Ok(())
}

/// The same documents once more, compacted by a program of its own: one transaction for as many
/// documents as a commit of the host has here, which is all of them.
fn native_job(site: &Site, case: &Case, turn: u32) -> Result<Duration> {
    let names: Vec<String> =
        (0..case.documents).map(|number| format!("native-{}", name(turn, number))).collect();
    for name in &names {
        site.document_of(case.format.as_str(), name, &case.log);
    }
    let mut conn = super::bare::open(&site.file())?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.execute_batch("CREATE TABLE IF NOT EXISTS kept AS SELECT * FROM changes LIMIT 0")?;
    let settings = Settings::default();
    let began = Instant::now();
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for name in &names {
        let mut read = tx.prepare_cached(
            "SELECT server_seq, lamport, payload FROM changes
             WHERE project_id = 'a' AND doc_id = ?1 ORDER BY server_seq",
        )?;
        let rows: Vec<(i64, i64, Vec<u8>)> = read
            .query_map([name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let updates: Vec<&[u8]> = rows.iter().map(|(_, _, payload)| payload.as_slice()).collect();
        let done = case
            .format
            .compact(&Job { updates: &updates, wish: case.wish(), settings: &settings })
            .map_err(|why| anyhow!("{why:?}"))?;
        tx.prepare_cached(
            "INSERT INTO kept SELECT * FROM changes WHERE project_id = 'a' AND doc_id = ?1",
        )?
        .execute([name])?;
        tx.prepare_cached("DELETE FROM changes WHERE project_id = 'a' AND doc_id = ?1")?
            .execute([name])?;
        tx.prepare_cached(
            "INSERT INTO changes VALUES ('a', ?1, ?2, '0', 0, ?2, 'edit', ?3, NULL)",
        )?
        .execute(params![name, rows.len(), done.update])?;
        tx.prepare_cached(
            "UPDATE documents SET compacted_seq = server_seq
             WHERE project_id = 'a' AND doc_id = ?1",
        )?
        .execute([name])?;
    }
    tx.commit()?;
    let took = began.elapsed();
    // What is compacted already is no candidate of the next turn.
    for table in ["kept", "changes", "documents"] {
        conn.execute(&format!("DELETE FROM {table} WHERE doc_id LIKE 'native-%'"), [])?;
    }
    Ok(took)
}

fn name(turn: u32, number: usize) -> String {
    format!("turn-{turn}-document-{number}")
}

fn timed(times: usize, mut work: impl FnMut() -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    for _ in 0..times {
        work()?;
    }
    Ok(began.elapsed())
}

/// The library alone: applies the updates and encodes the document, as it would for anybody.
fn alone(format: Format, updates: &[&[u8]]) -> Result<()> {
    match format {
        Format::Yjs => {
            let identity = Options::with_guid_and_client_id(Arc::from("bench"), ClientID::new(0));
            let doc = Doc::with_options(Options {
                offset_kind: OffsetKind::Utf16,
                cleanup_formatting: false,
                ..identity
            });
            for update in updates {
                doc.transact_mut().apply_update(Update::decode_v1(update)?)?;
            }
            black_box(doc.transact().encode_state_as_update_v1(&StateVector::default()));
        }
        Format::Loro => {
            let doc = loro::LoroDoc::new();
            let updates: Vec<Vec<u8>> = updates.iter().map(|update| update.to_vec()).collect();
            doc.import_batch(&updates)?;
            black_box(doc.export(loro::ExportMode::Snapshot)?);
        }
        Format::Automerge => {
            let mut doc = automerge::Automerge::new();
            let changes: Result<Vec<_>, _> =
                updates.iter().map(|update| automerge::Change::try_from(*update)).collect();
            doc.apply_changes(changes?)?;
            black_box(doc.save());
        }
    }
    Ok(())
}
