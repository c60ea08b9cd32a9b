//! The log lines of guests, by run.

use std::collections::BTreeMap;

use besom_core::ids::RunId;
use besom_core::time::Time;
use besom_snapshot::LogLine;

use super::error::Job;
use super::session::{Pipeline, Session, params};
use super::text::{escaped, plain};
use besom_ports::store::{RunLine, RunLines};

/// Advances the heads of existing runs, in the order of their numbers.
const HEADS: &str = "INSERT INTO @.run_log AS h (run, last, dropped)
  SELECT r.id, u.count, u.dropped
  FROM unnest($1::int8[], $2::int8[], $3::int8[]) u(run, count, dropped)
  JOIN @.run r ON r.id = u.run ORDER BY r.id
  ON CONFLICT (run) DO UPDATE SET last = h.last + excluded.last,
    dropped = h.dropped + excluded.dropped";

/// Inserts the lines after their heads: the last of a run's new lines has the head's number.
const LINES: &str = "INSERT INTO @.run_line (run, no, at, dropped, node, level, text)
  SELECT u.run, h.last - u.behind, u.at, u.dropped, u.node, u.level, u.text
  FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::text[], $6::text[], $7::text[])
    u(run, behind, at, dropped, node, level, text)
  JOIN @.run_log h ON h.run = u.run WHERE u.behind < $8";

const TRIM: &str = "DELETE FROM @.run_line l USING @.run_log h
  WHERE h.run = ANY($1::int8[]) AND l.run = h.run AND l.no <= h.last - $2::int8";

/// Writes lines in one round trip.
pub(super) async fn write(
    mut session: Session,
    lines: &[RunLine],
    lost: &[(RunId, u64)],
    lines_max: u32,
) -> Job<()> {
    let mut runs: BTreeMap<RunId, (i64, i64)> = BTreeMap::new();
    for line in lines {
        let (count, dropped) = runs.entry(line.run).or_default();
        *count += 1;
        *dropped += line.dropped as i64;
    }
    for (run, dropped) in lost {
        runs.entry(*run).or_default().1 += *dropped as i64;
    }
    let ids: Vec<i64> = runs.keys().map(|run| run.0 as i64).collect();
    let counts: Vec<i64> = runs.values().map(|(count, _)| *count).collect();
    let dropped: Vec<i64> = runs.values().map(|(_, dropped)| *dropped).collect();
    let mut columns = Columns::default();
    for line in lines {
        let behind = runs.get_mut(&line.run).map_or(0, |(left, _)| {
            *left -= 1;
            *left
        });
        columns.push(line, behind);
    }
    let mut whole = Pipeline::default();
    whole.push(HEADS, params![ids.clone(), counts, dropped]);
    let c = columns;
    let max = i64::from(lines_max);
    whole.push(LINES, params![c.run, c.behind, c.at, c.dropped, c.node, c.level, c.text, max]);
    whole.push(TRIM, params![ids, max]);
    whole.simple("COMMIT");
    match session.begin(whole).await {
        Ok(_) => {
            session.ended();
            Ok(())
        }
        Err(failure) => {
            session.rollback().await;
            Err(failure)
        }
    }
}

/// Lines in columns, for `unnest`.
#[derive(Default)]
struct Columns {
    run: Vec<i64>,
    behind: Vec<i64>,
    at: Vec<i64>,
    dropped: Vec<i64>,
    node: Vec<String>,
    level: Vec<String>,
    text: Vec<String>,
}

impl Columns {
    fn push(&mut self, line: &RunLine, behind: i64) {
        self.run.push(line.run.0 as i64);
        self.behind.push(behind);
        self.at.push(line.at.0);
        self.dropped.push(line.dropped as i64);
        self.node.push(escaped(&line.node).into_owned());
        self.level.push(line.level.to_owned());
        self.text.push(escaped(&line.text).into_owned());
    }
}

/// The lines of a run after a number, and the number of dropped lines, read in one statement.
pub(super) async fn lines(session: &Session, run: RunId, after: u64, limit: u32) -> Job<RunLines> {
    let rows = session
        .query(
            "SELECT h.dropped + h.last - (SELECT count(*) FROM @.run_line k WHERE k.run = h.run),
               l.no, l.at, l.node, l.level, l.text, l.dropped
             FROM @.run_log h LEFT JOIN (SELECT * FROM @.run_line
               WHERE run = $1 AND no > $2 ORDER BY no LIMIT $3) l ON true
             WHERE h.run = $1 ORDER BY l.no",
            params![run.0 as i64, i64::try_from(after).unwrap_or(i64::MAX), i64::from(limit)],
        )
        .await?;
    let mut found = RunLines::default();
    for r in &rows {
        found.lost = r.try_get::<_, i64>(0)? as u64;
        let Some(no) = r.try_get::<_, Option<i64>>(1)? else { continue };
        found.lines.push(LogLine {
            no: no as u64,
            at: Time(r.try_get(2)?),
            node: plain(r.try_get(3)?),
            level: r.try_get(4)?,
            text: plain(r.try_get(5)?),
            dropped: r.try_get::<_, i64>(6)? as u64,
        });
    }
    Ok(found)
}
