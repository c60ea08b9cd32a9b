//! Examines what a run would change, for its review: each item is decided by its plugin as in a run, and its
//! changes are made in a transaction that is rolled back, so that guards, constraints and triggers speak.
//!
//! Of a preview, these are the candidates that a scan finds; of a held run, the items that it has planned. All of them
//! are asked what they want, which gives the sum of the rows, within [`ASKING_MAX`]. Then the changes of as many are
//! made as [`ITEMS_MAX`], [`ROWS_MAX`] and [`TIME_MAX`] allow, from the first to the last; the review says how many.

mod spread;

use std::sync::Arc;
use std::time::{Duration, Instant};

use besom_core::command::counted;
use besom_core::ids::{CommitId, FencingToken, RunId, Tenant, partition_of};
use besom_core::item::{Candidate, Identity, Item};
use besom_core::proposal::{Change, Proposal, Verdict};
use besom_core::queue::apart;
use besom_core::review::{
    self, CHANGES_MAX, ColumnChange, NewReview, Operation, Others, Plan, Review, RowChange, Sample,
    State, Whole,
};
use besom_core::time::Time;
use besom_core::value::{Field, Value};
use besom_core::weight;
use besom_snapshot::LeftOut;

use super::brakes::{sizes, would_trip};
use super::perform::{Ports, call_of, of_guest, of_store};
use crate::gather::rows;
use besom_node::planner::{Opened, ScanError};
use besom_ports::guests::{Call, Error, Fault, StopFlag};
use besom_ports::store::{
    self, Batch, BeforeImage, Entry, Left, LockedRows, Outcome, Tried, TriedChanges, Waiting,
};
use besom_ports::task::TaskDefinition;
use spread::{Asked, Chosen, Spread};

/// Maximum number of items that are examined.
pub const ITEMS_MAX: u64 = 10_000;
/// Number of rows from which no further item is examined.
pub const ROWS_MAX: u64 = 10_000;
/// Number of rows from which no further item is tried in the same transaction.
const ROWS_TOGETHER: u64 = 1_000;
/// Time after which no further item is examined.
pub const TIME_MAX: Duration = Duration::from_secs(30);
/// The part of it after which no further item is asked what it wants.
const ASKING_MAX: Duration = Duration::from_secs(20);
/// Time after which an item is asked again before its changes are made.
const SAID_MAX: Duration = Duration::from_secs(2);
/// Weight of the proposals that are kept until their changes are made; items with others are asked again.
const SAID_BYTES: usize = 64 << 20;
/// Number of candidates, items or tenants that are read at a time.
const PAGE: u32 = 256;
/// Maximum size of the items that are read at a time, in bytes.
const PAGE_BYTES: usize = 16 << 20;
/// Maximum length of a value that is shown, in characters.
const VALUE_CHARS: usize = 200;
/// Maximum size of a value that is given to programs, in bytes.
const VALUE_BYTES: usize = 1_024;

/// The run that is examined.
pub(super) struct Examined<'a> {
    pub(super) run: RunId,
    pub(super) definition: &'a TaskDefinition,
    /// Whether it is held; otherwise it is a preview.
    pub(super) held: bool,
    /// Number of items that it has planned.
    pub(super) planned: u64,
    /// The error of its scan.
    pub(super) error: Option<String>,
}

/// What is known so far.
struct Examination<'a> {
    ports: &'a Ports,
    fence: &'a FencingToken,
    definition: &'a TaskDefinition,
    call: Call,
    began: Instant,
    plan: Plan,
    whole: Whole,
    spread: Spread,
    /// Weight of the proposals that are kept.
    said: usize,
    /// Number of rows of an item that are examined at most.
    share: u64,
    /// Whether some rows of an item were left out.
    cut: bool,
    /// Why it has ended before all chosen items were examined.
    full: Option<String>,
    locked: Locked,
    left_out: LeftOut,
    /// Number of candidates that a run would not plan again.
    blocked: u64,
}

/// What other sessions have locked.
#[derive(Default)]
struct Locked {
    items: u64,
    rows: u64,
    /// The first of the rows.
    first: String,
}

impl Locked {
    fn add(&mut self, item: &Item, rows: LockedRows) {
        if self.items == 0 {
            self.first = rows.first.unwrap_or_else(|| item.identity.key.clone());
        }
        self.items += 1;
        self.rows += rows.rows;
    }

