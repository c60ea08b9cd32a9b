//! What a run would change, as lines for a screen or a pager.

use besom_core::command::{counted, with_reason};
use besom_core::review::{ColumnChange, Operation, Plan, Review, RowChange, State, share_of};

use crate::dash::screens::figure::date_clock;
use crate::dash::table::Emphasis;
use crate::dash::text::grouped;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanLine {
    /// Its text, which may contain what keys and plugins say.
    pub words: String,
    /// How it is emphasised.
    pub tone: Emphasis,
}

fn line(tone: Emphasis, words: String) -> PlanLine {
    PlanLine { words, tone }
}

fn figure(tone: Emphasis, word: &str, number: u64, what: &str) -> PlanLine {
    line(tone, format!("{word:<7}{:>12} {what}", grouped(number)))
}

/// All lines about a review, and about which rows its task takes.
pub fn plan_lines(review: &Review, rule: Option<&str>) -> Vec<PlanLine> {
    let plan = &review.plan;
    let rule = rule.map(|rule| line(Emphasis::Text, format!("rule  {rule}")));
    let mut lines: Vec<PlanLine> = rule.into_iter().chain([standing(review)]).collect();
    // What was examined is only a part of it.
    lines.extend(plan.partial.as_ref().map(|_| line(Emphasis::Bad, plan.words())));
    for of in &plan.rows {
        let part = share_of(of, &plan.sizes).filter(|_| plan.partial.is_none());
        let part = part.map(|part| format!(" ({part})")).unwrap_or_default();
        let what = format!("rows of {}{part}", of.collection);
        lines.push(figure(tone(of.operation), of.operation.as_str(), of.rows, &what));
    }
    for of in &plan.messages {
        let what = format!("messages to {}", of.topic);
        lines.push(figure(Emphasis::Text, "send", of.count, &what));
    }
    if plan.partial.is_none() && plan.rows.is_empty() && plan.messages.is_empty() {
        lines.push(line(Emphasis::Text, "Nothing would be changed.".to_owned()));
    }
    lines.push(line(Emphasis::Dim, examined(plan)));
    let why = plan.partial.iter().chain(&plan.brake);
    lines.extend(why.map(|words| line(Emphasis::Warn, words.clone())));
    for other in &plan.others {
        let what = format!("items: {}", other.reason);
        lines.push(figure(Emphasis::Warn, &other.verdict, other.count, &what));
    }
    for sample in &plan.samples {
        let tenant = sample.tenant.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        let rows = counted(sample.rows, "row");
        let words = format!("{}{}{tenant}: {rows}", sample.placed(), sample.key);
        lines.push(line(Emphasis::Accent, words));
        lines.extend(sample.changes.iter().map(change));
        let hidden = sample.rows.saturating_sub(sample.changes.len() as u64);
        if hidden > 0 {
            let words = format!("  and {} more", counted(hidden, "row"));
            lines.push(line(Emphasis::Dim, words));
        }
    }
    lines
}

/// Who has decided, or until when somebody has to.
fn standing(review: &Review) -> PlanLine {
    let by = with_reason(&format!("by {}", review.by), &review.reason);
    match review.state {
        State::Shown => line(Emphasis::Dim, "A preview: nothing is committed.".to_owned()),
        State::Waiting => {
            let until = review.expires_at.map(date_clock).unwrap_or_default();
            let words = format!("Waits for an approval until {until}Z: a approves, x rejects.");
            line(Emphasis::Warn, words)
        }
        State::Approved => line(Emphasis::Text, format!("Approved {by}")),
        State::Rejected => line(Emphasis::Bad, format!("Rejected {by}")),
        State::Lapsed => line(Emphasis::Bad, format!("Lapsed: {}", review.reason)),
        State::Done => line(Emphasis::Warn, format!("Done: {}", review.reason)),
    }
}

