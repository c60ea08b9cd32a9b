//! The single writer: a thread that owns the write connection and runs the jobs of its queue, each
//! in one transaction.
//!
//! BEGIN IMMEDIATE waits for another process's writer for at most `busy_max`, in short steps
//! (SQLite's own handler sleeps up to 100 ms at a time). After any error the transaction is rolled
//! back and the connection is used again.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use besom_core::backoff::Backoff;
use besom_core::ids::TaskName;
use besom_core::time::Time;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::{Semaphore, oneshot};

use super::checkpoint;
use super::clock::Clock;
use super::damage::Damage;
use super::error::{Failure, Job, classify_commit};
use super::fault::{Fault, Faults};
use super::holds::Holds;
use super::open::{Options, SchemaSeen, decide_plans};
use super::questions::Questions;
use super::queue::{Priority, Queue, Turn};
use super::readers::OpenReads;
use super::wal::Watch;
use besom_ports::store::{Error, Result};
use besom_record::courtesy::Courtesy;

/// How long transactions keep other processes waiting before [`LONG_PAUSE`] follows them.
const LONG: Duration = Duration::from_millis(500);
/// Shorter transactions count as a fraction of their time: between them, other processes sometimes
/// find a moment to write. A pause after four seconds of them costs less than 3 % of a sweep.
const COUNTED_MIN: Duration = Duration::from_millis(100);
const SHORT_FRACTION: u32 = 8;
/// Time for other processes to write. SQLite does not queue them: one that waits tries again every
/// 100 ms.
const LONG_PAUSE: Duration = Duration::from_millis(110);
/// After how long the number of jobs is looked at, and how many of them mean that there is little to do: a host
/// without work renews its lease, and looks for work.
const QUIET: Duration = Duration::from_secs(20);
const QUIET_JOBS_MAX: u32 = 200;
/// The steps of waiting for another process's writer.
const BUSY_STEPS: Backoff = Backoff::new(Duration::from_micros(500), Duration::from_millis(10));

/// How often, and after which pauses, [`Writing::write_out`] tries.
const WRITE_OUT_TRIES: u32 = 200;
const WRITE_OUT_PAUSE: Duration = Duration::from_millis(5);

/// The durability of a transaction when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// It survives a crash of the machine.
    Full,
    /// It survives a crash of the process; a power failure may lose it, but never corrupt it.
    Process,
}

type Boxed = Box<dyn FnOnce(&mut Writing) + Send>;

/// The handle to the writer's thread.
pub(super) struct Writer {
    queue: Arc<Queue<Boxed>>,
    /// Limits the waiting jobs; those of the lease need no permit.
    room: Semaphore,
    damage: Damage,
    /// What others feel of its writes.
    pub(super) holds: Arc<Holds>,
    others_write: Arc<AtomicBool>,
    /// The writer, then the one that writes back its log, which ends after it.
    threads: Vec<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread; `beside` is another connection to the same database.
    pub(super) fn start(
        (mut conn, beside): (Connection, Connection),
        clock: Clock,
        (damage, reads, schema_seen): (Damage, OpenReads, SchemaSeen),
        options: &Options,
    ) -> Result<Writer> {
        let queue = Arc::new(Queue::<Boxed>::new());
        let jobs = Arc::clone(&queue);
        let wal = Watch::new(&conn, reads);
        let others_write: Arc<AtomicBool> = Arc::default();
        let (seen, known) = (Arc::clone(&others_write), Arc::clone(&others_write));
        let checkpoints = checkpoint::start(&mut conn, beside, damage.clone(), seen)?;
        let questions = Questions::watch(&mut conn, options.guard_timeout)
            .map_err(|e| Error::Unavailable(format!("cannot start the writer: {e}")))?;
        let holds: Arc<Holds> = Arc::default();
        let mut writing = Writing {
            holds: Arc::clone(&holds),
            conn,
            clock,
            busy_max: options.busy_max,
            faults: options.faults.clone(),
            tasks: HashMap::new(),
            durability: None,
            wal,
            questions,
            held: Held::default(),
            version: None,
            schema: None,
            schema_seen,
            courtesy: Courtesy::new(options.write_share),
            others_write,
            busy: Duration::ZERO,
        };
        let seen = damage.clone();
        let thread = std::thread::Builder::new()
            .name("besom-sqlite".into())
            .spawn(move || {
                let mut quiet = Quiet::since(Instant::now());
                while let Some(job) = jobs.pop() {
                    // A panic is a bug in one job: the next one gets a clean connection.
                    if catch_unwind(AssertUnwindSafe(|| job(&mut writing))).is_err() {
                        writing.clean();
                    }
                    let (now, busy) = (Instant::now(), std::mem::take(&mut writing.busy));
                    jobs.rest(now, |bulk| writing.courtesy.rest_with_gaps(bulk, busy, now));
                    if quiet.is_over(now) {
                        // It gives pages of the cache back, and fails for no reason that matters here.
                        let _ = writing.conn.execute_batch("PRAGMA shrink_memory");
                    }
                }
                seen.spare(&writing.conn);
            })
            .map_err(|e| Error::Unavailable(format!("cannot start the writer: {e}")))?;
        let threads = vec![thread, checkpoints];
        let room = Semaphore::new(options.queued_max);
        Ok(Writer { queue, room, damage, holds, others_write: known, threads })
    }