    /// How many items have such rows, and what becomes of them.
    fn other(self) -> Option<Others> {
        let rows = counted(self.rows, "row");
        let are = if self.rows == 1 { "is" } else { "are" };
        let reason = format!(
            "{rows} {are} locked by another session, and would be tried again; the first is ({})",
            self.first
        );
        let verdict = "locked".to_owned();
        (self.items > 0).then_some(Others { verdict, reason, count: self.items })
    }
}

impl Ports {
    /// The items that a run would plan of these candidates, and the number of those that it would not plan again.
    pub(super) async fn to_plan(
        &self,
        definition: &TaskDefinition,
        now: Time,
        candidates: Vec<Candidate>,
    ) -> store::Result<(Vec<Item>, u64)> {
        let blocked = self.store.blocked(&definition.name, &candidates).await?;
        let count = blocked.iter().filter(|blocked| **blocked).count() as u64;
        let free = candidates.into_iter().zip(blocked).filter(|(_, blocked)| !blocked);
        let partitions = self.store.partitions();
        let items = free.map(|(candidate, _)| item(definition, partitions, now, candidate));
        Ok((items.collect(), count))
    }

    /// Examines what a run would change. Returns with the plan why it could not be examined to its end; none: it was,
    /// within the bounds.
    pub(super) async fn examine(
        &self,
        fence: &FencingToken,
        of: Examined<'_>,
        stop: &StopFlag,
    ) -> Result<(Plan, Option<String>), ScanError> {
        let now = self.store.now().await.map_err(of_store)?;
        let log = self.log_of(of.run);
        let call = Call { log, ..call_of(of.definition, now, of.run.0, stop) };
        let mut examination = Examination {
            ports: self,
            fence,
            definition: of.definition,
            call,
            began: Instant::now(),
            plan: Plan { items: of.planned, ..Plan::default() },
            whole: Whole::default(),
            spread: Spread::default(),
            said: 0,
            share: ROWS_MAX,
            cut: false,
            full: None,
            locked: Locked::default(),
            left_out: LeftOut::default(),
            blocked: 0,
        };
        let mut done = match of.held {
            true => examination.of_planned(of.run).await,
            false => examination.of_candidates().await,
        };
        if !of.held {
            examination.plan.items = examination.spread.seen();
        }
        if let Err(ScanError::Failed(words)) = &done {
            examination.whole.partial = Some(words.clone());
        }
        // If the plugin has failed, what was found until then is shown.
        if let Ok(()) | Err(ScanError::Failed(_)) = &done {
            done = done.and(examination.of_chosen().await);
        }
        let mut plan = examination.plan;
        plan.whole = Some(examination.whole);
        plan.others.extend(examination.locked.other());
        if !of.held {
            if examination.blocked > 0 {
                let (verdict, reason) = ("not_planned".to_owned(), NOT_PLANNED.to_owned());
                plan.others.push(Others { verdict, reason, count: examination.blocked });
            }
            let left_out = &examination.left_out;
            self.recorder.left_out(of.run, &of.definition.name, left_out);
            if left_out.rows > 0 {
                let (verdict, reason) = ("left_out".to_owned(), left_out.words());
                plan.others.push(Others { verdict, reason, count: left_out.rows });
            }
        }
        let failed = match done {
            Ok(()) => None,
            Err(ScanError::Failed(words)) => Some(words),
            Err(error) => return Err(error),
        };
        if let Some(words) = &failed {
            plan.partial = Some(format!("the examination failed: {words}"));
        }
        plan.nothing = of.held && plan.partial.is_none() && plan.changing == 0;
        if of.held {
            plan.items = of.planned;
            if plan.partial.is_none() && plan.examined < plan.items {
                plan.partial = Some("some of its items are not waiting any more".to_owned());
            }
        }
        if let Some(error) = of.error {
            plan.partial = Some(format!("the scan failed: {error}"));
        }
        plan.sizes = sizes(&*self.store, plan.of_whose_rows()).await;
        let brake = would_trip(&*self.store, of.run, of.definition, &plan).await;
        plan.brake = brake.map_err(of_store)?;
        plan.others.sort_by_key(|other| std::cmp::Reverse(other.count));
        Ok((plan, failed))
    }

