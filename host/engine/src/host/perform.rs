//! Carries out single commands of a node over the ports.
//!
//! It decides nothing: a command goes in, and the answer comes back as an event. The host runs many
//! commands concurrently on its runtime; the simulation runs them over in-memory adapters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use besom_core::election::CampaignResult;
use besom_core::ids::{
    CommitId, FencingToken, Incarnation, Partition, RunId, TaskName, Tenant, Term,
};
use besom_core::item::{Candidate, Item, Source};
use besom_core::proposal::Guard;
use besom_core::queue::{Decision, apart};
use besom_core::reach::Away;
use besom_core::review;
use besom_core::time::{Mono, Time};
use besom_snapshot::Cause;

use super::brakes::Braking;
use super::clock::StoreTime;
use super::cost;
use super::deliver::Delivery;
use super::health::{Health, Part};
use super::lines::Lines;
use super::pacing::Pacing;
use super::quota::Quota;
use super::recorder::{Recorder, run_of};
use super::review::{Examined, opened_as};
use besom_node::executor::{Command as Execute, Event as Executed, Halted, Overrun};
use besom_node::holdings::{Arrived, Command as Hold, Event as Held};
use besom_node::planner::{
    COMMANDS_PAGE, Command as Plan, Event as PlanEvent, Loaded, Scan, ScanError,
};
use besom_node::{Command, Event, Raise};
use besom_ports::activity::{Activity, State};
use besom_ports::coordination::{self, Campaign, Coordination, LeaderRecord};
use besom_ports::guests::{self, Call, Guests, StopFlag};
use besom_ports::lines::RunLog;
use besom_ports::members::{Announcement, Members, StoreAway};
use besom_ports::store::{
    self, Batch, Committed, Entry, LogRead, PlanPage, Planned, Retention, Store,
};
use besom_ports::task::TaskDefinition;

/// The adapters that a node uses, and the limits of their use.
#[derive(Clone)]
pub struct Ports {
    /// Leader election.
    pub coordination: Arc<dyn Coordination>,
    /// Membership and announcement; `None`: a single machine, where the leader owns all partitions.
    pub cluster: Option<Cluster>,
    /// The database.
    pub store: Arc<dyn Store>,
    /// The activity service.
    pub activity: Arc<dyn Activity>,
    /// The plugins.
    pub guests: Arc<dyn Guests>,
    /// The host's estimate of the store's clock.
    pub clock: Arc<StoreTime>,
    /// How often the store's clock is read.
    pub clock_read_every: Duration,
    /// The services that cannot be reached and the tasks that are held.
    pub health: Arc<Health>,
    /// This incarnation of the node.
    pub node: Incarnation,
    /// Maximum lifetime of the snapshot that the reads of one act share.
    pub snapshot_max: Duration,
    /// How long history is kept.
    pub history_retention: Duration,
    /// How long a node is remembered after it was last seen.
    pub node_retention: Duration,
    /// How long before-images are kept, by task.
    pub keep_removed: Vec<(TaskName, Duration)>,
    /// The topics that have a route.
    pub routed: Arc<[String]>,
    /// The node's report about itself.
    pub recorder: Arc<Recorder>,
    /// The buffer for log lines of guests.
    pub lines: Arc<Lines>,
    /// The limits on what tasks may leave behind.
    pub quota: Arc<Quota>,
    /// Which brakes are set, and which pauses were requested.
    pub braking: Arc<Braking>,
    /// The paces of the tasks that yield.
    pub pacing: Arc<Pacing>,
    /// Held while a plan is tried: trials lock rows, and would leave out those of each other.
    pub trying: Arc<tokio::sync::Mutex<()>>,
    /// How messages are delivered while this node leads; `None`: this node does not deliver.
    pub delivery: Option<Delivery>,
}

/// The membership of a node.
#[derive(Clone)]
pub struct Cluster {
    /// The members of the cluster.
    pub members: Arc<dyn Members>,
    /// What this node announces.
    pub announcement: Announcement,
}

/// Maximum number of rows of each kind removed in one transaction.
const PRUNE_ROWS: u32 = 10_000;
/// Maximum number of pages in a row of a scan that has neither read a row nor found a candidate.
const IDLE_PAGES_MAX: u32 = 64;
const SAME_CURSOR: &str = "the scan returned the cursor that it was given, and would never end: it has to \
                           return another one, or none";
/// Maximum number of keys that a log line names for items during which a host died.
const BURIED_SHOWN: usize = 5;
/// The parts of a task that can be held, as in [`besom_snapshot::Held::what`].
const SCAN: &str = "scan";
const EXECUTION: &str = "execution";
const COMMIT: &str = "commit";
const GUARDS: &str = "guards";
const IMAGES: &str = "before-images";
/// The hold of a node whose store is older than it was.
const RESTORED: &str = "restored store";
const WENT_BACK: &str = "the store has lost data that this node has seen: was it restored? The \
                         node discards its memory and reads the store again. Stop all hosts before \
                         a restore";
/// Maximum length of a member's reason for not reaching the store, in characters.
const WHY_CHARS_MAX: usize = 300;

