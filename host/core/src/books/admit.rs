//! The admission of a page: which candidates become items.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::Tally;
use crate::ids::{Partition, RunId, TaskName, Tenant, partition_of};
use crate::item::{Candidate, Identity, Item};
use crate::time::Time;

/// A page of a scan, to be planned in one transaction together with its cursor.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanPage {
    /// The run that scanned the page.
    pub run: RunId,
    /// The task of the run.
    pub task: TaskName,
    /// The scanned tenant; `None` for a scan over all tenants.
    pub tenant: Option<Tenant>,
    /// The candidates found. Equal identities within a page count once.
    pub candidates: Vec<Candidate>,
    /// The new cursor of (task, tenant); `None`: the next scan starts from the beginning.
    pub cursor: Option<Vec<u8>>,
    /// Number of rows that the scan examined.
    pub scanned: u64,
    /// The maximum number of items to plan, in order. The first candidate above this quota and all
    /// that follow are left for a later page, and the cursor does not move. Candidates that are
    /// already waiting or are blocked do not count towards the quota.
    pub quota: u64,
}

/// The result of planning a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Planned {
    /// Number of items planned.
    pub planned: u64,
    /// A digest of the planned items with their versions, whatever their order: the sum of those of its parts.
    pub digest: u64,
    /// Candidates whose identity is already waiting (in the log, as a timer or as a retry).
    pub deduplicated: u64,
    /// Candidates blocked by a settled skip, a discard or an open dead letter of the same
    /// version.
    pub blocked: u64,
    /// Candidates left out because the quota was used up.
    pub left: u64,
    /// Partitions whose streams have new items.
    pub partitions: Vec<Partition>,
    /// The earliest due time among the planned items.
    pub earliest_due: Option<Time>,
}

/// A digest of an item's identity and version.
fn digest(candidate: &Candidate) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Candidate { tenant, key, due, version, .. } = candidate;
    (tenant.as_ref().map(Tenant::as_str), key, due, version).hash(&mut hasher);
    hasher.finish()
}

/// What a store finds about a candidate: rows of its identity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// The identity waits in the log, as a timer or as a retry.
    pub waits: bool,
    /// The candidate's version was settled or discarded.
    pub settled: bool,
    /// There is an open dead letter of the candidate's version.
    pub dead: bool,
}

impl Found {
    /// What these rows mean for the candidate.
    pub fn known(self) -> Known {
        match self {
            Found { waits: true, .. } => Known::Waits,
            Found { settled: true, .. } | Found { dead: true, .. } => Known::Blocked,
            Found { waits: false, settled: false, dead: false } => Known::New,
        }
    }
}

/// What becomes of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It is waiting. This counts even if its version is blocked as well.
    Waits,
    /// It is not waiting, and a settled skip, a discard or an open dead letter of the candidate's
    /// version blocks it.
    Blocked,
    /// Neither.
    New,
}

/// A new item. With a due time it becomes a timer; otherwise it is appended to its stream, without
/// a gap and in the order of the candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct New<'a> {
    /// The candidate that it was.
    pub candidate: &'a Candidate,
    /// Its partition.
    pub partition: Partition,
}

impl New<'_> {
    /// The item, planned for the slot `planned_at` of the page's run.
    pub fn item(&self, page: &PlanPage, planned_at: Time) -> Item {
        let Candidate { tenant, key, route, due, version, payload } = self.candidate.clone();
        let task = page.task.clone();
        Item {
            identity: Identity { task, tenant, key, due },
            route,
            partition: self.partition,
            version,
            payload,
            run: page.run,
            planned_at,
            attempts: 0,
            guard_retries: 0,
            deaths: 0,
            errors: Vec::new(),
        }
    }
}

/// What becomes of the cursor of a page's task and tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CursorMove<'a> {
    /// It stays, because candidates were left for a later page.
    #[default]
    Stay,
    /// It is removed: the next scan starts from the beginning.
    Begin,
    /// The next scan continues here.
    To(&'a [u8]),
}

/// What planning a page does to the books.
#[derive(Debug, Default)]
pub struct Admitted<'a> {
    /// The new items.
    pub items: Vec<New<'a>>,
    /// How many of them are appended to streams.
    pub logged: u64,
    /// What becomes of the cursor.
    pub cursor: CursorMove<'a>,
    /// The additions to the counters.
    pub tally: Tally<'a>,
    /// The result.
    pub planned: Planned,
}

/// Admits the candidates of a page, in order. `known` is asked at most once for each identity that
/// is not admitted from this page, with whether a new item may still be planned: a store may then
/// register a new identity as waiting in the same step.
///
/// # Errors
/// The first error of `known`.
pub fn admit<'a, E>(
    page: &'a PlanPage,
    partitions: u32,
    mut known: impl FnMut(usize, bool) -> Result<Known, E>,
) -> Result<Admitted<'a>, E> {
    let mut admitted = Admitted::default();
    let Admitted { items, logged, cursor, tally, planned } = &mut admitted;
    let mut new: HashSet<(Option<&Tenant>, &str, Option<Time>)> = HashSet::new();
    let mut grown = BTreeSet::new();
    for (at, candidate) in page.candidates.iter().enumerate() {
        let tenant = candidate.tenant.as_ref();
        let identity = (tenant, candidate.key.as_str(), candidate.due);
        let room = planned.planned < page.quota;
        let known = match new.contains(&identity) {
            true => Known::Waits,
            false => known(at, room)?,
        };
        match known {
            Known::Waits => planned.deduplicated += 1,
            Known::Blocked => planned.blocked += 1,
            Known::New if !room => {
                planned.left = (page.candidates.len() - at) as u64;
                break;
            }
            Known::New => {
                new.insert(identity);
                let partition =
                    partition_of(tenant.map(Tenant::as_str), &candidate.route, partitions);
                let delta = tally.at(&page.task, tenant);
                planned.planned += 1;
                planned.digest = planned.digest.wrapping_add(digest(candidate));
                delta.planned += 1;
                match candidate.due {
                    None => {
                        delta.log += 1;
                        *logged += 1;
                        grown.insert(partition);
                    }
                    Some(due) => {
                        delta.timers += 1;
                        let earliest = planned.earliest_due.unwrap_or(due);
                        planned.earliest_due = Some(earliest.min(due));
                    }
                }
                items.push(New { candidate, partition });
            }
        }
    }
    planned.partitions = grown.into_iter().collect();
    if planned.left == 0 {
        *cursor = page.cursor.as_deref().map_or(CursorMove::Begin, CursorMove::To);
    }
    Ok(admitted)
}
