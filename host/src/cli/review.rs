//! `besom review`: what runs would change, shown before anything is committed, and decided.

use besom_core::command::counted;
use besom_core::ids::{RunId, TaskName};
use besom_core::mode::Mode;
use besom_core::review::{ColumnChange, Operation, Review, Sample, Standing, State};
use besom_core::time::Time;
use clap::Subcommand;
use serde_json::Value;

use super::open::Outline;
use super::output::{self, Facts, Stamp, Table};
use super::submit::{Asking, caller};
use super::{Exit, Failure, Global, open, printed, task};
use besom_config::printable;
use besom_ports::store::{Command, CommandRow, ReviewQuery, Store, not_waiting};
use besom_ports::task::TaskDefinition;
use besom_product::retention::rule;

/// Maximum number of commands that no leader has applied yet that are read.
const PENDING_READ: u32 = 1_000;
/// Maximum number of columns of a row that are printed for people, unless only these change.
const COLUMNS_SHOWN: usize = 8;

/// `besom review`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List reviews, newest first: previews, and plans that wait for an approval or were decided.
    Ls {
        /// Only reviews of this task.
        #[arg(long)]
        task: Option<String>,
        /// Only those that wait for an approval.
        #[arg(long)]
        waiting: bool,
        /// Maximum number of rows.
        #[arg(short, long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Show what a run would change: rows, messages, and examples column by column.
    Show {
        /// Number of the run, or the name of a task for its latest review.
        #[arg(value_name = "RUN|TASK")]
        what: String,
        /// Print every column of a row that would be deleted, moved or inserted.
        #[arg(long)]
        full: bool,
    },
    /// Approve what a run has planned: it is executed.
    Approve {
        /// Number of the run.
        run: String,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
    /// Reject what a run has planned: it is discarded, and a later run may plan it again.
    Reject {
        /// Number of the run.
        run: String,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
}

impl Verb {
    /// Prints reviews, or records a decision for the leader.
    ///
    /// # Errors
    /// A review that does not exist or does not wait, or a store that cannot be read or written.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, outline) = open::reading(global).await?;
        match self {
            Verb::Ls { task, waiting, limit } => {
                let task = task.map(TaskName::from);
                let query =
                    ReviewQuery { task: task.clone(), waiting, limit, ..ReviewQuery::default() };
                let found = store.reviews(&query).await?;
                let name = task.as_ref().map(TaskName::as_str);
                task::known_if_none(&*store, &outline, found.len(), name).await?;
                let pending = store.pending_commands(PENDING_READ).await?;
                let decisions: Vec<_> =
                    found.iter().map(|review| decision(&pending, review)).collect();
                let rows: Vec<Value> = found
                    .iter()
                    .zip(&decisions)
                    .map(|(review, asked)| head(review, *asked))
                    .collect();
                let now = store.now().await?;
                let text = || list(&found, &decisions, now);
                output::show_list(global.output, &rows, (rows.len(), limit), text)?;
                Ok(Exit::Fine)
            }
            Verb::Show { what, full } => {
                let review = match what.parse().map(RunId) {
                    Ok(run) => known(&*store, run).await?,
                    Err(_) => {
                        let task = task::known(&*store, &outline, &what).await?;
                        latest(&*store, &outline, task).await?
                    }
                };
                let now = store.now().await?;
                let pending = store.pending_commands(PENDING_READ).await?;
                let asked = decision(&pending, &review);
                let mut json = printed::json(&review);
                add(&mut json, asked);
                let definition =
                    store.run(review.run).await?.as_ref().and_then(TaskDefinition::of_run);
                let rule = definition.and_then(|task| rule(&task, review.opened_at));
                json["rule"] = rule.clone().into();
                let text = || text(&review, (asked, rule.as_deref()), now, full);
                output::show(global.output, &json, text)?;
                Ok(Exit::Fine)
            }
            Verb::Approve { run, asking } => {
                let run = numbered(&*store, "approve", &run).await?;
                decide(global, &*store, run, &Command::Approve { run }, asking).await
            }
            Verb::Reject { run, asking } => {
                let run = numbered(&*store, "reject", &run).await?;
                decide(global, &*store, run, &Command::Reject { run }, asking).await
            }
        }
    }
}

/// The number of a run. A decision is about what somebody has seen, so the name of a task does not do.
async fn numbered(store: &dyn Store, verb: &str, run: &str) -> Result<RunId, Failure> {
    if let Ok(number) = run.parse() {
        return Ok(RunId(number));
    }
    let task = Some(TaskName::from(run));
    let query = ReviewQuery { task, waiting: true, limit: 1, ..ReviewQuery::default() };
    let reason = if verb == "reject" { " --reason TEXT" } else { "" };
    let words = match store.reviews(&query).await?.pop() {
        Some(Review { run: number, .. }) => format!(
            "`{run}` is a task, of which run {number} waits: `besom review show {number}`, then \
             `besom review {verb} {number}{reason}`"
        ),
        None => format!(
            "`{run}` is not the number of a run; list what waits with `besom review ls --waiting`"
        ),
    };
    Err(Failure::Usage(words))
}

/// Records a decision about a review that waits.
async fn decide(
    global: &Global,
    store: &dyn Store,
    run: RunId,
    command: &Command,
    asking: Asking,
) -> Result<Exit, Failure> {
    let review = known(store, run).await?;
    if review.state != State::Waiting {
        return Err(Failure::Failed(not_waiting(run, Some(&Standing::from(&review)))));
    }
    let pending = store.pending_commands(PENDING_READ).await?;
    refuse_second(&pending, &review, command, &asking.reason)?;
    if matches!(command, Command::Approve { .. })
        && decision(&pending, &review).is_none()
        && standing(&review, store.now().await?) == EXPIRED
    {
        let (at, task) = (output::text(review.expires_at.map(Stamp)), &review.task);
        return Err(Failure::Failed(format!(
            "run {run} can no longer be approved: its plan expired at {at}. The next `besom serve`, or `besom run \
             {task}`, ends it, and a later run of {task} plans again"
        )));
    }
    let is_approval = matches!(command, Command::Approve { .. });
    if is_approval {
        let words = format!("run {run} of {}: {}", review.task, review.plan.words());
        to_stderr!("{}", printable(&words));
    }
    let warning = review.plan.brake.clone().filter(|_| is_approval);
    let exit = asking.run_warned(global, store, command, warning).await?;
    // Another decision may have been recorded since this one was.
    let pending = store.pending_commands(PENDING_READ).await?;
    refuse_second(&pending, &review, command, &asking.reason)?;
    Ok(exit)
}

/// Refuses a decision if another one that no leader has applied yet was recorded before it.
fn refuse_second(
    pending: &[CommandRow],
    review: &Review,
    command: &Command,
    reason: &str,
) -> Result<(), Failure> {
    let is_same =
        |row: &&CommandRow| row.command == *command && row.by == caller() && row.reason == reason;
    let Some(first) = decision(pending, review).filter(|first| !is_same(first)) else {
        return Ok(());
    };
    Err(Failure::Failed(format!(
        "run {} is decided already: {}. The first decision counts; the next `besom serve`, or a `besom run` of the \
         task, applies it (command {})",
        review.run,
        asked(first),
        first.id
    )))
}

/// The first decision about a review that no leader has applied yet.
fn decision<'a>(pending: &'a [CommandRow], review: &Review) -> Option<&'a CommandRow> {
    let decides = |command: &Command| match command {
        Command::Approve { run } | Command::Reject { run } | Command::Cancel { run } => {
            *run == review.run
        }
        _ => false,
    };
    let waits = review.state == State::Waiting;
    pending.iter().find(|row| decides(&row.command)).filter(|_| waits)
}

