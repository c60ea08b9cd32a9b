//! What requires an operator's attention, most urgent first.

use std::time::Duration;

use super::{
    Cause, Held, HotKey, LastRun, Node, NodeState, Pause, RunState, Snapshot, Task, Topic, of_code,
};
use besom_core::plan::{SlotOutcome, Unusual};
use besom_core::time::Time;

/// A node that has been silent for longer is reported.
pub const SILENT_MAX_DEFAULT: Duration = Duration::from_secs(30);

/// The period over which changes of leadership are counted.
const HOUR: Duration = Duration::from_secs(3_600);

/// The thresholds from which a condition requires attention.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds {
    /// How long a node may be silent.
    pub silent_max: Duration,
    /// How long an item that could be executed may wait, and a message for its delivery.
    pub overdue_max: Duration,
    /// A node's maximum load, as a multiple of its share.
    pub load_max: f64,
    /// A node with fewer queued items is never reported as hot.
    pub hot_queue_min: u64,
    /// A run's maximum duration, as a multiple of the longest of its task's latest runs.
    pub run_max: u32,
    /// The maximum number of leadership changes per hour.
    pub leaders_max: usize,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            silent_max: SILENT_MAX_DEFAULT,
            overdue_max: Duration::from_secs(60),
            load_max: 1.5,
            hot_queue_min: 100,
            run_max: 3,
            leaders_max: 3,
        }
    }
}

/// The urgency of an attention item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Work has stopped, or something is currently unavailable.
    Alarm,
    /// Something does not work as it should.
    Warning,
    /// Informational.
    Notice,
}

impl Urgency {
    /// The word for it on screens and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Urgency::Alarm => "alarm",
            Urgency::Warning => "warning",
            Urgency::Notice => "notice",
        }
    }
}

/// What an attention item is about; decides where the dashboard leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Who leads.
    Leader,
    /// All tasks.
    Tasks,
    /// A node, by its name.
    Node(String),
    /// A task's schedule.
    Task(String),
    /// A task's queue.
    Queue(String),
    /// A task's dead letters.
    Dead(String),
    /// A run.
    Run(u64),
    /// The ring.
    Ring,
    /// A configuration.
    Config,
}

/// An attention item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attention {
    /// How urgent it is.
    pub urgency: Urgency,
    /// What it is about.
    pub subject: Subject,
    /// The condition, as a sentence.
    pub text: String,
    /// Its cause, if known.
    pub cause: Option<String>,
}

/// The attention items of a snapshot, most urgent first; within one urgency in the order leader,
/// nodes, queues, tasks, configuration.
pub fn attention(snapshot: &Snapshot, limits: &Thresholds) -> Vec<Attention> {
    let mut found = Found {
        now: snapshot.at,
        list: Vec::new(),
        waits: snapshot.nodes.iter().map(|node| node.queued).sum(),
        owned: snapshot.nodes.iter().map(|node| node.owned).sum(),
        hottest: hottest(snapshot),
    };
    found.leader(snapshot);
    found.leaders(snapshot, limits);
    found.all_paused(snapshot);
    for node in &snapshot.nodes {
        found.node(node, snapshot, limits);
    }
    for task in &snapshot.tasks {
        found.queue(task, snapshot, limits);
    }
    for task in &snapshot.tasks {
        found.held(task, snapshot);
        found.cut(task, snapshot);
        found.task(task, snapshot.all_paused.as_ref(), limits);
    }
    for topic in &snapshot.topics {
        found.topic(topic, limits);
    }
    found.refused(snapshot);
    found.configuration(snapshot);
    found.list.sort_by_key(|attention| attention.urgency);
    found.list
}

/// A duration in two units: `42s`, `4m12s`, `3h05m`, `2d03h`.
pub fn span(span: Duration) -> String {
    let s = span.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m{:02}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3_600, s % 3_600 / 60),
        _ => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3_600),
    }
}

/// The hottest key of all nodes, and its fraction of its node's work.
fn hottest(snapshot: &Snapshot) -> Option<(String, f64)> {
    let hot = snapshot.nodes.iter().filter_map(|node| node.hottest());
    let (hot, part) = hot.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((hot.key.clone(), part))
}

struct Found {
    now: Time,
    list: Vec<Attention>,
    /// The sums of all nodes' queued items and owned partitions, computed once because there may be
    /// a thousand nodes.
    waits: u64,
    owned: u32,
    hottest: Option<(String, f64)>,
}

