//! The commit: ownership and cursors, anchors, guards, changes, before-images, history, counters,
//! outbox and acknowledgement in one transaction.
//!
//! It takes three round trips, whatever the number of items: (1) locks owners and anchors, and
//! evaluates guards; (2) applies the changes, removes the items from where they were waiting and
//! moves the cursors; (3) writes the books and sends COMMIT. Each further wave (`work`) costs two
//! more. Plain items are judged and changed in the first round trip (`direct`), and rolled back if
//! they are not this node's.
//!
//! An item's violation must undo that item alone. Savepoints are expensive while nothing fails, so
//! a batch is first tried without them. An item that fails in a known way is named and the batch
//! repeated without its effects. If the database refuses a statement for many items, the batch is
//! repeated with savepoints, and the wave is bisected until the failing item is alone. Likewise, an
//! item is first taken to be where it was read, and a cursor before it: the removal and the move show
//! whether they were, and if not, the batch is repeated with a lookup.
//!
//! After an unknown result the mark decides. Its row is unique, so a lookup waits for the
//! transaction that may still be writing it; a lookup that finds nothing inserts the mark itself.

mod attempt;
mod carefully;
mod idle;
mod restored;
mod tables;
mod trial;

use std::collections::{BTreeMap, HashMap};

use besom_core::ids::{CommitId, TaskName};
use besom_core::item::Source;
use besom_core::proposal::{Change, Proposal};
use besom_tables::late;
use besom_tables::room::Room;
use tokio::sync::Semaphore;
use tokio_postgres::error::SqlState;

pub(super) use self::carefully::Deferred;
use super::clock::{Clock, NOW};
use super::connect::{Pools, Use};
use super::effects::Done;
use super::embedded::Observation;
use super::error::{Failure, Fault as Blame, Job, fault, may_be_raised, words};
use super::fault::Fault;
use super::guards;
use super::ledger::BLOCKS;
use super::mapping::Mapping;
use super::session::{Session, params};
use super::waiting::mark;
use besom_ports::store::{Batch, Committed, Decision, Entry, Error, Result, Tried};

/// How often a batch is repeated because other writers were faster, before the caller gets an
/// error.
const REPEATS_MAX: u32 = 3;

/// The environment of a commit besides its batch.
pub(super) struct Setting<'a> {
    pub(super) pools: &'a Pools,
    pub(super) clock: &'a Clock,
    pub(super) tasks: &'a HashMap<TaskName, i32>,
    pub(super) mapping: &'a Mapping,
    pub(super) collections: &'a besom_core::collection::Collections,
    pub(super) observation: Observation,
    pub(super) fault: Option<Fault>,
    /// Time limits of a statement.
    pub(super) bounds: guards::Bounds,
    pub(super) undo: &'a Undo,
    /// Whether the batch is only tried: everything is taken back.
    pub(super) trial: bool,
}

/// What has become of a batch.
pub(super) enum Attempted {
    Committed(Committed),
    /// It was only tried.
    Tried(Tried),
}

/// The memory of a process for before-images, which are read from the server: commits run side by
/// side, and one of them may need all of it.
pub(super) struct Undo {
    /// The maximum size of the images of a commit, in bytes before they are packed.
    max: u64,
    /// A commit with large images runs alone among its like.
    large: Semaphore,
}

/// The size of before-images from which a commit runs alone among its like, in bytes.
const LARGE: u64 = 4 << 20;

impl Undo {
    pub(super) fn new(max: u64) -> Undo {
        Undo { max, large: Semaphore::new(1) }
    }
}

/// How carefully a batch is applied.
#[derive(Default, Clone)]
struct Care {
    /// Whether savepoints surround the effects of items.
    savepoints: bool,
    /// Items that cannot be applied, with the database's message.
    violated: BTreeMap<usize, String>,
    /// Items whose guards are known to fail.
    failed: Vec<usize>,
    /// Whether `direct` is skipped, because it would change an item that is not this node's.
    stepwise: bool,
    /// Maximum number of rows that a range changes, after a statement for more of them took too long.
    rows_max: Option<u32>,
    /// Whether cursors are locked and items looked up at their places first, so that those that are
    /// not there are left out.
    look_up: bool,
}

