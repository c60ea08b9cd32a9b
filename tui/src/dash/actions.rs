//! The actions of the dashboard, each as a confirmation dialog.

use besom_core::command::{Action, Command, DeadSelector, Undo};
use besom_core::ids::{RunId, TaskName};
use besom_snapshot::{DEAD_GROUPS_MAX, Snapshot, Task, WaitingReview};

use super::confirm::{Confirm, quoted};
use super::text::grouped;

fn ask(title: String, button: &'static str, command: Command, verb: String) -> Confirm {
    Confirm::new(title, button, Action::Ask { command }, verb)
}

/// Asks to start a run now.
pub fn trigger(task: &str) -> Confirm {
    let command = Command::Trigger { task: TaskName::from(task) };
    let verb = format!("besom task trigger {}", quoted(task));
    ask(format!("Start a run of {task} now?"), "Trigger", command, verb)
        .line("Its schedule is not affected.")
}

/// Asks to stop a task.
pub fn pause(task: &str) -> Confirm {
    let command = Command::Pause { task: TaskName::from(task) };
    let verb = format!("besom task pause {}", quoted(task));
    ask(format!("Pause {task}?"), "Pause", command, verb)
        .line("It plans nothing more, and what is planned waits until it is resumed.")
        .because()
}

/// Asks to pause a task in place of a brake.
pub fn take_over(task: &Task) -> Confirm {
    let reason = task.paused.as_ref().map_or("", |pause| &pause.reason);
    pause(&task.name)
        .line(format!("A brake has stopped it: {reason}"))
        .line("The pause is then yours, with your reason, and no alarm any more.")
}

/// Asks to stop all tasks.
pub fn pause_all() -> Confirm {
    let command = Command::Pause { task: TaskName::from(TaskName::ALL) };
    ask("Pause all tasks?".to_owned(), "Pause all", command, "besom pause --all".to_owned())
        .line("No task plans or executes anything until all are resumed.")
        .because()
}

/// Asks to resume all tasks.
pub fn resume_all() -> Confirm {
    let command = Command::Resume { task: TaskName::from(TaskName::ALL), release: false };
    ask("Resume all tasks?".to_owned(), "Resume all", command, "besom resume --all".to_owned())
        .line("Tasks that are paused by themselves stay paused.")
}

/// Asks to discard what is planned of a task.
pub fn discard_planned(task: &str) -> Confirm {
    let command = Command::DiscardPlanned { task: TaskName::from(task) };
    let verb = format!("besom task discard {}", quoted(task));
    ask(format!("Discard what is planned of {task}?"), "Discard", command, verb)
        .line("Its items are not executed; a later run may plan them again.")
        .because()
}

/// Asks to plan runs of a task again; to `release` it lets those that are planned go beyond its brakes.
pub fn resume(task: &Task, release: bool) -> Confirm {
    let name = &task.name;
    let command = Command::Resume { task: TaskName::from(name.as_str()), release };
    let (button, flag) = if release { ("Release", " --release") } else { ("Resume", "") };
    let verb = format!("besom task resume {}{flag}", quoted(name));
    let confirm = ask(format!("{button} {name}?"), button, command, verb);
    let Some(brake) = task.paused.as_ref().filter(|pause| pause.is_brake()) else {
        return confirm
            .line("Runs are planned again from now on, and what is planned is executed.");
    };
    let confirm = confirm.line(format!("A brake has stopped it: {}", brake.reason));
    match release {
        true => confirm.line("The runs that are planned delete what they want.").because(),
        false => confirm.line("Beyond the limit of the file it is stopped again; R releases it."),
    }
}

/// Asks to cancel a run.
pub fn cancel(run: u64, task: &str) -> Confirm {
    let command = Command::Cancel { run: RunId(run) };
    let verb = format!("besom runs cancel {run}");
    ask(format!("Cancel run {run} of {task}?"), "Cancel run", command, verb)
        .line("Its scan stops; the items it has already planned are still executed.")
}

/// Asks to execute what a run has planned.
pub fn approve(task: &str, review: &WaitingReview) -> Confirm {
    let run = review.run;
    let verb = format!("besom review approve {run}");
    let title = format!("Approve run {run} of {task}?");
    let confirm = ask(title, "Approve", Command::Approve { run }, verb)
        .line("What it has planned is executed.")
        .line(&*review.summary);
    match &review.brake {
        Some(brake) => confirm.line(format!("warning: {brake}")),
        None => confirm,
    }
}

/// Asks to discard what a run has planned.
pub fn reject(run: u64, task: &str) -> Confirm {
    let command = Command::Reject { run: RunId(run) };
    let verb = format!("besom review reject {run}");
    ask(format!("Reject run {run} of {task}?"), "Reject", command, verb)
        .line("What it has planned is discarded; a later run may plan it again.")
        .because()
}

