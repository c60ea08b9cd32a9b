//! `besom dead`: lists, retries and discards dead letters.

use besom_core::command::counted;
use besom_core::ids::TaskName;
use besom_snapshot::Letter;
use clap::Subcommand;

use super::output::{self, Facts, Stamp, Table};
use super::printed::Printed;
use super::submit::Asking;
use super::{Exit, Failure, Global, open, task};
use besom_ports::store::{Command, CommandRow, DeadSelector, Letters, Store};

/// `besom dead`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List dead letters, newest first.
    Ls {
        /// The selection.
        #[command(flatten)]
        which: Which,
        /// Include dead letters that a later commit of the same item has resolved.
        #[arg(long)]
        all: bool,
        /// Maximum number of rows.
        #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
    /// Show one dead letter with every error.
    Show {
        /// Number of the dead letter.
        #[arg(value_parser = super::number)]
        id: u64,
    },
    /// Retry dead letters immediately, with the attempt counter reset.
    Retry(Chosen),
    /// Discard dead letters: their items are not planned again until their version changes. Requires
    /// --reason.
    Discard(Chosen),
}

/// Dead letters that were asked for explicitly, and the command about them.
#[derive(Debug, Clone, clap::Args)]
pub struct Chosen {
    /// Numbers of the dead letters.
    ids: Vec<u64>,
    /// The selection.
    #[command(flatten)]
    which: Which,
    /// Select all dead letters.
    #[arg(long)]
    all: bool,
    /// Refuse unless exactly N dead letters match.
    #[arg(long, value_name = "N")]
    expect: Option<u64>,
    /// Reason and waiting time.
    #[command(flatten)]
    asking: Asking,
}

/// Selects dead letters by task and error.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Which {
    /// Only dead letters of this task.
    #[arg(long)]
    task: Option<String>,
    /// Only dead letters whose last error is exactly this text, as in the JSON of `besom dead ls`.
    #[arg(long)]
    error: Option<String>,
}

impl Which {
    fn selector(self, ids: Vec<u64>) -> DeadSelector {
        let task = self.task.map(TaskName::from);
        DeadSelector { ids, task, error: self.error, expect: None }
    }
}

/// Returns an explicit selection. No selection at all is an error and does not mean everything.
fn chosen(which: Which, ids: Vec<u64>, all: bool) -> Result<DeadSelector, Failure> {
    let selector = which.selector(ids);
    match (selector.is_narrow(), all) {
        (true, false) | (false, true) => Ok(selector),
        (false, false) => Err(Failure::Usage(
            "no dead letters selected: give numbers, --task, --error or --all".into(),
        )),
        (true, true) => {
            Err(Failure::Usage("--all cannot be combined with numbers, --task or --error".into()))
        }
    }
}

impl Chosen {
    /// Records a command about these dead letters.
    async fn run(
        self,
        global: &Global,
        store: &dyn Store,
        command: fn(DeadSelector) -> Command,
    ) -> Result<Exit, Failure> {
        let Chosen { ids, which, all, expect, asking } = self;
        let selector = DeadSelector { expect, ..chosen(which, ids, all)? };
        let command = command(selector.clone());
        asking.check(&command)?;
        refuse_absent(store, &selector).await?;
        asking.run(global, store, &command).await
    }
}

impl Verb {
    /// Prints dead letters, or records a command for the leader.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, outline) = open::reading(global).await?;
        match self {
            Verb::Ls { which, all, limit } => {
                let name = which.task.clone();
                let selector = which.selector(Vec::new());
                let letters = if all { Letters::All } else { Letters::Open };
                let found = store.dead_letters(&selector, letters, None, limit).await?;
                task::known_if_none(&*store, &outline, found.len(), name.as_deref()).await?;
                let found: Vec<Letter> = found.iter().map(Letter::from).collect();
                let printed = Printed(&found);
                output::show_list(global.output, &printed, (found.len(), limit), || list(&found))?;
                Ok(Exit::Fine)
            }
            Verb::Show { id } => {
                let selector = DeadSelector { ids: vec![id], ..DeadSelector::default() };
                let found = store.dead_letters(&selector, Letters::All, None, 1).await?;
                let Some(found) = found.first().map(Letter::from) else {
                    return Err(Failure::Usage(gone(&*store, id).await?));
                };
                output::show(global.output, &Printed(&found), || text(&found))?;
                Ok(Exit::Fine)
            }
            Verb::Retry(chosen) => chosen.run(global, &*store, Command::RetryDead).await,
            Verb::Discard(chosen) => chosen.run(global, &*store, Command::DiscardDead).await,
        }
    }
}

/// Refuses numbers of which none is an open dead letter, as a leader would; nobody else says so without a leader.
async fn refuse_absent(store: &dyn Store, selector: &DeadSelector) -> Result<(), Failure> {
    let Some(first) = selector.ids.first() else { return Ok(()) };
    if !store.dead_letters(selector, Letters::Open, None, 1).await?.is_empty() {
        return Ok(());
    }
    match selector.ids.as_slice() {
        [_] => Err(Failure::Failed(gone(store, *first).await?)),
        _ => Err(Failure::Failed(selector.mismatch(0).unwrap_or_else(|| {
            format!("{selector}: none of them is open; list dead letters with `besom dead ls`")
        }))),
    }
}

/// Maximum number of commands searched for the one that a dead letter went with.
const COMMANDS_SEARCHED: u32 = 10_000;