    /// Opens the review of a run. Returns how it waits; none: it is only shown. The examination of a preview is its
    /// scan: one that has `failed` is shown as far as it came, and ends its run as the scan of a live run does.
    pub(super) async fn open_review(
        &self,
        fence: &FencingToken,
        run: RunId,
        definition: &TaskDefinition,
        held: bool,
        (plan, failed): (Plan, Option<String>),
    ) -> Result<Option<Opened>, ScanError> {
        let within = held.then_some(definition.approve_within);
        tracing::info!(
            task = %definition.name,
            run = run.0,
            examined = plan.examined,
            "{}: {}",
            match held {
                true if plan.nothing => "a plan needs no approval",
                true => "a plan waits for an approval",
                false => "a preview",
            },
            plan.why_nothing().unwrap_or_else(|| plan.words())
        );
        let review = NewReview { run, within, plan };
        self.store.open_review(fence, &review).await.map_err(of_store)?;
        let opened = self.store.review_of(run).await.map_err(of_store)?;
        if let Some(words) = failed.filter(|_| !held) {
            return Err(ScanError::Failed(words));
        }
        Ok(opened.as_ref().filter(|_| held).and_then(opened_as))
    }
}

/// How a review waits; none: it does not.
pub(super) fn opened_as(review: &Review) -> Option<Opened> {
    let until = review.expires_at.filter(|_| review.state == State::Waiting)?;
    Some(Opened { until, nothing: review.plan.why_nothing() })
}

