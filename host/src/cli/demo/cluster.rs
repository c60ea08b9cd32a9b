//! `besom demo --cluster N`: runs N hosts on this machine, with the servers that a cluster needs.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use besom_core::ids::{Incarnation, Term};
use besom_tui::console;
use besom_tui::dash::{Input, Options, State, Tone};
use serde::Serialize;

use super::super::assembly::asked_to_stop;
use super::super::open::{self, Loader, Opening};
use super::super::top::link::{Address, Link};
use super::super::top::{self, quiet::Quiet};
use super::super::{Exit, Failure, Global, cluster, output};
use super::board::Board;
use besom_config::{Config, Overrides, printable, read};
use besom_demo::cluster::{self as demo_cluster, Host, PATIENCE, Programs, Servers, Shape, tail};
use besom_demo::orchestrator::Orchestrator;
use besom_demo::{self as demo, Summary, import::Replayed};
use besom_engine::host::clock;
use besom_engine::host::wake::Wake;
use besom_ports::embedded::Embedded;
use besom_ports::store::Store;
use besom_product::model::default_collections;
use besom_product::model::product::Product;
use besom_services::coordination::etcd::Etcd;

/// Interval between two reads of the state of the cluster.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a killed host stays down: longer than its lease, so that the others take over.
const REVIVE_AFTER: Duration = Duration::from_secs(20);
/// How long the queues must stay empty before they count as drained: every schedule of the demo has a
/// slot within that time.
const QUIET: Duration = Duration::from_secs(8);

/// The result of `--exit`. Its JSON is a stable interface for scripts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// Number of hosts started.
    pub nodes: usize,
    /// Term of the first leader.
    pub first_term: u64,
    /// Term of the leader after the kill.
    pub second_term: u64,
    /// Time from the kill until another node led, in seconds.
    pub takeover_seconds: f64,
    /// Time from the kill until the other hosts owned all its partitions, in seconds.
    pub shared_out_seconds: f64,
    /// What the tasks have changed.
    #[serde(flatten)]
    pub summary: Summary,
}

struct Demo {
    hosts: Vec<Host>,
    etcd: Arc<Etcd>,
    store: Arc<dyn Embedded>,
    before: demo::Measured,
    /// The simulated users and their orchestrator; `None` with `--exit`.
    _living: Option<(Option<Orchestrator>, demo::life::Living)>,
    /// Dropped last, because the hosts need the servers until they have stopped.
    _servers: Servers,
}

impl Drop for Demo {
    fn drop(&mut self) {
        demo_cluster::stop_all(&mut self.hosts);
    }
}

/// Starts the servers and hosts, and shows them until Ctrl-C. With `exit`, kills the leader once, waits
/// until the queues are empty, and prints what has changed.
///
/// # Errors
/// An invalid number of hosts, missing server programs, or a step that does not complete in time.
pub async fn run(
    global: &Global,
    dir: &Path,
    nodes: usize,
    exit: bool,
    plain: bool,
    traces: &[Replayed],
) -> Result<Exit, Failure> {
    if !(1..=demo_cluster::NODES_MAX).contains(&nodes) {
        let most = demo_cluster::NODES_MAX;
        return Err(Failure::Usage(format!("--cluster must be between 1 and {most}, not {nodes}")));
    }
    let mut demo = Demo::start(dir, nodes, !exit, traces).await?;
    if exit {
        let told = demo.play_out().await?;
        let after = demo::measure(demo.store.as_ref()).await.map_err(failed)?;
        let balanced = told.summary.balanced;
        output::show(global.output, &told, || text(&told, &demo.before, &after))?;
        return Ok(if balanced { Exit::Fine } else { Exit::Failed });
    }
    if !plain && console::is_possible() {
        return demo.dashboard(dir).await;
    }
    demo.show(dir).await
}

fn text(told: &Told, before: &demo::Measured, after: &demo::Measured) -> String {
    format!(
        "The leader of term {} was killed. Another node led under term {} after {:.1} s; the \
         partitions were redistributed after {:.1} s.\n\n{}\n{}\n",
        told.first_term,
        told.second_term,
        told.takeover_seconds,
        told.shared_out_seconds,
        demo::table(before, after),
        if told.summary.balanced { "The books balance." } else { "The books do not balance." }
    )
}

