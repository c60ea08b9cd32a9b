//! `besom outbox`: messages that tasks have emitted, and what has become of them.

use besom_core::delivery::State;
use clap::{Subcommand, ValueEnum};
use serde::Serialize;

use super::output::{self, Stamp, Table};
use super::{Exit, Failure, Global, open};
use crate::ports::store::{Message, MessageQuery};

/// `besom outbox`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Messages, newest first.
    Ls {
        /// Of this topic.
        #[arg(long)]
        topic: Option<String>,
        /// In this state.
        #[arg(long, value_enum)]
        state: Option<Which>,
        /// At most so many.
        #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
}

/// Where messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// They wait, for their delivery or for somebody who reads the table.
    Pending,
    /// Their receiver has taken them.
    Delivered,
    /// They are not tried again.
    GivenUp,
}

impl From<Which> for State {
    fn from(which: Which) -> State {
        match which {
            Which::Pending => State::Pending,
            Which::Delivered => State::Delivered,
            Which::GivenUp => State::GivenUp,
        }
    }
}

/// A message, as it is printed.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    id: u64,
    topic: String,
    key: String,
    task: Option<String>,
    tenant: Option<String>,
    state: State,
    emitted_at: Stamp,
    attempts: u32,
    /// Of a pending one that was tried.
    next_at: Option<Stamp>,
    ended_at: Option<Stamp>,
    error: Option<String>,
    reply_status: Option<u16>,
    reply: Option<String>,
}

impl From<&Message> for Row {
    fn from(message: &Message) -> Row {
        let of = &message.delivery;
        let waits = of.state == State::Pending && of.attempts > 0;
        Row {
            id: of.id,
            topic: message.topic.clone(),
            key: message.key.clone(),
            task: message.task.as_ref().map(ToString::to_string),
            tenant: message.tenant.as_ref().map(ToString::to_string),
            state: of.state,
            emitted_at: Stamp(of.emitted_at),
            attempts: of.attempts,
            next_at: waits.then_some(Stamp(message.next_at)),
            ended_at: of.ended_at.map(Stamp),
            error: of.error.clone(),
            reply_status: of.reply.as_ref().map(|reply| reply.status),
            reply: of.reply.as_ref().map(|r| String::from_utf8_lossy(&r.body).into_owned()),
        }
    }
}

impl Verb {
    /// Looks up and prints.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, _) = open::reading(global).await?;
        let Verb::Ls { topic, state, limit } = self;
        let query = MessageQuery { topic, state: state.map(State::from), limit };
        let found = store.messages(&query).await?;
        let rows: Vec<Row> = found.iter().map(Row::from).collect();
        output::show(global.output, &rows, || list(&rows))?;
        Ok(Exit::Fine)
    }
}

fn list(rows: &[Row]) -> String {
    let mut table = Table::new(
        &[">ID", "TOPIC", "TENANT", "KEY", "EMITTED", "STATE", ">ATTEMPTS", "ANSWER"],
        "The outbox holds no such message.",
    );
    for r in rows {
        let answer = match (&r.error, r.reply_status) {
            (Some(error), _) => error.clone(),
            (None, Some(status)) => status.to_string(),
            (None, None) => "-".to_owned(),
        };
        table.row([
            r.id.to_string(),
            r.topic.clone(),
            output::text(r.tenant.clone()),
            r.key.clone(),
            r.emitted_at.to_string(),
            r.state.word().to_owned(),
            r.attempts.to_string(),
            answer,
        ]);
    }
    table.render()
}