impl Examination<'_> {
    /// Why no further item is examined; none: there is room.
    fn is_full(&self) -> Option<String> {
        if self.plan.examined >= ITEMS_MAX {
            return Some(self.only(&counted(ITEMS_MAX, "item")));
        }
        if self.plan.changed() >= ROWS_MAX {
            return Some(self.only(&counted(ROWS_MAX, "row")));
        }
        let is_late = self.began.elapsed() >= TIME_MAX;
        is_late.then(|| self.only(&format!("for {} s", TIME_MAX.as_secs())))
    }

    /// How many items were examined, because no more are than this.
    fn only(&self, most: &str) -> String {
        let Plan { examined, items, .. } = self.plan;
        let all = counted(items, "item");
        let rows = if self.cut { ", but not all of their rows" } else { "" };
        match examined {
            _ if examined >= items => {
                format!("{all} examined{rows}: a review tries at most {most}")
            }
            1 => format!("only 1 of {all} was examined{rows}: a review tries at most {most}"),
            _ => format!(
                "only {examined} of {all} were examined, spread from the first to the last{rows}: a review tries \
                 at most {most}"
            ),
        }
    }

    /// Whether it ends here, before all chosen items are examined.
    fn ends(&mut self) -> bool {
        if self.full.is_none() {
            self.full = self.is_full();
        }
        self.full.is_some()
    }

    /// Whether no further item is asked what it wants; the sum says why.
    fn has_asked(&mut self) -> bool {
        if self.began.elapsed() < ASKING_MAX {
            return false;
        }
        let seen = counted(self.spread.seen(), "item");
        let seconds = ASKING_MAX.as_secs();
        self.whole.partial =
            Some(format!("the plan was read for {seconds} s, and only its first {seen} are known"));
        true
    }

    /// Asks the candidates of all tenants.
    async fn of_candidates(&mut self) -> Result<(), ScanError> {
        if !self.definition.per_tenant {
            return self.scan(None).await;
        }
        let mut after: Option<Tenant> = None;
        loop {
            let view = self.ports.store.snapshot(self.ports.snapshot_max).await;
            let activity = Arc::clone(&self.ports.activity);
            let guests = &self.ports.guests;
            let (view, after_this) = (view.map_err(of_store)?, after.as_ref());
            let tenants = guests.tenants(&self.call, view, activity, after_this, PAGE).await;
            let tenants = tenants.map_err(of_guest)?;
            for tenant in &tenants {
                self.scan(Some(tenant)).await?;
                if self.whole.partial.is_some() {
                    return Ok(());
                }
            }
            after = tenants.last().cloned();
            if tenants.len() < PAGE as usize {
                return Ok(());
            }
        }
    }

    /// Asks the candidates of one tenant, from the first one.
    async fn scan(&mut self, tenant: Option<&Tenant>) -> Result<(), ScanError> {
        let mut cursor: Option<Vec<u8>> = None;
        loop {
            let view = self.ports.store.snapshot(self.ports.snapshot_max).await;
            let activity = Arc::clone(&self.ports.activity);
            let (view, from) = (view.map_err(of_store)?, cursor.as_deref());
            let page = self.ports.guests.scan(&self.call, view, activity, tenant, from, PAGE).await;
            let page = page.map_err(of_guest)?;
            self.left_out.add(&page.left_out);
            let found = apart(page.candidates);
            let items = self.ports.to_plan(self.definition, self.call.now, found).await;
            let (items, blocked) = items.map_err(of_store)?;
            self.blocked += blocked;
            self.ask_all(items, true).await?;
            if page.next.is_none() || page.next == cursor || self.has_asked() {
                return Ok(());
            }
            cursor = page.next;
        }
    }

    /// Asks the items that a held run has planned.
    async fn of_planned(&mut self, run: RunId) -> Result<(), ScanError> {
        let (store, task) = (Arc::clone(&self.ports.store), self.definition.name.clone());
        let backlog = store.backlog(None).await.map_err(of_store)?;
        let own = |waiting: Vec<Waiting>| -> Vec<Item> {
            waiting.into_iter().map(|w| w.item).filter(|item| item.run == run).collect()
        };
        for stream in backlog.iter().filter(|stream| stream.task == task) {
            let mut acked = stream.acked;
            while acked < stream.tail && !self.has_asked() {
                let read = store.read_log(&task, stream.partition, acked, PAGE, PAGE_BYTES).await;
                let read = read.map_err(of_store)?;
                let Some(last) = read.last() else { break };
                if let besom_core::item::Source::Log(seq) = last.source {
                    acked = seq;
                }
                self.ask_all(own(read), false).await?;
            }
        }
        let (tasks, mut after) = (std::slice::from_ref(&task), None);
        while !self.has_asked() {
            let read = store.read_timers(Some(tasks), None, after, PAGE).await.map_err(of_store)?;
            let is_last = read.len() < PAGE as usize;
            if let Some(Waiting { source: besom_core::item::Source::Timer(id), run_at, .. }) =
                read.last()
            {
                after = Some((*run_at, *id));
            }
            self.ask_all(own(read), false).await?;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Asks items what they want, each as of the time at which it would be executed. `in_order`: they are in the order
    /// of the plan.
    async fn ask_all(&mut self, items: Vec<Item>, in_order: bool) -> Result<(), ScanError> {
        let (now, seen) = (self.call.now, self.spread.seen());
        let place = |at: usize| if in_order { seen + 1 + at as u64 } else { 0 };
        let at = |item: &Item| item.identity.due.map_or(now, |due| due.max(now));
        let mut asked: Vec<(usize, Item)> = items.into_iter().enumerate().collect();
        asked.sort_by_key(|(_, item)| at(item));
        let most = self.definition.limits.batch_items.max(1) as usize;
        let mut all = Vec::with_capacity(asked.len());
        while !asked.is_empty() {
            let first = at(&asked[0].1);
            let same = asked.iter().take(most).take_while(|(_, item)| at(item) == first).count();
            let (places, batch): (Vec<usize>, Vec<Item>) = asked.drain(..same).unzip();
            let verdicts = self.ask(&batch, first).await?;
            for ((number, item), verdict) in places.into_iter().zip(batch).zip(verdicts) {
                let mut rows = 0;
                if let Ok(Verdict::Propose(proposal)) = &verdict {
                    let before = self.whole.changed();
                    self.whole.add(proposal);
                    rows = self.whole.changed() - before;
                    self.said += weight::of_proposal(proposal);
                }
                let said = (self.said <= SAID_BYTES).then(|| (Instant::now(), verdict));
                all.push(Asked { item, at: first, rows, said, place: place(number) });
            }
        }
        all.sort_by_key(|asked| asked.place);
        all.into_iter().for_each(|asked| self.spread.add(asked));
        Ok(())
    }

    /// What the plugin says about items.
    async fn ask(
        &self,
        items: &[Item],
        now: Time,
    ) -> Result<Vec<Result<Verdict, Fault>>, ScanError> {
        let call = Call { now, ..self.call.clone() };
        let view = self.ports.store.snapshot(self.ports.snapshot_max).await.map_err(of_store)?;
        let activity = Arc::clone(&self.ports.activity);
        match self.ports.guests.act(&call, view, activity, items).await {
            Ok(acted) => Ok(acted.verdicts),
            // As in a run, each item is to blame for itself.
            Err(Error::Guest(fault)) => Ok(items.iter().map(|_| Err(fault.clone())).collect()),
            Err(error) => Err(of_guest(error)),
        }
    }

    /// Examines the items of the plan that are chosen for it.
    async fn of_chosen(&mut self) -> Result<(), ScanError> {
        let seen = self.spread.seen();
        let Chosen { mut items, share } = std::mem::take(&mut self.spread).chosen();
        self.share = share.unwrap_or(ROWS_MAX);
        let are_all = items.len() as u64 == seen;
        if are_all {
            items.sort_by_key(|asked| asked.at);
        }
        let most = self.definition.limits.batch_items.max(1) as usize;
        while let Some(first) = items.first().map(|asked| asked.at)
            && !self.ends()
        {
            let same = items.iter().take(most).take_while(|asked| asked.at == first).count();
            let batch: Vec<Asked> = items.drain(..same).collect();
            self.of_batch(batch, first).await?;
        }
        if self.full.is_none() && (!are_all || self.cut) {
            self.full = Some(match self.whole.changed() > ROWS_MAX {
                true => self.only(&counted(ROWS_MAX, "row")),
                false => self.only(&counted(ITEMS_MAX, "item")),
            });
        }
        let why: Vec<String> =
            self.whole.partial.clone().into_iter().chain(self.full.take()).collect();
        self.plan.partial = (!why.is_empty()).then(|| why.join("; "));
        Ok(())
    }

    /// Examines items that are judged as of the same time.
    async fn of_batch(&mut self, batch: Vec<Asked>, at: Time) -> Result<(), ScanError> {
        let is_fresh =
            |asked: &Asked| asked.said.as_ref().is_some_and(|(when, _)| when.elapsed() <= SAID_MAX);
        let are_fresh = batch.iter().all(is_fresh);
        let (mut items, mut said) = (Vec::new(), Vec::new());
        for asked in batch {
            items.push((asked.place, asked.item));
            said.extend(asked.said.filter(|_| are_fresh).map(|(_, verdict)| verdict));
        }
        if !are_fresh {
            let only: Vec<Item> = items.iter().map(|(_, item)| item.clone()).collect();
            said = self.ask(&only, at).await?;
        }
        let mut proposed: Vec<(u64, &Item, Proposal)> = Vec::new();
        for ((place, item), verdict) in items.iter().zip(said) {
            match verdict {
                Ok(Verdict::Propose(proposal)) => proposed.push((*place, item, proposal)),
                Ok(Verdict::Skip { reason, .. }) => self.plan.add_other("skip", &reason),
                Ok(Verdict::Retry { reason, .. }) => self.plan.add_other("retry", &reason),
                Ok(Verdict::Dead { reason }) => self.plan.add_other("dead", &reason),
                Err(fault) => self.plan.add_other("fault", &fault.message),
            }
        }
        self.plan.examined += (items.len() - proposed.len()) as u64;
        // Each half of a batch that the database refuses as a whole is tried alone.
        let mut open = vec![proposed];
        while let Some(mut some) = open.pop() {
            if some.is_empty() {
                continue;
            }
            let room = ROWS_MAX.saturating_sub(self.plan.changed()).min(self.share);
            if room == 0 {
                self.ends();
                return Ok(());
            }
            // What goes with these rows is known only afterwards.
            let mut together = 0;
            let fits = some.iter().take_while(|(_, _, proposal)| {
                together += proposal.rows();
                together <= room.min(ROWS_TOGETHER)
            });
            let fits = fits.count().max(1);
            if fits < some.len() {
                let rest = some.split_off(fits);
                open.push(rest);
            }
            if let [(_, _, proposal)] = some.as_mut_slice()
                && proposal.rows() > room
            {
                self.cut |= bound(proposal, room);
            }
            match self.tried(&some).await {
                Ok(tried) => self.note(&some, tried),
                Err(error) if is_of_items(&error) && some.len() > 1 => {
                    let second = some.split_off(some.len() / 2);
                    open.push(second);
                    open.push(some);
                }
                Err(error) if is_of_items(&error) => {
                    self.plan.examined += 1;
                    self.plan.add_other(review::REFUSED, &error.to_string());
                }
                Err(error) => return Err(of_store(error)),
            }
        }
        Ok(())
    }

    async fn tried(&self, some: &[(u64, &Item, Proposal)]) -> store::Result<Tried> {
        let term = self.fence.term;
        let entries = some.iter().map(|(_, item, proposal)| {
            let (identity, now) = (item.identity.clone(), self.call.now);
            Entry::unqueued(term, identity, now, proposal.clone(), REFUSED, true)
        });
        let mut batch = Batch {
            id: CommitId(rand::random()),
            node: self.ports.node.clone(),
            entries: entries.collect(),
            as_of: self.call.now,
            idle: Vec::new(),
            activity_in_store: false,
            lane: self.definition.lane,
            braked: false,
        };
        self.ports.observe(&mut batch).await;
        let _alone = self.ports.trying.lock().await;
        self.ports.store.try_commit(&batch).await
    }

    fn note(&mut self, some: &[(u64, &Item, Proposal)], tried: Tried) {
        let results = tried.outcomes.into_iter().zip(tried.changes);
        for ((place, item, proposal), (outcome, mut changes)) in some.iter().zip(results) {
            self.plan.examined += 1;
            let TriedChanges { locked, .. } = &mut changes;
            let locked = locked.take().map(|locked| self.locked.add(item, locked));
            match outcome {
                // Nothing else of it is known.
                Outcome::Skipped(_) | Outcome::Dead(_) | Outcome::Retried(_)
                    if locked.is_some() => {}
                Outcome::Committed | Outcome::Kept => {
                    self.commits(*place, item, proposal, changes);
                }
                Outcome::Skipped(reason) | Outcome::Dead(reason) => {
                    self.plan.add_other(review::REFUSED, &reason);
                }
                Outcome::Retried(_) => self.plan.add_other("retry", "it would be tried again"),
                Outcome::Left(_) => self.plan.add_other(review::REFUSED, "it was left out"),
            }
        }
    }

    fn commits(&mut self, place: u64, item: &Item, proposal: &Proposal, changes: TriedChanges) {
        let TriedChanges { rows, images, bytes, said, .. } = changes;
        let emits = proposal.changes.iter().any(|change| matches!(change, Change::Emit { .. }));
        if rows == 0 && !emits {
            let why = said.unwrap_or_else(|| "there is nothing left to change".to_owned());
            return self.plan.add_other("skip", &why);
        }
        self.plan.changing += 1;
        if !self.definition.keep_removed.is_zero() {
            self.plan.bytes += bytes;
        }
        if let Some(said) = said {
            self.plan.add_other("partial", &said);
        }
        for change in &proposal.changes {
            if let Change::Emit { topic, .. } = change {
                self.plan.add_messages(topic, 1);
            }
        }
        let shown: Vec<&BeforeImage> =
            images.iter().filter(|image| image.left != Left::Copy).collect();
        for image in &shown {
            self.plan.add_rows(&image.collection, operation(image), 1);
        }
        self.plan.add_sample(Sample {
            tenant: item.identity.tenant.as_ref().map(ToString::to_string),
            key: item.identity.key.clone(),
            due: item.identity.due,
            place,
            rows,
            changes: examples(&shown).into_iter().map(row_change).collect(),
        });
    }
}

/// Why candidates are not among the items of a preview.
const NOT_PLANNED: &str = "a run does not plan these again: undone, settled or discarded until the version changes, \
                           or an open dead letter";

/// The recorded reason of a change that the database refuses, followed by its message.
const REFUSED: &str = "the database refuses the change";

/// Whether an error of a batch is its items' own.
fn is_of_items(error: &store::Error) -> bool {
    use store::Error::{GuardsTimedOut, Invalid, Raised, TimedOut, TooLarge};
    matches!(error, GuardsTimedOut(_) | Invalid(_) | Raised(_) | TimedOut(_) | TooLarge(_))
}

/// Lets a proposal change so many rows of each of its ranges at most. Returns whether it has changed that.
fn bound(proposal: &mut Proposal, rows: u64) -> bool {
    let most = u32::try_from(rows).unwrap_or(u32::MAX);
    let mut bounded = false;
    for change in &mut proposal.changes {
        if let Change::DeleteRange(range)
        | Change::UpdateRange { range, .. }
        | Change::MoveRange { range, .. } = change
            && range.rows > most
        {
            Arc::make_mut(range).rows = most;
            bounded = true;
        }
    }
    bounded
}

/// Rows of each collection, at most [`CHANGES_MAX`], one collection after the other: rows that stand below each
/// other need not belong together. What goes with a row is changed before it, and the row itself comes first here.
fn examples<'i>(images: &[&'i BeforeImage]) -> Vec<&'i BeforeImage> {
    let mut of: Vec<Vec<&BeforeImage>> = Vec::new();
    for image in images {
        match of.iter_mut().find(|some| some[0].collection == image.collection) {
            Some(some) => some.push(image),
            None => of.push(vec![image]),
        }
    }
    let most = of.iter().map(Vec::len).max().unwrap_or(0);
    let turn = |at: usize| of.iter().rev().filter_map(move |some| some.get(at).copied());
    let mut chosen: Vec<_> = (0..most).flat_map(turn).take(CHANGES_MAX).collect();
    let place = |image: &&BeforeImage| {
        of.iter().rev().position(|some| some[0].collection == image.collection)
    };
    chosen.sort_by_key(place);
    chosen
}