/// A decision that no leader has applied yet, in words.
fn asked(row: &CommandRow) -> String {
    let because = if row.reason.is_empty() { "" } else { ": " };
    let (by, what, reason) = (&row.by, row.command.verb(), &row.reason);
    format!("{by} has asked to {what} it at {}{because}{reason}", Stamp(row.at))
}

/// Adds a decision that no leader has applied yet.
fn add(json: &mut Value, asked: Option<&CommandRow>) {
    if let Some(row) = asked {
        json["decision"] = serde_json::json!({
            "command": row.id,
            "what": row.command.verb(),
            "by": row.by,
            "reason": row.reason,
            "at": Stamp(row.at),
        });
    }
}

async fn known(store: &dyn Store, run: RunId) -> Result<Review, Failure> {
    store.review_of(run).await?.ok_or_else(|| {
        let why = not_waiting(run, None);
        Failure::Usage(format!("{why}; list reviews with `besom review ls`"))
    })
}

async fn latest(store: &dyn Store, outline: &Outline, task: TaskName) -> Result<Review, Failure> {
    if let Some(review) = store.latest_review(&task).await? {
        return Ok(review);
    }
    let words = match outline.tasks.get(&task).map(|known| known.mode) {
        Some(Mode::Preview | Mode::Approve) => {
            format!("there is no review of {task} yet: `besom run {task}` makes one")
        }
        Some(Mode::Live) => format!(
            "there is no review of {task}, whose runs are executed at once (mode = \"live\"): only runs with mode = \
             \"preview\" or \"approve\" have one; `besom run --dry-run {task}` shows what a run would do"
        ),
        None => format!(
            "there is no review of {task}: only runs with mode = \"preview\" or \"approve\" have one"
        ),
    };
    Err(Failure::Usage(words))
}

