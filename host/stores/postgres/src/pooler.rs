//! Checks that a connection has a server process of its own.
//!
//! A pooler in transaction (or statement) mode assigns any free server process to each transaction.
//! Then a session's settings apply to other clients (a writer could become read-only), prepared
//! statements are missing, and LISTEN receives nothing. Such a pooler is refused when the store is
//! opened.

use std::time::Duration;

use super::connect::{Pools, Use};
use super::error::{Failure, Job, words};
use super::session::{Pipeline, Session, params};
use besom_ports::store::{Error, Result};

const FIX: &str = "the connection goes through a pooler in transaction mode, which keeps neither \
    settings nor prepared statements nor LISTEN: name the server itself in store.url, or set \
    pool_mode = session for this user or database";

/// How often the two connections alternate: a pooler may assign the same process by chance.
const TURNS: usize = 2;

/// The name of the setting is the session's own.
const MARK: &str = "SELECT pg_backend_pid(), set_config('besom.session', $1, false)";
const SEEN: &str = "SELECT pg_backend_pid(), current_setting('besom.session', true)";

type Seen = (i32, Option<String>);

/// Refuses a pooler that shares server processes among connections.
pub(super) async fn refuse(one: &mut Session, pools: &Pools, wait_max: Duration) -> Result<()> {
    let mut other = pools.take(Use::Look).await?;
    let Ok(shared) = tokio::time::timeout(wait_max, shared(one, &mut other)).await else {
        return Err(Error::Unavailable(format!(
            "no answer to a second connection within {} ms",
            wait_max.as_millis()
        )));
    };
    match shared {
        Ok(false) => Ok(()),
        Ok(true) => Err(Error::Invalid(FIX.into())),
        // invalid_sql_statement_name, duplicate_prepared_statement: another session's.
        Err(Failure::Sql(e))
            if e.code().is_some_and(|c| ["26000", "42P05"].contains(&c.code())) =>
        {
            Err(Error::Invalid(format!("{}: {FIX}", words(&e))))
        }
        Err(failure) => Err(failure.into()),
    }
}

async fn shared(one: &mut Session, other: &mut Session) -> Job<bool> {
    let first = marked(one, "1").await?;
    let second = marked(other, "2").await?;
    if first.0 == second.0 {
        return Ok(true);
    }
    for _ in 0..TURNS {
        // While a connection is in a transaction, its process serves no other connection.
        if beside(one, other).await? != second || beside(other, one).await? != first {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn marked(session: &Session, mark: &str) -> Job<Seen> {
    read(&session.query(MARK, params![mark.to_owned()]).await?)
}

/// What one connection sees while the other is in a transaction.
async fn beside(busy: &mut Session, asked: &Session) -> Job<Seen> {
    let mut within = Pipeline::default();
    within.push(SEEN, params![]);
    busy.begin(within).await?;
    let seen = asked.query(SEEN, params![]).await;
    busy.commit().await?;
    read(&seen?)
}

fn read(rows: &[tokio_postgres::Row]) -> Job<Seen> {
    let row = rows.first().ok_or_else(|| super::error::invalid("the database gave no answer"))?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}