fn failed(error: anyhow::Error) -> Failure {
    Failure::Failed(format!("{error:#}"))
}

fn say(words: &str) {
    for line in words.lines() {
        to_stderr!("{}", printable(line));
    }
}

impl Demo {
    /// With `lively`, starts the orchestrator and the simulated users as well.
    async fn start(
        dir: &Path,
        nodes: usize,
        lively: bool,
        traces: &[Replayed],
    ) -> Result<Demo, Failure> {
        let programs = Programs::find().map_err(failed)?;
        demo_cluster::claim(dir).map_err(|error| Failure::Usage(format!("{error:#}")))?;
        say("starting etcd, PostgreSQL and Redis");
        let place = dir.join("servers");
        let shape = Shape { etcd_members: 1, durable: true, etcd_password: true };
        let starting = move || Servers::start(programs, &place, shape);
        let servers = tokio::task::spawn_blocking(starting).await;
        let servers = servers.map_err(|e| Failure::Failed(e.to_string()))?.map_err(failed)?;
        let cache = std::path::absolute(dir).map_err(|e| failed(e.into()))?.join("plugin-cache");
        let token = std::path::absolute(dir.join("orchestrator.token"));
        let token = token.map_err(|e| failed(e.into()))?;
        let orchestrator = match lively {
            true => super::orchestrator(None, &token).await,
            false => None,
        };
        let mut hosts = Vec::new();
        for number in 1..=nodes {
            let name = format!("node-{number}");
            let config = match &orchestrator {
                Some(called) => demo_cluster::lively_configuration(&servers, &name, &cache, called),
                None => demo_cluster::configuration(&servers, &name, &cache, None),
            };
            let host = Host::prepare(dir, &name, &config);
            hosts.push(host.map_err(|e| Failure::Failed(format!("{}: {e}", dir.display())))?);
        }
        let config = prepared(&hosts[0].config()).await?;
        let (store, scripts) = Opening::writing().scripted(&config).await?;
        store.set_collections(Arc::new(default_collections()));
        let now = clock::wall();
        let port = Arc::clone(&scripts);
        let seeded = demo::seed::fill(port, now, &mut |words| say(words)).await.map_err(failed)?;
        let port = Arc::clone(&scripts);
        demo::import::write(store.as_ref(), port, traces, now, &mut |words| say(words))
            .await
            .map_err(failed)?;
        let before = demo::measure(store.as_ref()).await.map_err(failed)?;
        let onlooker = Incarnation::from("besom-demo");
        let etcd = cluster::etcd(&config, &onlooker, &open::onlookers_clock())?
            .ok_or_else(|| Failure::Failed("the configuration of the demo names no etcd".into()))?;
        let mut demo = Demo { hosts, etcd, store, before, _living: None, _servers: servers };
        demo.start_hosts()?;
        demo.until("the hosts own all partitions", |board| {
            board.leading().is_some()
                && board.is_shared_out()
                && board.nodes.iter().all(|node| node.owns > 0)
        })
        .await?;
        // After the hosts listen: a workspace that no host has observed is unknown, not idle.
        let activity = open::activity(&config, &demo.store, false, &Arc::default()).await?;
        demo::seed::use_workspaces(activity.as_ref(), &seeded.activity)
            .await
            .map_err(|error| Failure::Failed(error.to_string()))?;
        if lively {
            let store: Arc<dyn Store> = demo.store.clone();
            let product = Product::new(scripts, Arc::new(default_collections()));
            let wake = Wake::of(&config, store.clone(), demo.etcd.clone(), &onlooker);
            demo._living = Some((orchestrator, super::live(store, product, activity, wake)));
        }
        Ok(demo)
    }

    fn start_hosts(&mut self) -> Result<(), Failure> {
        let besom = program()?;
        for host in &mut self.hosts {
            let started = host.start(&besom, &[]);
            started.map_err(|e| Failure::Failed(format!("{}: {e}", besom.display())))?;
            say(&format!("started {}: {}", host.name(), host.log().display()));
        }
        Ok(())
    }

