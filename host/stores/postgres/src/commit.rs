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

use std::collections::{BTreeMap, BTreeSet, HashMap};

use besom_core::books::{Blocks, Closed, Judged, Tally, Write, close};
use besom_core::brake::used;
use besom_core::collection::all_dependants;
use besom_core::ids::{CommitId, RunId, TaskName};
use besom_core::item::Source;
use besom_core::proposal::{Change, Fate, Guard, Proposal, Restore, RowRange};
use besom_snapshot::Cause;
use besom_tables::late;
use besom_tables::room::Room;
use tokio::sync::Semaphore;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::brakes;
use super::clock::{Clock, NOW};
use super::connect::{Pools, Use};
use super::direct;
use super::effects::{self, Done, Effect};
use super::embedded::{self, Observation, idle_keys};
use super::error::{
    Failure, Fault as Blame, Job, classify, classify_commit, fault, invalid,
    is_raised_in_a_function, may_be_raised, words,
};
use super::fault::Fault;
use super::guards::{self, Verdict};
use super::leadership;
use super::ledger::{self, BLOCKS, Ledger, numbers_needed};
use super::mapping::{Mapping, Table};
use super::ownership;
use super::range_change;
use super::readset;
use super::restore;
use super::scene::Scene;
use super::session::{Pipeline, Session, params};
use super::tally::{self, END_RUNS, RUN_FACTS, ending, runs_left, write_runs};
use super::together;
use super::waiting::mark;
use super::whole;
use super::work::{Work, waves};
use besom_ports::activity::State;
use besom_ports::store::{
    Batch, Committed, Decision, Entry, Error, Given, LeftOut, LockedRows, Result, Tried,
    TriedChanges,
};
use besom_record::images::{Images, unpack};
use besom_record::restore::Ended;
use besom_record::{Changed, Refused, kept};

/// How often a batch is repeated because other writers were faster, before the caller gets an
/// error.
const REPEATS_MAX: u32 = 3;
/// The maximum number of items of a batch that are tried alone when the database refuses the
/// statement itself.
const REFUSED_MAX: usize = 16;

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

/// How long a trial waits for a row that another session has locked.
const TRIAL_WAIT: &str = "SET LOCAL lock_timeout = '200ms'";

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