fn examined(plan: &Plan) -> String {
    let mut words = format!("{} examined of {}", grouped(plan.examined), grouped(plan.items));
    if plan.is_final() {
        words.push_str(", nothing kept (keep_removed = \"0s\"): it cannot be undone");
    } else if plan.bytes > 0 {
        words.push_str(&format!(", {} bytes kept for undo", grouped(plan.bytes)));
    }
    words
}

fn tone(operation: Operation) -> Emphasis {
    match operation {
        Operation::Delete | Operation::Move => Emphasis::Bad,
        Operation::Update | Operation::Insert => Emphasis::Text,
    }
}

fn change(change: &RowChange) -> PlanLine {
    let columns: Vec<String> = change.columns.iter().map(column).collect();
    let (word, columns) = (change.operation.as_str(), columns.join(", "));
    let words = format!("  {word} {} ({}): {columns}", change.collection, change.key);
    line(tone(change.operation), words)
}

fn column(column: &ColumnChange) -> String {
    let name = &column.name;
    match (&column.before, &column.after) {
        (Some(before), Some(after)) => format!("{name} {before} -> {after}"),
        (Some(value), None) | (None, Some(value)) => format!("{name} {value}"),
        (None, None) => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use besom_core::ids::RunId;
    use besom_core::review::{Rows, Sample, Whole};
    use besom_core::time::Time;

    use super::*;

    #[test]
    fn a_plan_names_what_goes_and_what_a_person_can_do() {
        let (partial, brake) = (Some("only 3".to_owned()), Some("max_delete would".to_owned()));
        let mut plan = Plan { items: 9, examined: 3, bytes: 12_000, brake, ..Plan::default() };
        plan.add_rows("sessions", Operation::Delete, 1_740);
        plan.add_messages("gone", 2);
        plan.add_other("skip", "still used");
        let changes = vec![RowChange {
            collection: "sessions".into(),
            key: "7".into(),
            key_values: vec![7.into()],
            operation: Operation::Update,
            columns: vec![ColumnChange {
                name: "state".into(),
                before: Some("on".into()),
                after: Some("off".into()),
                before_value: Some("on".into()),
                after_value: Some("off".into()),
            }],
        }];
        let key = "a".to_owned();
        plan.add_sample(Sample { place: 9, key, rows: 3, changes, ..Sample::default() });
        let rows = vec![Rows { rows: 5_000, ..plan.rows[0].clone() }];
        let whole = Some(Whole { items: 9, rows, ..Whole::default() });
        let plan = Plan { whole, partial, ..plan };
        let review = Review {
            run: RunId(7),
            task: "old".into(),
            opened_at: Time::from_secs(0),
            expires_at: Some(Time::from_secs(86_400)),
            state: State::Waiting,
            by: String::new(),
            reason: String::new(),
            decided_at: None,
            plan,
        };
        let lines = plan_lines(&review, Some("rows of sessions with at before 1969"));
        let words: Vec<String> = lines.into_iter().map(|line| line.words).collect();
        assert_eq!(
            words,
            [
                "rule  rows of sessions with at before 1969",
                "Waits for an approval until 1970-01-02 00:00:00Z: a approves, x rejects.",
                "at most 5000 rows of sessions deleted, in 9 items",
                "delete        1,740 rows of sessions",
                "send              2 messages to gone",
                "3 examined of 9, 12,000 bytes kept for undo",
                "only 3",
                "max_delete would",
                "skip              1 items: still used",
                "item 9, a: 3 rows",
                "  update sessions (7): state on -> off",
                "  and 2 rows more",
            ]
        );
        let plan = Plan { bytes: 0, ..review.plan.clone() };
        assert!(examined(&plan).ends_with("(keep_removed = \"0s\"): it cannot be undone"));
        let partial = Some("the examination failed: away".to_owned());
        let unknown = Review { plan: Plan { partial, ..Plan::default() }, ..review };
        let words = plan_lines(&unknown, None).into_iter().map(|line| line.words);
        assert_eq!(
            words.skip(1).collect::<Vec<_>>(),
            [
                "no change was found, but the plan is incomplete",
                "0 examined of 0",
                "the examination failed: away",
            ]
        );
    }
}