    async fn look(&self) -> Board {
        Board::look(&self.etcd, self.store.as_ref(), &self.hosts).await
    }

    /// Waits until the board meets a condition; `what` describes it in the error message.
    async fn until(
        &self,
        what: &str,
        mut shows: impl FnMut(&Board) -> bool,
    ) -> Result<Board, Failure> {
        let since = Instant::now();
        let mut asked = std::pin::pin!(asked_to_stop());
        loop {
            let board = self.look().await;
            if shows(&board) {
                return Ok(board);
            }
            let state = || board.text(clock::wall());
            if since.elapsed() > PATIENCE {
                let ended: String = self.hosts.iter().filter_map(last_words).collect();
                return Err(Failure::Failed(format!(
                    "timed out after {PATIENCE:?}, waiting until {what}:\n{}{ended}",
                    state()
                )));
            }
            tokio::select! {
                _ = &mut asked => return Err(Failure::Failed("interrupted".into())),
                () = tokio::time::sleep(LOOK_EVERY / 10) => {}
            }
        }
    }

    /// Kills the leader once, and waits until the queues stay empty.
    async fn play_out(&mut self) -> Result<Told, Failure> {
        let board = self.look().await;
        let (Some(leading), Some(leader)) = (board.leading().cloned(), board.leader) else {
            return Err(Failure::Failed("there is no leader".into()));
        };
        let first = leader.term;
        say(&format!("killing the leader: kill -9 {}", leading.pid.unwrap_or_default()));
        let killed = Instant::now();
        let host = self.hosts.iter().find(|host| host.name() == leading.name);
        let process = host.and_then(Host::process);
        let gone = || Failure::Failed("the leader has already ended".into());
        process.ok_or_else(gone)?.signal(rustix::process::Signal::KILL).map_err(|_| gone())?;
        let term = |board: &Board| board.leader.as_ref().map(|leader| leader.term);
        let board = self
            .until("another node leads", |board| {
                board.leads.is_some() && term(board).is_some_and(|term| term > first)
            })
            .await?;
        let takeover = killed.elapsed();
        let second = term(&board).unwrap_or(Term(0));
        say(&format!("{} leads: term {second}", board.leads.as_deref().unwrap_or_default()));
        let shares_out = self.until("its partitions are redistributed", Board::is_shared_out);
        shares_out.await?;
        let shared_out = killed.elapsed();
        let mut quiet_since = Instant::now();
        let drained = self.until("the queues are empty", move |board| {
            if board.queued() > 0 {
                quiet_since = Instant::now();
            }
            quiet_since.elapsed() > QUIET
        });
        drained.await?;
        let after = demo::measure(self.store.as_ref()).await.map_err(failed)?;
        let summary = demo::summary(self.store.as_ref(), &self.before, &after).await;
        Ok(Told {
            nodes: self.hosts.len(),
            first_term: first.0,
            second_term: second.0,
            takeover_seconds: takeover.as_secs_f64(),
            shared_out_seconds: shared_out.as_secs_f64(),
            summary: summary.map_err(failed)?,
        })
    }

    /// Shows the cluster in the dashboard until the user leaves it. Any host may be killed: the
    /// dashboard then connects to another one.
    async fn dashboard(&mut self, dir: &Path) -> Result<Exit, Failure> {
        let board = self.look().await;
        let hints = self.hints(&board, dir);
        say(&board.text(clock::wall()));
        hints.lines().for_each(say);
        let socket = |host: &Host| {
            let parsed = read(&host.config(), &Overrides::default())?;
            Ok::<_, Failure>(Address::Unix(parsed.sections().api.socket.clone()))
        };
        let sockets = self.hosts.iter().map(socket).collect::<Result<Vec<_>, _>>()?;
        let mut state = State::new(top::themed(Options::default()));
        if let Some(pid) = board.leading().and_then(|node| node.pid) {
            let words =
                format!("try in another terminal: kill -9 {pid} (the leader); q stops everything");
            state.update(Input::Tick(clock::wall()));
            state.say(Tone::Info, words);
        }
        let mut dead: BTreeMap<String, Instant> = BTreeMap::new();
        let quiet = Quiet::begin(None)?;
        let shown = async {
            let mut shown = std::pin::pin!(top::show(Link::new(sockets, false), state));
            loop {
                tokio::select! {
                    left = &mut shown => break left,
                    () = tokio::time::sleep(LOOK_EVERY) => self.revive(&mut dead)?,
                }
            }
        };
        let left = quiet.during(shown).await;
        say("stopping the hosts, then the servers");
        left
    }