impl<'a> Attempt<'a> {
    async fn run(&self, session: &mut Session) -> Step<Committed> {
        let batch = self.batch;
        // They may have changed since the catalog was read.
        self.tables_fit().inspect_err(|_| session.doubt())?;
        let (restores, works): (Vec<Work<'a>>, _) =
            self.works().into_iter().partition(|work| work.proposal.restores());
        let mut waves = waves(works, self.setting.collections);
        let idle = self.idle(session, &waves).await?;
        let is_idle = |work: &Work<'_>, key: &str| {
            idle.iter().any(|(entry, idle)| entry.is_none_or(|e| e == work.entry) && idle == key)
        };

        let bounds = self.setting.bounds;
        let mut first = Pipeline::default();
        let tasks: Vec<i32> = self.setting.tasks.values().copied().collect();
        let needed = numbers_needed(batch.entries.len()) as i32;
        let runs: BTreeSet<i64> = batch.entries.iter().map(|e| e.item.run.0 as i64).collect();
        let runs: Vec<i64> = runs.into_iter().collect();
        let asked = params![self.setting.clock.given(), mark(batch.id), needed, tasks, runs];
        first.push(opening(), asked);
        let above = batch.unqueued()?.map(|term| leadership::ask_above(&mut first, term));
        let owners = ownership::ask(&mut first, batch, self.tasks, self.care.look_up);
        let together = !self.care.savepoints;
        let direct = (together && !self.care.stepwise)
            .then(|| direct::ask(&mut first, self.setting.mapping, &waves, &is_idle))
            .flatten();
        let in_steps = together && direct.is_none();
        let guards = waves.split_first().filter(|_| in_steps).map(|(wave, later)| {
            let later = later.iter().flatten();
            guards::ask(&mut first, self.setting.mapping, wave, later, &is_idle, bounds)
        });
        // After the rows are locked: a key that was idle when it was asked about may be active
        // again.
        let awaited = self.awaited(&waves, &is_idle);
        let still_idle = together.then(|| self.hold_idle(&mut first, &awaited)).flatten();
        let mut answers = session.begin(first).await.map_err(|e| self.blamed(e))?;
        let opened = answers[0].first().ok_or_else(|| invalid("the database gave no answer"))?;
        self.known(opened)?;
        if let Some(above) = above {
            leadership::not_above(&answers[above])?;
        }
        let now = besom_core::time::Time(opened.try_get(0)?);
        if let Some(ahead) = batch.ahead_of(now) {
            return Err(Stop::Known(ahead));
        }
        if opened.try_get(opened.len() - 1)? {
            return Err(Stop::Known(batch.all_left(LeftOut::Braked, now)));
        }
        let ids = opened.try_get::<_, Option<Vec<i64>>>(3)?.unwrap_or_default();
        let blocks = ledger::blocks(opened, 4)?;
        let left_out = owners.read(&answers, batch, self.setting.tasks, now)?;
        let locked = self.locked(session, &waves).await?;
        if self.care.savepoints {
            self.lock(session, &waves).await?;
            let mut pipeline = Pipeline::default();
            if let Some(asked) = self.hold_idle(&mut pipeline, &awaited) {
                let answers = session.run(pipeline).await?;
                self.still_idle(&asked, &answers, &awaited, &waves)?;
            }
        } else if let Some(asked) = &still_idle {
            self.still_idle(asked, &answers, &awaited, &waves)?;
        }

        let mut decided = Decided::new();
        if let (Some(direct), [wave]) = (direct, waves.as_mut_slice()) {
            let done = direct.read(&mut answers, wave)?;
            let not_ours = done.iter().any(|(entry, _)| left_out[*entry].is_some());
            let changed = done.len();
            let one = |images| Done { images, rows: 1, ..Done::default() };
            decided.extend(done.into_iter().map(|(entry, images)| (entry, Ok(one(images)))));
            // A key may be that of several rows: in steps, the item is named.
            if not_ours || decided.len() < changed {
                return Err(Stop::Repeat(Care { stepwise: true, ..self.care.clone() }));
            }
            wave.retain(|work| !decided.contains_key(&work.entry));
        }
        waves.retain(|wave| !wave.is_empty());
        let mut last: Option<(Vec<Work<'a>>, Pipeline<'a>, effects::Asked)> = None;
        for (at, wave) in waves.iter().enumerate() {
            let wave: Vec<Work<'a>> =
                wave.iter().filter(|w| left_out[w.entry].is_none()).copied().collect();
            if self.care.savepoints {
                self.carefully(session, wave, &is_idle, &mut decided).await?;
                continue;
            }
            if let Some((works, pipeline, asked)) = last.take() {
                self.apply(session, &works, pipeline, asked, &mut decided).await?;
            }
            let (verdicts, images) = match (at, &guards) {
                (0, Some(asked)) => {
                    let (all, images) = asked.read(&mut answers, waves[0].len())?;
                    let kept = waves[0].iter().zip(all);
                    let kept = kept.filter(|(w, _)| left_out[w.entry].is_none());
                    (kept.map(|(_, verdict)| verdict).collect(), images)
                }
                _ => {
                    let mut pipeline = Pipeline::default();
                    let mapping = self.setting.mapping;
                    let asked =
                        guards::ask(&mut pipeline, mapping, &wave, [].iter(), &is_idle, bounds);
                    answers = session.run(pipeline).await.map_err(|e| self.blamed(e))?;
                    asked.read(&mut answers, wave.len())?
                }
            };
            let holding = judged(wave, verdicts, &mut decided);
            let mut pipeline = Pipeline::default();
            let asked = effects::ask(&mut pipeline, self.setting.mapping, &holding, images);
            last = Some((holding, pipeline, asked));
        }

        let mine = restores.iter().filter(|work| left_out[work.entry].is_none());
        self.restored(session, &mine.collect::<Vec<_>>(), &mut decided).await?;

        if self.setting.trial {
            return Err(Stop::Tried(self.taken_back(decided, locked, blocks)?));
        }

        // All results are known except the images, so the items can be removed in the round trip of
        // the last changes.
        let (works, mut pipeline, asked) = match last {
            Some((works, pipeline, asked)) => (works, pipeline, Some(asked)),
            None => (Vec::new(), Pipeline::default(), None),
        };
        let last_wave: Vec<usize> = works.iter().map(|work| work.entry).collect();
        let judged = left_out.into_iter().enumerate().map(|(at, left_out)| match left_out {
            Some(why) => Err(why),
            None => Ok(self.judged(at, &last_wave, &decided)),
        });
        let Closed { writes, mut tally, outcomes } =
            close(&batch.entries, judged, |_| blocks, &batch.node);
        let mut rows: BTreeMap<usize, u64> = BTreeMap::new();
        if batch.braked {
            rows.extend(
                decided.iter().filter_map(|(at, done)| Some((*at, done.as_ref().ok()?.rows))),
            );
        }
        let mut ledger = Ledger::open(ids, self.setting.tasks, now)?;
        let (moves, records): (Vec<_>, Vec<_>) = writes.into_iter().partition(Write::moves);
        for write in moves {
            ledger.push(write, Changed::default())?;
        }
        let columns = whole::Asked::send(&mut pipeline, self.kept_tables());
        let taken = ledger.take_all(&mut pipeline, self.care.look_up);
        write_runs(&tally, &mut pipeline);
        let left = runs_left(&tally);
        let runs = (!left.is_empty()).then(|| pipeline.push(RUN_FACTS, params![left]));
        // The history of the last wave needs its images first. The server removes the items while
        // the other records are built here.
        let awaits_images = |write: &Write<'_>| match write {
            Write::History { at, .. } => last_wave.binary_search(at).is_ok(),
            _ => false,
        };
        let (late, early): (Vec<_>, Vec<_>) = records.into_iter().partition(awaits_images);
        let (answers, recorded) = futures::future::join(session.run(pipeline), async {
            early
                .into_iter()
                .try_for_each(|write| record(&mut ledger, &mut tally, &mut decided, batch, write))
        })
        .await;
        let mut answers = answers.map_err(|e| self.blamed(e))?;
        recorded?;
        if !columns.are_known(&answers)? {
            session.doubt();
            let words = "the columns of a table have changed a moment ago";
            return Err(Error::Busy(words.into()).into());
        }
        if let Some(asked) = asked {
            self.read_effects(&works, asked, &mut answers, &mut decided)?;
        }
        if !taken.is_complete(&answers)? {
            return Err(match self.care.look_up {
                true => Stop::Overtaken,
                false => Stop::Repeat(self.care.clone()),
            });
        }
        if batch.braked {
            let last =
                last_wave.iter().filter_map(|at| Some((*at, decided.get(at)?.as_ref().ok()?)));
            rows.extend(last.map(|(at, done)| (at, done.rows)));
            let used = used(&batch.entries, &outcomes, |at| rows.get(&at).copied().unwrap_or(0));
            if !used.is_empty() && !brakes::add(session, &used).await? {
                return Err(Stop::Known(batch.all_left(LeftOut::Braked, now)));
            }
        }
        for write in late {
            record(&mut ledger, &mut tally, &mut decided, batch, write)?;
        }
        let ending = runs.map_or_else(|| Ok(Vec::new()), |runs| ending(&answers[runs]))?;
        let runs_ended = ending.iter().map(|run| RunId(*run as u64)).collect();
        let committed = Committed { outcomes, at: now, runs_ended };
        self.close(session, ledger, &tally, committed).await
    }

    /// What the entries of a batch that is only tried would have done.
    fn taken_back(
        &self,
        mut decided: Decided,
        mut locked: BTreeMap<usize, LockedRows>,
        blocks: Blocks,
    ) -> Job<Tried> {
        let entries = &self.batch.entries;
        let judged = (0..entries.len()).map(|at| Ok(self.judged(at, &[], &decided)));
        let outcomes = close(entries, judged, |_| blocks, &self.batch.node).outcomes;
        let changes = entries.iter().enumerate().map(|(at, entry)| {
            let done = decided.remove(&at);
            let waits = matches!(done, Some(Err(NotApplied::Locked)));
            let alone = waits.then_some(LockedRows { rows: 1, first: None });
            let done = done.and_then(Result::ok).unwrap_or_default();
            let packed = done.images.map(|images| images.pack(&entry.item.version, None));
            let images =
                packed.as_deref().map(|packed| unpack(packed, whole::of_kept)).transpose()?;
            Ok(TriedChanges {
                rows: done.rows,
                images: images.unwrap_or_default(),
                bytes: packed.map_or(0, |packed| packed.len()) as u64,
                said: done.said,
                locked: locked.remove(&at).or(alone),
            })
        });
        Ok(Tried { outcomes, changes: changes.collect::<Job<_>>()? })
    }

    /// In a trial: the rows of ranges that other sessions have locked, by entry. What is locked otherwise is found
    /// after a short wait.
    async fn locked(
        &self,
        session: &Session,
        waves: &[Vec<Work<'a>>],
    ) -> Step<BTreeMap<usize, LockedRows>> {
        let mut found = BTreeMap::new();
        if !self.setting.trial {
            return Ok(found);
        }
        session.batch(TRIAL_WAIT).await?;
        for work in waves.iter().flatten() {
            for (range, _) in ranges_of(work) {
                // What cannot be asked for is refused by the change itself.
                session.batch("SAVEPOINT item").await?;
                let asked = range_change::locked(session, self.setting.mapping, work, range).await;
                let end =
                    if asked.is_ok() { "RELEASE item" } else { "ROLLBACK TO item; RELEASE item" };
                session.batch(end).await?;
                if let Ok(Some(rows)) = asked {
                    found.entry(work.entry).or_insert(rows);
                }
            }
        }
        Ok(found)
    }

    /// Whether each table exists, each into which rows are moved can hold them, and rows that go with others are
    /// found as the foreign key finds them. That they are not is no item's fault.
    fn tables_fit(&self) -> Job<()> {
        let mapping = self.setting.mapping;
        let proposals = self.batch.entries.iter().filter_map(|entry| match &entry.decision {
            Decision::Apply { proposal, .. } => Some(proposal),
            Decision::Settle(_) => None,
        });
        for change in proposals.flat_map(|proposal| &proposal.changes) {
            let Some(Ok(table)) = change.collection().map(|name| mapping.table(name)) else {
                continue;
            };
            let into = change.into().and_then(|name| mapping.table(name).ok());
            // A row is kept with the columns that the catalog has.
            let absent = [Some(table), into].into_iter().flatten().find(|t| t.found.is_none());
            let mut why = absent.map(|table| {
                format!(
                    "there is no table {:?}; the tables differ from their mapping (`besom check --store` shows the \
                     difference); work continues once they match",
                    table.collection.table
                )
            });
            why = why.or_else(|| into.and_then(|into| together::misfit(table, into)));
            if change.deletes() {
                why = why.or_else(|| self.goes_unlike(table));
            }
            if let Some(why) = why {
                return Err(Error::Refused(Cause::Schema, why).into());
            }
        }
        Ok(())
    }

    /// Why rows cannot go with rows of a table.
    fn goes_unlike(&self, table: &Table) -> Option<String> {
        let dependants = table.collection.dependants.iter();
        let mut dependants = dependants.filter_map(|name| self.setting.mapping.table(name).ok());
        dependants
            .find_map(|other| together::unlike(table, other).or_else(|| self.goes_unlike(other)))
    }

    /// The tables whose rows are kept before they change, and those from which rows are moved.
    fn kept_tables(&self) -> impl Iterator<Item = &Table> {
        // A row is moved with the columns that the catalog has.
        let moves = |proposal: &Proposal| proposal.changes.iter().any(|c| c.into().is_some());
        let works = self.batch.entries.iter().filter_map(move |entry| match &entry.decision {
            Decision::Apply { proposal, undo, .. } => {
                (*undo || moves(proposal)).then_some(proposal)
            }
            Decision::Settle(_) => None,
        });
        let all = self.setting.collections;
        let changed =
            works.flat_map(|proposal| proposal.changes.iter().flat_map(Change::collections));
        let beneath = |name| all_dependants(all, name).into_iter().map(|other| &*other.name);
        let touched = changed.flat_map(move |name| std::iter::once(name).chain(beneath(name)));
        touched.filter_map(|name| Some(&**self.setting.mapping.table(name).ok()?))
    }

    /// What is known about an entry before the changes of the last wave are applied: if one of them
    /// fails, the batch is repeated.
    fn judged(&self, at: usize, last_wave: &[usize], decided: &Decided) -> Judged {
        if let Some(said) = self.care.violated.get(&at) {
            return Judged::Violated(said.clone());
        }
        let Decision::Apply { proposal, .. } = &self.batch.entries[at].decision else {
            return Judged::Held;
        };
        if last_wave.binary_search(&at).is_ok() {
            return Judged::Held;
        }
        match decided.get(&at) {
            Some(Ok(done)) => {
                let judged = Judged::of_rows(proposal, done.rows, done.said.as_deref(), done.keep);
                if self.setting.trial { judged.of_trial() } else { judged }
            }
            Some(Err(NotApplied::Violation(said))) => Judged::Violated(said.clone()),
            Some(Err(NotApplied::Refused(error))) => Judged::Violated(error.to_string()),
            Some(Err(NotApplied::Guard | NotApplied::Locked)) | None => Judged::GuardFailed,
        }
    }

    fn works(&self) -> Vec<Work<'a>> {
        let entries = self.batch.entries.iter().enumerate();
        entries
            .filter(|(at, _)| {
                !self.care.violated.contains_key(at) && !self.care.failed.contains(at)
            })
            .filter_map(|(entry, Entry { item, decision, .. })| match decision {
                Decision::Apply { proposal, undo, .. } => {
                    let tenant = item.identity.tenant.as_ref();
                    Some(Work { entry, tenant, proposal, undo: *undo })
                }
                Decision::Settle(_) => None,
            })
            .collect()
    }

    /// The activity keys known to be idle: the caller's observations, for one entry each, or the
    /// current state in the store's own table.
    async fn idle(
        &self,
        session: &Session,
        waves: &[Vec<Work<'_>>],
    ) -> Step<Vec<(Option<usize>, String)>> {
        if !self.batch.activity_in_store {
            let seen = self.batch.idle.iter().map(|(at, key)| (Some(*at), key.clone()));
            return Ok(seen.collect());
        }
        let guards = waves.iter().flatten().flat_map(|work| &work.proposal.guards);
        let mut keys: Vec<String> = guards
            .filter_map(|guard| match guard {
                Guard::Idle(key) => Some(key.clone()),
                _ => None,
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let idle = idle_keys(session, self.setting.clock, keys, &self.setting.observation).await?;
        Ok(idle.into_iter().map(|key| (None, key)).collect())
    }

    /// The keys of the store's own table that successful guards depend on.
    fn awaited(
        &self,
        waves: &[Vec<Work<'_>>],
        is_idle: &dyn Fn(&Work<'_>, &str) -> bool,
    ) -> Vec<String> {
        if !self.batch.activity_in_store {
            return Vec::new();
        }
        let guards = waves.iter().flatten().flat_map(|work| {
            work.proposal.guards.iter().filter_map(move |guard| match guard {
                Guard::Idle(key) if is_idle(work, key) => Some(key.clone()),
                _ => None,
            })
        });
        let mut keys: Vec<String> = guards.collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Makes every heartbeat of these keys wait until the commit ends, and reads their states once
    /// more.
    fn hold_idle(&self, pipeline: &mut Pipeline<'a>, keys: &[String]) -> Option<embedded::Asked> {
        (!keys.is_empty()).then(|| embedded::hold(pipeline, self.setting.clock, keys))
    }

    /// Repeats the batch without the items whose keys have become active.
    fn still_idle(
        &self,
        asked: &embedded::Asked,
        answers: &[Vec<Row>],
        keys: &[String],
        waves: &[Vec<Work<'_>>],
    ) -> Step<()> {
        let states = asked.read(answers, &self.setting.observation)?;
        let woken: Vec<&String> = keys
            .iter()
            .zip(states)
            .filter(|(_, state)| *state != State::Idle)
            .map(|(key, _)| key)
            .collect();
        if woken.is_empty() {
            return Ok(());
        }
        let wakes = |guard: &Guard| matches!(guard, Guard::Idle(key) if woken.contains(&key));
        let mut care = self.care.clone();
        let works = waves.iter().flatten();
        care.failed.extend(
            works.filter(|work| work.proposal.guards.iter().any(wakes)).map(|work| work.entry),
        );
        Err(Stop::Repeat(care))
    }

    fn known(&self, opened: &Row) -> Step<()> {
        if !opened.try_get::<_, bool>(1)? {
            return Ok(());
        }
        match opened.try_get::<_, Option<Vec<u8>>>(2)? {
            Some(result) => Err(Stop::Known(postcard::from_bytes(&result).map_err(Failure::from)?)),
            None => Err(invalid(format!("the commit {} was abandoned", self.batch.id)).into()),
        }
    }

    /// Decides what follows from an error of a statement for many items: a careful repetition to
    /// find the item, or an end.
    fn blamed(&self, failure: Failure) -> Stop {
        match &failure {
            Failure::Sql(e) if blames_items(e) && !self.care.savepoints => {
                Stop::Repeat(Care { savepoints: true, ..self.care.clone() })
            }
            _ => Stop::Failed(failure),
        }
    }

    /// Applies the changes of a wave that is not the last.
    async fn apply(
        &self,
        session: &Session,
        works: &[Work<'a>],
        pipeline: Pipeline<'a>,
        asked: effects::Asked,
        decided: &mut Decided,
    ) -> Step<()> {
        let mut answers = session.run(pipeline).await.map_err(|e| self.blamed(e))?;
        self.read_effects(works, asked, &mut answers, decided)
    }

    /// Reads the results of the changes. What failed is excluded from the next attempt.
    fn read_effects(
        &self,
        works: &[Work<'a>],
        asked: effects::Asked,
        answers: &mut [Vec<Row>],
        decided: &mut Decided,
    ) -> Step<()> {
        let mut care = self.care.clone();
        let mut again = false;
        for (work, effect) in works.iter().zip(asked.read(answers, works)?) {
            match effect {
                Effect::Done(done) if applied(work, &done).is_err() => care.failed.push(work.entry),
                Effect::Done(done) => {
                    decided.insert(work.entry, Ok(done));
                    continue;
                }
                Effect::Violated(said) => {
                    care.violated.insert(work.entry, said);
                }
                Effect::Kept(said) if self.care.savepoints => {
                    care.violated.insert(work.entry, said);
                }
                Effect::Kept(_) => care.savepoints = true,
                Effect::Incomplete if self.care.savepoints => care.failed.push(work.entry),
                // Whether the rows are gone or were kept is found out carefully.
                Effect::Incomplete => care.savepoints = true,
                // The next attempt reads the row that another transaction has inserted.
                Effect::Overtaken => return Err(Stop::Overtaken),
                Effect::Unclear => care.savepoints = true,
            }
            again = true;
        }
        if again { Err(Stop::Repeat(care)) } else { Ok(()) }
    }

    /// Locks the anchors of all waves in order, before they are applied in parts. If that fails,
    /// the failing part reports it.
    async fn lock(&self, session: &Session, waves: &[Vec<Work<'a>>]) -> Step<()> {
        let mut pipeline = Pipeline::default();
        guards::lock(
            &mut pipeline,
            self.setting.mapping,
            waves.iter().flatten(),
            self.setting.bounds,
        );
        session.batch("SAVEPOINT item").await?;
        let end = match self.theirs(session.run(pipeline).await)? {
            Ok(_) => "RELEASE item",
            Err(_) => "ROLLBACK TO item; RELEASE item",
        };
        Ok(session.batch(end).await?)
    }

    /// Applies a wave under savepoints, in halves if it cannot be applied at once.
    async fn carefully(
        &self,
        session: &Session,
        wave: Vec<Work<'a>>,
        is_idle: &(dyn Fn(&Work<'_>, &str) -> bool + Sync),
        decided: &mut Decided,
    ) -> Step<()> {
        let deferred = Deferred::of(session).await?;
        let mut rest = Vec::with_capacity(wave.len());
        for work in &wave {
            if !self.sorted_apart(session, work, &deferred, decided).await? {
                rest.push(*work);
            }
        }
        let mut open = vec![rest];
        let mut refused: Vec<(Work<'a>, Error)> = Vec::new();
        while let Some(mut works) = open.pop() {
            if works.is_empty() {
                continue;
            }
            session.batch("SAVEPOINT item").await?;
            let room = session.room();
            match self.tried(session, &works, is_idle, &deferred).await? {
                Ok(done) => {
                    session.batch(&deferred.again("item")).await?;
                    decided.extend(done);
                    for work in &works {
                        let done = decided.get(&work.entry).and_then(|done| done.as_ref().ok());
                        if let Some(Err(not)) = done.map(|done| applied(work, done)) {
                            decided.insert(work.entry, Err(not));
                        }
                    }
                }
                Err(said) => {
                    session.batch("ROLLBACK TO item; RELEASE item").await?;
                    session.set_room(room);
                    if let [alone] = works.as_slice() {
                        let is_violation = matches!(said, NotApplied::Violation(_));
                        let mut ranges = ranges_of(alone);
                        ranges.retain(|(range, _)| {
                            let table = self.setting.mapping.table(&range.collection);
                            table.is_ok_and(|table| range_change::has_ranges(table))
                        });
                        if is_violation && alone.proposal.rows_may_stay() && !ranges.is_empty() {
                            let done = self.bisected(session, alone, ranges, &deferred).await?;
                            let done = applied(alone, &done).map(|()| done);
                            decided.insert(alone.entry, done);
                            continue;
                        }
                        if let NotApplied::Refused(error) = &said {
                            refused.push((*alone, error.clone()));
                        }
                        decided.insert(alone.entry, Err(said));
                        // It is not plausible that all of these items are at fault.
                        if refused.len() >= REFUSED_MAX && !decided.values().any(Result::is_ok) {
                            break;
                        }
                    } else {
                        let second = works.split_off(works.len() / 2);
                        open.push(second);
                        open.push(works);
                    }
                }
            }
        }
        // A missing privilege, table or column is an item's fault only if another item could do the
        // same.
        let able = |work: &Work<'_>| matches!(decided.get(&work.entry), Some(Ok(_)));
        let reached: BTreeSet<&str> =
            wave.iter().filter(|work| able(work)).flat_map(Work::collections).collect();
        for (work, error) in refused {
            let mut asked = work.collections().peekable();
            if asked.peek().is_none() || !asked.all(|name| reached.contains(name)) {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Changes the rows of ranges at once but those that foreign keys keep, if there are such keys: tried with them,
    /// each part of the rows would be an error in the server's log. Returns whether it has done so.
    async fn sorted_apart(
        &self,
        session: &Session,
        work: &Work<'a>,
        deferred: &Deferred,
        decided: &mut Decided,
    ) -> Step<bool> {
        let ranges = ranges_of(work);
        if self.setting.trial || ranges.is_empty() || !work.proposal.rows_may_stay() {
            return Ok(false);
        }
        let mut is_kept = false;
        for range in &ranges {
            is_kept |= range_change::is_kept(session, self.setting.mapping, *range).await?;
        }
        if !is_kept {
            return Ok(false);
        }
        session.batch("SAVEPOINT item").await?;
        let room = session.room();
        match self.bisected(session, work, ranges, deferred).await {
            Ok(done) => {
                session.batch("RELEASE item").await?;
                let done = applied(work, &done).map(|()| done);
                decided.insert(work.entry, done);
                Ok(true)
            }
            Err(Stop::Failed(Failure::Sql(e))) if blames_items(&e) => {
                session.batch("ROLLBACK TO item; RELEASE item").await?;
                session.set_room(room);
                Ok(false)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Puts back the rows of items, as far as that is possible. While the server executes a statement, what was kept
    /// of the next item is unpacked here, and what the one before it has changed is recorded.
    async fn restored(
        &self,
        session: &Session,
        works: &[&Work<'a>],
        decided: &mut Decided,
    ) -> Step<()> {
        let each = |work: &&Work<'a>| {
            let (work, changes) = (**work, &work.proposal.changes);
            changes.iter().filter_map(Change::restore).map(move |restore| (work, restore))
        };
        let parts: Vec<_> = works.iter().flat_map(each).collect();
        let restores: Vec<&Restore> = parts.iter().map(|(_, restore)| *restore).collect();
        if restores.is_empty() {
            return Ok(());
        }
        let mapping = self.setting.mapping;
        let mut scene = Scene::of(session, mapping, &restores).await?;
        scene.read_ahead(session, &restores).await?;
        let unpack = |packed: Option<Option<Vec<u8>>>| packed.map(restore::unpacked).transpose();
        let mut images = unpack(scene.take(restores[0].history))?;
        let mut ended = None;
        let record = |ended: Option<(Work<'a>, Ended)>, decided: &mut Decided| -> Job<()> {
            let Some((work, ended)) = ended else { return Ok(()) };
            let (rows, said) = (ended.restored.rows, besom_record::restore::said(&ended.restored));
            let images = work.undo.then(|| restore::images_of(mapping, work.tenant, ended));
            let (images, before) = (images.transpose()?, decided.remove(&work.entry));
            let done = match before.and_then(std::result::Result::ok) {
                None => Done { images, rows, said, ..Done::default() },
                Some(mut done) => {
                    done.rows += rows;
                    let both = done.said.into_iter().chain(said).collect::<Vec<_>>();
                    done.said = (!both.is_empty()).then(|| both.join("; "));
                    if let (Some(all), Some(more)) = (&mut done.images, images) {
                        all.append(more);
                    }
                    done
                }
            };
            decided.insert(work.entry, Ok(done));
            Ok(())
        };
        for (at, (work, part)) in parts.iter().enumerate() {
            let next = restores.get(at + 1).and_then(|next| scene.take(next.history));
            let applied =
                restore::apply(session, (mapping, &scene), work.tenant, (part, images.take()));
            let (before, beside) = (ended.take(), &mut *decided);
            let meanwhile = async { (unpack(next), record(before, beside)) };
            let (done, (unpacked, recorded)) = futures::future::join(applied, meanwhile).await;
            ended = Some((*work, done.inspect_err(|_| session.doubt())?));
            recorded?;
            images = unpacked?;
        }
        record(ended, decided)?;
        Ok(())
    }

    /// Changes the rows of ranges but those that foreign keys keep; if they are refused, in halves. Leaves those that
    /// are refused alone.
    async fn bisected(
        &self,
        session: &Session,
        work: &Work<'a>,
        ranges: Vec<(&RowRange, Fate<'_>)>,
        deferred: &Deferred,
    ) -> Step<Done> {
        let mut all = Done { images: work.undo.then(Images::default), ..Done::default() };
        let mut refused = Refused::default();
        for (range, fate) in ranges {
            let mapping = self.setting.mapping;
            let sorted = range_change::sorted(session, mapping, work, (range, fate)).await?;
            for (key, said) in sorted.kept {
                refused.push_kept(&key, said);
            }
            let mut open = vec![sorted.open];
            while let Some(mut keys) = open.pop() {
                if keys.is_empty() || !refused.goes_on() {
                    continue;
                }
                let proposal = range_change::of_keys(range, fate, &keys);
                let part = Work { proposal: &proposal, ..*work };
                session.batch("SAVEPOINT part").await?;
                let room = session.room();
                match self.tried(session, &[part], &|_, _| false, deferred).await? {
                    Ok(mut done) => {
                        session.batch(&deferred.again("part")).await?;
                        let done = done.remove(&work.entry).and_then(Result::ok);
                        let done = done.unwrap_or_default();
                        all.rows += done.rows;
                        all.dependants += done.dependants;
                        if let (Some(images), Some(more)) = (&mut all.images, done.images) {
                            images.append(more);
                        }
                    }
                    Err(said) => {
                        session.batch("ROLLBACK TO part; RELEASE part").await?;
                        session.set_room(room);
                        match (said, &keys[..]) {
                            (NotApplied::Violation(said), [key]) => refused.push(key, said),
                            (NotApplied::Refused(error), _) => return Err(error.into()),
                            (NotApplied::Guard | NotApplied::Locked, [_]) => {}
                            (_, _) => {
                                let second = keys.split_off(keys.len() / 2);
                                open.push(second);
                                open.push(keys);
                            }
                        }
                    }
                }
            }
        }
        all.keep = refused.is_kept();
        all.said = refused.said();
        if all.rows == 0 {
            all.images = None;
        }
        Ok(all)
    }

    /// Separates the items' own errors, in the database's words, from the infrastructure's.
    fn theirs<T>(&self, done: Job<T>) -> Step<std::result::Result<T, NotApplied>> {
        match done {
            Ok(value) => Ok(Ok(value)),
            Err(Failure::Sql(e)) if fault(&e) == Blame::Program => {
                Ok(Err(NotApplied::Refused(classify(&e))))
            }
            Err(Failure::Sql(e)) if blames_items(&e) => Ok(Err(NotApplied::Violation(words(&e)))),
            Err(Failure::Sql(e))
                if self.setting.trial && e.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) =>
            {
                Ok(Err(NotApplied::Locked))
            }
            Err(failure) => Err(Stop::Failed(failure)),
        }
    }

    /// Evaluates guards and applies changes of some items; the inner error is an item's.
    async fn tried(
        &self,
        session: &Session,
        works: &[Work<'_>],
        is_idle: &(dyn Fn(&Work<'_>, &str) -> bool + Sync),
        deferred: &Deferred,
    ) -> Step<std::result::Result<Decided, NotApplied>> {
        let mut decided = Decided::new();
        let mut pipeline = Pipeline::default();
        let Setting { mapping, bounds, .. } = self.setting;
        let asked = guards::ask(&mut pipeline, mapping, works, [].iter(), is_idle, *bounds);
        let mut answers = match self.theirs(session.run(pipeline).await)? {
            Ok(answers) => answers,
            Err(said) => return Ok(Err(said)),
        };
        let (verdicts, images) = asked.read(&mut answers, works.len())?;
        let holding = judged(works.to_vec(), verdicts, &mut decided);
        let mut pipeline = Pipeline::default();
        let asked = effects::ask(&mut pipeline, self.setting.mapping, &holding, images);
        let mut answers = match self.theirs(session.run(pipeline).await)? {
            Ok(answers) => answers,
            Err(said) => return Ok(Err(said)),
        };
        // Checks deferred constraints here, while they can be attributed to one item; not in the round trip before,
        // where it would follow a statement that was refused.
        if deferred.any
            && let Err(said) = self.theirs(session.batch("SET CONSTRAINTS ALL IMMEDIATE").await)?
        {
            return Ok(Err(said));
        }
        for (work, effect) in holding.iter().zip(asked.read(&mut answers, &holding)?) {
            let done = match effect {
                Effect::Done(done) => done,
                Effect::Violated(said) | Effect::Kept(said) => {
                    return Ok(Err(NotApplied::Violation(said)));
                }
                Effect::Incomplete => {
                    let kept = self.kept_rows(session, work).await?;
                    return Ok(Err(kept.map_or(NotApplied::Guard, NotApplied::Violation)));
                }
                Effect::Overtaken => return Err(Stop::Overtaken),
                Effect::Unclear => {
                    let said = "a row was not inserted".to_owned();
                    return Ok(Err(NotApplied::Violation(said)));
                }
            };
            decided.insert(work.entry, Ok(done));
        }
        Ok(Ok(decided))
    }

    /// Why rows of a read set still exist that this work has just deleted, if any do: a trigger or a
    /// policy may keep them.
    async fn kept_rows(&self, session: &Session, work: &Work<'_>) -> Step<Option<String>> {
        for change in &work.proposal.changes {
            let Change::DeleteReadSet(set) = change else { continue };
            let Ok(table) = self.setting.mapping.table(&set.collection) else { continue };
            let Ok((counting, _)) = readset::count(table, work.tenant, set, false) else {
                continue;
            };
            let rows = session.query(&counting.sql, counting.params).await?;
            if super::session::only::<i64>(&rows)? > 0 {
                return Ok(Some(kept(&set.collection)));
            }
        }
        Ok(None)
    }

    /// Writes the books and commits in one round trip; the runs are looked at once more afterwards.
    async fn close(
        &self,
        session: &mut Session,
        ledger: Ledger<'a>,
        tally: &Tally<'a>,
        mut committed: Committed,
    ) -> Step<Committed> {
        let (left, ended) = (runs_left(tally), &committed.runs_ended);
        let mut pipeline = Pipeline::default();
        if !ended.is_empty() {
            let runs: Vec<i64> = ended.iter().map(|run| run.0 as i64).collect();
            pipeline.push(END_RUNS, params![runs, Some(committed.at.0)]);
        }
        let result = postcard::to_stdvec(&committed).map_err(Failure::from)?;
        ledger.close(&mut pipeline, tally, Some(self.batch.id), &self.batch.node, result);
        pipeline.push("DELETE FROM @.inflight WHERE commit_id = $1", params![mark(self.batch.id)]);
        if self.setting.fault == Some(Fault::CommitLost) {
            session.sever();
            return Err(Error::Unknown("the connection broke during COMMIT".into()).into());
        }
        let written = pipeline.len();
        pipeline.simple("COMMIT");
        let again = (!left.is_empty()).then(|| pipeline.push(RUN_FACTS, params![left]));
        match session.run_until(pipeline, written).await {
            Ok(answers) => {
                session.ended();
                if self.setting.fault == Some(Fault::CommitUnconfirmed) {
                    session.sever();
                    return Err(Error::Unknown("the connection broke after COMMIT".into()).into());
                }
                // The commit has succeeded, whatever happens to the look behind it.
                if let Some(Ok(rows)) = again.and_then(|again| answers.get(again)) {
                    let more = tally::end(session, ending(rows)?, Some(committed.at)).await;
                    match more {
                        Ok(runs) => committed.runs_ended.extend(runs),
                        Err(failure) => session.doubted(&failure),
                    }
                }
                Ok(committed)
            }
            // A copy of this batch has written the same mark: the next lookup finds it.
            Err((at, Failure::Sql(e))) if at < written && is_mark(&e) => Err(Stop::Overtaken),
            Err((at, Failure::Sql(e))) if at >= written => {
                // A deferred constraint, checked at the end of the transaction.
                if blames_items(&e) && !self.care.savepoints {
                    return Err(Stop::Repeat(Care { savepoints: true, ..self.care.clone() }));
                }
                // A deferred trigger: the answer means that nothing was committed.
                if is_raised_in_a_function(&e) {
                    return Err(e.into());
                }
                Err(classify_commit(&e).into())
            }
            // The connection may have broken before or after the server read COMMIT.
            Err((_, Failure::Sql(e))) if fault(&e) == Blame::Away => {
                Err(Error::Unknown(words(&e)).into())
            }
            Err((_, failure)) => Err(Stop::Failed(failure)),
        }
    }
}

/// Whether changes that the database has applied count as applied.
fn applied(work: &Work<'_>, done: &Done) -> std::result::Result<(), NotApplied> {
    match Judged::of_rows(work.proposal, done.rows, done.said.as_deref(), done.keep) {
        Judged::Held | Judged::Unchanged | Judged::Kept(_) => Ok(()),
        Judged::GuardFailed => Err(NotApplied::Guard),
        Judged::Violated(said) => Err(NotApplied::Violation(said)),
    }
}

fn ranges_of<'a>(work: &Work<'a>) -> Vec<(&'a RowRange, Fate<'a>)> {
    work.proposal.changes.iter().filter_map(Change::of_range).collect()
}

/// Adds a record to the ledger, with the images of its entry.
fn record<'a>(
    ledger: &mut Ledger<'a>,
    tally: &mut Tally<'a>,
    decided: &mut Decided,
    batch: &Batch,
    write: Write<'a>,
) -> Job<()> {
    let applied = match &write {
        Write::History { at, item, .. } => {
            let done = decided.remove(at).and_then(Result::ok).unwrap_or_default();
            let given = || batch.entries.get(*at).and_then(|entry| Given::of(entry, batch.as_of));
            let undo = done.images.map(|images| images.pack(&item.version, given().as_ref()));
            let delta = tally.of(&item.identity);
            delta.undo_bytes += undo.as_ref().map_or(0, Vec::len) as i64;
            delta.rows += done.rows as i64;
            Changed { undo, rows: done.rows, dependants: done.dependants, said: done.said }
        }
        _ => Changed::default(),
    };
    ledger.push(write, applied)
}

/// Splits works by the results of their guards.
fn judged<'a>(
    works: Vec<Work<'a>>,
    verdicts: Vec<Verdict>,
    decided: &mut Decided,
) -> Vec<Work<'a>> {
    let mut holding = Vec::with_capacity(works.len());
    for (work, verdict) in works.into_iter().zip(verdicts) {
        match verdict {
            Verdict::Hold => holding.push(work),
            Verdict::Fail => {
                decided.insert(work.entry, Err(NotApplied::Guard));
            }
            Verdict::Refused(said) => {
                decided.insert(work.entry, Err(NotApplied::Violation(said)));
            }
        }
    }
    holding
}

/// The constraints that are checked later than at the end of a statement. They are those of the whole database, because
/// a change may fire triggers that change other tables.
#[derive(Default)]
pub(super) struct Deferred {
    /// Whether any can be.
    pub(super) any: bool,
    /// Defers again those that are at first, except in schemas that this role cannot access.
    again: String,
}

impl Deferred {
    pub(super) async fn of(session: &Session) -> Job<Deferred> {
        let rows = session
            .query(
                "SELECT count(*) > 0, 'SET CONSTRAINTS ' || string_agg(format('%I.%I', n.nspname, c.conname), ', ')
                   FILTER (WHERE c.condeferred AND has_schema_privilege(n.oid, 'USAGE')) || ' DEFERRED'
                 FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace
                 WHERE c.condeferrable",
                params![],
            )
            .await?;
        let Some(row) = rows.first() else { return Ok(Deferred::default()) };
        let again: Option<String> = row.try_get(1)?;
        Ok(Deferred { any: row.try_get(0)?, again: again.unwrap_or_default() })
    }

    /// Ends a savepoint, and defers the constraints again.
    pub(super) fn again(&self, savepoint: &str) -> String {
        format!("RELEASE {savepoint}; {}", self.again)
    }

    /// Checks the constraints, and ends a savepoint.
    pub(super) fn checked(&self, savepoint: &str) -> String {
        let check = if self.any { "SET CONSTRAINTS ALL IMMEDIATE; " } else { "" };
        format!("{check}{}", self.again(savepoint))
    }
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

fn is_mark(e: &tokio_postgres::Error) -> bool {
    e.as_db_error().is_some_and(|e| e.constraint() == Some("commit_id_key"))
}
