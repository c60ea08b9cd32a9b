//! The progress as lines, for pipes, logs and screen readers: a line when a task begins, when it
//! ends and, while it works, every [`SAY_EVERY`]. Nothing here writes anywhere.

use std::time::Duration;

use besom_core::time::Mono;

use crate::progress::{Phase, Progress, Task, grouped, per_second};

/// How often the progress of a working task is reported.
pub(crate) const SAY_EVERY: Duration = Duration::from_secs(5);

/// What has been reported so far.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    stage: String,
    said: Vec<(Phase, Mono)>,
}

impl Plain {
    /// The lines to report now.
    pub(crate) fn lines(&mut self, progress: &Progress) -> Vec<String> {
        let mut lines = Vec::new();
        if self.stage != progress.stage() {
            progress.stage().clone_into(&mut self.stage);
            if !self.stage.is_empty() {
                lines.push(self.stage.clone());
            }
        }
        self.said.resize(progress.tasks().len(), (Phase::Waiting, Mono::START));
        for (task, (phase, at)) in progress.tasks().iter().zip(&mut self.said) {
            let again = *task.phase() == Phase::Working && progress.now().since(*at) >= SAY_EVERY;
            if task.phase() == phase && !again {
                continue;
            }
            task.phase().clone_into(phase);
            *at = progress.now();
            lines.push(line(task));
        }
        lines
    }
}

fn line(task: &Task) -> String {
    let counts = task.counts();
    let mut line = format!(
        "{}: {}, {} of {}",
        task.name(),
        task.phase().word(),
        grouped(counts.done),
        grouped(counts.planned)
    );
    if counts.dead > 0 {
        line += &format!(", {} set aside", grouped(counts.dead));
    }
    if let Some(rate) = task.rate() {
        line += &format!(", {}", per_second(rate));
    }
    if let Phase::Failed(reason) = task.phase() {
        line += &format!(": {reason}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::{Counts, Event};

    #[test]
    fn a_task_speaks_when_its_phase_changes_and_now_and_then() {
        let mut progress = Progress::new(["compaction", "share-expiry"]);
        let mut plain = Plain::default();
        let counted = |done, dead| Event::Counted {
            task: "compaction".into(),
            counts: Counts { planned: 1_200, done, dead },
        };
        let entered = |task: &str, phase| Event::Entered { task: task.into(), phase };
        let second = |n: u64| Event::Tick(Mono(n * 1_000_000));
        let failed = Phase::Failed("the store is unavailable".into());
        let script: Vec<(Vec<Event>, Vec<&str>)> = vec![
            (vec![], vec![]),
            (vec![Event::Stage("writing 40 documents".into())], vec!["writing 40 documents"]),
            (vec![Event::Stage(String::new())], vec![]),
            (vec![second(1), counted(0, 0)], vec!["compaction: working, 0 of 1,200"]),
            (vec![second(4), counted(30, 0)], vec![]),
            (
                vec![second(6), counted(300, 1)],
                vec!["compaction: working, 300 of 1,200, 1 set aside, 60/s"],
            ),
            (
                vec![entered("compaction", Phase::Finished), counted(1_199, 1)],
                vec!["compaction: done, 1,199 of 1,200, 1 set aside"],
            ),
            (vec![second(60)], vec![]),
            (
                vec![entered("share-expiry", failed)],
                vec!["share-expiry: failed, 0 of 0: the store is unavailable"],
            ),
        ];
        for (events, expected) in script {
            let label = format!("{events:?}");
            for event in events {
                progress.update(event);
            }
            assert_eq!(plain.lines(&progress), expected, "{label}");
            assert!(plain.lines(&progress).is_empty(), "said once: {label}");
        }
    }
}