    /// Whether other processes wrote when it was looked last.
    pub(super) fn others_write(&self) -> bool {
        self.others_write.load(Ordering::Relaxed)
    }

    /// Runs `job` on the writer's connection, outside any transaction.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        turn: impl Into<Turn>,
        job: impl FnOnce(&mut Writing) -> Job<T> + Send + 'static,
    ) -> Result<T> {
        let gone = || Error::Unavailable("the store's writer has stopped".into());
        self.damage.check()?;
        let turn = turn.into();
        let _permit = match turn.priority {
            Priority::Lease => None,
            _ => Some(self.room.acquire().await.map_err(|_| gone())?),
        };
        let (reply, answer) = oneshot::channel();
        let damage = self.damage.clone();
        let boxed: Boxed = Box::new(move |writing| {
            // Another job may have found it in the meantime.
            let done = damage.check().map_err(Failure::from).and_then(|()| job(writing));
            let _ = reply.send(done.map_err(|failure| damage.note(failure.into())));
        });
        self.queue.push(turn, boxed).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| {
            Err(Error::Unavailable("the store's writer panicked; nothing was changed".into()))
        })
    }

    /// Runs `job` in one transaction that survives a crash of the machine.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        turn: impl Into<Turn>,
        job: impl FnOnce(&mut Tx<'_>) -> Job<T> + Send + 'static,
    ) -> Result<T> {
        self.with(turn, move |writing| writing.transaction(Durability::Full, job)).await
    }

    /// Runs `job` in one transaction that survives a crash of the process.
    pub(super) async fn run_light<T: Send + 'static>(
        &self,
        turn: impl Into<Turn>,
        job: impl FnOnce(&mut Tx<'_>) -> Job<T> + Send + 'static,
    ) -> Result<T> {
        self.with(turn, move |writing| writing.transaction(Durability::Process, job)).await
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The write connection, and what is kept between transactions.
pub(super) struct Writing {
    holds: Arc<Holds>,
    conn: Connection,
    clock: Clock,
    busy_max: Duration,
    faults: Faults,
    tasks: HashMap<TaskName, i64>,
    durability: Option<Durability>,
    wal: Watch,
    questions: Arc<Questions>,
    held: Held,
    /// The version of the data (`PRAGMA data_version`) that the last transaction has found.
    version: Option<i64>,
    /// The version of the schema for which it was decided how statements are planned.
    schema: Option<i64>,
    schema_seen: SchemaSeen,
    courtesy: Courtesy,
    others_write: Arc<AtomicBool>,
    /// For how long the current job has held the write lock.
    busy: Duration,
}

/// Counts jobs, to find that there is little to do.
struct Quiet {
    since: Instant,
    jobs: u32,
}

impl Quiet {
    fn since(since: Instant) -> Quiet {
        Quiet { since, jobs: 0 }
    }

    /// Adds a job; whether [`QUIET`] is over, with at most [`QUIET_JOBS_MAX`] of them.
    fn is_over(&mut self, now: Instant) -> bool {
        self.jobs += 1;
        if now.duration_since(self.since) < QUIET {
            return false;
        }
        let jobs = std::mem::replace(self, Quiet::since(now)).jobs;
        jobs <= QUIET_JOBS_MAX
    }
}

/// How long transactions have kept other processes waiting.
#[derive(Default)]
struct Held {
    time: Duration,
    until: Option<Instant>,
}

impl Held {
    /// Adds a transaction. Returns whether other processes need a pause now.
    fn is_enough(&mut self, begun: Instant, ended: Instant) -> bool {
        let took = ended.duration_since(begun);
        let pause = self.until.map(|until| begun.saturating_duration_since(until));
        if pause.is_none_or(|pause| pause >= LONG_PAUSE) {
            self.time = Duration::ZERO;
        }
        self.time += if took < COUNTED_MIN { took / SHORT_FRACTION } else { took };
        self.until = Some(ended);
        self.time >= LONG
    }
}

impl Writing {
    /// Runs `job` between BEGIN IMMEDIATE and COMMIT; rolls back on any error.
    pub(super) fn transaction<T>(
        &mut self,
        durability: Durability,
        job: impl FnOnce(&mut Tx<'_>) -> Job<T>,
    ) -> Job<T> {
        let fault = self.faults.next();
        self.begin(durability, fault)?;
        let begun = Instant::now();
        self.questions.begin();
        let mut tx = Tx {
            now: self.clock.now(),
            conn: &self.conn,
            questions: &self.questions,
            tasks: &mut self.tasks,
            numbers: None,
        };
        let done = job(&mut tx).and_then(|value| tx.finish().map(|()| value));
        let done = match done {
            Ok(value) => match self.commit(fault) {
                Ok(()) => {
                    self.wal.look(&self.conn);
                    Ok(value)
                }
                Err(e) => {
                    self.clean();
                    Err(classify_commit(&e).into())
                }
            },
            Err(e) => {
                self.clean();
                Err(e)
            }
        };
        let ended = Instant::now();
        self.holds.release(ended);
        self.busy += ended.duration_since(begun);
        if self.held.is_enough(begun, ended) {
            std::thread::sleep(LONG_PAUSE);
        }
        done
    }

    /// Notices commits of other processes. Within a transaction, the version of the data differs from that of the
    /// one before only if another connection has committed in between.
    fn look_for_others(&mut self) -> Job<()> {
        let sql = "PRAGMA data_version";
        let version = self.conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        let now = Instant::now();
        let before = self.version.replace(version);
        if before != Some(version) {
            let schema = decide_plans(&self.conn, self.schema)?;
            self.schema = Some(schema);
            self.schema_seen.store(schema, Ordering::Release);
        }
        if before.is_some_and(|before| before != version) {
            if let Some(said) = self.courtesy.notice(now) {
                tracing::info!("{said}");
            }
            // They find their moments.
            self.held = Held::default();
        }
        self.others_write.store(self.courtesy.others_write(now), Ordering::Relaxed);
        Ok(())
    }

    /// Whether other processes are writing.
    #[cfg(test)]
    pub(super) fn others_write(&self) -> bool {
        self.courtesy.others_write(Instant::now())
    }

    /// Writes the log into the database, as far as readers allow; returns whether all of it is
    /// written.
    pub(super) fn write_out(&mut self) -> Job<bool> {
        let mut tries = WRITE_OUT_TRIES;
        let (frames, written) = loop {
            let (busy, frames, written): (bool, i64, i64) =
                self.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })?;
            tries -= 1;
            if !busy || tries == 0 {
                break (frames, written);
            }
            // The thread beside this one is at it.
            std::thread::sleep(WRITE_OUT_PAUSE);
        };
        Ok(frames >= 0 && frames == written)
    }

    /// Simulates a full disk, or one with room again.
    #[cfg(test)]
    pub(super) fn limit_pages(&mut self, pages: Option<u32>) -> Job<()> {
        let pages = pages.unwrap_or(u32::MAX - 1);
        self.conn.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
        Ok(())
    }

    /// Rolls back any open transaction and discards what was cached in it.
    fn clean(&mut self) {
        self.tasks.clear();
        if !self.conn.is_autocommit() {
            let _ = self.conn.execute_batch("ROLLBACK");
        }
    }

    fn commit(&self, fault: Option<Fault>) -> rusqlite::Result<()> {
        fault.and_then(Fault::before_commit).map_or(Ok(()), Err)?;
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        fault.and_then(Fault::after_commit).map_or(Ok(()), Err)
    }

    fn begin(&mut self, durability: Durability, fault: Option<Fault>) -> Job<()> {
        fault.and_then(Fault::at_begin).map_or(Ok(()), Err)?;
        if self.durability != Some(durability) {
            self.conn.execute_batch(match durability {
                Durability::Full => "PRAGMA synchronous = FULL",
                Durability::Process => "PRAGMA synchronous = NORMAL",
            })?;
            self.durability = Some(durability);
        }
        let started = Instant::now();
        self.holds.request(started);
        let begun = while_busy(self.busy_max, || {
            self.conn.prepare_cached("BEGIN IMMEDIATE").and_then(|mut b| b.execute([]))
        });
        self.holds.answered(Instant::now(), begun.is_ok());
        match begun {
            Ok(_) => {
                let looked = self.look_for_others();
                if looked.is_err() {
                    self.clean();
                }
                looked
            }
            Err(e) if is_busy(&e) => {
                let waited = started.elapsed().as_millis();
                let said = format!("another process has been writing for {waited} ms");
                Err(Error::Busy(said).into())
            }
            Err(e) => Err(e.into()),
        }
    }
}