impl Ports {
    /// Carries out a command and returns the answer; `None`: there is no answer. `sent` is the
    /// lease's time before the request; `stop` ends the guests.
    pub async fn perform(&self, command: Command, sent: Mono, stop: &StopFlag) -> Option<Event> {
        Some(match command {
            Command::Campaign { at_least } => {
                let answer = self.coordination.campaign(at_least).await;
                self.heard_of_lease(&answer);
                let result = match answer {
                    Ok(Campaign::Won(fence)) => CampaignResult::Won(fence),
                    Ok(Campaign::Held { leader, retry_in }) => {
                        self.say_awaited(&leader, retry_in);
                        CampaignResult::Held(retry_in)
                    }
                    Err(_) => CampaignResult::Failed,
                };
                Event::Campaigned(sent, result)
            }
            Command::Renew(fence) => {
                let answer = self.coordination.renew(&fence).await;
                self.heard_of_lease(&answer);
                Event::Renewed(sent, answer.ok())
            }
            Command::Resign(fence) => {
                if let Err(error) = self.coordination.resign(&fence).await
                    && !self.store.is_damaged()
                {
                    tracing::warn!(%error, "the lease could not be released; retrying");
                    return Some(Event::NotResigned(fence));
                }
                Event::Resigned
            }
            Command::Raise(fence) => {
                let raise = self.raise(&fence).await;
                Event::Raised(fence, raise)
            }
            Command::Load(fence) => {
                let loaded = self.load(&fence).await;
                if let Err(error) = &loaded {
                    say_waits("the state of the tasks could not be read", error);
                }
                Event::Loaded(fence, loaded)
            }
            Command::Executor(tenure, command) => {
                Event::Executor(tenure, self.execute(command, stop).await?)
            }
            Command::Holdings(command) => Event::Holdings(self.hold(command, sent).await?),
            Command::LookForBegun(fence) => {
                let begun = self.store.begun_by().await;
                Event::Begun(fence, begun)
            }
            Command::Bury(fence, dead) => {
                if let Err(error) = self.bury(&fence, &dead).await {
                    tracing::warn!(
                        %error,
                        "the deaths of members could not be counted; retrying later"
                    );
                }
                return None;
            }
            Command::Planner(term, command) => Event::Planner(term, self.plan(command, stop).await),
            Command::Probe(begun, _) => {
                let (answered, term) = self.probe(sent).await;
                Event::Probed { begun, answered, term }
            }
            Command::StoreWentBack { seen } => {
                self.health.hold_node(RESTORED, Cause::Restored, WENT_BACK);
                tracing::debug!(%seen, "the highest term seen in the store");
                return None;
            }
            Command::TellOfStore(away) => Event::ToldOfStore(away, self.tell_of_store(away).await),
            Command::Prune(fence) => Event::Pruned(self.prune(&fence).await),
            Command::StopGuests { .. } | Command::Finished => return None,
        })
    }

    async fn raise(&self, fence: &FencingToken) -> Raise {
        // In a cluster, partitions are claimed by the members that the ring assigns them to.
        let taken: Option<&[Partition]> = if self.cluster.is_some() { Some(&[]) } else { None };
        match self.claimed_later(fence).await {
            Ok(None) => {}
            Ok(Some(later)) => return Raise::Fenced(later),
            Err(error) => {
                say_waits("the partitions could not be read", &error);
                return Raise::Failed;
            }
        }
        match self.store.raise_fence(fence, &self.node, taken).await {
            Ok(raised) => Raise::Done(raised.owned),
            Err(store::Error::Fenced) => match self.store.fence().await {
                Ok(Some(state)) => Raise::Fenced(state.term),
                Ok(None) | Err(_) => Raise::Failed,
            },
            Err(error) => {
                self.heard(&Err::<(), _>(error.clone()));
                say_waits("the fence could not be raised", &error);
                Raise::Failed
            }
        }
    }

    /// The latest term under which partitions are claimed, if it is later than this one. That is so if the store
    /// and the lease service were both restored; claims under an earlier term would be ignored for ever.
    async fn claimed_later(&self, fence: &FencingToken) -> store::Result<Option<Term>> {
        if self.cluster.is_none() {
            return Ok(None);
        }
        let table = self.store.partition_table().await?;
        Ok(table.into_iter().map(|row| row.at.term).max().filter(|term| *term > fence.term))
    }

    /// Counts the deaths of items that dead hosts had begun.
    async fn bury(&self, fence: &FencingToken, dead: &[Incarnation]) -> store::Result<()> {
        let mut keys: BTreeMap<TaskName, Vec<String>> = BTreeMap::new();
        for identity in self.store.bury(fence, dead).await? {
            keys.entry(identity.task).or_default().push(identity.key);
        }
        for (task, keys) in keys {
            let shown = keys[..keys.len().min(BURIED_SHOWN)].join(", ");
            tracing::warn!(
                %task, items = keys.len(), keys = shown,
                "a host died while it executed these items"
            );
        }
        Ok(())
    }