/// Why an attempt stopped early.
enum Stop {
    /// Nothing has to be done: the batch was already committed, or it is not due yet.
    Known(Committed),
    /// The batch was only to be tried.
    Tried(Tried),
    /// The batch has to be repeated with this knowledge.
    Repeat(Care),
    /// Another transaction has taken an item in the meantime.
    Overtaken,
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

impl From<tokio_postgres::Error> for Stop {
    fn from(e: tokio_postgres::Error) -> Stop {
        Stop::Failed(e.into())
    }
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e.into())
    }
}

type Step<T> = std::result::Result<T, Stop>;

/// Commits a batch.
pub(super) async fn commit(
    mut session: Session,
    batch: &Batch,
    setting: &Setting<'_>,
) -> Result<Attempted> {
    match setting.fault {
        Some(Fault::Busy) => return Err(Error::Busy("a fault of a test".into())),
        Some(Fault::Away) => return Err(Error::Unavailable("a fault of a test".into())),
        Some(Fault::CommitLost | Fault::CommitUnconfirmed) | None => {}
    }
    let undo = setting.undo;
    let small = Room::of_images(undo.max.min(LARGE));
    match commit_within(&small, &mut session, batch, setting).await {
        Err(Error::TooLarge(_)) if small.max() < undo.max => {
            // The refusal has used up the connection.
            drop(session);
            let turn = tokio::time::timeout(setting.bounds.statement, undo.large.acquire()).await;
            let Ok(Ok(_turn)) = turn else {
                let words = "other commits with large before-images take long";
                return Err(Error::Busy(words.into()));
            };
            let mut session = setting.pools.take(Use::Write).await?;
            commit_within(&Room::of_images(undo.max), &mut session, batch, setting).await
        }
        done => done,
    }
}

/// Commits a batch whose before-images fit into the room.
async fn commit_within(
    room: &Room,
    session: &mut Session,
    batch: &Batch,
    setting: &Setting<'_>,
) -> Result<Attempted> {
    let care = Care { look_up: !alike(batch), savepoints: setting.trial, ..Care::default() };
    let (mut care, mut repeats) = (care, 0);
    let number = |entry: &Entry| setting.tasks.get(&entry.item.identity.task).copied();
    let tasks: Vec<i32> = batch.entries.iter().map(|entry| number(entry).unwrap_or(0)).collect();
    loop {
        session.set_room(Some(room.clone()));
        let attempt = Attempt { batch, tasks: &tasks, setting, care: &care };
        match attempt.run(session).await {
            Ok(committed) => return Ok(Attempted::Committed(committed)),
            Err(stop) => {
                session.rollback().await;
                match stop {
                    Stop::Known(committed) => return Ok(Attempted::Committed(committed)),
                    Stop::Tried(tried) => return Ok(Attempted::Tried(tried)),
                    // Each repetition excludes one more item, or uses savepoints from then on.
                    Stop::Repeat(next) => care = Care { look_up: true, ..next },
                    Stop::Overtaken if repeats < REPEATS_MAX => {
                        care.look_up = true;
                        repeats += 1;
                    }
                    Stop::Overtaken => {
                        return Err(Error::Busy("another commit holds the same items".into()));
                    }
                    Stop::Failed(failure) => {
                        session.doubted(&failure);
                        // A wait for a lock would have ended before.
                        let max = setting.bounds.statement;
                        if let Failure::Sql(e) = &failure
                            && e.code() == Some(&SqlState::QUERY_CANCELED)
                            && setting.bounds.lock < max
                        {
                            if let Some(rows) = fewer(batch, care.rows_max) {
                                care.rows_max = Some(rows);
                                continue;
                            }
                            return Err(late::commit_cancelled(max, &words(e)));
                        }
                        if let Failure::Sql(e) = &failure
                            && may_be_raised(e)
                            && session.answers().await
                        {
                            return Err(Error::Raised(words(e)));
                        }
                        return Err(failure.into());
                    }
                }
            }
        }
    }
}