/// Describes why there is no such dead letter: the latest command that retried or discarded it by its
/// number, or one that selected it by task or error and may have.
async fn gone(store: &dyn Store, id: u64) -> Result<String, Failure> {
    let commands = store.commands(None, COMMANDS_SEARCHED).await?;
    Ok(told(id, &commands))
}

fn told(id: u64, commands: &[CommandRow]) -> String {
    let took = |row: &&CommandRow| match &row.command {
        Command::RetryDead(which) | Command::DiscardDead(which) => {
            row.applied_at.is_some()
                && !row.refused
                && (which.ids.is_empty() || which.ids.contains(&id))
        }
        _ => false,
    };
    let by_number = |row: &&CommandRow| match &row.command {
        Command::RetryDead(which) | Command::DiscardDead(which) => !which.ids.is_empty(),
        _ => false,
    };
    let mut took = commands.iter().filter(took);
    let row = took.clone().find(by_number).or_else(|| took.next());
    let Some((row, at)) = row.and_then(|row| Some((row, row.applied_at?))) else {
        return format!("there is no dead letter {id}; list dead letters with `besom dead ls`");
    };
    let (who, at, command) = (&row.by, Stamp(at), row.id);
    let done = if row.command.discards() { "discarded" } else { "retried" };
    let why = if row.reason.is_empty() { String::new() } else { format!(": {}", row.reason) };
    match by_number(&row) {
        true => format!("dead letter {id} was {done} by {who} at {at} (command {command}){why}"),
        false => format!(
            "there is no dead letter {id}; it may have been among the {} that {who} {done} at {at} (command {command}){why}",
            row.command.subject()
        ),
    }
}

fn list(letters: &[Letter]) -> String {
    let mut table = Table::new("There are no dead letters.");
    for letter in letters {
        let resolved = letter.resolved_at.map_or("", |_| "(resolved) ");
        let error = letter.error.as_deref().unwrap_or_default();
        table.row([
            (">ID", &letter.id),
            ("TASK", &letter.task),
            ("TENANT", &output::text(letter.tenant.as_ref())),
            ("KEY", &letter.key),
            ("SINCE", &Stamp(letter.at)),
            (">ATTEMPTS", &letter.attempts),
            ("ERROR", &format!("{resolved}{error}")),
        ]);
    }
    table.render()
}

fn text(letter: &Letter) -> String {
    let mut facts = Facts::default();
    facts.add("id", letter.id).add("task", &letter.task);
    facts.add("tenant", output::text(letter.tenant.as_ref())).add("key", &letter.key);
    facts.add("due", output::text(letter.due.map(Stamp))).add("version", &letter.version);
    facts.add("partition", letter.partition).add("planned by run", letter.run);
    facts
        .add("set aside", Stamp(letter.at))
        .add("set aside by", output::text(letter.node.as_ref()));
    if let Some(at) = letter.resolved_at {
        facts.add("resolved by a later commit", Stamp(at));
    }
    facts.add("attempts", letter.attempts).add("host deaths", letter.deaths);
    if !letter.payload.is_empty() {
        let bytes = counted(letter.payload_bytes, "byte");
        facts.add("payload", format!("{} ({bytes})", letter.payload));
    }
    for (i, error) in letter.errors.iter().enumerate() {
        facts.add(format!("error {}", i + 1), error);
    }
    facts.render()
}

#[cfg(test)]
mod tests {
    use besom_core::time::Time;

    use super::*;

    #[test]
    fn everything_has_to_be_asked_for() {
        assert!(chosen(Which::default(), vec![], false).is_err());
        assert!(chosen(Which::default(), vec![1], true).is_err());
        assert_eq!(chosen(Which::default(), vec![], true).ok(), Some(DeadSelector::default()));
        let task = Which { task: Some("compaction".into()), error: None };
        assert!(chosen(task, vec![], false).is_ok());
    }

    #[test]
    fn a_letter_that_is_gone_is_told_with_the_command_that_took_it() {
        let row = |id, command, reason: &str| CommandRow {
            id,
            command,
            by: "ada (uid 7)".into(),
            reason: reason.into(),
            at: Time::from_secs(50),
            applied_at: Some(Time::from_secs(60)),
            result: None,
            refused: false,
        };
        let of = |ids: &[u64]| DeadSelector { ids: ids.to_vec(), ..DeadSelector::default() };
        let task = || DeadSelector { task: Some("sweep".into()), ..DeadSelector::default() };
        let refused = |row| CommandRow { refused: true, ..row };
        let by_number = row(4, Command::RetryDead(of(&[3, 7])), "fixed");
        let by_task = row(9, Command::DiscardDead(task()), "");
        let at = "1970-01-01T00:01:00Z";
        for (commands, expected) in [
            (
                vec![],
                "there is no dead letter 7; list dead letters with `besom dead ls`".to_owned(),
            ),
            (
                vec![by_task.clone(), by_number.clone()],
                format!("dead letter 7 was retried by ada (uid 7) at {at} (command 4): fixed"),
            ),
            (
                vec![by_task, row(8, Command::RetryDead(of(&[8])), "")],
                format!(
                    "there is no dead letter 7; it may have been among the dead letters of sweep that ada (uid 7) discarded at {at} (command 9)"
                ),
            ),
            (
                vec![refused(by_number)],
                "there is no dead letter 7; list dead letters with `besom dead ls`".to_owned(),
            ),
        ] {
            assert_eq!(told(7, &commands), expected);
        }
    }
}