    /// Carries out a command of the membership and the partitions.
    async fn hold(&self, command: Hold, sent: Mono) -> Option<Held> {
        let cluster = self.cluster.as_ref()?;
        Some(match command {
            Hold::Join => {
                let joined = cluster.members.join(&cluster.announcement).await;
                self.health.note(Part::Coordination, &joined);
                Held::Joined(sent, joined.is_ok())
            }
            Hold::Keep => {
                let answer = cluster.members.keep_alive().await;
                self.health.note(Part::Coordination, &answer);
                Held::Kept(sent, answer.ok())
            }
            Hold::Leave => {
                if let Err(error) = cluster.members.leave().await {
                    tracing::warn!(
                        %error,
                        "the membership could not be revoked; it expires with its lease"
                    );
                }
                Held::Left
            }
            Hold::ReadTable => Held::Table(self.store.partition_table().await),
            Hold::Claim(at, claims) => {
                Held::Claimed(self.store.claim_partitions(&self.node, at, &claims).await)
            }
            Hold::LookForArrivals(since) => Held::Arrived(self.look(since).await),
        })
    }

    /// Records whether the store answers. A rejection is an answer; a busy store, or a busy
    /// connection pool, says nothing about it.
    pub fn heard<T>(&self, answer: &store::Result<T>) {
        use store::Error::{
            Busy, Damaged, Denied, Fenced, GuardsTimedOut, Invalid, Raised, Refused, TimedOut,
            TooLarge, Unavailable, Unknown,
        };
        match answer {
            Err(Damaged(_)) => self.health.lose_store(),
            Err(error @ (Unavailable(_) | Denied(_) | Unknown(_))) => {
                self.health.missed(Part::Store, error);
            }
            Err(Busy(_) | TimedOut(_)) => {}
            Ok(_)
            | Err(
                Fenced | Raised(_) | GuardsTimedOut(_) | Invalid(_) | TooLarge(_) | Refused(..),
            ) => self.health.answered(Part::Store),
        }
    }

    /// Records an answer about the lease, which may be kept in the store.
    fn heard_of_lease<T>(&self, answer: &coordination::Result<T>) {
        match answer {
            Err(_) if self.store.is_damaged() => self.health.lose_store(),
            answer => self.health.note(Part::Coordination, answer),
        }
    }

    /// Logs, once for each leader, whose lease this node waits for.
    fn say_awaited(&self, leader: &LeaderRecord, remaining: Duration) {
        if leader.node == self.node || !self.health.awaits(leader.term) {
            return;
        }
        let (leads, term, hostname) = (&leader.node, leader.term.0, &leader.hostname);
        let at_most = format!("{:.0} s", remaining.as_secs_f64().ceil());
        tracing::info!(
            leader = %leads, term, hostname, at_most,
            "another node holds the lease; if it has ended without releasing it, this node waits \
             until the lease expires"
        );
    }

    /// Whether the store answers the probe, or has answered any call since the probe was sent; and
    /// the term that it has recorded.
    async fn probe(&self, sent: Mono) -> (bool, Option<Term>) {
        let answer = self.store.fence().await;
        self.heard(&answer);
        use store::Error::{Busy, Damaged, Unavailable, Unknown};
        match answer {
            Ok(state) => (true, Some(state.map_or(Term(0), |state| state.term))),
            Err(Busy(_) | Unavailable(_) | Damaged(_) | Unknown(_)) => {
                (self.health.store_answered_since(sent), None)
            }
            Err(_) => (true, None),
        }
    }

    /// The event for a probe without an answer in time.
    pub fn unanswered(&self, begun: Mono, sent: Mono, within: Duration) -> Option<Event> {
        let answered = self.health.store_answered_since(sent);
        if !answered {
            let s = within.as_secs_f64();
            self.health.missed(Part::Store, &format!("no answer within {s:.1} s"));
        }
        Some(Event::Probed { begun, answered, term: None })
    }

    /// Informs the other members whether this node reaches the store. It is repeated until it
    /// succeeds.
    async fn tell_of_store(&self, away: Option<Away>) -> bool {
        let Some(cluster) = &self.cluster else { return true };
        let why = || {
            let missing = self.health.missing();
            let of_store =
                missing.into_iter().find(|missing| missing.what == Part::Store.to_string());
            let why = of_store.map_or_else(|| "no answer".to_owned(), |missing| missing.why);
            why.chars().take(WHY_CHARS_MAX).collect()
        };
        let said = away.map(|away| StoreAway { since: away.since, why: why(), aside: away.aside });
        let told = cluster.members.say_of_store(said.clone()).await;
        self.health.note(Part::Coordination, &told);
        if !matches!(told, Ok(true)) {
            return false;
        }
        let is_news = self.health.is_news(said.as_ref().is_some_and(|said| said.aside));
        match said {
            Some(said) if said.aside && is_news => tracing::warn!(
                since = %said.since, why = said.why,
                "this node cannot reach the store but other nodes can: it releases its leadership \
                 and partitions until the store answers"
            ),
            Some(said) => tracing::debug!(since = %said.since, "members know the store is away"),
            None => tracing::info!(
                "the other members were informed that this node reaches the store again"
            ),
        }
        true
    }

