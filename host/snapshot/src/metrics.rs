//! A snapshot as metrics in Prometheus' text format.
//!
//! Labels name nodes, tasks, topics and causes, never keys or tenants, so that the number of series depends on the
//! configuration only. Instants and durations are in seconds.

use std::fmt::{Display, Write as _};

use super::{Depth, Node, RunState, Snapshot, Task, Thresholds, Topic, Urgency, attention};
use besom_core::time::Time;

/// The media type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A series: its labels, and its value.
type Series = (Vec<(&'static str, String)>, f64);

/// A metric, and what its series are.
struct Metric {
    /// It ends with `_total` if the values only grow, apart from a restart of their node.
    name: &'static str,
    help: &'static str,
    series: fn(&Snapshot) -> Vec<Series>,
}

const fn metric(
    name: &'static str,
    help: &'static str,
    series: fn(&Snapshot) -> Vec<Series>,
) -> Metric {
    Metric { name, help, series }
}

/// All metrics. `docs/operating.md` lists them.
const METRICS: &[Metric] = &[
    metric("besom_info", "1; the cluster, the host that answers and its version.", |s| {
        let labels = [("cluster", &s.cluster), ("host", &s.host), ("version", &s.version)];
        vec![(labels.map(|(name, value)| (name, value.clone())).to_vec(), 1.0)]
    }),
    metric(
        "besom_gathered_timestamp_seconds",
        "When these values were gathered, by the store's clock.",
        |s| vec![(vec![], seconds(s.at))],
    ),
    metric(
        "besom_unreachable",
        "1 for each service that the answering host cannot reach; values that come from it are old.",
        |s| s.missing.iter().map(|m| (vec![("what", m.what.clone())], 1.0)).collect(),
    ),
    metric(
        "besom_attention",
        "Number of conditions that need attention, by urgency (alarm, warning, notice), as the dashboard lists them.",
        |s| {
            let found = attention(s, &Thresholds::default());
            [Urgency::Alarm, Urgency::Warning, Urgency::Notice]
                .map(|urgency| {
                    let count = found.iter().filter(|item| item.urgency == urgency).count();
                    (vec![("urgency", urgency.as_str().to_owned())], count as f64)
                })
                .to_vec()
        },
    ),
    metric("besom_leader", "1 for the node that holds the leader's lease.", |s| {
        s.leadership.leader.iter().map(|l| (vec![("node", l.node.clone())], 1.0)).collect()
    }),
    metric("besom_leader_term", "The highest term that the store knows.", |s| {
        s.leadership.fence.iter().map(|term| (vec![], *term as f64)).collect()
    }),
    metric(
        "besom_node_state",
        "1 for the current state of each node: joining, active, draining, lost.",
        |s| of_nodes(s, |node| vec![(vec![("state", node.state.as_str().to_owned())], 1.0)]),
    ),
    metric(
        "besom_node_seen_timestamp_seconds",
        "When the node last reported, by its own clock.",
        |s| of_nodes(s, |node| one(seconds(node.seen_at))),
    ),
    metric(
        "besom_node_started_timestamp_seconds",
        "When the node's process started, by its own clock.",
        |s| of_reports(s, |report| one(seconds(report.started_at))),
    ),
    metric("besom_node_partitions", "Partitions that the node owns.", |s| {
        of_nodes(s, |node| one(f64::from(node.owned)))
    }),
    metric("besom_node_queued_items", "Items waiting in the logs of the node's partitions.", |s| {
        of_nodes(s, |node| one(node.queued as f64))
    }),
    metric("besom_node_running_items", "Items that the node is executing or committing.", |s| {
        of_reports(s, |report| one(f64::from(report.running)))
    }),
    metric(
        "besom_node_finished_items_total",
        "Items that the node has ended since its start (committed, skipped or dead), by task.",
        |s| {
            of_reports(s, |report| {
                let of_task =
                    |(task, n): (&String, &u64)| (vec![("task", task.clone())], *n as f64);
                report.finished.iter().map(of_task).collect()
            })
        },
    ),
    metric(
        "besom_node_dead_items_total",
        "Items that became dead letters on the node since its start.",
        |s| of_reports(s, |report| one(report.died as f64)),
    ),
    metric(
        "besom_node_given_up_messages_total",
        "Messages that the node has given up since its start.",
        |s| of_reports(s, |report| one(report.given_up as f64)),
    ),
    metric(
        "besom_node_item_seconds",
        "How long items of the last 15 minutes took from the start of their batch to its commit, by quantile.",
        |s| {
            of_reports(s, |report| {
                let at = |(word, part): (&str, f64)| {
                    let us = report.latency.quantile(part)?;
                    Some((vec![("quantile", word.to_owned())], us as f64 / 1e6))
                };
                [("0.5", 0.5), ("0.99", 0.99)].into_iter().filter_map(at).collect()
            })
        },
    ),
    metric(
        "besom_node_clock_skew_seconds",
        "How far the node's clock is ahead of the store's.",
        |s| {
            of_reports(s, |report| {
                report.clock.iter().flat_map(|clock| one(clock.skew_us as f64 / 1e6)).collect()
            })
        },
    ),
    metric(
        "besom_node_config_rejected",
        "1 if the node has rejected the last change of its configuration file, otherwise 0.",
        |s| of_reports(s, |report| one(truth(report.config_fault.is_some()))),
    ),
    metric(
        "besom_node_held",
        "Number of things that the node holds back, by task (empty: the whole node) and cause.",
        |s| {
            of_reports(s, |report| {
                let mut counted: Vec<Series> = Vec::new();
                for held in report.held.iter().filter(|held| held.cause.holds()) {
                    let task = held.task.clone().unwrap_or_default();
                    let labels = vec![("task", task), ("cause", held.cause.to_string())];
                    match counted.iter_mut().find(|(known, _)| *known == labels) {
                        Some((_, count)) => *count += 1.0,
                        None => counted.push((labels, 1.0)),
                    }
                }
                counted
            })
        },
    ),
    metric(
        "besom_node_task_rows_per_second_allowed",
        "Rows per second that a task that yields may change now on the node, by task and reason (empty: it is not lower than it was).",
        |s| {
            of_reports(s, |report| {
                let series = |pace: &super::Paced| {
                    let reason = pace.reason.map_or("", |sign| sign.as_str()).to_owned();
                    let labels = vec![("task", pace.task.clone()), ("reason", reason)];
                    (labels, f64::from(pace.rows_per_second))
                };
                report.paces.iter().map(series).collect()
            })
        },
    ),
    metric(
        "besom_task_waiting_items",
        "Items of the task that wait, by place: in the log, as timers, as retries.",
        |s| {
            of_tasks(s, |task| {
                let Depth { log, timers, retries, .. } = task.depth;
                [("log", log), ("timers", timers), ("retries", retries)]
                    .map(|(place, count)| (vec![("place", place.to_owned())], count as f64))
                    .to_vec()
            })
        },
    ),
    metric(
        "besom_task_oldest_waiting_timestamp_seconds",
        "Since when the oldest item that could be executed has been waiting; absent: none is waiting.",
        |s| of_tasks(s, |task| maybe(task.depth.oldest)),
    ),
    metric("besom_task_dead_letters", "Open dead letters of the task.", |s| {
        of_tasks(s, |task| one(task.depth.dead as f64))
    }),
    metric("besom_task_undo_bytes", "Size of the stored before-images of the task.", |s| {
        of_tasks(s, |task| one(task.depth.undo_bytes as f64))
    }),
    metric(
        "besom_task_planned_items_total",
        "Items of the task that were planned since the store was created.",
        |s| of_tasks(s, |task| one(task.planned as f64)),
    ),
    metric(
        "besom_task_changed_rows_total",
        "Rows of the product that the task has changed since the store was created.",
        |s| of_tasks(s, |task| one(task.depth.rows as f64)),
    ),
    metric("besom_task_paused", "1 if the task is paused, otherwise 0.", |s| {
        of_tasks(s, |task| one(truth(task.paused.is_some())))
    }),
    metric(
        "besom_task_next_run_timestamp_seconds",
        "The next slot of the task; absent: it has none.",
        |s| of_tasks(s, |task| maybe(task.next)),
    ),
    metric(
        "besom_task_unscanned_since_timestamp_seconds",
        "Since when the task's tables have not been scanned as scheduled; absent: they have been.",
        |s| of_tasks(s, |task| maybe(task.unscanned_since)),
    ),
    metric(
        "besom_task_last_run_start_timestamp_seconds",
        "When the latest run of the task was started.",
        |s| of_tasks(s, |task| maybe(task.last.last().map(|run| run.started_at))),
    ),
    metric(
        "besom_task_last_run_failed",
        "1 if the latest run of the task that has ended has failed or was cancelled, otherwise 0.",
        |s| {
            of_tasks(s, |task| {
                let ended = task.last.iter().rev().find(|run| !run.state.is_active());
                ended.map_or_else(Vec::new, |run| one(truth(run.state == RunState::Failed)))
            })
        },
    ),
    metric(
        "besom_topic_waiting_messages",
        "Messages of the topic that wait for their delivery; counted up to 100000.",
        |s| of_topics(s, |topic| one(topic.waiting as f64)),
    ),
    metric(
        "besom_topic_inserted_rows",
        "Rows of the topic that the product has inserted and that are no messages yet; counted up to 100000.",
        |s| of_topics(s, |topic| one(topic.inserted as f64)),
    ),
    metric(
        "besom_topic_given_up_messages",
        "Messages of the topic that were given up and can be retried, among the latest 100 that were given up.",
        |s| of_topics(s, |topic| one(topic.given_up as f64)),
    ),
    metric(
        "besom_topic_oldest_waiting_timestamp_seconds",
        "Since when the oldest message of the topic has been waiting for its delivery; absent: none is waiting.",
        |s| of_topics(s, |topic| maybe(topic.oldest)),
    ),
];

/// The metrics of a snapshot, in Prometheus' text format.
pub fn metrics(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for Metric { name, help, series } in METRICS {
        let all = series(snapshot);
        if all.is_empty() {
            continue;
        }
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        // Writing to a text cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in all {
            text.push_str(name);
            for (at, (label, value)) in labels.iter().enumerate() {
                let open = if at == 0 { '{' } else { ',' };
                let _ = write!(text, "{open}{label}=\"{}\"", Escaped(value));
            }
            let close = if labels.is_empty() { "" } else { "}" };
            let _ = writeln!(text, "{close} {value}");
        }
    }
    text
}

/// A label's value as the format spells it.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

fn of_topics(snapshot: &Snapshot, series: impl Fn(&Topic) -> Vec<Series>) -> Vec<Series> {
    let named = |topic: &Topic| named("topic", &topic.name, series(topic));
    snapshot.topics.iter().flat_map(|topic| named(topic)).collect()
}

fn of_nodes(snapshot: &Snapshot, series: impl Fn(&Node) -> Vec<Series>) -> Vec<Series> {
    let named = |node: &Node| named("node", &node.name, series(node));
    snapshot.nodes.iter().flat_map(|node| named(node)).collect()
}

fn of_reports(snapshot: &Snapshot, series: impl Fn(&super::Report) -> Vec<Series>) -> Vec<Series> {
    of_nodes(snapshot, |node| node.report.as_ref().map_or_else(Vec::new, &series))
}

fn of_tasks(snapshot: &Snapshot, series: impl Fn(&Task) -> Vec<Series>) -> Vec<Series> {
    let named = |task: &Task| named("task", &task.name, series(task));
    snapshot.tasks.iter().flat_map(|task| named(task)).collect()
}

/// Series with one more label before the others.
fn named(label: &'static str, name: &str, series: Vec<Series>) -> Vec<Series> {
    let with = |(mut labels, value): Series| {
        labels.insert(0, (label, name.to_owned()));
        (labels, value)
    };
    series.into_iter().map(with).collect()
}

fn one(value: f64) -> Vec<Series> {
    vec![(vec![], value)]
}

fn maybe(time: Option<Time>) -> Vec<Series> {
    time.map_or_else(Vec::new, |time| one(seconds(time)))
}

fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn seconds(time: Time) -> f64 {
    time.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Cause, ClockReport, Held, LastRun, Latency, Leader, Leadership, Missing, Report};

    fn snapshot() -> Snapshot {
        let held = |cause| Held { task: Some("sweep".into()), cause, ..Held::default() };
        let mut latency = Latency::default();
        latency.add(1_500);
        let report = Report {
            running: 2,
            finished: [("sweep".to_owned(), 7)].into(),
            latency,
            held: vec![held(Cause::Broker), held(Cause::Broker), held(Cause::Full)],
            clock: Some(ClockReport { skew_us: -1_500_000, ..ClockReport::default() }),
            ..Report::default()
        };
        let node = Node {
            name: "a\"b\\\nc".into(),
            owned: 16,
            seen_at: Time(1_500_000),
            report: Some(report),
            ..Node::default()
        };
        let run = |state, at| LastRun { state, started_at: Time(at), ..LastRun::default() };
        let task = Task {
            name: "sweep".into(),
            depth: Depth { log: 3, dead: 1, ..Depth::default() },
            planned: 12,
            last: vec![run(RunState::Failed, 1_000_000), run(RunState::Scanning, 2_000_000)],
            ..Task::default()
        };
        let leader = Leader { node: "a".into(), ..Leader::default() };
        Snapshot {
            at: Time(2_000_000),
            cluster: "c".into(),
            host: "h".into(),
            version: "0.1.0".into(),
            missing: vec![Missing { what: "the activity".into(), ..Missing::default() }],
            leadership: Arc::new(Leadership {
                leader: Some(leader),
                fence: Some(4),
                ..Leadership::default()
            }),
            nodes: vec![Arc::new(node)],
            tasks: vec![Arc::new(task)],
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_snapshot_is_spelt_in_the_text_format() {
        let text = metrics(&snapshot());
        let node = r#"node="a\"b\\\nc""#;
        for line in [
            r#"besom_info{cluster="c",host="h",version="0.1.0"} 1"#,
            "besom_gathered_timestamp_seconds 2",
            r#"besom_unreachable{what="the activity"} 1"#,
            r#"besom_leader{node="a"} 1"#,
            "# TYPE besom_leader_term gauge",
            "besom_leader_term 4",
            &format!("besom_node_state{{{node},state=\"active\"}} 1"),
            &format!("besom_node_seen_timestamp_seconds{{{node}}} 1.5"),
            "# TYPE besom_node_finished_items_total counter",
            &format!("besom_node_finished_items_total{{{node},task=\"sweep\"}} 7"),
            &format!("besom_node_item_seconds{{{node},quantile=\"0.99\"}} 0.002"),
            &format!("besom_node_clock_skew_seconds{{{node}}} -1.5"),
            &format!("besom_node_held{{{node},task=\"sweep\",cause=\"broker\"}} 2"),
            &format!("besom_node_held{{{node},task=\"sweep\",cause=\"full\"}} 1"),
            r#"besom_task_waiting_items{task="sweep",place="log"} 3"#,
            r#"besom_task_dead_letters{task="sweep"} 1"#,
            r#"besom_task_planned_items_total{task="sweep"} 12"#,
            r#"besom_task_last_run_start_timestamp_seconds{task="sweep"} 2"#,
            r#"besom_task_last_run_failed{task="sweep"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("besom_task_next_run"), "what has no value is left out:\n{text}");
    }

    #[test]
    fn every_metric_has_one_head() {
        for Metric { name, help, .. } in METRICS {
            assert!(name.starts_with("besom_"), "{name}");
            assert!(help.ends_with('.') && !help.contains(['\n', '\\']), "{name}: {help}");
            assert_eq!(METRICS.iter().filter(|other| other.name == *name).count(), 1, "{name}");
        }
    }

    /// The table in the documentation lists every metric, and no other.
    #[test]
    fn the_documentation_lists_every_metric() {
        let page = include_str!("../../../docs/operating.md");
        let listed: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `besom_")?.split(['`', '{']).next())
            .collect();
        let known: Vec<&str> =
            METRICS.iter().filter_map(|metric| metric.name.strip_prefix("besom_")).collect();
        assert_eq!(listed, known);
    }
}
