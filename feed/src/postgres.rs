//! Output to PostgreSQL, in one transaction with positions and offsets.
//!
//! The tables `feed_offset`, `feed_position` and `feed_dead` are created in the first schema of the search
//! path. Who begins with a partition raises its `owner` in `feed_offset`. A consumer that has lost the
//! partition without knowing it finds another number than its own, and commits nothing.

use std::collections::BTreeMap;

use postgres::error::SqlState;
use postgres::{Client, Transaction};

use crate::Error;
use crate::message::Message;
use crate::order::{Key, Position};
use crate::sink::{self, Batch, Kept, SetAside, Sink, Start, lost};

const TABLES: &str = "
CREATE TABLE feed_offset (
    consumer text NOT NULL, topic text NOT NULL, partition integer NOT NULL,
    next bigint NOT NULL, lost_below bigint NOT NULL, owner bigint NOT NULL,
    PRIMARY KEY (consumer, topic, partition));
CREATE TABLE feed_position (
    consumer text NOT NULL, topic text NOT NULL, tenant text NOT NULL, key text NOT NULL,
    position text NOT NULL,
    PRIMARY KEY (consumer, topic, tenant, key));
CREATE TABLE feed_dead (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, consumer text NOT NULL, topic text NOT NULL,
    partition integer NOT NULL, \"offset\" bigint NOT NULL, tenant text NOT NULL,
    key text NOT NULL, number bigint NOT NULL, payload bytea NOT NULL, reason text NOT NULL);";

/// Ends the session of a consumer that freezes within a transaction, which has the lock of its partitions.
const TIMEOUT: &str = "SELECT set_config('idle_in_transaction_session_timeout', '10s', false)
    WHERE current_setting('idle_in_transaction_session_timeout') = '0'";

/// Why a message was not applied.
pub type Failure = sink::Failure<postgres::Error>;

impl From<postgres::Error> for Error {
    fn from(error: postgres::Error) -> Error {
        let said = error.as_db_error().map(ToString::to_string);
        Error::Again(said.unwrap_or_else(|| error.to_string()))
    }
}

/// The bytes of tenant and key, of which an index of PostgreSQL can take 2,704 with the rest of its row.
const KEY_BYTES_MAX: usize = 2_000;

/// The words of the database, if it has refused a message for what this contains: trying again cannot help. A
/// row that a foreign key misses can still come.
fn refusal(error: &postgres::Error) -> Option<String> {
    let Some(said) = error.as_db_error() else {
        let text = error.to_string();
        let is_unsendable = ["error serializing parameter", "error encoding message"];
        let is_unsendable = is_unsendable.iter().any(|begin| text.starts_with(begin));
        return is_unsendable.then_some(text);
    };
    let code = said.code();
    // Data exceptions, violated constraints, limits of the program.
    let is_final = ["22", "23", "54"].iter().any(|class| code.code().starts_with(class));
    let is_final = is_final && *code != SqlState::FOREIGN_KEY_VIOLATION;
    is_final.then(|| format!("PostgreSQL refuses it: {} ({})", said.message(), code.code()))
}

/// Applies messages with `handle`, whose statements are part of the transaction.
pub struct PostgresSink<C, F> {
    connect: C,
    consumer: String,
    handle: F,
    client: Option<Client>,
    /// The owner's number of each partition that this consumer has.
    owners: BTreeMap<i32, i64>,
}