    async fn look(&self, since: u64) -> store::Result<Arrived> {
        let arrivals = self.store.arrivals(since).await;
        self.heard(&arrivals);
        let arrivals = arrivals?;
        let states = self.store.task_states().await?;
        let runs = self.store.active_runs().await?;
        let paused = states.into_iter().filter(|state| state.paused.is_some());
        let held = runs.iter().filter(|run| run.held).map(|run| run.task.clone());
        let paused = paused.map(|state| state.task).chain(held).collect();
        Ok(Arrived { arrivals, runs, paused })
    }

    async fn load(&self, fence: &FencingToken) -> store::Result<Loaded> {
        if self.cluster.is_none() {
            let mut dead = self.store.begun_by().await?;
            dead.retain(|node| *node != self.node);
            if !dead.is_empty() {
                self.bury(fence, &dead).await?;
            }
        }
        self.remembered().await
    }

    /// The stored state that a leader needs.
    async fn remembered(&self) -> store::Result<Loaded> {
        let runs = self.store.active_runs().await?;
        let mut waiting = Vec::new();
        for run in runs.iter().filter(|run| run.held) {
            let found = self.store.review_of(run.id).await?;
            let opened = found.as_ref().and_then(opened_as);
            waiting.extend(opened.map(|opened| (run.id, opened)));
        }
        Ok(Loaded { states: self.store.task_states().await?, runs, waiting })
    }

    async fn prune(&self, fence: &FencingToken) -> store::Result<bool> {
        let keep = Retention {
            history: self.history_retention,
            undo: &self.keep_removed,
            nodes: self.node_retention,
            routed: Some(&self.routed),
        };
        let pruned = self.store.prune(fence, keep, PRUNE_ROWS).await?;
        let most = pruned.history.max(pruned.undo).max(pruned.other);
        Ok(most >= u64::from(PRUNE_ROWS))
    }

    // ------------------------------------------------------------------ execution

    async fn execute(&self, command: Execute, stop: &StopFlag) -> Option<Executed> {
        let store = &self.store;
        Some(match command {
            Execute::Backlog(scope) => {
                let backlog = store.backlog(scope.as_deref()).await;
                self.heard(&backlog);
                Executed::Backlog(backlog)
            }
            Execute::ReadLog { ticket, task, streams, limit, each, bytes_max } => {
                let read = store.read_logs(&task, &streams, each, limit, bytes_max).await;
                self.heard(&read);
                match &read {
                    Ok(read) => self.note_streams(&task, read),
                    Err(error) => tracing::debug!(%error, %task, "the log cannot be read"),
                }
                Executed::LogRead(ticket, read)
            }
            Execute::ReadTimers(read, tasks, scope) => {
                let scope = scope.as_deref();
                let items = store.read_timers(Some(&tasks), scope, read.after, read.limit).await;
                Executed::TimersRead(read.number, items)
            }
            Execute::ReadRetries(read, tasks, scope) => {
                let scope = scope.as_deref();
                let items = store.read_retries(Some(&tasks), scope, read.after, read.limit).await;
                Executed::RetriesRead(read.number, items)
            }
            Execute::Act { ticket, commit, definition, now, seed, items } => {
                self.recorder.begin(commit, &items);
                let begun = Instant::now();
                let mut acted = self.act(commit, &definition, (now, seed), &items, stop).await;
                match &acted {
                    Ok(_) => self.health.free(&definition.name, EXECUTION),
                    Err(guests::Error::Refused(cause, why)) => {
                        self.health.hold(&definition.name, EXECUTION, *cause, why);
                    }
                    Err(_) => {}
                }
                match &mut acted {
                    Ok(acted) => {
                        self.quota.bound_text(&definition.name, acted);
                        cost::note(acted, definition.lane, begun.elapsed());
                        let run = run_of(items.iter().map(|(_, item)| item));
                        self.recorder.used(run, &acted.usage);
                    }
                    // The guest's own failures are committed as such.
                    Err(guests::Error::Guest(_)) => {}
                    Err(_) => self.recorder.abandon(commit),
                }
                Executed::Acted(ticket, acted)
            }
            Execute::Abandon(commit) => {
                self.recorder.abandon(commit);
                if let Err(error) = store.abandon(commit).await {
                    tracing::debug!(%error, %commit, "a begun batch could not be removed");
                }
                return None;
            }
            Execute::Commit(ticket, mut batch) => {
                if !batch.activity_in_store {
                    self.observe(Arc::make_mut(&mut batch)).await;
                }
                let result = match self.quota.room_for(store.as_ref(), &batch).await {
                    Ok(left) => {
                        let result = tokio::select! {
                            biased;
                            result = store.commit(&batch) => result,
                            why = stop.raised() => {
                                Err(store::Error::Unknown(format!("the commit was stopped: {why}")))
                            }
                        };
                        if matches!(result, Ok(_) | Err(store::Error::Unknown(_))) {
                            self.quota.note(&left);
                        }
                        result
                    }
                    Err(error) => Err(error),
                };
                self.note_commit(&batch, &result);
                // From this instant on, the effects of the items are durable.
                tracing::debug!(returned = %batch.id, items = batch.entries.len(), "commit");
                self.heard(&result);
                match &result {
                    Ok(committed) => {
                        self.recorder.land(&batch, committed);
                    }
                    Err(error) => {
                        if matches!(error, store::Error::Unknown(_)) {
                            self.recorder.doubt(&batch);
                        }
                        say_waits("a batch could not be committed", error);
                    }
                }
                Executed::Committed(ticket, batch.id, result)
            }
            // Whoever sends the commands has the flags of the commits that are under way.
            Execute::StopCommit(_) | Execute::StopAct(_) => return None,
            Execute::TakeRows { ticket, definition, rows } => {
                let task = &definition.name;
                let now = self.clock.now();
                let taken = match self.pacing.allowed(&definition, now.mono) {
                    Some(per_second) => store.take_rows(task, rows, per_second).await,
                    None => Ok(store::Allowance::Now),
                };
                if let Ok(answer) = &taken {
                    self.pacing.answered(task, *answer, (now.wall, now.mono));
                }
                self.heard(&taken);
                Executed::RowsTaken(ticket, taken)
            }
            Execute::FindCommit(ticket, id) => {
                let found = store.find_commit(id).await;
                match &found {
                    Ok(Some(committed)) => self.recorder.found(id, committed),
                    Ok(None) => self.recorder.abandon(id),
                    Err(_) => {}
                }
                Executed::Found(ticket, id, found)
            }
            Execute::ReadClock => {
                self.clock.ask();
                return None;
            }
            Execute::Trip(task, runs) => {
                let now = self.clock.now().mono;
                self.braking.trip(store.as_ref(), now, &task, &runs).await;
                return None;
            }
            Execute::Hold(task, halted) => {
                self.note_halted(&task, &halted);
                return None;
            }
            Execute::Report(report) => {
                tracing::debug!(
                    task = %report.task, committed = report.committed, kept = report.kept,
                    skipped = report.skipped, retried = report.retried, dead = report.dead,
                    "committed"
                );
                if let Some(reason) = report.reason {
                    tracing::warn!(task = %report.task, dead = report.dead, reason, "set aside");
                }
                return None;
            }
        })
    }

