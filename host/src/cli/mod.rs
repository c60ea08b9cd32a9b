//! The command line: one file per group of verbs.
//!
//! Results go to stdout through [`output`], everything else to stderr. Reading verbs work on
//! the store, whether a host runs or not; what changes something is a command row that the
//! leader applies. A verb is a struct of arguments with `run(self, &Global)`.

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
pub mod plugin;
pub mod ring;
pub mod run;
pub mod runs;
pub mod schedule;
pub mod serve;
pub mod status;
pub mod stream;
pub mod submit;
pub mod task;
pub mod top;
pub mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

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

/// What every verb understands.
#[derive(Debug, Clone, clap::Args)]
pub struct Global {
    /// The configuration.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "./besom.toml",
        env = "BESOM_CONFIG"
    )]
    pub config: PathBuf,
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// What is logged to stderr: a level, or directives such as `info,besom::node=debug`.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info", env = "BESOM_LOG")]
    pub log: String,
    /// Set a key of the configuration, above the file and the environment. Repeatable.
    #[arg(long = "set", global = true, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run the host, until SIGTERM: it leads or follows, plans, executes and commits.
    Serve(serve::Args),
    /// Run every task once to the end, without a host.
    Run(run::Args),
    /// Create a directory with something to sweep, and show Besom at work in it.
    Demo(demo::Args),
    /// The dashboard: see who leads, what runs and what waits, live, and act on it.
    Top(top::Args),
    /// Who leads, which nodes are there, what every task does next and what waits.
    Status(status::Args),
    /// Recount the books: every item planned is committed, skipped, dead, discarded or pending.
    Audit(audit::Args),
    /// Tasks: list, show, trigger, pause, resume, edit, explain a slot.
    #[command(subcommand)]
    Task(task::Verb),
    /// Items set aside: list, show, retry, discard.
    #[command(subcommand)]
    Dead(dead::Verb),
    /// Streams of the log: list, repair.
    #[command(subcommand)]
    Stream(stream::Verb),
    /// Messages that tasks have emitted: list, retry.
    #[command(subcommand)]
    Outbox(outbox::Verb),
    /// What people have asked of the leader: who, when, why, and what came of it.
    #[command(subcommand)]
    Commands(commands::Verb),
    /// Runs: list, show, logs, cancel.
    #[command(subcommand)]
    Runs(runs::Verb),
    /// Documents: import, export, show, verify, left-alone.
    #[command(subcommand)]
    Doc(doc::Verb),
    /// Plugins: list, pin, compare with the one before.
    #[command(subcommand)]
    Plugin(plugin::Verb),
    /// The SQL that gives Besom's role on PostgreSQL what its tasks need, and no more.
    Grants(grants::Args),
    /// Schedules: the next times of an expression.
    #[command(subcommand)]
    Schedule(schedule::Verb),
    /// Nodes of the cluster: list, drain, resume; and the leader: resign.
    #[command(subcommand)]
    Node(node::Verb),
    /// Rings: the cluster's (show, owner), and others (simulate, serve).
    #[command(subcommand)]
    Ring(ring::Verb),
    /// Check the configuration with all its plugins, and the mapping against the database.
    Check(check::Args),
    /// The configuration: its schema, and a first one with comments.
    #[command(subcommand)]
    Config(config::Verb),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let works = [crate::runtime::COMPILING, crate::runtime::LOOKING_UP, crate::doc::VERIFYING];
    if let Some(code) = crate::child::main(&works) {
        return code;
    }
    let cli = Cli::parse();
    // Databases, leases and logs hold other people's data: they are this user's alone.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    if let Err(message) = log::start(&cli.global.log) {
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
    // A verb that ends has finished its work; a guest or a read that hangs is not waited for.
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
        Verb::Dead(verb) => verb.run(global).await,
        Verb::Stream(verb) => verb.run(global).await,
        Verb::Outbox(verb) => verb.run(global).await,
        Verb::Commands(verb) => verb.run(global).await,
        Verb::Runs(verb) => verb.run(global).await,
        Verb::Doc(verb) => verb.run(global).await,
        Verb::Plugin(verb) => verb.run(global).await,
        Verb::Grants(args) => args.run(global).await,
        Verb::Schedule(verb) => verb.run(global),
        Verb::Node(verb) => verb.run(global).await,
        Verb::Ring(verb) => verb.run(global).await,
        Verb::Check(args) => args.run(global).await,
        Verb::Config(verb) => verb.run(global),
    }
}

/// The program's arguments, for completions and the manual page.
pub fn command() -> clap::Command {
    Cli::command()
}