fn operation(image: &BeforeImage) -> Operation {
    match (&image.left, image.stored.is_empty()) {
        (Left::Gone, _) => Operation::Delete,
        (Left::Moved(_), _) => Operation::Move,
        (_, true) => Operation::Insert,
        (_, false) => Operation::Update,
    }
}

fn row_change(image: &BeforeImage) -> RowChange {
    let operation = operation(image);
    let after = match &image.left {
        Left::Set(fields) | Left::As(fields) => fields.as_slice(),
        Left::Gone | Left::Moved(_) | Left::Copy | Left::Unknown => &[],
    };
    let find = |fields: &'_ [Field], name: &str| {
        fields.iter().find(|field| field.name == name).map(|field| field.value.clone())
    };
    // What is mapped has a type; other columns are as the database gives them.
    let typed = |name: &str| find(image.row.as_deref().unwrap_or_default(), name);
    let column = |name: &str, before: Option<&Value>, after: Option<&Value>| ColumnChange {
        name: name.to_owned(),
        before: before.map(shown),
        after: after.map(shown),
        before_value: before.and_then(|value| machine(&typed(name).unwrap_or(value.clone()))),
        after_value: after.and_then(machine),
    };
    let columns = match operation {
        Operation::Delete | Operation::Move => {
            let all = image.stored.iter();
            all.map(|field| column(&field.name, Some(&field.value), None)).collect()
        }
        Operation::Insert | Operation::Update => {
            let all = after.iter().map(|field| {
                // Both in one form.
                let stored = || find(&image.stored, &field.name);
                let before = stored().map(|stored| typed(&field.name).unwrap_or(stored));
                column(&field.name, before.as_ref(), Some(&field.value))
            });
            all.filter(|column| column.before != column.after).collect()
        }
    };
    let key: Vec<String> = image.key.iter().map(shown).collect();
    RowChange {
        collection: image.collection.clone(),
        key: key.join(", "),
        key_values: image.key.iter().filter_map(machine).collect(),
        operation,
        columns,
    }
}

/// A value for programs; none: it is too large.
fn machine(value: &Value) -> Option<serde_json::Value> {
    (value.weight() <= VALUE_BYTES).then(|| rows::plain(value))
}

/// A value as it is shown, at most [`VALUE_CHARS`] long.
fn shown(value: &Value) -> String {
    let text = value.shown();
    match text.char_indices().nth(VALUE_CHARS) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// A candidate as the item that it would become.
fn item(definition: &TaskDefinition, partitions: u32, now: Time, candidate: Candidate) -> Item {
    let tenant = candidate.tenant.as_ref().map(Tenant::as_str);
    Item {
        partition: partition_of(tenant, &candidate.route, partitions),
        identity: Identity {
            task: definition.name.clone(),
            tenant: candidate.tenant,
            key: candidate.key,
            due: candidate.due,
        },
        route: candidate.route,
        version: candidate.version,
        payload: candidate.payload,
        run: RunId::NONE,
        planned_at: now,
        attempts: 0,
        guard_retries: 0,
        deaths: 0,
        errors: Vec::new(),
    }
}