    async fn act(
        &self,
        commit: CommitId,
        definition: &TaskDefinition,
        (now, seed): (Time, u64),
        items: &[(Source, Item)],
        stop: &StopFlag,
    ) -> Result<guests::Acted, guests::Error> {
        let infrastructure = |error: store::Error| match error {
            store::Error::Refused(cause, why) => guests::Error::Refused(cause, why),
            error => guests::Error::Infrastructure(error.to_string()),
        };
        let noted: Vec<(Source, &Item)> =
            items.iter().map(|(source, item)| (*source, item)).collect();
        self.store
            .begin(commit, &self.node, definition.lane, &noted)
            .await
            .map_err(infrastructure)?;
        let view = self.store.snapshot(self.snapshot_max).await.map_err(infrastructure)?;
        let items: Vec<Item> = items.iter().map(|(_, item)| item.clone()).collect();
        let log = self.log_of(run_of(&items));
        let call = Call { log, ..call_of(definition, now, seed, stop) };
        let result = self.guests.act(&call, view, Arc::clone(&self.activity), &items).await;
        // Rejections by the database are logged where the task is held.
        if let Err(error) = &result
            && !matches!(error, guests::Error::Refused(..))
            && !self.store.is_damaged()
        {
            tracing::warn!(task = %definition.name, %error, items = items.len(), "act failed");
        }
        result
    }

    /// Records which streams of a task can be read.
    fn note_streams(&self, task: &TaskName, read: &LogRead) {
        for broken in &read.broken {
            let what = format!("stream {}", broken.partition.0);
            self.health.hold(task, &what, Cause::Stream, &broken.why);
        }
        if self.health.holds_any() {
            let is_broken = |p: &Partition| read.broken.iter().any(|b| b.partition == *p);
            for partition in read.looked.iter().filter(|partition| !is_broken(partition)) {
                self.health.free(task, &format!("stream {}", partition.0));
            }
        }
    }

    /// Records whether the database accepts the commits of a task.
    fn note_commit(&self, batch: &Batch, result: &store::Result<Committed>) {
        let Some(task) = batch.entries.first().map(|entry| &entry.item.identity.task) else {
            return;
        };
        match result {
            Ok(_) => {
                self.health.free(task, COMMIT);
                let applies = |entry: &Entry| matches!(entry.decision, Decision::Apply { .. });
                if batch.entries.iter().any(applies) {
                    self.health.free(task, GUARDS);
                    self.health.free(task, IMAGES);
                }
            }
            Err(store::Error::Refused(cause, why)) => self.health.hold(task, COMMIT, *cause, why),
            Err(_) => {}
        }
    }