impl<C, F> PostgresSink<C, F>
where
    C: FnMut() -> Result<Client, postgres::Error>,
    F: FnMut(&mut Transaction<'_>, &Message) -> Result<(), Failure>,
{
    /// `connect` is called whenever the feed begins anew. `consumer` names who reads, so that several can
    /// keep their offsets in one database.
    pub fn new(connect: C, consumer: &str, handle: F) -> Self {
        let (consumer, owners) = (consumer.to_owned(), BTreeMap::new());
        PostgresSink { connect, consumer, handle, client: None, owners }
    }

    fn client(&mut self) -> &mut Client {
        self.client.as_mut().expect("the feed has begun")
    }

    /// Commits a batch; the inner error is that of the commit itself. `alone`: what is deferred to the end of
    /// the transaction is checked after each message.
    fn transact(
        &mut self,
        batch: &Batch<'_>,
        alone: bool,
    ) -> Result<Result<(), postgres::Error>, Error> {
        let PostgresSink { client, consumer, handle, owners, .. } = self;
        let mut transaction = client.as_mut().expect("the feed has begun").transaction()?;
        for progress in batch.progress {
            let mine = transaction.execute(
                "UPDATE feed_offset SET next = $1, lost_below = $2
                 WHERE consumer = $3 AND topic = $4 AND partition = $5 AND owner = $6",
                &[
                    &progress.to.next,
                    &progress.to.lost_below,
                    consumer,
                    &batch.topic,
                    &progress.partition,
                    &owners.get(&progress.partition),
                ],
            )?;
            if mine == 0 {
                return Err(lost(batch.topic, progress.partition));
            }
        }
        for message in batch.accepted {
            let mut part = transaction.transaction()?;
            let applied = handle(&mut part, message).and_then(|()| match alone {
                true => Ok(part.batch_execute("SET CONSTRAINTS ALL IMMEDIATE")?),
                false => Ok(()),
            });
            let reason = match applied {
                Ok(()) => {
                    part.commit()?;
                    if alone {
                        transaction.batch_execute("SET CONSTRAINTS ALL DEFERRED")?;
                    }
                    continue;
                }
                Err(Failure::Refused(reason)) => reason,
                Err(Failure::Database(error)) => refusal(&error).ok_or(error)?,
            };
            // What it did is undone.
            part.rollback()?;
            let aside = SetAside { message: message.clone(), reason };
            set_aside(&mut transaction, consumer, batch.topic, &aside)?;
        }
        for aside in batch.set_aside {
            set_aside(&mut transaction, consumer, batch.topic, aside)?;
        }
        let texts = batch
            .positions
            .iter()
            .map(|(_, key, position)| (key, serde_json::to_string(position).expect("numbers")));
        // Each key once, as PostgreSQL demands it of one statement.
        let texts: BTreeMap<&Key, String> = texts.collect();
        let tenants: Vec<&str> = texts.keys().map(|key| key.tenant.as_str()).collect();
        let names: Vec<&str> = texts.keys().map(|key| key.key.as_str()).collect();
        let positions: Vec<&String> = texts.values().collect();
        transaction.execute(
            "INSERT INTO feed_position
             SELECT $1, $2, * FROM unnest($3::text[], $4::text[], $5::text[])
             ON CONFLICT (consumer, topic, tenant, key) DO UPDATE SET position = excluded.position",
            &[consumer, &batch.topic, &tenants, &names, &positions],
        )?;
        Ok(transaction.commit())
    }
}

impl<C, F> Sink for PostgresSink<C, F>
where
    C: FnMut() -> Result<Client, postgres::Error>,
    F: FnMut(&mut Transaction<'_>, &Message) -> Result<(), Failure>,
{
    fn begin(&mut self) -> Result<(), Error> {
        self.owners.clear();
        // The former connection ends first, and with it what it has not committed.
        self.client = None;
        let mut client = (self.connect)()?;
        client.query(TIMEOUT, &[])?;
        let found = client.query_one(
            "SELECT to_regclass('feed_dead') IS NULL, current_setting('server_encoding')",
            &[],
        )?;
        let encoding: &str = found.get(1);
        if !["UTF8", "SQL_ASCII"].contains(&encoding) {
            return Err(Error::Stop(format!(
                "the encoding of the database is {encoding}, which lacks characters that keys may have: use \
                 a database with UTF8"
            )));
        }
        if found.get(0) {
            client.batch_execute(TABLES)?;
        }
        self.client = Some(client);
        Ok(())
    }

    fn start(&mut self, topic: &str, partition: i32) -> Result<Start, Error> {
        let consumer = self.consumer.clone();
        let row = self.client().query_one(
            "INSERT INTO feed_offset AS kept VALUES ($1, $2, $3, 0, 0, 1)
             ON CONFLICT (consumer, topic, partition) DO UPDATE SET owner = kept.owner + 1
             RETURNING next, lost_below, owner",
            &[&consumer, &topic, &partition],
        )?;
        self.owners.insert(partition, row.get(2));
        Ok(Start::Kept(Kept { next: row.get(0), lost_below: row.get(1) }))
    }

    fn end(&mut self, partition: i32) {
        self.owners.remove(&partition);
    }

    fn refuses(&self, Key { tenant, key }: &Key) -> Option<String> {
        let bytes = tenant.len() + key.len();
        if bytes > KEY_BYTES_MAX {
            return Some(format!(
                "tenant and key have {bytes} bytes: this sink keeps no more than {KEY_BYTES_MAX}"
            ));
        }
        let has_nul = tenant.contains('\0') || key.contains('\0');
        has_nul.then(|| "tenant or key contains a NUL byte, which PostgreSQL cannot keep".into())
    }

    fn positions(&mut self, topic: &str, keys: &[Key]) -> Result<Vec<(Key, Position)>, Error> {
        let consumer = self.consumer.clone();
        let (tenants, names): (Vec<&str>, Vec<&str>) =
            keys.iter().map(|key| (key.tenant.as_str(), key.key.as_str())).unzip();
        let rows = self.client().query(
            "SELECT tenant, key, position FROM feed_position
             JOIN unnest($3::text[], $4::text[]) AS wanted (tenant, key) USING (tenant, key)
             WHERE consumer = $1 AND topic = $2",
            &[&consumer, &topic, &tenants, &names],
        )?;
        let read = |row: &postgres::Row| {
            let key = Key { tenant: row.get(0), key: row.get(1) };
            let position = sink::position(&key, row.get(2))?;
            Ok((key, position))
        };
        rows.iter().map(read).collect()
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        match self.transact(batch, false)? {
            Err(error) if refusal(&error).is_some() => Ok(self.transact(batch, true)??),
            ended => Ok(ended?),
        }
    }
}

fn set_aside(
    transaction: &mut Transaction<'_>,
    consumer: &str,
    topic: &str,
    aside: &SetAside,
) -> Result<(), postgres::Error> {
    let SetAside { message, reason } = aside;
    let number = i64::try_from(message.number).unwrap_or(i64::MAX);
    let kept = |text: &str| text.replace('\0', "\\0");
    transaction.execute(
        "INSERT INTO feed_dead (consumer, topic, partition, \"offset\", tenant, key, number, payload,
             reason) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        &[
            &consumer,
            &topic,
            &message.partition,
            &message.offset,
            &kept(&message.key.tenant),
            &kept(&message.key.key),
            &number,
            &message.payload,
            &kept(reason),
        ],
    )?;
    Ok(())
}