impl Found {
    fn add(&mut self, urgency: Urgency, subject: Subject, text: String) {
        self.list.push(Attention { urgency, subject, text, cause: None });
    }

    fn since(&self, time: Time) -> String {
        span(self.now.since(time))
    }

    fn leader(&mut self, snapshot: &Snapshot) {
        let lead = &snapshot.leadership;
        for missing in &snapshot.missing {
            let since = self.since(missing.since);
            let text = format!("{} has not reached {} for {since}", snapshot.host, missing.what);
            self.add(Urgency::Alarm, Subject::Node(snapshot.host.clone()), text);
            self.because(missing.why.clone());
        }
        match (&lead.leader, &lead.fault) {
            (None, None) => {
                let text = "no leader: nothing new is planned".to_owned();
                self.add(Urgency::Alarm, Subject::Leader, text);
            }
            (None, Some(fault)) => {
                self.add(Urgency::Alarm, Subject::Leader, "the leader is unknown".to_owned());
                self.because(fault.clone());
            }
            (Some(_), _) => {}
        }
    }

    /// Reports a leadership that changes too often.
    fn leaders(&mut self, snapshot: &Snapshot, limits: &Thresholds) {
        let passes = snapshot.passes();
        let terms = snapshot.leadership.terms.iter();
        let recent = terms.filter(|term| self.now.since(term.since) < HOUR);
        let recent = recent.filter(|term| !passes.contains(&term.term)).count();
        if recent > limits.leaders_max {
            let text = format!("the leadership has changed {recent} times in the last hour");
            self.add(Urgency::Warning, Subject::Leader, text);
        }
    }

    fn because(&mut self, cause: String) {
        if let Some(last) = self.list.last_mut() {
            last.cause = Some(cause);
        }
    }

    fn node(&mut self, node: &Node, snapshot: &Snapshot, limits: &Thresholds) {
        let subject = || Subject::Node(node.name.clone());
        let silent = self.now.since(node.seen_at);
        if node.state == NodeState::Lost {
            let rest = match node.owned {
                0 => "its partitions have moved".to_owned(),
                1 => "1 partition has yet to move".to_owned(),
                n => format!("{n} partitions have yet to move"),
            };
            let text = format!("{} is lost, silent for {}; {rest}", node.name, span(silent));
            let urgency = if node.owned > 0 { Urgency::Alarm } else { Urgency::Warning };
            return self.add(urgency, subject(), text);
        }
        if silent > limits.silent_max {
            let text = format!("{} has been silent for {}", node.name, span(silent));
            self.add(Urgency::Warning, subject(), text);
        }
        if node.name != snapshot.host {
            for missing in &node.missing {
                let since = self.since(missing.since);
                let text = format!("{} has not reached {} for {since}", node.name, missing.what);
                self.add(Urgency::Alarm, subject(), text);
                self.because(missing.why.clone());
            }
        }
        let held = node.report.iter().flat_map(|report| &report.held);
        for held in held.filter(|held| held.task.is_none()) {
            let since = self.since(held.since);
            let text = match held.cause.holds() {
                true => format!("{} has been held for {since}: {}", node.name, held.what),
                false => format!("{}: {} {} for {since}", node.name, held.what, held.cause),
            };
            self.add(Urgency::Alarm, subject(), text);
            self.because(held.why.clone());
        }
        if let Some(clock) = node.report.as_ref().and_then(|report| report.clock)
            && clock.noticed
        {
            let text = format!("the clock of {} is {}", node.name, clock.words());
            let urgency = if clock.leads_not { Urgency::Alarm } else { Urgency::Warning };
            self.add(urgency, subject(), text);
            if clock.leads_not {
                self.because("it cannot lead until its clock is corrected; check NTP".to_owned());
            }
        }
        if node.state == NodeState::Draining {
            let running = node.report.as_ref().map_or(0, |report| report.running);
            let text = match (node.owned, running) {
                (0, 0) => format!("{} is drained: nothing in flight, safe to stop", node.name),
                (owned, _) => {
                    let items = if running == 1 { "item" } else { "items" };
                    let partitions = if owned == 1 { "partition" } else { "partitions" };
                    format!(
                        "{} is draining: {owned} {partitions} and {running} {items} in flight",
                        node.name
                    )
                }
            };
            self.add(Urgency::Notice, subject(), text);
            if let Some(drained) = &node.drained {
                let since = self.since(drained.since);
                let why = match drained.reason.as_str() {
                    "" => String::new(),
                    reason => format!(": {reason}"),
                };
                self.because(format!("by {} {since} ago{why}", drained.by));
            }
        }
        if let Some(load) = node.load_over_share(self.waits, self.owned)
            && load > limits.load_max
            && node.queued >= limits.hot_queue_min
        {
            let text = format!("{} has {load:.1} times its share of the waiting items", node.name);
            self.add(Urgency::Warning, subject(), text);
            if let Some((hot, part)) = node.hottest() {
                let key = &hot.key;
                self.because(format!("{key} is {:.0}% of its work", part * 100.0));
            }
        }
        if let Some(fault) = node.report.as_ref().and_then(|report| report.config_fault.as_ref()) {
            let of_plugins = of_code(fault);
            let text = match of_plugins {
                Some(_) => {
                    format!("{} keeps the code of plugins whose files are refused", node.name)
                }
                None => format!("{} keeps its old configuration: the file is invalid", node.name),
            };
            self.add(Urgency::Warning, Subject::Config, text);
            let why = of_plugins.unwrap_or(fault).trim_start().lines().next();
            self.because(why.unwrap_or_default().to_owned());
        }
    }

