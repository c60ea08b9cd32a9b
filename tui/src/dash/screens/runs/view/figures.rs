//! Draws a run's figures: phases, progress, resource use, and the comparison.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use besom_core::item::End;
use besom_core::mode::Mode;
use besom_core::plan::Trigger;
use besom_snapshot::{Limits, Run, RunState};

use super::super::compare::Durations;
use super::super::detail::Detail;
use super::super::pace::Pace;
use super::super::phases::{Length, Phases, Progress};
use super::super::work::{Use, Work};
use super::super::{by, state, took};
use crate::dash::context::Context;
use crate::dash::screens::figure::{UNKNOWN, count};
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::{bar, put, rule, spark};

/// The maximum width of the bar.
const BAR_MAX: u16 = 24;

/// The data to draw.
pub struct Figures<'a> {
    pub run: &'a Run,
    pub detail: &'a Detail,
    pub cx: &'a Context<'a>,
    pub theme: &'a Theme,
    pub pace: &'a Pace,
}

/// A line: pieces of text with their styles.
type Line = Vec<(String, Style)>;

impl Figures<'_> {
    /// Draws as many lines as fit, the most important ones, in their order; returns the number of
    /// rows used.
    pub fn draw(&self, area: Rect, buf: &mut Buffer) -> u16 {
        let mut lines: Vec<(u8, Line)> = vec![(0, self.heading())];
        if let Some(error) = &self.run.error {
            let bad = self.theme.bad;
            lines.push((1, vec![("error: ".into(), bad), (error.clone(), bad)]));
        }
        if let Some(staying) = self.detail.answered().and_then(|detail| detail.staying.as_ref()) {
            lines.push((1, vec![(staying.words(), self.theme.warn)]));
        }
        lines.push((3, self.phases()));
        lines.push((2, self.progress(area.width)));
        let work = Work::of(self.cx.snap, self.run.id);
        lines.push((4, self.limits(&work)));
        lines.push((5, self.compared()));
        lines.push((7, self.outcomes(&work)));
        lines.push((8, self.origin()));
        lines.retain(|(_, line)| !line.is_empty());
        // One row is for the separator below.
        let room = usize::from(area.height.saturating_sub(1)).max(1);
        while lines.len() > room {
            let last = lines.iter().enumerate().max_by_key(|(at, (worth, _))| (*worth, *at));
            let Some((last, _)) = last else { break };
            lines.remove(last);
        }
        let mut y = lines.len() as u16;
        for (y, (_, line)) in (0..).zip(&lines) {
            line.iter().fold(1, |x, (words, style)| x + put(buf, area, x, y, words, *style));
        }
        if y < area.height {
            rule(buf, area, y, self.theme.line);
            y += 1;
        }
        y
    }

    fn heading(&self) -> Line {
        let (run, theme) = (self.run, self.theme);
        let (word, emphasis) = state(run, self.cx.snap);
        vec![
            (format!("Run {}  ", run.id), theme.title),
            (run.task.clone(), theme.text),
            (format!("  {word} "), theme.style(emphasis)),
            (text::took_span(took(run, self.cx.now)), theme.text),
            (format!("  term {}", run.term), theme.dim),
        ]
    }

    fn phases(&self) -> Line {
        let (run, theme) = (self.run, self.theme);
        let mut phases = Phases::of(run, self.pace.seen(run.id), self.cx.now);
        if self.cx.snap.waits(run) {
            phases.scanning = Length::Unseen;
        }
        let stands = self.cx.snap.stop(run).is_some();
        let length = |name: &str, length| match length {
            Length::Goes(_) if stands => (format!(" ─ {name} stands"), theme.warn),
            Length::Took(span) => (format!(" ─ {name} {}", text::took_span(span)), theme.text),
            Length::Goes(span) => (format!(" ─ {name} {} ▶", text::span(span)), theme.accent),
            Length::Unseen => (format!(" ─ {name} {UNKNOWN}"), theme.dim),
            Length::Ahead => (format!(" ─ {name}"), theme.dim),
            Length::Never => (format!(" ─ {name}: not reached"), theme.dim),
        };
        let slot = match run.trigger {
            Trigger::Manual { .. } => "requested",
            Trigger::Schedule | Trigger::Takeover | Trigger::Pass => "slot",
        };
        let items = match (phases.executing, self.detail.items_between()) {
            (Length::Unseen, Some((first, last))) => {
                let took = match last.since(first) {
                    Duration::ZERO => String::new(),
                    span => format!(" +{}", text::took_span(span)),
                };
                (format!(" ─ items {}{took}", text::clock(first)), theme.text)
            }
            (executing, _) => length("items", executing),
        };
        let ended = match run.ended_at {
            Some(at) => format!(" ─ ended {}", text::clock(at)),
            None => String::new(),
        };
        vec![
            (format!("{slot} {}", text::clock(run.slot)), theme.text),
            (format!(" ─ waited {}", text::took(phases.wait.as_micros() as u64)), theme.text),
            (format!(" ─ started {}", text::clock(run.started_at)), theme.text),
            length("scan", phases.scanning),
            items,
            (ended, theme.text),
        ]
    }

    fn progress(&self, width: u16) -> Line {
        let (run, theme) = (self.run, self.theme);
        let progress = Progress::of(run);
        let wide = (width / 4).clamp(6, BAR_MAX);
        let Some(part) = progress.part() else {
            let scanned = text::grouped(run.scanned);
            let words = match (run.state, run.mode) {
                (_, Mode::Preview) => "none: a preview plans nothing".to_owned(),
                (RunState::Scanning, _) => format!("nothing planned yet, {scanned} rows scanned"),
                _ => format!("nothing to do: {scanned} rows scanned"),
            };
            return vec![("progress ".into(), theme.dim), (words, theme.text)];
        };
        let grows = if progress.grows && !self.cx.snap.waits(run) { "+" } else { "" };
        let figures = format!(
            " {:.0}%  {}/{}{grows} items",
            (part * 100.0).floor(),
            text::grouped(progress.done),
            text::grouped(progress.planned)
        );
        let speed = if self.cx.snap.waits(run) {
            "  waits for an approval".to_owned()
        } else if let Some(stop) = self.cx.snap.stop(run) {
            format!("  {}", stop.why)
        } else if run.state.is_active() {
            let rate = self.pace.rate(run.id);
            let eta = match (self.pace.eta(run), progress.grows) {
                (Some(eta), _) => format!("eta {}", text::span(eta)),
                (None, true) => "eta: still scanning".to_owned(),
                (None, false) => "eta ?".to_owned(),
            };
            format!("  {}/s  {eta}", text::rate(rate))
        } else {
            String::new()
        };
        vec![
            ("progress ".into(), theme.dim),
            (bar::gauge(part, wide), theme.bar),
            (figures, theme.text),
            (speed, theme.accent),
        ]
    }

    fn limits(&self, work: &Work<'_>) -> Line {
        let theme = self.theme;
        let Some(total) = work.total() else {
            let words = match self.run.state.is_active() {
                true => "fuel, memory, calls: no node has reported on this run yet",
                false => "fuel, memory and calls are known only while a run is active",
            };
            return vec![(words.into(), theme.dim)];
        };
        let task = self.cx.snap.task(&self.run.task);
        let limits = task.map_or_else(Limits::default, |task| task.limits.clone());
        let mut line = Vec::new();
        for (name, used, write) in [
            ("fuel", Use::of(total.fuel_most, limits.fuel), count as fn(u64) -> String),
            ("mem", Use::of(total.memory_most, limits.memory_bytes), text::bytes),
        ] {
            let high = used.part().is_some_and(|part| part >= 0.9);
            let style = if high { theme.warn } else { theme.text };
            line.push((format!("{name} "), theme.dim));
            // The task's limits are known, so fuel 0 means that it is not counted.
            if name == "fuel" && limits.fuel == 0 && limits.wall_ms > 0 {
                line.push(("not counted  ".into(), theme.text));
                continue;
            }
            match (used.part(), used.limit) {
                (Some(part), Some(limit)) => {
                    line.push((bar::gauge(part, 6), if high { theme.warn } else { theme.bar }));
                    let of = format!("{}/{}", write(used.most), write(limit));
                    line.push((format!("{:.0}% {of}  ", part * 100.0), style));
                }
                _ => line.push((format!("{} of {UNKNOWN}  ", write(used.most)), style)),
            }
        }
        line.push((format!("calls {}", count(total.host_calls)), theme.text));
        // The rows of a range are read by the database alone.
        if total.rows_read > 0 {
            line.push((format!("  read {}", count(total.rows_read)), theme.text));
        }
        line
    }

    fn compared(&self) -> Line {
        let (run, theme) = (self.run, self.theme);
        let durations = self
            .cx
            .snap
            .task(&run.task)
            .map(|task| Durations::of(task, run.id))
            .unwrap_or_default();
        let here = took(run, self.cx.now);
        let (Some(p50), Some(p99)) = (durations.quantile(0.5), durations.quantile(0.99)) else {
            let words = "no earlier run of this task succeeded, so there is no comparison";
            return vec![(words.into(), theme.dim)];
        };
        let stands = self.cx.snap.stop(run).map(|_| "stands");
        let waits = (run.mode == Mode::Approve).then_some("waits for an approval");
        if let Some(why) = stands.or(waits) {
            return vec![(format!("a run that {why} is not compared with others"), theme.dim)];
        }
        let factor = durations.factor(here);
        let slow = factor.is_some_and(|factor| factor > 1.0);
        let factor = factor.map_or(UNKNOWN.to_owned(), |factor| format!("{factor:.1}x p99"));
        let mut line = vec![
            (format!("this run vs last {}: ", durations.count()), theme.dim),
            (format!("p50 {} p99 {} ", text::took_span(p50), text::took_span(p99)), theme.text),
            (format!("→ {factor}  "), if slow { theme.warn } else { theme.good }),
        ];
        if let Some((counts, place)) = durations.histogram(here) {
            let most = counts.iter().copied().max().unwrap_or(0);
            let sign = |n: u64| if n == 0 { '·' } else { spark::step(n, most) };
            let before: String = counts[..place].iter().map(|n| sign(*n)).collect();
            let after: String = counts[place + 1..].iter().map(|n| sign(*n)).collect();
            line.push((before, theme.spark));
            line.push(("▲".into(), theme.accent));
            line.push((after, theme.spark));
            line.push((" ▲ here".into(), theme.dim));
        }
        line
    }

    fn outcomes(&self, work: &Work<'_>) -> Line {
        let (run, theme) = (self.run, self.theme);
        // Nodes count as they commit, and lose count; the history is read later, and not all of it.
        let at_nodes = work.total().unwrap_or_default();
        let answer = self.detail.answered();
        let ended = |end| answer.and_then(|detail| detail.outcomes.get(&end)).copied().unwrap_or(0);
        let rows = self.detail.whole().map_or("rows of the newest items", |_| "rows");
        let mut words = counts([
            ("committed", at_nodes.committed.max(ended(End::Committed))),
            ("skipped", at_nodes.skipped.max(ended(End::Skipped))),
            ("discarded", ended(End::Discarded)),
            ("retried", at_nodes.retried),
            ("dead", at_nodes.dead.max(ended(End::Dead))),
            (rows, answer.map_or(0, |detail| detail.rows)),
        ]);
        if run.deduplicated + run.blocked > 0 {
            let others = [("already queued", run.deduplicated), ("left alone", run.blocked)];
            let gap = if words.is_empty() { "" } else { "  " };
            words += &format!("{gap}{}", counts(others));
        }
        match words.is_empty() {
            true => Vec::new(),
            false => vec![("items ".into(), theme.dim), (words, theme.text)],
        }
    }

    fn origin(&self) -> Line {
        let theme = self.theme;
        let nodes = Work::of(self.cx.snap, self.run.id);
        let named: Vec<&str> = nodes.nodes.iter().map(|at| at.node).take(4).collect();
        let more = nodes.nodes.len().saturating_sub(named.len());
        let on = match (named.is_empty(), more) {
            (true, _) => String::new(),
            (_, 0) => format!("   on {}", named.join(", ")),
            (_, n) => format!("   on {} and {n} more", named.join(", ")),
        };
        vec![
            ("started by ".into(), theme.dim),
            (by(&self.run.trigger), theme.text),
            (on, theme.text),
        ]
    }
}

