//! `besom runs logs`: prints what the plugin of a run has logged.

use std::time::Duration;

use besom_core::ids::RunId;
use besom_snapshot::{LOG_PAGE, LogLine};
use serde::Serialize;

use crate::cli::Failure;
use crate::cli::output::{self, Format, Stamp};
use crate::cli::printed::Printed;
use besom_config::printable;
use besom_ports::store::{RunLines, Store};

/// Interval between two reads of the store.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Number of reads after the end of the run: nodes write their last lines up to a second later.
const ASKS_AFTER_END: u32 = 4;

/// A line as it is printed in JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    run: u64,
    #[serde(flatten)]
    line: Printed<&'a LogLine>,
}

/// Prints the lines of a run. With `follow`, prints new lines until the run has ended.
///
/// # Errors
/// A run that does not exist, or a store that cannot be read.
pub(super) async fn print(
    store: &dyn Store,
    format: Format,
    run: RunId,
    follow: bool,
) -> Result<(), Failure> {
    let (mut after, mut told, mut asks_left) = (0, 0, ASKS_AFTER_END);
    loop {
        // Read before the lines: if the run has ended by now, the lines include its last ones.
        let known = store.run(run).await?.ok_or_else(|| {
            Failure::Usage(format!("there is no run {run}; list runs with `besom runs ls`"))
        })?;
        let page = store.lines(run, after, LOG_PAGE).await?;
        let text = rendered(&page, format, run, after, &mut told)?;
        output::write(text.as_bytes())?;
        if let Some(last) = page.lines.last() {
            after = last.no;
        }
        if page.lines.len() >= LOG_PAGE as usize {
            continue;
        }
        if known.ended_at.is_some() {
            asks_left -= 1;
        }
        if !follow || asks_left == 0 {
            break;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    if format == Format::Table && after == 0 && told == 0 {
        output::write(b"The run has logged nothing.\n")?;
    }
    Ok(())
}

/// Renders lines as text or JSON. Text also says how many lines are missing; `told` counts the missing
/// lines reported so far.
fn rendered(
    page: &RunLines,
    format: Format,
    run: RunId,
    after: u64,
    told: &mut u64,
) -> Result<String, Failure> {
    let (mut out, mut last) = (String::new(), after);
    for line in &page.lines {
        // Lines that were replaced by newer ones, and lines that their node has dropped.
        let missing = line.no - last - 1 + line.dropped;
        last = line.no;
        *told += missing;
        match format {
            Format::Table => {
                if missing > 0 {
                    out.push_str(&gap(missing));
                }
                out.push_str(&text(line));
            }
            Format::Json => {
                let line = Line { run: run.0, line: Printed(line) };
                out.push_str(&output::json(&line)?);
                out.push('\n');
            }
        }
    }
    let at_its_end = page.lines.len() < LOG_PAGE as usize;
    if format == Format::Table && at_its_end && page.lost > *told {
        out.push_str(&gap(page.lost - *told));
        *told = page.lost;
    }
    Ok(out)
}

fn gap(missing: u64) -> String {
    match missing {
        1 => "... 1 line was dropped\n".to_owned(),
        n => format!("... {n} lines were dropped\n"),
    }
}

/// Renders a line; escaping keeps a plugin from moving the cursor or forging other lines.
fn text(line: &LogLine) -> String {
    let LogLine { at, node, level, text, .. } = line;
    let (node, level, text) = (printable(node), printable(level), printable(text));
    format!("{}  {node}  {level:<5}  {text}\n", Stamp(*at))
}

#[cfg(test)]
mod tests {
    use besom_core::time::Time;

    use super::*;

    fn line(no: u64, text: &str, dropped: u64) -> LogLine {
        let (at, node) = (Time::from_secs(60), "n1".to_owned());
        LogLine { no, at, node, level: "warn".into(), text: text.to_owned(), dropped }
    }

    #[test]
    fn what_is_missing_is_told_where_it_is_missing() {
        let lines = vec![line(4, "a", 0), line(5, "b\x1b[2J\nc", 2)];
        let page = RunLines { lines, lost: 6 };
        let mut told = 0;
        let out = rendered(&page, Format::Table, RunId(1), 0, &mut told).unwrap();
        let stamp = "1970-01-01T00:01:00Z  n1  warn   ";
        let expected = [
            "... 3 lines were dropped",
            &format!("{stamp}a"),
            "... 2 lines were dropped",
            &format!("{stamp}b\\u{{1b}}[2J\\nc"),
            "... 1 line was dropped",
        ];
        assert_eq!(out.lines().collect::<Vec<_>>(), expected);
        // The next read continues from there.
        let page = RunLines { lines: vec![line(6, "d", 0)], lost: 6 };
        let out = rendered(&page, Format::Table, RunId(1), 5, &mut told).unwrap();
        assert_eq!(out, format!("{stamp}d\n"));
    }

    #[test]
    fn a_program_gets_one_object_a_line() {
        let page = RunLines { lines: vec![line(1, "a\nb", 0), line(2, "c", 3)], lost: 3 };
        let out = rendered(&page, Format::Json, RunId(9), 0, &mut 0).unwrap();
        let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let rows: Vec<_> = out.lines().map(read).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!((&rows[0]["text"], &rows[0]["run"]), (&"a\nb".into(), &9.into()));
        assert_eq!((&rows[1]["no"], &rows[1]["dropped"]), (&2.into(), &3.into()));
    }
}
