//! Clients send lines; a counter counts the lines of each client, and an aggregator how often each line
//! came. Whatever is killed, each line is counted once. README.md is the manual.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod aggregator;
mod client;
mod counter;
mod experiment;
mod text;

/// The lines, as Besom delivers them.
const LINES: &str = "client_message";
/// What the counter knows of each client.
const COUNTS: &str = "client_count";
/// The lines again, by their text.
const TEXTS: &str = "message_aggregation";
/// What the counter sets aside.
const DEAD: &str = "client_message_dead";

#[derive(Parser)]
#[command(about = "Counts messages by client and by text, each once")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Send lines to a host of Besom: those that are typed, or those of a text.
    Client(client::Arguments),
    /// Count the lines of each client.
    Counter(Consuming),
    /// Count how often each line came.
    Aggregator {
        #[command(flatten)]
        consuming: Consuming,
        #[command(flatten)]
        place: aggregator::Place,
    },
    /// Start all parts, send a text from several clients, and compare every number.
    Experiment(experiment::Arguments),
}

#[derive(clap::Args)]
struct Consuming {
    /// The brokers of Kafka: host:port, separated by commas.
    #[arg(long)]
    brokers: String,
    /// The consumer's own name, the same after each restart: its partitions wait for it.
    #[arg(long)]
    instance: Option<String>,
}

/// The program.
pub fn main() -> ExitCode {
    let done: Result<bool> = match Arguments::parse().verb {
        Verb::Client(arguments) => client::run(&arguments).map(|()| true),
        Verb::Counter(consuming) => counter::run(&consuming).map(|()| true),
        Verb::Aggregator { consuming, place } => aggregator::run(&consuming, &place).map(|()| true),
        Verb::Experiment(arguments) => experiment::run(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("message-counting: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Names what a person should look at.
fn tell(settings: &besom_feed::Settings) -> impl FnMut(besom_feed::Notice) {
    use besom_feed::Notice;
    let who = settings.instance.as_ref().unwrap_or(&settings.group);
    move |notice| match notice {
        Notice::Committed { .. } | Notice::Duplicates { .. } => {}
        other => eprintln!("{who}: {other:?}"),
    }
}