    fn topic(&mut self, topic: &Topic, limits: &Thresholds) {
        if let Some(at) = topic.given_up_at {
            let (name, many) = (&topic.name, topic.count_given_up());
            let text = format!("topic {name}: {many} given up, the latest {} ago", self.since(at));
            self.add(Urgency::Alarm, Subject::Leader, text);
            if let Some(error) = &topic.given_up_error {
                self.because(error.clone());
            }
        }
        let Some(oldest) = topic.oldest else { return };
        let waits = self.now.since(oldest);
        if waits <= limits.overdue_max {
            return;
        }
        let (name, many) = (&topic.name, topic.count());
        if topic.has_route {
            let text =
                format!("topic {name}: the oldest of {many} messages has waited {}", span(waits));
            self.add(Urgency::Warning, Subject::Leader, text);
            if let Some(error) = &topic.waiting_error {
                self.because(error.clone());
            }
        } else {
            let text = format!("topic {name}: {many} messages wait, and it has no route");
            self.add(Urgency::Notice, Subject::Config, text);
        }
    }

    fn queue(&mut self, task: &Task, snapshot: &Snapshot, limits: &Thresholds) {
        let queue = || Subject::Queue(task.name.clone());
        let works = task.paused.is_none() && task.opens_at.is_none() && task.review.is_none();
        if let Some(oldest) = task.depth.oldest.filter(|_| works) {
            let waits = self.now.since(oldest);
            if waits > limits.overdue_max {
                let many = task.depth.log + task.depth.retries;
                let text =
                    format!("{}: the oldest of {many} has waited {}", task.name, span(waits));
                self.add(Urgency::Warning, queue(), text);
                let hot = self.hottest.clone().filter(|(_, part)| *part > 0.25);
                if let Some((key, part)) = hot {
                    self.because(format!("{key} is {:.0}% of a node's work", part * 100.0));
                }
            }
        }
        if task.orphaned {
            let text = format!("{}: items are waiting, but no configuration defines it", task.name);
            self.add(Urgency::Warning, queue(), text);
        }
        if task.depth.dead > 0 {
            let mut groups = snapshot.dead.iter().filter(|group| group.task == task.name);
            let last = groups.next();
            let kinds = match groups.count() {
                0 => String::new(),
                others => format!(", {} different errors", others + 1),
            };
            let text = format!("{}: {} set aside{kinds}", task.name, task.depth.dead);
            self.add(Urgency::Warning, Subject::Dead(task.name.clone()), text);
            if let Some(group) = last {
                self.because(group.error.clone());
            }
        }
    }

    /// Reports what holds a task back; equal reasons of several nodes are reported once.
    fn held(&mut self, task: &Task, snapshot: &Snapshot) {
        let alive = snapshot.nodes.iter().filter(|node| node.state != NodeState::Lost);
        let held = alive.flat_map(|node| node.report.iter().flat_map(|report| &report.held));
        let is_of_task =
            |held: &&Held| held.task.as_ref() == Some(&task.name) && !held.cause.leaves_out();
        let mut of_task: Vec<&Held> = held.filter(is_of_task).collect();
        of_task.sort_by_key(|held| (held.why.as_str(), held.since));
        of_task.dedup_by_key(|held| held.why.as_str());
        for held in of_task {
            let since = self.since(held.since);
            let text = format!("{} has been held for {since}: {}", task.name, held.what);
            self.add(Urgency::Alarm, Subject::Task(task.name.clone()), text);
            self.because(held.why.clone());
        }
    }