/// A review as JSON, without its examples.
fn head(review: &Review, asked: Option<&CommandRow>) -> Value {
    let mut fields = printed::json(review);
    fields["summary"] = review.plan.words().into();
    if let Some(plan) = fields["plan"].as_object_mut() {
        plan.remove("samples");
    }
    add(&mut fields, asked);
    fields
}

const EXPIRED: &str = "expired";

/// How it stands, in a word. Without a host, nobody ends what has lapsed.
fn standing(review: &Review, now: Time) -> &'static str {
    let is_late = review.expires_at.is_some_and(|at| at <= now);
    match review.state {
        State::Waiting if is_late => EXPIRED,
        state => state.as_str(),
    }
}

/// Who has decided, and why; empty: nobody yet.
fn decided(review: &Review) -> String {
    match (review.by.as_str(), review.reason.as_str()) {
        ("", _) => String::new(),
        (by, "") => by.to_owned(),
        (by, reason) => format!("{by}: {reason}"),
    }
}

fn list(reviews: &[Review], decisions: &[Option<&CommandRow>], now: Time) -> String {
    let mut table = Table::new(
        "There are no reviews: only runs with mode = \"preview\" or \"approve\" have one.",
    );
    for (review, decision) in reviews.iter().zip(decisions) {
        let waits = review.state == State::Waiting;
        table.row([
            (">RUN", &review.run),
            ("TASK", &review.task),
            ("OPENED", &Stamp(review.opened_at)),
            ("STATE", &standing(review, now)),
            ("EXPIRES", &output::text(review.expires_at.filter(|_| waits).map(Stamp))),
            (">ITEMS", &found(review)),
            ("WOULD CHANGE", &review.plan.words()),
            ("DECIDED BY", &decision.map_or_else(|| decided(review), asked)),
        ]);
    }
    table.render()
}