    /// Records why the executor holds a task although the database accepts its requests.
    fn note_halted(&self, task: &TaskName, halted: &Halted) {
        match halted {
            Halted::Refused(reason) => {
                let why = format!(
                    "{reason}; every item that was tried is refused for this reason and stays where \
                     it is: correct the mapping, the grants or the settings of the task"
                );
                self.health.hold(task, COMMIT, Cause::Schema, &why);
            }
            Halted::Overrun { of, words, rest } => {
                let (what, cause, fix) = match of {
                    Overrun::Guards => {
                        (GUARDS, Cause::Slow, "Its guards need an index, or fewer conditions")
                    }
                    Overrun::Images => (
                        IMAGES,
                        Cause::Full,
                        "Its items have to change fewer or smaller rows, or the limit to grow. Items \
                         that were set aside are executed again with `besom dead retry --task TASK`",
                    ),
                };
                let why = format!(
                    "{words}, again and again, while all other changes wait: nothing of the task is \
                     executed for {} s. {fix}",
                    rest.as_secs()
                );
                self.health.hold_for(task, what, (cause, &why), *rest);
            }
        }
    }

    /// Records whether a task can be scanned.
    fn note_scan<T>(&self, task: &TaskName, run: RunId, result: &Result<T, ScanError>) {
        match result {
            Ok(_) => self.health.free(task, SCAN),
            Err(ScanError::Refused(cause, why)) => self.health.hold(task, SCAN, *cause, why),
            // The host ends and says why.
            Err(_) if self.store.is_damaged() => self.health.lose_store(),
            Err(error) => say_scan(task, run, error),
        }
    }

    /// The log for calls that belong to a run.
    pub(super) fn log_of(&self, run: RunId) -> RunLog {
        RunLog::new(run, self.lines.clone())
    }

    /// Reads the activity that the batch's guards need, just before the commit.
    pub(super) async fn observe(&self, batch: &mut Batch) {
        let mut asked = Vec::new();
        for (index, entry) in batch.entries.iter().enumerate() {
            if let Decision::Apply { proposal, .. } = &entry.decision {
                for guard in &proposal.guards {
                    if let Guard::Idle(key) = guard {
                        asked.push((index, key.clone()));
                    }
                }
            }
        }
        if asked.is_empty() {
            return;
        }
        let keys: Vec<String> = asked.iter().map(|(_, key)| key.clone()).collect();
        // An activity that cannot be read is unknown, and unknown is not idle: the guard fails.
        let states = self.activity.states(&keys).await;
        self.health.note(Part::Activity, &states);
        let states = states.unwrap_or_default();
        batch.idle = asked
            .into_iter()
            .zip(states)
            .filter(|(_, state)| *state == State::Idle)
            .map(|(asked, _)| asked)
            .collect();
    }

    // ------------------------------------------------------------------- planning

    async fn plan(&self, command: Plan, stop: &StopFlag) -> PlanEvent {
        let store = &self.store;
        match command {
            Plan::Decide(fence, decided) => {
                let result = store.decide_slots(&fence, &decided.decision).await;
                self.heard(&result);
                match &result {
                    // Another leader has decided them: the state is read again, which resolves the
                    // conflict.
                    Err(store::Error::Invalid(why)) => {
                        tracing::debug!(why, "the due slots were decided from an outdated state");
                    }
                    Err(error) => say_waits("the due slots could not be decided", error),
                    Ok(_) => {}
                }
                PlanEvent::Decided(*decided, result)
            }
            Plan::Tenants { run, definition, after, limit } => {
                let result = self.tenants(run, &definition, after.as_ref(), limit, stop).await;
                self.note_scan(&definition.name, run, &result);
                PlanEvent::Tenants(run, result)
            }
            Plan::Scan(scan) => {
                let result = self.scan(&scan, stop).await;
                self.note_scan(&scan.definition.name, scan.run, &result);
                PlanEvent::Planned(scan.run, result)
            }
            Plan::EndScan { fence, end, cut, failures } => {
                let result = store.end_scan(&fence, &end).await;
                let (task, run) = (end.task, end.run);
                self.recorder.scan_ended(run);
                if let Some(cut) = cut {
                    self.recorder.scanned(cut);
                }
                if let Ok(true) = &result {
                    self.recorder.ended(run);
                }
                if let (Ok(_), Some(max)) = (&result, failures) {
                    let now = self.clock.now().mono;
                    self.braking.look_at_runs(store.as_ref(), now, &task, max).await;
                }
                PlanEvent::ScanEnded(run, result)
            }
            Plan::Examine { fence, run, definition, held, planned, error } => {
                let asked = Examined { run, definition: &definition, held, planned, error };
                let examined = self.examine(&fence, asked, stop).await;
                let result = match examined {
                    Ok(found) => self.open_review(&fence, run, &definition, held, found).await,
                    Err(error) => Err(error),
                };
                self.note_scan(&definition.name, run, &result);
                PlanEvent::Examined(run, result)
            }
            Plan::Lapse(run, why) => {
                tracing::info!(run = run.0, why, "a review ends: what was planned is discarded");
                let command = store::Command::Lapse { run };
                let result = store.submit(&command, review::BY, &why).await;
                PlanEvent::Lapsed(run, result.map(|_| ()))
            }
            Plan::FetchCommands => PlanEvent::Commands(store.pending_commands(COMMANDS_PAGE).await),
            Plan::Apply(fence, applying) => {
                let (row, effect, letters) = (&applying.row, &applying.effect, applying.letters);
                let (id, verb, subject) = (row.id, row.command.verb(), row.command.subject());
                let result =
                    store.apply_command(&fence, row, effect, &applying.result, letters).await;
                self.heard(&result);
                match &result {
                    Ok(applied) if applied.progress.is_some() => {
                        let (_, came) = effect.outcome(&applying.result, applied);
                        tracing::debug!(command = id, verb, subject, came, "a step was applied");
                    }
                    Ok(applied) => {
                        // A record outside the database, which users with write access to the
                        // database cannot change.
                        let (refused, came) = effect.outcome(&applying.result, applied);
                        let (by, reason) = (&row.by, &row.reason);
                        let what = if refused { "refused" } else { "applied" };
                        let details = row.command.details();
                        tracing::info!(
                            command = id,
                            verb,
                            subject,
                            details,
                            by,
                            reason,
                            came,
                            "{what}"
                        );
                    }
                    Err(store::Error::Fenced | store::Error::Damaged(_)) => {}
                    Err(error) => {
                        tracing::warn!(
                            command = id, verb, subject, %error,
                            "a command could not be applied; it is tried again"
                        );
                    }
                }
                PlanEvent::Applied(applying, result)
            }
            Plan::Reread => PlanEvent::Reread(self.remembered().await),
        }
    }