const RECORDED: &str = "SELECT result FROM @.commit WHERE id = $1";

/// The first statement of a commit: reads the current time, whether the mark `$2` exists and with
/// which result, draws `$3` numbers, and reads what blocks items of the tasks `$4`, and whether one of the
/// runs `$5` is held.
fn opening() -> String {
    format!(
        "SELECT {NOW}, c.id IS NOT NULL, c.result,
           (SELECT array_agg(nextval('@.number')) FROM generate_series(1, $3::int4)), {BLOCKS},
           EXISTS (SELECT 1 FROM @.run WHERE id = ANY($5::int8[]) AND held)
         FROM (SELECT $2::uuid AS id) m LEFT JOIN @.commit c ON c.id = m.id",
        BLOCKS = BLOCKS.replace("{tasks}", "$4::int4[]")
    )
}

/// The result of the commit with that mark. If there is none, the mark is abandoned, so that a copy
/// of the batch that is still under way is never applied.
pub(super) async fn find(session: &Session, clock: &Clock, id: CommitId) -> Job<Option<Committed>> {
    // Waits for a transaction that is writing this mark.
    let given_up = session
        .execute(
            &format!(
                "INSERT INTO @.commit (no, last, id, at, node)
                 SELECT n, n, $2, {NOW}, '' FROM nextval('@.number') n
                 ON CONFLICT (id) DO NOTHING"
            ),
            params![clock.given(), mark(id)],
        )
        .await?;
    if given_up == 1 {
        return Ok(None);
    }
    let row = session.row(RECORDED, params![mark(id)]).await?;
    let result: Option<Vec<u8>> = row.map(|row| row.try_get(0)).transpose()?.flatten();
    Ok(result.as_deref().map(postcard::from_bytes).transpose()?)
}

/// One attempt at a batch.
struct Attempt<'a> {
    batch: &'a Batch,
    /// The number of each entry's task.
    tasks: &'a [i32],
    setting: &'a Setting<'a>,
    care: &'a Care,
}

/// The decisions about the works so far, by entry.
type Decided = BTreeMap<usize, std::result::Result<Done, NotApplied>>;

/// Why an item's changes are not applied.
enum NotApplied {
    Guard,
    Violation(String),
    /// The database refuses the statement itself; other items show whose fault that is.
    Refused(Error),
    /// In a trial: another session has locked a row of it.
    Locked,
}

/// The changes that a batch applies, with their guards.
fn proposals(batch: &Batch) -> impl Iterator<Item = &Proposal> {
    batch.entries.iter().filter_map(|entry| match &entry.decision {
        Decision::Apply { proposal, .. } => Some(proposal),
        Decision::Settle(_) => None,
    })
}

/// How many times fewer rows of a range are tried after a statement that took too long.
const FEWER: u32 = 8;

/// The number of rows of a range to try if a statement for at most `max` took too long; none: it was not because of
/// their number.
fn fewer(batch: &Batch, max: Option<u32>) -> Option<u32> {
    let changes = proposals(batch).flat_map(|proposal| &proposal.changes);
    let ranges = changes.filter_map(Change::of_range);
    let most = ranges.map(|(range, _)| range.rows).max()?.min(max.unwrap_or(u32::MAX));
    (most > 1).then_some((most / FEWER).max(1))
}

/// Whether the items of each stream have one run, tenant and due time, as far as neighbours show: if
/// others differ, the removal is incomplete and the batch repeated.
fn alike(batch: &Batch) -> bool {
    batch.entries.windows(2).all(|pair| {
        let [(a, of_a), (b, of_b)] = [&pair[0], &pair[1]].map(|e| (&e.item, &e.item.identity));
        let logged = pair.iter().all(|entry| matches!(entry.source, Source::Log(_)));
        let together = logged && of_a.task == of_b.task && a.partition == b.partition;
        !together || (a.run == b.run && of_a.tenant == of_b.tenant && of_a.due == of_b.due)
    })
}

fn blames_items(e: &tokio_postgres::Error) -> bool {
    matches!(fault(e), Blame::Item | Blame::Program)
}
