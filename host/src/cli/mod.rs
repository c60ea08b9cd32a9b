//! The command line: one file per group of verbs.
//!
//! Results go to stdout through [`output`], everything else to stderr. Verbs that read work on the
//! store and need no running host. Verbs that change something record a command, which the leader
//! applies. A verb is a struct of arguments with `run(self, &Global)`.

pub mod ask;
pub mod assembly;
pub mod audit;
pub mod check;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod dead;
pub mod demo;
pub mod doc;
pub mod endpoints;
pub mod exposed;
pub mod failure;
pub mod grants;
pub mod kept;
pub mod log;
pub mod node;
pub mod open;
pub mod outbox;
pub mod output;
pub mod patience;
pub mod pause;
pub mod plugin;
pub mod printed;
pub mod purge;
pub mod quarantine;
pub mod review;
pub mod ring;
pub mod run;
pub mod runs;
pub mod schedule;
pub mod serve;
pub mod spelling;
pub mod status;
pub mod stayed;
pub mod stream;
pub mod submit;
pub mod task;
pub mod top;
pub mod undo;
pub mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use besom_config::{Overrides, Parsed};
use clap::{CommandFactory as _, Parser, Subcommand};

pub use failure::{Exit, Failure};
pub use output::Format;

/// A housekeeping engine: a plugin proposes, the host commits.
#[derive(Debug, Parser)]
#[command(name = "besom", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

/// Options of every verb.
#[derive(Debug, Clone, clap::Args)]
pub struct Global {
    /// Path of the configuration file.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "./besom.toml",
        env = "BESOM_CONFIG"
    )]
    pub config: PathBuf,
    /// Output format of results.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Log level for stderr, or directives such as `info,besom_node=debug`.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info", env = "BESOM_LOG")]
    pub log: String,
    /// Override a configuration key from the file or the environment; repeatable.
    #[arg(long = "set", global = true, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

impl Global {
    /// Reads the configuration file, the environment and the overrides.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn parsed(&self) -> Result<Parsed, Failure> {
        Ok(besom_config::read(&self.config, &Overrides::from_env(self.set.clone()))?)
    }
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run the host until SIGTERM.
    Serve(serve::Args),
    /// Run all tasks once without a host, until nothing new is planned.
    Run(run::Args),
    /// Create sample data in a directory and run Besom on it.
    Demo(demo::Args),
    /// Open the live dashboard.
    Top(top::Args),
    /// Show the leader, the nodes, the schedule of each task, and the waiting items.
    Status(status::Args),
    /// Verify that every planned item is committed, skipped, dead, discarded or pending.
    Audit(audit::Args),
    /// List, show, trigger, pause, resume and edit tasks, discard what they have planned, and explain a slot.
    #[command(subcommand)]
    Task(task::Verb),
    /// Pause all tasks.
    Pause(pause::Pause),
    /// Resume all tasks.
    Resume(pause::Resume),
    /// List, show, retry and discard dead letters.
    #[command(subcommand)]
    Dead(dead::Verb),
    /// List and repair the streams of the log.
    #[command(subcommand)]
    Stream(stream::Verb),
    /// List and retry messages that tasks have emitted.
    #[command(subcommand)]
    Outbox(outbox::Verb),
    /// Show recorded commands: who, when, why, and the result.
    #[command(subcommand)]
    Commands(commands::Verb),
    /// List, show, cancel and replay runs, and print their logs.
    #[command(subcommand)]
    Runs(runs::Verb),
    /// List and show what runs would change, and approve or reject it.
    #[command(subcommand)]
    Review(review::Verb),
    /// List, show and find the rows that are kept, so that they can be put back.
    #[command(subcommand)]
    Quarantine(quarantine::Verb),
    /// Put rows back as they were before an item, a run or a task has changed them.
    Undo(undo::Args),
    /// Import, export, show and verify documents, and list those left alone.
    #[command(subcommand)]
    Doc(doc::Verb),
    /// List plugins, pin them, and compare them with the version loaded before.
    #[command(subcommand)]
    Plugin(plugin::Verb),
    /// Print the SQL of least privilege for PostgreSQL.
    Grants(grants::Args),
    /// Print the next times of a schedule.
    #[command(subcommand)]
    Schedule(schedule::Verb),
    /// List, drain and resume the nodes of a cluster, and make the leader resign.
    #[command(subcommand)]
    Node(node::Verb),
    /// Show the ring of the cluster, and simulate or serve other rings.
    #[command(subcommand)]
    Ring(ring::Verb),
    /// Check the configuration and its plugins, and optionally the mapping against the database.
    Check(check::Args),
    /// Write a commented configuration, or print the JSON Schema.
    #[command(subcommand)]
    Config(config::Verb),
}

/// Parses the arguments and runs the verb. As a child process for plugins and documents, runs that work
/// instead.
pub fn main() -> ExitCode {
    let works =
        [besom_runtime::COMPILING, besom_runtime::LOOKING_UP, besom_product::doc::VERIFYING];
    if let Some(code) = besom_system::child::main(&works) {
        return code;
    }
    besom_system::memory::return_large_buffers();
    let cli = Cli::parse();
    // Databases, leases and logs hold data of other people: only this user may read them.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // What a plugin says of items that it decides again has been logged by their run.
    let of_plugins = !matches!(cli.verb, Verb::Runs(runs::Verb::Replay(_)));
    if let Err(message) = log::start(&cli.global.log, of_plugins) {
        return Exit::from(Failure::Usage(message)).into();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            let failure = Failure::Failed(format!("the async runtime cannot be started: {e}"));
            return Exit::from(failure).into();
        }
    };
    let exit = runtime.block_on(dispatch(cli)).unwrap_or_else(Exit::from);
    // The verb has finished its work; do not wait for a guest or a read that hangs.
    runtime.shutdown_background();
    exit.into()
}

async fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    let global = &cli.global;
    match cli.verb {
        Verb::Serve(args) => args.run(global).await,
        Verb::Run(args) => args.run(global).await,
        Verb::Demo(args) => args.run(global).await,
        Verb::Top(args) => args.run(global).await,
        Verb::Status(args) => args.run(global).await,
        Verb::Audit(args) => args.run(global).await,
        Verb::Task(verb) => verb.run(global).await,
        Verb::Pause(args) => args.run(global).await,
        Verb::Resume(args) => args.run(global).await,
        Verb::Dead(verb) => verb.run(global).await,
        Verb::Stream(verb) => verb.run(global).await,
        Verb::Outbox(verb) => verb.run(global).await,
        Verb::Commands(verb) => verb.run(global).await,
        Verb::Runs(verb) => verb.run(global).await,
        Verb::Review(verb) => verb.run(global).await,
        Verb::Quarantine(verb) => verb.run(global).await,
        Verb::Undo(args) => args.run(global).await,
        Verb::Doc(verb) => verb.run(global).await,
        Verb::Plugin(verb) => verb.run(global).await,
        Verb::Grants(args) => args.run(global).await,
        Verb::Schedule(verb) => verb.run(global),
        Verb::Node(verb) => verb.run(global).await,
        Verb::Ring(verb) => verb.run(global).await,
        Verb::Check(args) => args.run(global).await,
        Verb::Config(verb) => verb.run(global).await,
    }
}

/// Parses a number that a list prints.
fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a number is expected, which the verb `ls` lists".to_owned())
}

/// Returns the definition of the command line, for completions and the manual page.
pub fn command() -> clap::Command {
    Cli::command()
}
