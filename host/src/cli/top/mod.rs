//! `besom top`: the dashboard.
//!
//! The model and its pictures are in `besom_tui`; here is what surrounds them: the connection to
//! a host, the clock, and whatever the model wants done outside of itself.

mod effects;
pub mod link;
pub mod quiet;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use besom_tui::console::{self, Console};
use besom_tui::dash::plain::Plain;
use besom_tui::dash::{Effect, Feed, Input, Options, State, ThemeChoice};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Exit, Failure, Global};
use crate::api::Token;
use crate::config::{Overrides, read};
use crate::host::clock;
use link::{Address, Link, Remote};
use quiet::Quiet;

/// Pictures at most, in a second.
const FRAMES_MAX: u32 = 10;
/// How often it is seen whether lines still have a reader.
const READER_EVERY: Duration = Duration::from_millis(200);
/// What the link may tell ahead of the model.
const FEEDS: usize = 16;
/// The variable that asks for no colours: <https://no-color.org>.
const NO_COLOR: &str = "NO_COLOR";

/// The colours of the dashboard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Colours {
    /// The terminal's own, that read well on any ground.
    #[default]
    Auto,
    /// For a light ground.
    Light,
    /// For a dark ground.
    Dark,
    /// None.
    Mono,
}

/// `besom top`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// The Unix socket of a host; by default that of the configuration. Repeatable: where one
    /// host is lost, the next is asked.
    #[arg(long, value_name = "PATH", conflicts_with = "connect")]
    pub socket: Vec<PathBuf>,
    /// The TCP address of a host; needs --token-file. Repeatable.
    #[arg(long, value_name = "HOST:PORT", requires = "token_file")]
    pub connect: Vec<String>,
    /// The authority (PEM) of the certificate of --connect; by default the system's. A loopback
    /// address is spoken to without TLS unless this is given.
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub ca: Option<PathBuf>,
    /// The file (mode 0600) with the token for --connect.
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub token_file: Option<PathBuf>,
    /// Only look: the host refuses whatever would change something.
    #[arg(long)]
    pub readonly: bool,
    /// Lines instead of pictures: for pipes and screen readers.
    #[arg(long)]
    pub plain: bool,
    /// The colours; NO_COLOR asks for none.
    #[arg(long, value_enum, default_value_t)]
    pub theme: Colours,
    /// Listen to the mouse from the beginning (`m` turns it on and off).
    #[arg(long)]
    pub mouse: bool,
}

impl Args {
    /// Shows it until it is left.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let link = Link::new(self.addresses(global)?, self.readonly);
        let theme = match self.theme {
            Colours::Auto => ThemeChoice::Auto,
            Colours::Light => ThemeChoice::Light,
            Colours::Dark => ThemeChoice::Dark,
            Colours::Mono => ThemeChoice::Mono,
        };
        let name = link.address().to_string();
        let options = Options { theme, readonly: self.readonly, mouse: self.mouse, name };
        let state = State::new(themed(options));
        if global.output == super::output::Format::Json {
            return Err(Failure::Usage(
                "top has no JSON; `besom status --output json` has what it tells".into(),
            ));
        }
        if self.plain || !console::is_possible() {
            return lines(link).await;
        }
        Quiet::begin(None)?.during(show(link, state)).await
    }

    fn addresses(&self, global: &Global) -> Result<Vec<Address>, Failure> {
        if let Some(file) = &self.token_file {
            let token = Token::read(file).map_err(|error| Failure::Usage(error.to_string()))?;
            let of = |at: &String| {
                let remote = Remote::new(at, token.secret().to_owned(), self.ca.as_deref());
                let remote = remote.map_err(|error| Failure::Usage(format!("{error:#}")))?;
                Ok(Address::Tcp(Arc::new(remote)))
            };
            return self.connect.iter().map(of).collect();
        }
        if !self.socket.is_empty() {
            return Ok(self.socket.iter().cloned().map(Address::Unix).collect());
        }
        let parsed = read(&global.config, &Overrides::from_env(global.set.clone()))?;
        Ok(vec![Address::Unix(parsed.sections().api.socket.clone())])
    }
}

/// The options with no colours where the user wants none anywhere.
pub fn themed(options: Options) -> Options {
    let none = std::env::var_os(NO_COLOR).is_some_and(|value| !value.is_empty());
    match options.theme {
        ThemeChoice::Auto if none => Options { theme: ThemeChoice::Mono, ..options },
        _ => options,
    }
}