    async fn tenants(
        &self,
        run: RunId,
        definition: &TaskDefinition,
        after: Option<&Tenant>,
        limit: u32,
        stop: &StopFlag,
    ) -> Result<Vec<Tenant>, ScanError> {
        let now = self.store.now().await.map_err(of_store)?;
        let view = self.store.snapshot(self.snapshot_max).await.map_err(of_store)?;
        let call = Call { log: self.log_of(run), ..call_of(definition, now, run.0, stop) };
        let activity = Arc::clone(&self.activity);
        self.guests.tenants(&call, view, activity, after, limit).await.map_err(of_guest)
    }

    /// Back-pressure: a scan is postponed while too many items of its task are waiting.
    /// The store is asked only when the queue can have reached the limit.
    async fn refuse_beyond(
        &self,
        task: &TaskName,
        term: Term,
        queue_max: u32,
    ) -> Result<(), ScanError> {
        let most = self.quota.queued_most(task, term);
        if most.is_some_and(|most| most <= u64::from(queue_max)) {
            return Ok(());
        }
        let backlog = self.store.backlog(None).await.map_err(of_store)?;
        let of_task = backlog.iter().filter(|stream| stream.task == *task);
        let waiting: u64 = of_task.map(|stream| stream.tail.0 - stream.acked.0).sum();
        self.quota.note_queue(task, term, waiting);
        if waiting > u64::from(queue_max) { Err(ScanError::Full(waiting)) } else { Ok(()) }
    }

    async fn scan(&self, scan: &Scan, stop: &StopFlag) -> Result<(Planned, bool), ScanError> {
        let (task, tenant) = (&scan.definition.name, scan.tenant.as_ref());
        let term = scan.fence.term;
        self.refuse_beyond(task, term, scan.definition.queue_max).await?;
        let TaskDefinition { timers_max, dead_max, .. } = *scan.definition;
        let room = self.quota.room_to_plan(self.store.as_ref(), task, timers_max, dead_max);
        room.await.map_err(of_store)?;
        self.quota.disk_room().map_err(of_store)?;
        let mut cursor = self.store.cursor(task, tenant).await.map_err(of_store)?;
        let now = self.store.now().await.map_err(of_store)?;
        let view = self.store.snapshot(self.snapshot_max).await.map_err(of_store)?;
        let log = self.log_of(scan.run);
        let call = Call { log, ..call_of(&scan.definition, now, scan.run.0, stop) };
        let activity = Arc::clone(&self.activity);
        let guests = self.guests.as_ref();
        let limit = self.recorder.page_limit(scan.run, scan.limit);
        let mut page =
            guests.scan(&call, view, Arc::clone(&activity), tenant, cursor.as_deref(), limit).await;
        if let (Err(guests::Error::Guest(fault)), true) = (&page, cursor.is_some())
            && self.recorder.idle_pages(scan.run, tenant).is_none()
        {
            // The cursor of an earlier run can be one of another version of the plugin or of an index
            // that has changed since; the rows before it are planned only once anyway.
            tracing::warn!(
                %task,
                tenant = tenant.map(Tenant::as_str),
                error = %fault.message,
                "the scan failed at the cursor of an earlier run: it begins again"
            );
            cursor = None;
            let view = self.store.snapshot(self.snapshot_max).await.map_err(of_store)?;
            page = guests.scan(&call, view, activity, tenant, None, limit).await;
        }
        let page = page.map_err(of_guest)?;
        if page.next.is_some() && page.next == cursor {
            return Err(ScanError::Failed(SAME_CURSOR.to_owned()));
        }
        let is_idle = page.candidates.is_empty() && page.usage.rows_read == 0;
        if is_idle && self.recorder.idle_pages(scan.run, tenant) >= Some(IDLE_PAGES_MAX) {
            return Err(ScanError::Failed(format!(
                "{IDLE_PAGES_MAX} pages in a row have no candidate and no row was read for them: the \
                 scan has to end, with a page without `next`"
            )));
        }
        self.recorder.used(scan.run, &page.usage);
        let more = page.next.is_some();
        let left_out = page.left_out;
        let timers = page.candidates.iter().filter(|c| c.due.is_some()).count() as u64;
        let bytes: usize = page.candidates.iter().map(Candidate::size).sum();
        let bytes_each = bytes / page.candidates.len().max(1);
        let page = PlanPage {
            run: scan.run,
            task: task.clone(),
            tenant: scan.tenant.clone(),
            candidates: apart(page.candidates),
            cursor: page.next,
            scanned: page.scanned,
            quota: scan.quota,
        };
        if !page.candidates.is_empty() {
            let set =
                self.braking.set(self.store.as_ref(), &scan.fence, scan.run, &scan.definition);
            set.await.map_err(of_store)?;
        }
        let planned = self.store.plan_page(&scan.fence, &page).await;
        self.quota.note_queued(task, term, planned.as_ref().ok().map(|planned| planned.planned));
        let planned = planned.map_err(of_store)?;
        self.recorder.planned_page(scan.run, tenant, is_idle, bytes_each);
        self.recorder.left_out(scan.run, task, &left_out);
        self.quota.note_planned(task, timers.min(planned.planned));
        Ok((planned, more))
    }
}

