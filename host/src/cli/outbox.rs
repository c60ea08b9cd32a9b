//! `besom outbox`: lists messages with their delivery, retries and discards them.

use besom_config::printable;
use besom_core::delivery::State;
use besom_snapshot::{Message, payload_text};
use clap::{Subcommand, ValueEnum};
use serde::Serialize;

use super::output::{self, Facts, Stamp, Table};
use super::printed::Printed;
use super::submit::Asking;
use super::{Exit, Failure, Global, open};
use besom_engine::gather::rows;
use besom_ports::store::{Command, MessageQuery, MessageSelector, Store};

/// `besom outbox`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List messages, newest first.
    Ls {
        /// Only messages of this topic.
        #[arg(long)]
        topic: Option<String>,
        /// Only messages of this key.
        #[arg(long)]
        key: Option<String>,
        /// Only messages in this state.
        #[arg(long, value_enum)]
        state: Option<Which>,
        /// Maximum number of rows.
        #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
    /// Show one message with its payload and the receiver's answer.
    Show {
        /// Number of the message.
        #[arg(value_parser = super::number)]
        id: u64,
    },
    /// Retry messages that wait for their next attempt, immediately, and messages that were given up, with the attempt
    /// counter reset as well. A message is superseded, and not retried, if a later one of the same topic, tenant and key was delivered or is
    /// being tried.
    Retry {
        /// Numbers of the messages.
        ids: Vec<u64>,
        /// Only messages of this topic.
        #[arg(long)]
        topic: Option<String>,
        /// Select all messages that wait or were given up.
        #[arg(long)]
        all: bool,
        /// Retry superseded messages as well. Their receiver gets them after later ones.
        #[arg(long)]
        force: bool,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
    /// Give up messages that wait for delivery, so that those behind them are delivered. Requires
    /// --reason. A message that is being sent at this moment may still arrive.
    Discard {
        /// Numbers of the messages.
        ids: Vec<u64>,
        /// All waiting messages of this topic.
        #[arg(long)]
        topic: Option<String>,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
}

/// Returns an explicit selection. No selection at all is an error and does not mean everything.
fn chosen(ids: Vec<u64>, topic: Option<String>, all: bool) -> Result<MessageSelector, Failure> {
    match (ids.is_empty(), &topic, all) {
        (true, None, true) | (false, None, false) | (true, Some(_), false) => {
            Ok(MessageSelector { ids, topic, force: false })
        }
        (true, None, false) => {
            Err(Failure::Usage("no messages selected: give numbers, --topic or --all".into()))
        }
        _ => Err(Failure::Usage("numbers, --topic and --all cannot be combined".into())),
    }
}

/// Returns numbers or a topic; there is no way to select all messages.
fn one_of(ids: Vec<u64>, topic: Option<String>) -> Result<MessageSelector, Failure> {
    if ids.is_empty() && topic.is_none() {
        return Err(Failure::Usage("no messages selected: give numbers or --topic".into()));
    }
    chosen(ids, topic, false)
}

/// The state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// Waiting for delivery, or to be read from the outbox table.
    Pending,
    /// Accepted by the receiver.
    Delivered,
    /// Not retried any more.
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

impl Verb {
    /// Prints messages, or records a command for the leader.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, outline) = open::reading(global).await?;
        match self {
            Verb::Ls { topic, key, state, limit } => {
                let query = MessageQuery {
                    topic,
                    key,
                    state: state.map(State::from),
                    limit,
                    ..MessageQuery::default()
                };
                let found = store.messages(&query).await?;
                let found: Vec<Message> = found.iter().map(rows::message).collect();
                let printed = Printed(&found);
                output::show_list(global.output, &printed, (found.len(), limit), || list(&found))?;
                Ok(Exit::Fine)
            }
            Verb::Show { id } => {
                let query = MessageQuery { id: Some(id), limit: 1, ..MessageQuery::default() };
                let found = store.messages(&query).await?;
                let Some(found) = found.first() else {
                    return Err(Failure::Usage(format!(
                        "there is no message {id}; list messages with `besom outbox ls`"
                    )));
                };
                let shown = Shown {
                    message: rows::message(found),
                    payload: payload_text(&found.delivery.payload),
                };
                output::show(global.output, &Printed(&shown), || text(&shown))?;
                Ok(Exit::Fine)
            }
            Verb::Retry { ids, topic, all, force, asking } => {
                let selector = MessageSelector { force, ..chosen(ids, topic, all)? };
                let command = Command::RetryMessages(selector.clone());
                asking.check(&command)?;
                if !exists(&*store, &selector, |state| state != State::Delivered).await? {
                    return Err(Failure::Failed(selector.mismatch()));
                }
                if let Some(topic) =
                    selector.topic.as_ref().filter(|t| !outline.routes.contains(*t))
                {
                    to_stderr!(
                        "warning: the topic `{}` has no route: nothing delivers its messages until \
                         [topics] has one",
                        printable(topic)
                    );
                }
                asking.run(global, &*store, &command).await
            }
            Verb::Discard { ids, topic, asking } => {
                let selector = one_of(ids, topic)?;
                let command = Command::DiscardMessages(selector.clone());
                asking.check(&command)?;
                if !exists(&*store, &selector, |state| state == State::Pending).await? {
                    return Err(Failure::Failed(selector.none_pending()));
                }
                asking.run(global, &*store, &command).await
            }
        }
    }
}

/// Whether one of the numbers is a message in that state. Without numbers, the leader decides.
async fn exists(
    store: &dyn Store,
    of: &MessageSelector,
    is_wanted: impl Fn(State) -> bool,
) -> Result<bool, Failure> {
    if of.ids.is_empty() {
        return Ok(true);
    }
    for id in &of.ids {
        let query = MessageQuery { id: Some(*id), limit: 1, ..MessageQuery::default() };
        if store.messages(&query).await?.iter().any(|message| is_wanted(message.delivery.state)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A message with its payload.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Shown {
    #[serde(flatten)]
    message: Message,
    /// As text; in hexadecimal if it is none.
    payload: String,
}

fn text(Shown { message, payload }: &Shown) -> String {
    let mut facts = Facts::default();
    facts.add("message", message.id);
    facts.add("topic", &message.topic);
    facts.add("tenant", output::text(message.tenant.as_ref()));
    facts.add("key", &message.key);
    facts.add("sequence", message.sequence);
    facts.add("task", message.task.as_deref().unwrap_or("none: the product entered it"));
    facts.add("emitted", Stamp(message.emitted_at));
    facts.add("state", state(message));
    facts.add("attempts", message.attempts);
    if let Some(at) = message.next_at {
        facts.add("next attempt", Stamp(at));
    }
    if let Some(at) = message.ended_at {
        facts.add("ended", Stamp(at));
    }
    if let Some(error) = &message.error {
        facts.add("error", error);
    }
    if let Some(status) = message.reply_status {
        facts.add("answer", status);
    }
    if let Some(reply) = &message.reply {
        facts.add("body", reply);
    }
    facts.add("payload", payload);
    facts.render()
}

/// The state in words. Only `--force` retries what was given up and superseded.
fn state(message: &Message) -> String {
    let superseded = message.state == State::GivenUp && message.superseded;
    format!("{}{}", message.state.word(), if superseded { ", superseded" } else { "" })
}

fn list(messages: &[Message]) -> String {
    let mut table = Table::new("The outbox contains no matching messages.");
    for message in messages {
        let answer = match (&message.error, message.reply_status) {
            (Some(error), _) => error.clone(),
            (None, Some(status)) => status.to_string(),
            (None, None) => "-".to_owned(),
        };
        table.row([
            (">ID", &message.id),
            ("TOPIC", &message.topic),
            ("TENANT", &output::text(message.tenant.as_ref())),
            ("KEY", &message.key),
            (">SEQUENCE", &message.sequence),
            ("EMITTED", &Stamp(message.emitted_at)),
            ("STATE", &state(message)),
            (">ATTEMPTS", &message.attempts),
            ("ANSWER", &answer),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_has_one_selection() {
        let topic = || Some("t".to_owned());
        for (ids, of, all, is_one) in [
            (vec![], None, false, false),
            (vec![], None, true, true),
            (vec![], topic(), false, true),
            (vec![], topic(), true, false),
            (vec![1], None, false, true),
            (vec![1], topic(), false, false),
            (vec![1], None, true, false),
        ] {
            let selected = chosen(ids.clone(), of.clone(), all);
            assert_eq!(selected.is_ok(), is_one, "{ids:?} {of:?} {all}");
        }
    }

    #[test]
    fn all_messages_are_never_discarded_at_once() {
        let topic = || Some("t".to_owned());
        assert!(one_of(vec![], None).is_err());
        assert!(one_of(vec![1], topic()).is_err());
        let by_topic = one_of(vec![], topic()).expect("a selection");
        assert_eq!(by_topic, MessageSelector { topic: topic(), ..MessageSelector::default() });
        let by_number = one_of(vec![1, 2], None).expect("a selection");
        assert_eq!(by_number, MessageSelector { ids: vec![1, 2], ..MessageSelector::default() });
    }
}