/// Tries again while another connection is in the way, for at most `max`.
pub(super) fn while_busy<T>(
    max: Duration,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let started = Instant::now();
    let mut refusals = 0;
    loop {
        match attempt() {
            Err(e) if is_busy(&e) && started.elapsed() < max => {
                std::thread::sleep(BUSY_STEPS.pause(refusals, 0));
                refusals += 1;
            }
            done => return done,
        }
    }
}

fn is_busy(e: &rusqlite::Error) -> bool {
    matches!(e.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// A write transaction.
pub(super) struct Tx<'a> {
    /// The connection, inside BEGIN IMMEDIATE.
    pub(super) conn: &'a Connection,
    /// The time limit of guards that search rows by conditions.
    pub(super) questions: &'a Questions,
    /// The store's clock in this transaction.
    pub(super) now: Time,
    tasks: &'a mut HashMap<TaskName, i64>,
    numbers: Option<i64>,
}

impl Tx<'_> {
    /// The number of a task's name; assigned on first use.
    pub(super) fn task(&mut self, name: &TaskName) -> Job<i64> {
        if let Some(id) = self.tasks.get(name) {
            return Ok(*id);
        }
        self.conn
            .prepare_cached("INSERT INTO besom_task (name) VALUES (?1) ON CONFLICT DO NOTHING")?
            .execute([name.as_str()])?;
        let id = self
            .conn
            .prepare_cached("SELECT id FROM besom_task WHERE name = ?1")?
            .query_row([name.as_str()], |r| r.get(0))?;
        self.tasks.insert(name.clone(), id);
        Ok(id)
    }

    /// An unused number.
    pub(super) fn number(&mut self) -> Job<i64> {
        let number = match self.numbers {
            Some(next) => next,
            None => self
                .conn
                .prepare_cached("SELECT next FROM besom_sequence")?
                .query_row([], |r| r.get(0))?,
        };
        self.numbers = Some(number + 1);
        Ok(number)
    }

    /// Stores the numbers that the transaction has used.
    fn finish(&mut self) -> Job<()> {
        if let Some(next) = self.numbers {
            self.conn.prepare_cached("UPDATE besom_sequence SET next = ?1")?.execute([next])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many transactions that take `took`, each `between` after the one before, other
    /// processes have a pause, if they have any.
    fn paused_after(took: Duration, between: Duration) -> Option<usize> {
        let (mut held, start) = (Held::default(), Instant::now());
        (1..=100usize).find(|number| {
            let begun = start + (took + between) * u32::try_from(*number).expect("a small number");
            held.is_enough(begun, begun + took)
        })
    }

    #[test]
    fn it_is_quiet_after_a_while_with_few_jobs() {
        let start = Instant::now();
        let over = |jobs: u32, end: Duration| {
            let mut quiet = Quiet::since(start);
            let early = (1..jobs).map(|_| quiet.is_over(start)).filter(|over| *over).count();
            (early, quiet.is_over(start + end), quiet.jobs)
        };
        assert_eq!(over(QUIET_JOBS_MAX, QUIET), (0, true, 0));
        assert_eq!(over(QUIET_JOBS_MAX + 1, QUIET), (0, false, 0), "there is much to do");
        assert_eq!(over(1, QUIET - Duration::from_millis(1)), (0, false, 1));
    }

    #[test]
    fn other_processes_have_a_pause_after_long_transactions_one_after_the_other() {
        let (long, short) = (Duration::from_millis(200), Duration::from_millis(50));
        let moment = Duration::from_millis(1);
        assert_eq!(paused_after(long, moment), Some(3));
        assert_eq!(paused_after(short, moment), Some(80));
        for took in [long, short] {
            assert_eq!(paused_after(took, LONG_PAUSE), None, "{took:?}");
        }
    }
}