/// Asks to put back the rows that a run has changed.
pub fn undo(run: u64, task: &str) -> Confirm {
    let command = Command::Undo(Undo { target: run.to_string(), ..Undo::default() });
    let verb = format!("besom undo {run}");
    ask(format!("Undo run {run} of {task}?"), "Undo", command, verb)
        .line("Its rows are put back as they were; what others have changed since stays.")
        .line("A live task that would take them again is paused; correct its rule, then resume it.")
        .because()
}

/// Asks to drain a node.
pub fn drain(node: &str) -> Confirm {
    let verb = format!("besom node drain {}", quoted(node));
    let action = Action::Drain { node: node.to_owned() };
    Confirm::new(format!("Drain {node}?"), "Drain", action, verb)
        .line("It finishes its work and receives nothing new; its partitions move away.")
}

/// Asks to let a drained node rejoin.
pub fn rejoin(node: &str) -> Confirm {
    let verb = format!("besom node resume {}", quoted(node));
    let action = Action::Rejoin { node: node.to_owned() };
    Confirm::new(format!("Let {node} rejoin?"), "Rejoin", action, verb)
        .line("It receives its share of the partitions again.")
}

/// Asks to have the leader resign.
pub fn resign(leader: &str, term: u64) -> Confirm {
    let title = format!("Have {leader} resign from term {term}?");
    ask(title, "Resign", Command::Resign, "besom node resign".to_owned())
        .line("It finishes the batches in flight; then another node, or the same one, leads.")
}

/// The dead letters that an action applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Letters {
    /// The letters with these numbers.
    Some(Vec<u64>),
    /// All letters of a task with this last error.
    Group {
        /// The task's name in the configuration.
        task: String,
        /// The last error, exactly.
        error: String,
    },
}

impl Letters {
    /// The selector for a command. For a group it contains the count shown: if the leader finds
    /// another count, it refuses.
    fn selector(&self, count: u64) -> DeadSelector {
        match self {
            Letters::Some(ids) => DeadSelector { ids: ids.clone(), ..DeadSelector::default() },
            Letters::Group { task, error } => DeadSelector {
                ids: Vec::new(),
                task: Some(TaskName::from(task.as_str())),
                error: Some(error.clone()),
                expect: Some(count),
            },
        }
    }

    /// The selection as arguments of the command line.
    fn arguments(&self, count: u64) -> String {
        match self {
            Letters::Some(ids) => ids.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
            Letters::Group { task, error } => {
                format!("--task {} --error {} --expect {count}", quoted(task), quoted(error))
            }
        }
    }
}

fn letters(count: u64) -> String {
    if count == 1 { "1 dead letter".to_owned() } else { format!("{} dead letters", grouped(count)) }
}

/// Asks to retry dead letters.
pub fn retry(which: &Letters, count: u64, about: &str) -> Confirm {
    let verb = format!("besom dead retry {}", which.arguments(count));
    let command = Command::RetryDead(which.selector(count));
    ask(format!("Retry {}?", letters(count)), "Retry", command, verb)
        .line(about.to_owned())
        .line("They are retried immediately; their attempts are counted from zero.")
}

/// Asks to discard dead letters.
pub fn discard(which: &Letters, count: u64, about: &str) -> Confirm {
    let verb = format!("besom dead discard {}", which.arguments(count));
    let command = Command::DiscardDead(which.selector(count));
    ask(format!("Discard {}?", letters(count)), "Discard", command, verb)
        .line(about.to_owned())
        .line("CANNOT be undone: they are not planned again until their version changes.")
        .because()
        .counted(count)
}

/// Updates an open dialog about a group of dead letters to the current count.
pub fn recount(confirm: &mut Confirm, snap: &Snapshot) {
    let Action::Ask { command } = &confirm.action else { return };
    let (selector, ask): (_, fn(&Letters, u64, &str) -> Confirm) = match command {
        Command::RetryDead(selector) => (selector, retry),
        Command::DiscardDead(selector) => (selector, discard),
        _ => return,
    };
    let (Some(task), Some(error), Some(seen)) = (&selector.task, &selector.error, selector.expect)
    else {
        return;
    };
    let group = snap.dead.iter().find(|group| group.task == task.as_str() && group.error == *error);
    let count = match group {
        Some(group) => group.count,
        // The snapshot is full, so the group may exist without being listed.
        None if snap.dead.len() >= DEAD_GROUPS_MAX => return,
        None => 0,
    };
    if count == seen {
        return;
    }
    let which = Letters::Group { task: task.to_string(), error: error.clone() };
    let fresh = ask(&which, count, "");
    (confirm.title, confirm.action, confirm.verb) = (fresh.title, fresh.action, fresh.verb);
    if let Some((number, _)) = &mut confirm.count {
        *number = count;
    }
}
