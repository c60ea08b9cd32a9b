//! `besom top`: the dashboard.
//!
//! The model and its screens are in `besom_tui`. This module provides the connection to a host, the
//! clock, and the effects that the model requests.

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

use super::{Exit, Failure, Global, ask, open};
use besom_engine::api::Token;
use besom_engine::host::clock;
use besom_services::courier::tls;
use link::{Address, Link, Remote};
use quiet::Quiet;

/// Maximum number of frames drawn per second.
const FRAMES_MAX: u32 = 10;
/// Interval at which plain mode checks whether stdout still has a reader.
const READER_EVERY: Duration = Duration::from_millis(200);
/// Capacity of the channel from the link to the model.
const FEEDS: usize = 16;
/// The variable that disables colours: <https://no-color.org>.
const NO_COLOR: &str = "NO_COLOR";

/// The colours of the dashboard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Colours {
    /// The terminal's own colours, readable on any background.
    #[default]
    Auto,
    /// Colours for a light background.
    Light,
    /// Colours for a dark background.
    Dark,
    /// No colours.
    Mono,
}

/// `besom top`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Unix socket of a host (default: the one in the configuration); repeatable: if a connection is
    /// lost, the next host is used.
    #[arg(long, value_name = "PATH", conflicts_with = "connect")]
    pub socket: Vec<PathBuf>,
    /// TCP address of a host; requires --token-file; repeatable.
    #[arg(long, value_name = "HOST:PORT", requires = "token_file")]
    pub connect: Vec<String>,
    /// Certificate authority (PEM) for --connect (default: the system's); without it, a loopback
    /// address is used without TLS.
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub ca: Option<PathBuf>,
    /// Client certificate (PEM) for --connect, if the host requires one (api.tls_client_ca).
    #[arg(long, value_name = "FILE", requires = "connect", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Private key (PEM, mode 0600) of --cert.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// File (mode 0600) with the token for --connect.
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub token_file: Option<PathBuf>,
    /// Make the host refuse every change from this dashboard.
    #[arg(long)]
    pub readonly: bool,
    /// Print lines instead of screens, for pipes and screen readers.
    #[arg(long)]
    pub plain: bool,
    /// Colour theme; NO_COLOR disables colours.
    #[arg(long, value_enum, default_value_t)]
    pub theme: Colours,
    /// Enable the mouse at the start (`m` toggles it).
    #[arg(long)]
    pub mouse: bool,
}

impl Args {
    /// Shows the dashboard until the user leaves it.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let link = self.link(global).await?;
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
                "top does not support --output json; use `besom status --output json`".into(),
            ));
        }
        if self.plain || !console::is_possible() {
            return lines(link).await;
        }
        Quiet::begin(None)?.during(show(link, state)).await
    }

    /// A link to the named hosts, or to that of the configuration, which has to serve the configured store.
    async fn link(&self, global: &Global) -> Result<Link, Failure> {
        if let Some(addresses) = self.addresses()? {
            return Ok(Link::new(addresses, self.readonly));
        }
        let parsed = global.parsed()?;
        let socket = parsed.sections().api.socket.clone();
        let store = open::served(parsed.sections(), parsed.path());
        if let Some(store) = &store
            && let Some(theirs) = ask::other(&socket, store).await
        {
            let words = store.unlike(&theirs, socket.display(), "api.socket");
            return Err(Failure::Setting(words));
        }
        Ok(Link::new(vec![Address::Unix(socket)], self.readonly).only_for(store))
    }

    /// The addresses of the command line; `None`: there are none.
    fn addresses(&self) -> Result<Option<Vec<Address>>, Failure> {
        if let Some(file) = &self.token_file {
            let token = Token::read(file).map_err(|error| Failure::Usage(error.to_string()))?;
            let identity = self.cert.as_deref().zip(self.key.as_deref());
            let identity = identity.map(|(cert, key)| tls::Identity { cert, key });
            let of = |at: &String| {
                let (secret, ca) = (token.secret().to_owned(), self.ca.as_deref());
                let remote = Remote::new(at, secret, ca, identity);
                let remote = remote.map_err(|error| Failure::Usage(format!("{error:#}")))?;
                Ok(Address::Tcp(Arc::new(remote)))
            };
            return self.connect.iter().map(of).collect::<Result<_, _>>().map(Some);
        }
        let named = self.socket.iter().cloned().map(Address::Unix);
        Ok(Some(named.collect()).filter(|named: &Vec<_>| !named.is_empty()))
    }
}

/// Disables colours if `NO_COLOR` is set and no theme is chosen.
pub fn themed(options: Options) -> Options {
    let none = std::env::var_os(NO_COLOR).is_some_and(|value| !value.is_empty());
    match options.theme {
        ThemeChoice::Auto if none => Options { theme: ThemeChoice::Mono, ..options },
        _ => options,
    }
}

/// Shows the dashboard on a terminal until the user leaves it, the terminal is closed, or a signal
/// arrives.
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
            // The first snapshot is drawn at once, without waiting for the next frame.
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

/// Waits for a signal to end the program, so that the terminal is restored first.
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

/// Waits until the reader of standard output is gone. A closed pipe reports that without a write; a file
/// or a terminal never does.
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

/// Prints the dashboard as lines, for pipes and screen readers.
async fn lines(link: Link) -> Result<Exit, Failure> {
    let (feed, mut feeds) = mpsc::channel::<Feed>(FEEDS);
    let watching = tokio::spawn(link.watch(feed));
    let mut stopped = std::pin::pin!(stopped());
    let mut unread = std::pin::pin!(reader_gone());
    let mut plain = Plain::default();
    let mut reached = false;
    let exit = loop {
        let fed = tokio::select! {
            biased;
            signal = &mut stopped => break signal,
            () = &mut unread => break Ok(Exit::Fine),
            Some(fed) = feeds.recv() => fed,
            else => break Ok(Exit::Fine),
        };
        let said = match fed {
            Feed::Snapshot(snapshot) => {
                reached = true;
                plain.snapshot(&snapshot)
            }
            // A script must not wait for a host that may never start: once every address was tried, it ends.
            Feed::Lost { why, retry_at } if !reached => match retry_at {
                Some(_) => break Err(Failure::Unreachable(why)),
                None => continue,
            },
            Feed::Lost { why, .. } => plain.lost(&why),
            Feed::Connected | Feed::Answer { .. } => continue,
        };
        let said: String = said.into_iter().map(|line| line + "\n").collect();
        // The reader of stdout is gone.
        if super::output::write(said.as_bytes()).is_err() {
            break Ok(Exit::Fine);
        }
    };
    watching.abort();
    exit
}