/// The context of a call of a task.
pub fn call_of(definition: &TaskDefinition, now: Time, seed: u64, stop: &StopFlag) -> Call {
    Call {
        task: definition.name.clone(),
        digest: definition.digest.clone(),
        now,
        seed,
        settings: definition.settings.clone(),
        horizon: definition.horizon,
        grants: Arc::new(definition.grants.clone()),
        aliases: Arc::new(definition.aliases.clone()),
        columns: Arc::new(definition.columns.clone()),
        all_tenants: definition.all_tenants,
        activity: definition.activity,
        limits: definition.limits.clone(),
        topics: definition.topics.clone(),
        unmapped: definition.unmapped.clone(),
        described: definition.described.clone(),
        stop: stop.clone(),
        log: RunLog::default(),
    }
}

/// Logs that the store makes the node wait; the node decides how long. A stale term is not a fault
/// of the store, and its end is logged elsewhere.
fn say_waits(what: &str, error: &store::Error) {
    // Unavailability and rejections are logged by the host's health.
    use store::Error::{Damaged, Fenced, Refused, Unavailable, Unknown};
    if !matches!(error, Fenced | Unavailable(_) | Damaged(_) | Unknown(_) | Refused(..)) {
        tracing::warn!(%error, "{what}; retrying");
    }
}

/// Logs why a scan, or the list of its tenants, failed.
fn say_scan(task: &TaskName, run: RunId, error: &ScanError) {
    match error {
        ScanError::Failed(error) => {
            tracing::warn!(%task, run = run.0, error, "a scan failed");
        }
        ScanError::Infrastructure(error) | ScanError::Unknown(error) => {
            tracing::warn!(%task, run = run.0, error, "a scan was interrupted; retrying");
        }
        ScanError::Full(waiting) => {
            tracing::info!(
                %task, run = run.0, waiting,
                "a scan is paused until the backlog shrinks"
            );
        }
        // Rejections are logged where the task is held.
        ScanError::Fenced | ScanError::Refused(..) => {}
    }
}

pub(super) fn of_store(error: store::Error) -> ScanError {
    match error {
        store::Error::Fenced => ScanError::Fenced,
        store::Error::GuardsTimedOut(words)
        | store::Error::Invalid(words)
        | store::Error::TooLarge(words) => ScanError::Failed(words),
        store::Error::Refused(cause, words) => ScanError::Refused(cause, words),
        store::Error::Unknown(words) => ScanError::Unknown(words),
        store::Error::Busy(words)
        | store::Error::Unavailable(words)
        | store::Error::Raised(words)
        | store::Error::TimedOut(words)
        | store::Error::Damaged(words)
        | store::Error::Denied(words) => ScanError::Infrastructure(words),
    }
}

pub(super) fn of_guest(error: guests::Error) -> ScanError {
    match error {
        guests::Error::Guest(fault) => ScanError::Failed(fault.message),
        guests::Error::NotLoaded(_) => ScanError::Failed(error.to_string()),
        guests::Error::Refused(cause, words) => ScanError::Refused(cause, words),
        guests::Error::Stopped(words) | guests::Error::Infrastructure(words) => {
            ScanError::Infrastructure(words)
        }
    }
}