/// The dashboard on a terminal, until it is left, the terminal goes or a signal comes.
pub async fn show(link: Link, mut state: State) -> Result<Exit, Failure> {
    let fail = |error: std::io::Error| Failure::Failed(format!("the terminal: {error}"));
    let mut console = Console::take(state.options.mouse).map_err(fail)?;
    let (feed, mut feeds) = mpsc::channel(FEEDS);
    let watching = tokio::spawn(link.clone().watch(feed.clone()));
    let mut stopped = std::pin::pin!(stopped());
    let (columns, rows) = console.size().map_err(fail)?;
    state.update(Input::Tick(clock::wall()));
    state.update(Input::Resize(columns, rows));
    let frame = Duration::from_secs(1) / FRAMES_MAX;
    let mut drawn: Option<Instant> = None;
    let mut known = false;
    let exit = 'shown: loop {
        let due = drawn.is_none_or(|at| at.elapsed() >= frame);
        if state.dirty() && due {
            console.draw(&state).map_err(fail)?;
            state.drawn();
            drawn = Some(Instant::now());
        }
        let tick = state.next_tick().since(clock::wall());
        let wait = match (state.dirty(), drawn) {
            (true, Some(at)) => frame.saturating_sub(at.elapsed()).min(tick),
            _ => tick,
        };
        let input = tokio::select! {
            biased;
            signal = &mut stopped => break 'shown signal,
            typed = console.next() => Some(typed.map_err(fail)?),
            Some(fed) = feeds.recv() => Some(Input::Feed(fed)),
            () = tokio::time::sleep(wait) => None,
        };
        if !known && matches!(input, Some(Input::Feed(Feed::Snapshot(_)))) {
            // Whoever has just opened it does not wait for the turn of the first picture.
            (known, drawn) = (true, None);
        }
        let mut effects = state.update(Input::Tick(clock::wall()));
        effects.extend(input.map(|input| state.update(input)).into_iter().flatten());
        for effect in effects {
            if effect == Effect::Quit {
                break 'shown Ok(Exit::Fine);
            }
            effects::carry_out(effect, &link, &feed, &mut console, &mut state)
                .await
                .map_err(fail)?;
        }
    };
    watching.abort();
    drop(console);
    exit
}

/// Waits for a signal that ends the program; the terminal is given back before it does.
async fn stopped() -> Result<Exit, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let fail = |error: std::io::Error| Failure::Failed(format!("signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(fail)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(Exit::Fine)
}

/// Waits until nobody reads standard output any more: a pipe says so before anything is written.
/// A file or a terminal always has a reader.
async fn reader_gone() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let gone = {
            let out = std::io::stdout();
            let mut polled = [PollFd::new(&out, PollFlags::empty())];
            let known = poll(&mut polled, Some(&now)).is_ok();
            known && polled[0].revents().contains(PollFlags::ERR)
        };
        if gone {
            return;
        }
        tokio::time::sleep(READER_EVERY).await;
    }
}

/// The same in lines, for pipes and screen readers.
async fn lines(link: Link) -> Result<Exit, Failure> {
    let (feed, mut feeds) = mpsc::channel::<Feed>(FEEDS);
    let watching = tokio::spawn(link.watch(feed));
    let mut stopped = std::pin::pin!(stopped());
    let mut unread = std::pin::pin!(reader_gone());
    let mut plain = Plain::default();
    let exit = loop {
        let fed = tokio::select! {
            biased;
            signal = &mut stopped => break signal,
            () = &mut unread => break Ok(Exit::Fine),
            Some(fed) = feeds.recv() => fed,
            else => break Ok(Exit::Fine),
        };
        let said = match fed {
            Feed::Snapshot(snapshot) => plain.snapshot(&snapshot),
            Feed::Lost { why, .. } => plain.lost(&why),
            Feed::Connected | Feed::Answer { .. } => continue,
        };
        let said: String = said.into_iter().map(|line| line + "\n").collect();
        // Whoever reads has gone: that is the end.
        if super::output::write(said.as_bytes()).is_err() {
            break Ok(Exit::Fine);
        }
    };
    watching.abort();
    exit
}
