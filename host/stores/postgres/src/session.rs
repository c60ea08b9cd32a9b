//! A connection during a job: statements prepared once, several of them in one round trip, and a
//! transaction that never outlives its job.
//!
//! The engine's statements write `@.name` for a table of its schema.

use std::borrow::Cow;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use besom_core::time::Time;
use deadpool_postgres::Object;
use futures::StreamExt as _;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, FromSqlOwned, ToSql};
use tokio_postgres::{Row, Statement};

use super::clock::{Clock, NOW};
use super::connect::{Canceller, Cancelling, Losses};
use super::error::{
    Failure, Job, classify_commit, doubts_catalog, ends_connection, is_of_the_session,
};
use besom_ports::store::{Error, Result};
use besom_tables::late;
use besom_tables::room::Room;

/// Prepared statements kept per connection; beyond that, all are discarded.
const STATEMENTS_MAX: usize = 1024;

/// A parameter of a statement.
pub(super) type Param<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// Builds parameters from values of different types.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        vec![$(Box::new($value) as $crate::session::Param<'_>),*]
    };
}
pub(super) use params;

/// A connection from a pool. If a transaction is open it is not returned: it is closed, and the
/// server rolls back.
pub(super) struct Session {
    object: Option<Object>,
    /// The engine's schema, quoted, with its dot.
    prefix: Arc<str>,
    losses: Arc<Losses>,
    cancelling: Arc<Cancelling>,
    open: bool,
    /// The room for the answers of pipelines; none: they are not limited.
    room: Mutex<Option<Room>>,
    /// Whether a cancellation is being sent.
    cancels: AtomicBool,
    /// Whether the connection is closed instead of returned: the server may process a cancellation
    /// late, and would then cancel a statement of the connection's next user.
    spent: AtomicBool,
}

impl Session {
    pub(super) fn new(
        object: Object,
        prefix: Arc<str>,
        losses: Arc<Losses>,
        cancelling: Arc<Cancelling>,
    ) -> Session {
        if object.statement_cache.size() > STATEMENTS_MAX {
            object.statement_cache.clear();
        }
        Session {
            object: Some(object),
            prefix,
            losses,
            cancelling,
            open: false,
            room: Mutex::new(None),
            cancels: AtomicBool::new(false),
            spent: AtomicBool::new(false),
        }
    }

