//! Replays an item: the plugin decides about it again, with what it was given then, and the result is compared
//! with what was committed. Nothing is committed.

mod view;

use std::sync::Arc;

use besom_core::collection::Collections;
use besom_core::ids::partition_of;
use besom_core::item::{End, Item};
use besom_core::proposal::{Proposal, Verdict};
use besom_core::undo::row_name;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

use self::view::AsItWas;
use super::dry_run::{all, in_words};
use super::perform::call_of;
use besom_config::printable;
use besom_ports::activity::Activity;
use besom_ports::guests::{Call, Fault, Guests, StopFlag};
use besom_ports::store::{self, BeforeImage, Given, HistoryRow, Left, Store};
use besom_ports::task::TaskDefinition;

/// Maximum number of changes of an item that are described.
const CHANGES_SHOWN: usize = 100;

/// How a replay compares with what was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// The plugin proposes the same guards and changes.
    Same,
    /// It proposes something else, or nothing.
    Different,
    /// The item could not be replayed.
    NotReplayed,
}

impl Comparison {
    /// The word for it, in JSON as well as on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Comparison::Same => "same",
            Comparison::Different => "different",
            Comparison::NotReplayed => "not_replayed",
        }
    }
}

/// What was decided about an item, in words.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Decided {
    /// `propose`, `skip`, `retry`, `dead` or `fault`; of what was recorded, how the item ended.
    pub verdict: &'static str,
    /// The reason, if there is one.
    pub reason: Option<String>,
    /// The changes, each in words: what was recorded names rows, and leaves messages out.
    pub changes: Vec<String>,
}

/// A replayed item.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replayed {
    /// RUN/#NUMBER.
    pub item: String,
    /// The tenant of the item.
    pub tenant: Option<String>,
    /// The key of the item.
    pub key: String,
    /// When its outcome was committed.
    pub at: String,
    /// The present that its plugin was given; `None`: it is not known.
    pub now: Option<String>,
    /// How it compares.
    pub result: Comparison,
    /// Why it was not replayed.
    pub why: Option<String>,
    /// What was recorded.
    pub recorded: Decided,
    /// What the plugin decides now; `None`: the item was not replayed.
    pub replayed: Option<Decided>,
    /// Number of rows that the plugin has read as they were kept.
    pub rows_kept: u64,
    /// Number of rows that it has read as they are now, because the item has not changed them.
    pub rows_now: u64,
}

/// What replays need.
pub struct Replay {
    /// The database.
    pub store: Arc<dyn Store>,
    /// The plugins, with that of the run.
    pub guests: Arc<dyn Guests>,
    /// The activity, which is read as it is now.
    pub activity: Arc<dyn Activity>,
    /// The mapping.
    pub collections: Arc<Collections>,
    /// How long the snapshot of a call stays open.
    pub snapshot_max: Duration,
    /// The definition that the run was started with.
    pub definition: TaskDefinition,
}

impl Replay {
    /// Replays the item of a history row.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn item(&self, row: &HistoryRow) -> store::Result<Replayed> {
        let images = self.store.before_images(row.id).await?.unwrap_or_default();
        let kept = self.store.kept(row.id).await?;
        let mut replayed = Replayed {
            item: format!("{}/#{}", row.run, row.id),
            tenant: row.identity.tenant.as_ref().map(ToString::to_string),
            key: row.identity.key.clone(),
            at: row.at.to_string(),
            now: None,
            result: Comparison::NotReplayed,
            why: None,
            recorded: recorded(row, &images),
            replayed: None,
            rows_kept: 0,
            rows_now: 0,
        };
        let given = match (row.outcome, kept) {
            (End::Committed, Some(kept)) if kept.purged > 0 => {
                replayed.why = Some(PURGED.to_owned());
                return Ok(replayed);
            }
            (End::Committed, Some(kept)) => match (kept.given, kept.version) {
                (Some(given), version) => (given, version.unwrap_or_default()),
                (None, _) => {
                    replayed.why = Some(OLDER.to_owned());
                    return Ok(replayed);
                }
            },
            (End::Committed, None) => {
                replayed.why = Some(NOT_KEPT.to_owned());
                return Ok(replayed);
            }
            (end, _) => {
                replayed.why = Some(format!("it was {end}: {WITHOUT_ROWS}"));
                return Ok(replayed);
            }
        };
        let (given, version) = given;
        replayed.now = Some(given.now.to_string());
        let item = self.of(row, &given, version);
        let live: Arc<dyn store::ReadView> = self.store.snapshot(self.snapshot_max).await?;
        let view = Arc::new(AsItWas::new(live, Arc::clone(&self.collections), images));
        // The seed of a call is a part of the id of its commit.
        let seed = (row.commit.0 >> 64) as u64;
        let call: Call = call_of(&self.definition, given.now, seed, &StopFlag::default());
        let seen: Arc<dyn store::ReadView> = Arc::<AsItWas>::clone(&view);
        let acted = self.guests.act(&call, seen, Arc::clone(&self.activity), &[item]).await;
        (replayed.rows_kept, replayed.rows_now) = view.told();
        match acted.map(|acted| acted.verdicts.into_iter().next()) {
            Ok(Some(verdict)) => {
                let is_same = match &verdict {
                    Ok(Verdict::Propose(proposal)) => proposal.digest() == given.proposal,
                    Ok(_) | Err(_) => false,
                };
                replayed.result = if is_same { Comparison::Same } else { Comparison::Different };
                replayed.replayed = Some(decided(verdict));
            }
            Ok(None) => replayed.why = Some("the plugin gave no verdict".to_owned()),
            Err(error) => replayed.why = Some(error.to_string()),
        }
        Ok(replayed)
    }

    /// The item as its plugin was given it.
    fn of(&self, row: &HistoryRow, given: &Given, version: String) -> Item {
        let route = given.route.clone().unwrap_or_else(|| row.identity.key.clone());
        let tenant = row.identity.tenant.as_ref().map(besom_core::ids::Tenant::as_str);
        Item {
            partition: partition_of(tenant, &route, self.store.partitions()),
            identity: row.identity.clone(),
            route,
            version,
            payload: given.payload.clone(),
            run: row.run,
            planned_at: given.planned_at,
            attempts: given.attempts,
            guard_retries: given.guard_retries,
            deaths: 0,
            errors: Vec::new(),
        }
    }
}