    /// Reports the tasks that nodes leave out, because of their plugin files or their mappings; a leader that does so
    /// does not know the task.
    fn refused(&mut self, snapshot: &Snapshot) {
        let alive = snapshot.nodes.iter().filter(|node| node.state != NodeState::Lost);
        for node in alive {
            let held = node.report.iter().flat_map(|report| &report.held);
            for held in held.filter(|held| held.cause.leaves_out()) {
                let (since, name) = (self.since(held.since), &node.name);
                let task = held.task.clone().unwrap_or_default();
                let text = match held.cause {
                    Cause::Plugin => {
                        format!("{name} has refused the plugin file of {task} for {since}")
                    }
                    _ => format!(
                        "{name} has held {task} for {since}: a table differs from its mapping"
                    ),
                };
                self.add(Urgency::Alarm, Subject::Task(task), text);
                self.because(held.why.clone());
            }
        }
    }

    /// Reports that a task's runs leave candidates, or cannot plan rows.
    fn cut(&mut self, task: &Task, snapshot: &Snapshot) {
        let Some(leader) = &snapshot.leadership.leader else { return };
        let report = snapshot.node(&leader.node).and_then(|node| node.report.as_ref());
        let left_out = report.and_then(|of| of.left_out.iter().find(|left| left.task == task.name));
        if let Some(left_out) = left_out {
            let text = format!("{}: {}", task.name, left_out.words());
            self.add(Urgency::Warning, Subject::Task(task.name.clone()), text);
        }
        let cut = report.and_then(|report| report.cut.iter().find(|cut| cut.task == task.name));
        if let Some(cut) = cut {
            let text = format!("{}: {}", task.name, cut.words());
            self.add(Urgency::Notice, Subject::Task(task.name.clone()), text);
        }
    }

    /// Reports that all tasks are paused.
    fn all_paused(&mut self, snapshot: &Snapshot) {
        if let Some(pause) = &snapshot.all_paused {
            let since = self.since(pause.since);
            let text = format!("all tasks are paused by {} for {since}", pause.by);
            self.add(Urgency::Warning, Subject::Tasks, text);
            self.because(pause.reason.clone());
        }
    }

    /// Reports what waits for an approval, and what the database refuses of a plan.
    fn review(&mut self, task: &Task) {
        if let Some(refused) = &task.refused {
            let text = format!("{}: {}", task.name, refused.words());
            self.add(Urgency::Warning, Subject::Run(refused.run.0), text);
            self.because(refused.reason.clone());
        }
        let Some(review) = &task.review else { return };
        let (run, since) = (review.run, self.since(review.opened_at));
        let text = format!("{}: run {run} waits for an approval for {since}", task.name);
        self.add(Urgency::Warning, Subject::Run(run.0), text);
        self.because(review.summary.clone());
    }

    fn task(&mut self, task: &Task, all_paused: Option<&Pause>, limits: &Thresholds) {
        let subject = || Subject::Task(task.name.clone());
        self.review(task);
        if let Some(since) = task.unscanned_since
            && self.now.since(since) > limits.overdue_max
        {
            let since = self.since(since);
            let text = format!(
                "{}: not scanned for {since}; items that became due since are not queued",
                task.name
            );
            self.add(Urgency::Alarm, subject(), text);
        }
        // The pause of all tasks is reported once.
        if let Some(pause) = task.paused.as_ref().filter(|pause| all_paused != Some(*pause)) {
            let since = self.since(pause.since);
            let (urgency, text) = match pause.is_brake() {
                true => (Urgency::Alarm, format!("{}: stopped by a brake for {since}", task.name)),
                false => {
                    let text = format!("{}: paused by {} for {since}", task.name, pause.by);
                    (Urgency::Notice, text)
                }
            };
            self.add(urgency, subject(), text);
            self.because(pause.reason.clone());
        }
        let planned = task.last.iter().rev().map(|run| (run.id, run.planned));
        if let Some(unusual) = Unusual::of(planned) {
            let text = format!("{}: {}", task.name, unusual.words());
            self.add(Urgency::Warning, Subject::Run(unusual.run), text);
        }
        let ended = task.last.iter().rev().filter(|run| !run.state.is_active());
        let failed = ended.clone().take_while(|run| run.state == RunState::Failed).count();
        if failed > 0 {
            let text = match failed {
                1 => format!("{}: its last run failed", task.name),
                n => format!("{}: its last {n} runs failed", task.name),
            };
            let urgency = if failed > 1 { Urgency::Alarm } else { Urgency::Warning };
            self.add(urgency, subject(), text);
        }
        let took = |at: Time, end: Time| end.since(at);
        let longest = ended.filter_map(LastRun::took).max();
        let active = task.last.iter().rev().find(|run| run.state.is_active());
        // A run that waits for an approval takes as long as people do.
        let active = active.filter(|_| task.review.is_none());
        if let (Some(run), Some(longest)) = (active, longest) {
            let going = took(run.started_at, self.now);
            if going > limits.overdue_max && going > longest * limits.run_max {
                let text = format!(
                    "{}: run {} active for {}, {:.1} times the longest",
                    task.name,
                    run.id,
                    span(going),
                    going.as_secs_f64() / longest.as_secs_f64().max(0.001),
                );
                self.add(Urgency::Warning, Subject::Run(run.id), text);
            }
        }
        let newest = task.slots.first().filter(|slot| slot.outcome != SlotOutcome::Ran);
        if let Some(slot) = newest
            && matches!(
                slot.outcome,
                SlotOutcome::Skipped | SlotOutcome::Missed | SlotOutcome::Fenced
            )
        {
            let what = match slot.outcome {
                SlotOutcome::Skipped => "skipped",
                SlotOutcome::Missed => "missed",
                _ => "fenced",
            };
            let text = match slot.count {
                1 => format!("{}: last slot {what}", task.name),
                count => format!("{}: last {count} slots {what}", task.name),
            };
            self.add(Urgency::Warning, subject(), text);
            self.because(slot.reason.clone());
        }
    }

