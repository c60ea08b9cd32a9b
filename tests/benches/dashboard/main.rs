//! What `besom top` costs as a process: until its first whole screen, and while it is looked at.
//!
//! `cargo bench -p besom-tests --bench dashboard [-- --binary PATH] [--opened N] [--seconds N]
//! [--screen N]...`. The dashboard is the binary that is named here or in `BESOM_BIN`, by default
//! the one that `cargo build --release -p besom` leaves beside this program.
//!
//! It looks at a deployment that is made up (the program `feed`: a thousand nodes, five hundred
//! tasks, a hundred thousand items that wait) through a Unix socket, in a terminal of 160
//! columns and 48 rows, with tmux on the other end. Beside each figure stands its limit, measured
//! in the same run: an empty program in that terminal, the feed's answer by itself, procps' `top`
//! at the same rate of pictures.

mod feed;
mod process;
mod terminal;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail, ensure};
use besom_tests::measured;
use serde_json::{Map, Value, json};

use feed::{Feed, Life};
use process::Process;
use terminal::Terminal;

/// How often the dashboard is opened, if nothing else is said.
const OPENED: usize = 20;
/// How long it is watched, if nothing else is said.
const WATCHED: Duration = Duration::from_secs(60);
/// The screens it is watched on, if none is named: the first, and the one with the most on it.
const SCREENS: [char; 2] = ['1', '4'];
/// How long it is left alone before: everything is there, and the first second is over.
const SETTLE: Duration = Duration::from_secs(3);
/// Stands on the first screen once the picture of the feed is on it.
const WHOLE: &str = "node-0000";

/// What is to be measured.
struct Wanted {
    binary: PathBuf,
    opened: usize,
    watched: Duration,
    screens: Vec<char>,
}

fn main() -> Result<()> {
    // `cargo bench` adds `--bench`, `cargo test --benches` nothing: then only the build counts.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let wanted = wanted(std::env::args().skip(1))?;
    let dir = tempfile::tempdir()?;
    let mut terminal = Terminal::open(dir.path())?;
    open(&wanted, &mut terminal)?;
    for life in [Life::Still, Life::Alive, Life::Stirred] {
        let feed = Feed::start(dir.path(), life)?;
        for screen in &wanted.screens {
            watch(&wanted, &mut terminal, &feed, life, *screen)?;
        }
    }
    watch_top(&wanted, &mut terminal)
}

/// From its start until its first whole screen.
fn open(wanted: &Wanted, terminal: &mut Terminal) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let feed = Feed::start(dir.path(), Life::Still)?;
    let dashboard = feed.dashboard(&wanted.binary)?;
    let (mut whole, mut cpu) = (Vec::new(), Vec::new());
    let (mut answered, mut empty) = (Vec::new(), Vec::new());
    let nothing = ["sh", "-c", &format!("echo {WHOLE}; exec cat")].map(str::to_owned);
    // The first of each is not counted: nobody has read the programs from the disk yet.
    for round in 0..=wanted.opened {
        let (pane, begun) = terminal.start(&nothing)?;
        let printed = terminal.prints(&pane, WHOLE)? - begun;
        terminal.end(&pane)?;
        let answer = feed.answer()?;
        let (pane, begun) = terminal.start(&dashboard)?;
        let shown = terminal.shows(&pane, WHOLE)? - begun;
        let used = terminal.process(&pane).cpu()?;
        terminal.end(&pane)?;
        if round > 0 {
            whole.push(ms(shown));
            cpu.push(ms(used));
            answered.push(ms(answer));
            empty.push(ms(printed));
        }
    }
    Figures::of("open")
        .spread("to_first_whole_screen_ms", whole)
        .spread("cpu_until_then_ms", cpu)
        .spread("limit_empty_program_ms", empty)
        .spread("limit_answer_of_the_feed_ms", answered)
        .show();
    Ok(())
}