/// Counts with their names; zero counts are left out.
fn counts<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> String {
    let some = counts.into_iter().filter(|(_, n)| *n > 0);
    let words = some.map(|(name, n)| format!("{name} {}", text::grouped(n)));
    words.collect::<Vec<_>>().join("  ")
}

/// Draws each node's work for a run, one line per node.
pub fn nodes(
    run: u64,
    detail: &Detail,
    cx: &Context<'_>,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let work = Work::of(cx.snap, run);
    let head = format!(
        "{:<14} {:>4} {:>9} {:>7} {:>6} {:>5} {:>6}  REPORTED",
        "NODE", "RUN", "COMMITTED", "SKIPPED", "RETRY", "DEAD", "FUEL"
    );
    put(buf, area, 1, 0, &head, theme.title);
    if work.nodes.is_empty() {
        // For an ended run, the history shows which node did what.
        let by_node = detail.by_node();
        if by_node.is_empty() {
            let words = "No node reports on this run: it has ended or has just started.";
            put(buf, area, 1, 1, words, theme.dim);
        }
        for (y, (node, outcomes)) in (1..area.height).zip(&by_node) {
            let of = |end| count(outcomes.get(&end).copied().unwrap_or(0));
            let (committed, skipped, dead) = (of(End::Committed), of(End::Skipped), of(End::Dead));
            let words = node_line(node, ["-", &committed, &skipped, "-", &dead, "-"], "history");
            put(buf, area, 1, y, &words, theme.text);
        }
    }
    for (y, at) in (1..area.height).zip(&work.nodes) {
        let w = at.work;
        let counts = [w.committed, w.skipped, w.retried, w.dead, w.fuel].map(count);
        let [committed, skipped, retried, dead, fuel] = counts.each_ref().map(String::as_str);
        let running = w.running.to_string();
        let since = text::span(cx.now.since(at.seen_at));
        let seen = format!("{since}{}", if at.lost { " LOST" } else { " ago" });
        let words = node_line(at.node, [&running, committed, skipped, retried, dead, fuel], &seen);
        put(buf, area, 1, y, &words, if at.lost { theme.bad } else { theme.text });
    }
}

fn node_line(
    node: &str,
    [run, committed, skipped, retry, dead, fuel]: [&str; 6],
    seen: &str,
) -> String {
    let name = text::clean(node);
    let name = text::cut(&name, 14);
    let gap = " ".repeat(14 - text::width(&name).min(14));
    format!(
        "{name}{gap} {run:>4} {committed:>9} {skipped:>7} {retry:>6} {dead:>5} {fuel:>6}  {seen}"
    )
}