    fn configuration(&mut self, snapshot: &Snapshot) {
        let heard = snapshot.nodes.iter().filter(|node| node.state != NodeState::Lost);
        let leader = snapshot.leadership.leader.as_ref().and_then(|l| snapshot.node(&l.node));
        let Some(of_leader) = leader.map(|node| &node.config_digest) else { return };
        let digests = heard.map(|node| (node.name.as_str(), node.config_digest.as_str()));
        if let Some(text) = unlike_leader(of_leader, digests) {
            self.add(Urgency::Warning, Subject::Config, text);
        }
        if snapshot.ring.moving > 0 {
            let text = match snapshot.ring.moving {
                1 => "1 partition is being moved".to_owned(),
                n => format!("{n} partitions are being moved"),
            };
            self.add(Urgency::Notice, Subject::Ring, text);
        }
    }
}

/// Says which nodes run a different configuration from the leader: given the digest of the leader's,
/// and the name and digest of each node that is heard of. An empty digest was not reported.
pub fn unlike_leader<'a>(
    of_leader: &str,
    nodes: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<String> {
    let unlike = nodes.filter(|(_, digest)| !digest.is_empty() && *digest != of_leader);
    let others: Vec<&str> = unlike.map(|(name, _)| name).collect();
    let run = match others.len() {
        0 => return None,
        1 => "runs",
        _ => "run",
    };
    Some(format!("{} {run} a different configuration from the leader", others.join(", ")))
}

impl Snapshot {
    /// A node's fraction of all waiting items, divided by its fraction of all partitions; 1 is
    /// even. None: it owns nothing, or nothing is waiting.
    pub fn load_over_share(&self, node: &Node) -> Option<f64> {
        let waits: u64 = self.nodes.iter().map(|node| node.queued).sum();
        let owned: u32 = self.nodes.iter().map(|node| node.owned).sum();
        node.load_over_share(waits, owned)
    }

    /// The hottest key of a node, and its fraction (0 to 1) of the node's recent work.
    pub fn hottest(&self, node: &str) -> Option<(String, f64)> {
        let (hot, part) = self.node(node)?.hottest()?;
        Some((hot.key.clone(), part))
    }
}

impl Node {
    /// Its fraction of all waiting items, divided by its fraction of all partitions; the arguments
    /// are the sums over all nodes. None: it owns nothing, or nothing is waiting.
    pub fn load_over_share(&self, waits: u64, owned: u32) -> Option<f64> {
        (waits > 0 && self.owned > 0).then(|| {
            let load = self.queued as f64 / waits as f64;
            load / (f64::from(self.owned) / f64::from(owned))
        })
    }

    /// Its hottest key, and the key's fraction (0 to 1) of its recent work.
    pub fn hottest(&self) -> Option<(&HotKey, f64)> {
        let report = self.report.as_ref()?;
        let hot = report.hot.first().filter(|_| report.hot_of > 0)?;
        Some((hot, hot.count as f64 / report.hot_of as f64))
    }
}