    /// Limits the answers of all following pipelines together.
    pub(super) fn set_room(&self, room: Option<Room>) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = room;
    }

    /// The room that is left.
    pub(super) fn room(&self) -> Option<Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Uses the room of a row.
    fn admit(&self, row: &Row) -> Job<()> {
        match &mut *self.room.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(room) => Ok(room.take(row.raw_size_bytes())?),
            None => Ok(()),
        }
    }

    fn client(&self) -> Job<&Object> {
        let gone = || Failure::Port(Error::Unavailable("the connection was closed".into()));
        self.object.as_ref().ok_or_else(gone)
    }

    /// Records errors that mean a lost connection at once: its end may be read later, and until
    /// then it would be handed out again.
    fn heard<T>(&self, answer: Answer<T>) -> Answer<T> {
        if let Err(e) = &answer {
            if ends_connection(e) || is_of_the_session(e) {
                self.losses.note();
            }
            if doubts_catalog(e) {
                self.doubt();
            }
        }
        answer
    }

    pub(super) fn doubt(&self) {
        self.losses.doubt();
        // Statements prepared for the earlier tables keep failing until they are discarded.
        if let Some(object) = &self.object {
            object.statement_cache.clear();
        }
    }

    /// Records a failure to read an answer, because its columns may have changed their types.
    pub(super) fn doubted(&self, failure: &Failure) {
        if let Failure::Sql(e) = failure
            && doubts_catalog(e)
        {
            self.doubt();
        }
    }

    /// Prepares a statement, unless this connection already has it.
    async fn prepare(&self, sql: &str) -> Job<Statement> {
        let sql = sql.replace("@.", &self.prefix);
        Ok(self.heard(self.client()?.prepare_cached(&sql).await)?)
    }

    /// Runs one statement in one round trip.
    pub(super) async fn query(&self, sql: &str, params: Vec<Param<'_>>) -> Job<Vec<Row>> {
        let statement = self.prepare(sql).await?;
        Ok(self.heard(self.client()?.query(&statement, &referred(&params)).await)?)
    }

    /// Runs one statement in one round trip; `take` receives each row as it arrives, until it has
    /// enough. The remaining rows are not kept: the connection skips them before its next answer.
    pub(super) async fn each(
        &self,
        sql: &str,
        params: Vec<Param<'_>>,
        mut take: impl FnMut(&Row) -> Job<bool> + Send,
    ) -> Job<()> {
        let statement = self.prepare(sql).await?;
        let rows = self.heard(self.client()?.query_raw(&statement, referred(&params)).await)?;
        let mut rows = std::pin::pin!(rows);
        while let Some(row) = rows.next().await {
            if !take(&self.heard(row)?)? {
                break;
            }
        }
        Ok(())
    }

    /// The first row of one statement.
    pub(super) async fn row(&self, sql: &str, params: Vec<Param<'_>>) -> Job<Option<Row>> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// The rows of one statement, read.
    pub(super) async fn all<T>(
        &self,
        sql: &str,
        params: Vec<Param<'_>>,
        read: impl FnMut(&Row) -> Job<T> + Send,
    ) -> Job<Vec<T>> {
        self.query(sql, params).await?.iter().map(read).collect()
    }

    /// The first row of one statement, read, if there is one.
    pub(super) async fn maybe<T>(
        &self,
        sql: &str,
        params: Vec<Param<'_>>,
        read: impl FnOnce(&Row) -> Job<T> + Send,
    ) -> Job<Option<T>> {
        self.query(sql, params).await?.first().map(read).transpose()
    }

    /// The first column of the only row of one statement.
    pub(super) async fn one<T: FromSqlOwned>(&self, sql: &str, params: Vec<Param<'_>>) -> Job<T> {
        only(&self.query(sql, params).await?)
    }

    /// Runs one statement; returns the number of changed rows.
    pub(super) async fn execute(&self, sql: &str, params: Vec<Param<'_>>) -> Job<u64> {
        let statement = self.prepare(sql).await?;
        Ok(self.heard(self.client()?.execute(&statement, &referred(&params)).await)?)
    }

    /// The plan of a statement, as JSON.
    pub(super) async fn explain(&self, sql: &str, params: &[Param<'_>]) -> Job<Vec<Row>> {
        let client = self.client()?;
        let prepared = client.prepare(&format!("EXPLAIN (FORMAT JSON) {sql}")).await;
        let statement = self.heard(prepared)?;
        Ok(self.heard(client.query(&statement, &referred(params)).await)?)
    }

    /// Runs statements without parameters or results.
    pub(super) async fn batch(&self, sql: &str) -> Job<()> {
        Ok(self.heard(self.client()?.batch_execute(&sql.replace("@.", &self.prefix)).await)?)
    }

    /// Runs statements of the product, unchanged, in one transaction.
    pub(super) async fn script(&self, sql: &str) -> Job<()> {
        Ok(self.heard(self.client()?.batch_execute(sql).await)?)
    }

    /// Begins a transaction together with `pipeline`, in one round trip.
    pub(super) async fn begin(&mut self, pipeline: Pipeline<'_>) -> Job<Vec<Vec<Row>>> {
        self.open = true;
        let mut begun = Pipeline::default();
        begun.simple("BEGIN");
        begun.steps.extend(pipeline.steps);
        let mut rows = self.run(begun).await?;
        rows.remove(0);
        Ok(rows)
    }

    /// Runs statements one after the other in one round trip. The first error is returned; if a
    /// transaction is open, the statements after it have no effect.
    pub(super) async fn run(&self, pipeline: Pipeline<'_>) -> Job<Vec<Vec<Row>>> {
        let bounds: Vec<Option<Duration>> = pipeline.steps.iter().map(|step| step.bound).collect();
        let answers = self.ask(pipeline).await?;
        let read = |(rows, bound): (Job<Vec<Row>>, Option<Duration>)| {
            rows.map_err(|failure| match (failure, bound) {
                (Failure::Sql(e), Some(bound)) if e.code() == Some(&SqlState::QUERY_CANCELED) => {
                    Failure::Port(late::guards_cancelled(bound))
                }
                (failure, _) => failure,
            })
        };
        answers.into_iter().zip(bounds).map(read).collect()
    }

    async fn ask(&self, pipeline: Pipeline<'_>) -> Job<Vec<Job<Vec<Row>>>> {
        let mut statements = Vec::with_capacity(pipeline.steps.len());
        for step in &pipeline.steps {
            statements.push(match &step.what {
                What::Simple(_) => None,
                What::Prepared(sql, _) => Some(self.prepare(sql).await?),
            });
        }
        let client = self.client()?;
        let mut futures: Vec<Pending<'_>> = Vec::with_capacity(statements.len());
        for (step, statement) in pipeline.steps.iter().zip(&statements) {
            futures.push(match (&step.what, statement) {
                (What::Prepared(_, params), Some(statement)) => {
                    Box::pin(self.admitted(client, statement, params))
                }
                (What::Simple(sql), _) => Box::pin(self.simple(client, sql)),
                (What::Prepared(sql, _), None) => Box::pin(self.simple(client, sql)),
            });
        }
        Ok(in_order(futures).await)
    }

    async fn simple(&self, client: &Object, sql: &str) -> Job<Vec<Row>> {
        self.heard(client.batch_execute(sql).await)?;
        Ok(Vec::new())
    }

    /// The rows of a statement, if there is room for them. Otherwise the statement is cancelled, and
    /// with it all that were sent after it: the server would read and send every other row as well,
    /// each for nothing.
    async fn admitted(
        &self,
        client: &Object,
        statement: &Statement,
        params: &[Param<'_>],
    ) -> Job<Vec<Row>> {
        let rows = self.taken(client, statement, params).await;
        if matches!(rows, Err(Failure::Port(_))) {
            self.cancel().await;
        }
        rows
    }

    /// Cancels the current statement. One that begins while the server processes this is not
    /// cancelled; its own rows will ask for it.
    async fn cancel(&self) {
        self.spent.store(true, Ordering::Relaxed);
        if let Ok(canceller) = self.canceller()
            && !self.cancels.swap(true, Ordering::Relaxed)
        {
            canceller.cancel().await;
            self.cancels.store(false, Ordering::Relaxed);
        }
    }

    /// The rows of a statement, if there is room for them; the connection skips the others.
    async fn taken(
        &self,
        client: &Object,
        statement: &Statement,
        params: &[Param<'_>],
    ) -> Job<Vec<Row>> {
        let rows = self.heard(client.query_raw(statement, referred(params)).await)?;
        let mut rows = std::pin::pin!(rows);
        let mut all = Vec::new();
        while let Some(row) = rows.next().await {
            let row = self.heard(row)?;
            self.admit(&row)?;
            all.push(row);
        }
        Ok(all)
    }

    /// Like `run`, for a pipeline with a COMMIT at `commit`: returns all answers, or the first
    /// error up to the COMMIT with its position.
    pub(super) async fn run_until(
        &self,
        pipeline: Pipeline<'_>,
        commit: usize,
    ) -> std::result::Result<Vec<Job<Vec<Row>>>, (usize, Failure)> {
        let answers = self.ask(pipeline).await.map_err(|failure| (0, failure))?;
        let mut all = Vec::with_capacity(answers.len());
        for (at, answer) in answers.into_iter().enumerate() {
            match answer {
                Err(failure) if at <= commit => return Err((at, failure)),
                other => all.push(other),
            }
        }
        Ok(all)
    }

    /// Commits the transaction.
    pub(super) async fn commit(&mut self) -> Result<()> {
        let client = self.client().map_err(Error::from)?;
        self.heard(client.batch_execute("COMMIT").await).map_err(|e| classify_commit(&e))?;
        self.open = false;
        Ok(())
    }

    /// Records that a statement of a pipeline has ended the transaction.
    pub(super) fn ended(&mut self) {
        self.open = false;
    }

    /// Rolls back. If that fails, the connection is closed, with the same effect.
    pub(super) async fn rollback(&mut self) {
        if self.open
            && let Some(object) = &self.object
            && self.heard(object.batch_execute("ROLLBACK").await).is_ok()
        {
            self.open = false;
        }
    }

    /// Whether the server answers on this connection, outside a transaction.
    pub(super) async fn answers(&self) -> bool {
        !self.open && self.batch("SELECT 1").await.is_ok()
    }

    /// Returns a handle that cancels this connection's current statement.
    pub(super) fn canceller(&self) -> Job<Canceller> {
        Ok(Canceller::new(self.client()?.cancel_token(), &self.cancelling))
    }

    /// Closes the connection, whatever it is doing.
    pub(super) fn sever(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
        self.open = false;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.object.as_ref().is_some_and(|object| object.is_closed()) {
            self.losses.note();
        }
        if self.open {
            // Nobody waits for the statement that may be running: without a cancellation it would keep
            // its locks until the server has noticed that its client is gone.
            if let (Ok(runtime), Ok(canceller)) =
                (tokio::runtime::Handle::try_current(), self.canceller())
            {
                runtime.spawn(async move { canceller.cancel().await });
            }
        }
        if self.open || self.spent.load(Ordering::Relaxed) {
            self.sever();
        }
    }
}

fn referred<'a>(params: &'a [Param<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
}

type Answer<T> = std::result::Result<T, tokio_postgres::Error>;
type Pending<'a> = Pin<Box<dyn Future<Output = Job<Vec<Row>>> + Send + 'a>>;

/// Polls in order, so that requests are sent in order, and waits for all.
async fn in_order(mut futures: Vec<Pending<'_>>) -> Vec<Job<Vec<Row>>> {
    let mut done: Vec<Option<_>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, slot) in futures.iter_mut().zip(&mut done) {
            if slot.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(result) => *slot = Some(result),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}

enum What<'a> {
    Simple(Cow<'static, str>),
    Prepared(String, Vec<Param<'a>>),
}

struct Step<'a> {
    what: What<'a>,
    /// For questions of guards: the time limit on the server.
    bound: Option<Duration>,
}

/// Statements for one round trip.
#[derive(Default)]
pub(super) struct Pipeline<'a> {
    steps: Vec<Step<'a>>,
}

impl<'a> Pipeline<'a> {
    /// Adds a statement; returns the index of its answer.
    pub(super) fn push(&mut self, sql: impl Into<String>, params: Vec<Param<'a>>) -> usize {
        self.steps.push(Step { what: What::Prepared(sql.into(), params), bound: None });
        self.steps.len() - 1
    }

    /// Like `push`, for questions of guards with a time limit on the server.
    pub(super) fn push_bounded(
        &mut self,
        sql: impl Into<String>,
        params: Vec<Param<'a>>,
        bound: Duration,
    ) -> usize {
        let place = self.push(sql, params);
        self.steps[place].bound = Some(bound);
        place
    }

    /// The number of statements.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Adds a command without parameters or rows.
    pub(super) fn simple(&mut self, sql: impl Into<Cow<'static, str>>) -> usize {
        self.steps.push(Step { what: What::Simple(sql.into()), bound: None });
        self.steps.len() - 1
    }
}

/// A write transaction, with the store's clock in it.
pub(super) struct Tx {
    pub(super) session: Session,
    /// The store's clock in this transaction.
    pub(super) now: Time,
}

impl Tx {
    /// Begins one, reading the clock in the same round trip.
    pub(super) async fn begin(session: Session, clock: &Clock) -> Job<Tx> {
        Tx::begin_with(session, clock, Pipeline::default()).await.map(|(tx, _)| tx)
    }

    /// Like `begin`, with further statements in the same round trip.
    pub(super) async fn begin_with(
        mut session: Session,
        clock: &Clock,
        pipeline: Pipeline<'_>,
    ) -> Job<(Tx, Vec<Vec<Row>>)> {
        let mut first = Pipeline::default();
        first.push(format!("SELECT {NOW}"), params![clock.given()]);
        first.steps.extend(pipeline.steps);
        match session.begin(first).await {
            Ok(mut rows) => {
                let now = Time(only(&rows.remove(0))?);
                Ok((Tx { session, now }, rows))
            }
            Err(failure) => {
                session.rollback().await;
                Err(failure)
            }
        }
    }

    /// Commits if the job succeeded, otherwise rolls back.
    pub(super) async fn finish<T>(self, done: Job<T>) -> Result<T> {
        self.finish_with(done).await.map(|(value, _)| value)
    }

    /// Like `finish`; returns the connection for further use.
    pub(super) async fn finish_with<T>(mut self, done: Job<T>) -> Result<(T, Session)> {
        match done {
            Ok(value) => {
                self.session.commit().await?;
                Ok((value, self.session))
            }
            Err(failure) => {
                self.session.rollback().await;
                Err(failure.into())
            }
        }
    }

    /// This many unused numbers, ascending.
    pub(super) async fn numbers(&self, count: usize) -> Job<Vec<i64>> {
        numbers(&self.query(NUMBERS, params![count as i32]).await?)
    }
}

/// Statements of a transaction are those of its connection.
impl Deref for Tx {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

/// Draws `$1` numbers that are never reused, in one row.
pub(super) const NUMBERS: &str =
    "SELECT array_agg(nextval('@.number')) FROM generate_series(1, $1::int4)";

/// The answer to [`NUMBERS`].
pub(super) fn numbers(rows: &[Row]) -> Job<Vec<i64>> {
    Ok(only::<Option<Vec<i64>>>(rows)?.unwrap_or_default())
}

/// The first column of the only row.
pub(super) fn only<'r, T: FromSql<'r>>(rows: &'r [Row]) -> Job<T> {
    let none = || Failure::Port(Error::Invalid("the database gave no answer".into()));
    Ok(rows.first().ok_or_else(none)?.try_get(0)?)
}

/// The first cell of a row.
pub(super) fn cell<T: FromSqlOwned>(row: &Row) -> Job<T> {
    Ok(row.try_get(0)?)
}