const OLDER: &str =
    "it was committed by a version of Besom that did not record what items are given";
const PURGED: &str = "rows of it were purged, and with them what it was given";
const NOT_KEPT: &str = "what it was given is kept with its rows, and these are kept no longer, or were \
                        not (keep_removed)";
const WITHOUT_ROWS: &str = "what an item is given is kept only with the rows that it has changed";

/// What was recorded of an item.
fn recorded(row: &HistoryRow, images: &[BeforeImage]) -> Decided {
    let changes = images.iter().filter(|image| image.left != Left::Copy);
    Decided {
        verdict: row.outcome.as_str(),
        reason: row.reason.clone(),
        changes: shortened(changes.map(change)),
    }
}

/// What was done to a row that is kept.
fn change(image: &BeforeImage) -> String {
    let row = row_name(&image.collection, &image.key);
    match (&image.left, &image.row) {
        (Left::Gone, _) => format!("delete {row}"),
        (Left::Moved(into), _) => format!("move {row} into {into}"),
        (Left::Set(fields) | Left::As(fields), Some(_)) => format!("update {row}: {}", all(fields)),
        (Left::Set(fields) | Left::As(fields), None) => format!("insert {row}: {}", all(fields)),
        (Left::Unknown | Left::Copy, _) => format!("change {row}"),
    }
}

fn decided(verdict: Result<Verdict, Fault>) -> Decided {
    let without = |verdict, reason| Decided { verdict, reason: Some(reason), changes: Vec::new() };
    match verdict {
        Ok(Verdict::Propose(proposal)) => {
            let Proposal { changes, .. } = proposal;
            let changes = shortened(changes.iter().map(in_words));
            Decided { verdict: "propose", reason: None, changes }
        }
        Ok(Verdict::Skip { reason, .. }) => without("skip", reason),
        Ok(Verdict::Retry { reason, .. }) => without("retry", reason),
        Ok(Verdict::Dead { reason }) => without("dead", reason),
        Err(fault) => without("fault", fault.message),
    }
}

/// The first of them, and how many there are more.
fn shortened(changes: impl Iterator<Item = String>) -> Vec<String> {
    let mut more = 0_u64;
    let mut shown = Vec::new();
    for change in changes {
        match shown.len() < CHANGES_SHOWN {
            true => shown.push(change),
            false => more += 1,
        }
    }
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenant = self.tenant.as_deref().unwrap_or("-");
        let place = format!("{} {tenant}/{}", self.item, self.key);
        write!(f, "{}: ", printable(&place))?;
        match (self.result, &self.why) {
            (Comparison::NotReplayed, why) => {
                let why = why.as_deref().unwrap_or_default();
                return writeln!(f, "not replayed: {}", printable(why));
            }
            (result, _) => write!(f, "{}", result.as_str())?,
        }
        writeln!(f, " (rows read: {} as kept, {} as now)", self.rows_kept, self.rows_now)?;
        if self.result == Comparison::Different {
            for (sign, decided) in [("-", Some(&self.recorded)), ("+", self.replayed.as_ref())] {
                for line in decided.into_iter().flat_map(Decided::lines) {
                    writeln!(f, "    {sign} {}", printable(&line))?;
                }
            }
        }
        Ok(())
    }
}

impl Decided {
    fn lines(&self) -> Vec<String> {
        let head = match &self.reason {
            Some(reason) => format!("{}: {reason}", self.verdict),
            None => self.verdict.to_owned(),
        };
        std::iter::once(head).chain(self.changes.iter().cloned()).collect()
    }
}