fn text(
    review: &Review,
    (decision, rule): (Option<&CommandRow>, Option<&str>),
    now: Time,
    full: bool,
) -> String {
    let plan = &review.plan;
    let mut facts = Facts::default();
    facts.add("run", review.run).add("task", &review.task).add("state", standing(review, now));
    facts.add("opened", Stamp(review.opened_at));
    if let Some(at) = review.expires_at.filter(|_| review.state == State::Waiting) {
        facts.add(if at <= now { "expired" } else { "lapses" }, Stamp(at));
    }
    if let Some(at) = review.decided_at {
        facts.add("decided", format!("{} by {}", Stamp(at), decided(review)));
    }
    if let Some(row) = decision {
        facts.add("decision", format!("{}; not applied yet", asked(row)));
    }
    if let Some(rule) = rule {
        facts.add("rule", rule);
    }
    facts.add("would change", plan.words());
    facts.add("items", items(review));
    if let Some(partial) = &plan.partial {
        facts.add("incomplete", partial);
    }
    if let Some(words) = plan.examined_words() {
        facts.add("examined", words);
    }
    if let Some(brake) = &plan.brake {
        facts.add("brake", brake);
    }
    if plan.is_final() {
        facts.add("kept for undo", "nothing (keep_removed = \"0s\"): this cannot be undone");
    } else if plan.bytes > 0 {
        let of = if plan.partial.is_some() { " of the examined rows" } else { "" };
        facts.add("kept for undo", format!("{}{of}", counted(plan.bytes, "byte")));
    }
    let mut out = facts.render();
    if !plan.others.is_empty() {
        let mut table = Table::new("");
        for other in &plan.others {
            table.row([
                (">ITEMS", &other.count),
                ("VERDICT", &other.verdict),
                ("REASON", &other.reason),
            ]);
        }
        out.push_str(&format!("\n{}", table.render()));
    }
    if !plan.samples.is_empty() {
        out.push_str("\nExamples, from the first to the last of the examined items:\n");
        plan.samples.iter().for_each(|sample| out.push_str(&example(sample, full)));
    }
    if standing(review, now) == EXPIRED {
        out.push_str("\nIt cannot be approved any more; the next `besom serve`, or `besom run` of the task, ends it.\n");
    } else if review.state == State::Waiting && decision.is_none() {
        let run = review.run;
        out.push_str(&format!(
            "\nNothing of it is committed until somebody decides:\n    besom review approve {run}\n    \
             besom review reject {run} --reason TEXT\n"
        ));
    }
    out
}

/// The number of items. A preview that ends early has not found all of them.
fn found(review: &Review) -> String {
    let plan = &review.plan;
    let has_all = plan.whole.as_ref().is_some_and(|whole| whole.partial.is_none());
    let ends_early = review.state == State::Shown && plan.partial.is_some() && !has_all;
    let least = if ends_early { "at least " } else { "" };
    format!("{least}{}", review.plan.items)
}

fn items(review: &Review) -> String {
    let plan = &review.plan;
    let examined = match plan.examined == plan.items {
        true => String::new(),
        false => format!(", {} of them examined", plan.examined),
    };
    format!("{}{examined}, {} would change something", found(review), plan.changing)
}

fn example(sample: &Sample, full: bool) -> String {
    let tenant = sample.tenant.as_ref().map(|tenant| format!("{tenant}/")).unwrap_or_default();
    let due = sample.due.map(|due| format!(", due {}", Stamp(due))).unwrap_or_default();
    let rows = counted(sample.rows, "row");
    let place = sample.placed();
    let mut out = printable(&format!("  {place}{tenant}{}{due}: {rows}", sample.key));
    out.push('\n');
    for change in &sample.changes {
        // What changes of a row is never left out.
        let most = match change.operation {
            Operation::Update => usize::MAX,
            _ if full => usize::MAX,
            _ => COLUMNS_SHOWN,
        };
        let mut columns: Vec<String> = change.columns.iter().take(most).map(column).collect();
        let hidden = change.columns.len() - columns.len();
        if hidden > 0 {
            columns.push(format!("and {} more (--full)", counted(hidden as u64, "column")));
        }
        let line = format!(
            "    {} {} ({}): {}",
            change.operation.as_str(),
            change.collection,
            change.key,
            columns.join(", ")
        );
        out.push_str(&printable(&line));
        out.push('\n');
    }
    let hidden = sample.rows.saturating_sub(sample.changes.len() as u64);
    if hidden > 0 {
        out.push_str(&format!("    ... and {} more\n", counted(hidden, "row")));
    }
    out
}

fn column(column: &ColumnChange) -> String {
    let name = &column.name;
    match (&column.before, &column.after) {
        (Some(before), Some(after)) => format!("{name} {before} -> {after}"),
        (Some(value), None) | (None, Some(value)) => format!("{name} {value}"),
        (None, None) => name.clone(),
    }
}