    /// Prints the state of the cluster until Ctrl-C: every second on a terminal, otherwise only when
    /// it has changed.
    async fn show(&mut self, dir: &Path) -> Result<Exit, Failure> {
        let terminal = std::io::stderr().is_terminal();
        let mut tick = tokio::time::interval(LOOK_EVERY);
        let mut asked = std::pin::pin!(asked_to_stop());
        let mut shown = None;
        let mut dead: BTreeMap<String, Instant> = BTreeMap::new();
        loop {
            tokio::select! {
                signal = &mut asked => {
                    signal.map_err(|e| Failure::Failed(format!("signals: {e}")))?;
                    say("stopping the hosts, then the servers");
                    return Ok(Exit::Fine);
                }
                _ = tick.tick() => {}
            }
            self.revive(&mut dead)?;
            let board = self.look().await;
            if !terminal && shown.as_ref() == Some(&board.key()) {
                continue;
            }
            shown = Some(board.key());
            let words = format!("{}\n{}", board.text(clock::wall()), self.hints(&board, dir));
            let mut out = std::io::stderr().lock();
            let lines: Vec<String> = words.lines().map(printable).collect();
            // Clears the rest of each line and everything below, in case the last text was longer.
            let drawn = match terminal {
                true => format!("\x1b[H{}\x1b[K\n\x1b[J", lines.join("\x1b[K\n")),
                false => format!("{}\n", lines.join("\n")),
            };
            // The demo continues even if stderr is closed.
            let _ = out.write_all(drawn.as_bytes());
        }
    }

    /// Restarts hosts that ended at least [`REVIVE_AFTER`] ago.
    fn revive(&mut self, dead: &mut BTreeMap<String, Instant>) -> Result<(), Failure> {
        let besom = program()?;
        for host in &mut self.hosts {
            if host.is_alive() {
                dead.remove(host.name());
                continue;
            }
            let since = *dead.entry(host.name().to_owned()).or_insert_with(Instant::now);
            if since.elapsed() >= REVIVE_AFTER {
                let started = host.start(&besom, &[]);
                started.map_err(|e| Failure::Failed(format!("{}: {e}", besom.display())))?;
            }
        }
        Ok(())
    }

    /// Suggests commands to try in another terminal.
    fn hints(&self, board: &Board, dir: &Path) -> String {
        let besom = program().map_or("besom".into(), |path| path.display().to_string());
        let dir = dir.display();
        let mut hints = String::from("Try, in another terminal:\n");
        if let Some(pid) = board.leading().and_then(|node| node.pid) {
            hints.push_str(&format!(
                "  kill -9 {pid}    # the leader: watch another node take over\n"
            ));
        }
        let config = format!("--config {dir}/node-1/besom.toml");
        for verb in ["status", "ring show", "node drain node-2", "audit"] {
            hints.push_str(&format!("  {besom} {config} {verb}\n"));
        }
        let seconds = REVIVE_AFTER.as_secs();
        hints.push_str(&format!(
            "A killed host is restarted after {seconds} s. Ctrl-C stops everything.\n"
        ));
        hints
    }
}

fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|e| Failure::Failed(format!("the path of this program cannot be read: {e}")))
}

/// Loads the configuration of a host and compiles its plugins into the cache that the hosts share.
async fn prepared(path: &Path) -> Result<Config, Failure> {
    let parsed = read(path, &Overrides::default())?;
    let loader = Loader::start(&parsed)?;
    Ok(loader.resolve(parsed).await.finish()?)
}

/// What a host that has ended has logged last.
fn last_words(host: &Host) -> Option<String> {
    if host.is_alive() {
        return None;
    }
    let log = std::fs::read_to_string(host.log()).unwrap_or_default();
    Some(format!("\n{} has ended ({}):\n{}\n", host.name(), host.log().display(), tail(&log)))
}
