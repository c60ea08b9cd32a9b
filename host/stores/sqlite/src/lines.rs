//! The log lines of guests, by run.

use std::collections::BTreeMap;

use besom_core::ids::RunId;
use besom_core::time::Time;
use besom_snapshot::LogLine;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::Job;
use super::statements::Statements;
use super::writer::Tx;
use besom_ports::store::{RunLine, RunLines};

/// Lines to write, and the number of lines that were dropped.
pub(super) struct Lines {
    pub(super) lines: Vec<RunLine>,
    pub(super) lost: Vec<(RunId, u64)>,
    pub(super) lines_max: u32,
}

/// Writes lines, run by run.
pub(super) fn write(tx: &mut Tx<'_>, new: &Lines) -> Job<()> {
    let mut runs: BTreeMap<RunId, (Vec<&RunLine>, u64)> = BTreeMap::new();
    for line in &new.lines {
        let (lines, dropped) = runs.entry(line.run).or_default();
        *dropped += line.dropped;
        lines.push(line);
    }
    for (run, lost) in &new.lost {
        runs.entry(*run).or_default().1 += lost;
    }
    // A run that does not exist gets no head, and therefore no lines.
    let mut head = tx.conn.prepare_cached(
        "INSERT INTO besom_run_log SELECT id, ?2, ?3 FROM besom_run WHERE id = ?1
         ON CONFLICT (run) DO UPDATE SET last = last + ?2, dropped = dropped + ?3
         RETURNING last",
    )?;
    let mut insert =
        tx.conn.prepare_cached("INSERT INTO besom_run_line VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    let mut trim =
        tx.conn.prepare_cached("DELETE FROM besom_run_line WHERE run = ?1 AND no <= ?2")?;
    for (run, (lines, dropped)) in runs {
        let count = lines.len() as u64;
        let last: Option<u64> =
            head.query_row(params![run.0, count, dropped], |r| r.get(0)).optional()?;
        let Some(last) = last else { continue };
        let gone = last.saturating_sub(new.lines_max.into());
        for (no, line) in (last - count + 1..).zip(lines).filter(|(no, _)| *no > gone) {
            let (at, node, level) = (line.at.0, &line.node, line.level);
            insert.execute(params![run.0, no, at, node, level, line.text, line.dropped])?;
        }
        trim.execute(params![run.0, gone])?;
    }
    Ok(())
}

/// The lines of a run after a number.
pub(super) fn lines(conn: &Connection, run: RunId, after: u64, limit: u32) -> Job<RunLines> {
    let lost: Option<u64> = conn.first(
        "SELECT dropped + last - (SELECT count(*) FROM besom_run_line l WHERE l.run = h.run)
         FROM besom_run_log h WHERE run = ?1",
        [run.0],
        |r| r.get(0),
    )?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let lines = conn.all(
        "SELECT no, at, node, level, text, dropped FROM besom_run_line
         WHERE run = ?1 AND no > ?2 ORDER BY no LIMIT ?3",
        params![run.0, after, limit],
        line,
    )?;
    Ok(RunLines { lines, lost: lost.unwrap_or_default() })
}

fn line(r: &Row<'_>) -> rusqlite::Result<LogLine> {
    Ok(LogLine {
        no: r.get(0)?,
        at: Time(r.get(1)?),
        node: r.get(2)?,
        level: r.get(3)?,
        text: r.get(4)?,
        dropped: r.get(5)?,
    })
}