/// What it uses while a screen is looked at.
fn watch(
    wanted: &Wanted,
    terminal: &mut Terminal,
    feed: &Feed,
    life: Life,
    screen: char,
) -> Result<()> {
    let (pane, _) = terminal.start(&feed.dashboard(&wanted.binary)?)?;
    terminal.shows(&pane, WHOLE)?;
    terminal.key(&pane, screen)?;
    let figures = Figures::of(format!("{}, screen {screen}", life.name()));
    used(figures, terminal.process(&pane), wanted.watched)?.show();
    terminal.end(&pane)
}

/// The limit: what procps' `top` uses that draws once a second.
fn watch_top(wanted: &Wanted, terminal: &mut Terminal) -> Result<()> {
    let (pane, _) = terminal.start(&["top", "-d", "1"].map(str::to_owned))?;
    terminal.prints(&pane, "PID")?;
    let figures = Figures::of("limit: top of procps, every second");
    used(figures, terminal.process(&pane), wanted.watched)?.show();
    terminal.end(&pane)
}

/// Watches a process.
fn used(figures: Figures, process: Process, watched: Duration) -> Result<Figures> {
    std::thread::sleep(SETTLE);
    let (cpu, begun) = (process.cpu()?, Instant::now());
    std::thread::sleep(watched);
    let used = (process.cpu()? - cpu).as_secs_f64();
    let seconds = begun.elapsed().as_secs_f64();
    Ok(figures
        .with("cpu_percent", used / seconds * 100.0)
        .with("cpu_ms_per_s", used / seconds * 1_000.0)
        .with("rss_mib", process.memory_kib("VmRSS")? / 1_024.0)
        .with("peak_rss_mib", process.memory_kib("VmHWM")? / 1_024.0))
}

fn wanted(mut args: impl Iterator<Item = String>) -> Result<Wanted> {
    let (mut binary, mut opened, mut watched, mut screens) = (None, OPENED, WATCHED, Vec::new());
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--bench" => {}
            "--binary" => binary = Some(value()?.into()),
            "--opened" => opened = value()?.parse().context("--opened")?,
            "--seconds" => {
                watched = Duration::from_secs(value()?.parse().context("--seconds")?);
            }
            "--screen" => screens.push(value()?.parse().context("--screen: 1 to 6")?),
            _ => bail!("`{arg}`: there are --binary, --opened, --seconds and --screen"),
        }
    }
    if screens.is_empty() {
        screens = SCREENS.into();
    }
    let unknown = screens.iter().find(|screen| !('1'..='6').contains(*screen));
    ensure!(unknown.is_none(), "--screen: they are numbered 1 to 6");
    ensure!(opened > 0 && !watched.is_zero(), "--opened, --seconds: at least 1");
    let binary = measured::binary(binary).map_err(Error::msg)?;
    Ok(Wanted { binary, opened, watched, screens })
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

/// The figures of a case.
struct Figures {
    case: String,
    values: Map<String, Value>,
}

impl Figures {
    fn of(case: impl Into<String>) -> Figures {
        Figures { case: case.into(), values: Map::new() }
    }

    /// A figure, its unit last in its name.
    fn with(mut self, name: &str, value: f64) -> Figures {
        self.values.insert(name.into(), json!((value * 100.0).round() / 100.0));
        self
    }

    /// The middle, and the ends, of what was measured several times.
    fn spread(self, name: &str, mut values: Vec<f64>) -> Figures {
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values[(values.len() - 1) * part / 2];
        let (least, middle, most) = (at(0), at(1), at(2));
        self.with(&format!("{name}_p50"), middle)
            .with(&format!("{name}_min"), least)
            .with(&format!("{name}_max"), most)
    }

    /// A line for a person, a line for a program.
    #[expect(clippy::print_stdout, reason = "the one place where this benchmark prints")]
    fn show(self) {
        let words: Vec<String> = self.values.iter().map(|(k, v)| format!("{k} {v}")).collect();
        println!("{:<36} {}", self.case, words.join("  "));
        let mut line = Map::from_iter([
            ("bench".to_owned(), json!("dashboard")),
            ("case".to_owned(), json!(self.case)),
        ]);
        line.extend(self.values);
        println!("{}", Value::Object(line));
    }
}
