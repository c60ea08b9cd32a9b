//! Messages of the product itself: entered through the host, or inserted into `besom_feed`.

use besom_core::delivery::feed::{Judged, judge};
use besom_core::ids::{FencingToken, Tenant};
use rusqlite::{Connection, params};

use super::error::Job;
use super::leadership::check_fence;
use super::outbox::{self, Emitted};
use super::statements::Statements;
use super::values::tenant_cell;
use super::writer::Tx;
use besom_ports::store::{Entered, Error, FeedTopics, Offered};
use besom_record::text::json;

/// Stores messages, and judges their numbers.
pub(super) fn enter(tx: &mut Tx<'_>, offered: &[Offered]) -> Job<Vec<Entered>> {
    offered.iter().map(|one| enter_one(tx, one)).collect()
}

fn enter_one(tx: &mut Tx<'_>, offered: &Offered) -> Job<Entered> {
    let Offered { topic, tenant, key, number, .. } = offered;
    // Without a number of the product's own, nothing has to be known of the others.
    let last = match number {
        Some(_) => last(tx.conn, topic, tenant.as_ref(), key)?,
        None => 0,
    };
    match judge(last, *number) {
        Judged::Gap(missing) => return Ok(Entered::Gap { missing }),
        Judged::Known(number) => return repeated(tx.conn, offered, number),
        Judged::New(_) => {}
    }
    Ok(Entered::Stored { sequence: outbox::emit(tx, &emitted(offered))? })
}

/// Compares a message with the one that was stored under its number, unless that is gone.
fn repeated(conn: &Connection, offered: &Offered, number: u64) -> Job<Entered> {
    let Offered { topic, tenant, key, payload, .. } = offered;
    let same: Option<bool> = conn.first(
        "SELECT payload = ?5 FROM besom_outbox
         WHERE topic = ?1 AND key = ?2 AND tenant = ?3 AND entered = ?4",
        params![topic, key, tenant_cell(tenant.as_ref()), number as i64, payload],
        |r| r.get(0),
    )?;
    Ok(if same == Some(false) { Entered::Differs } else { Entered::Repeated })
}

/// The highest number that the product has given; 0: none.
pub(super) fn last(conn: &Connection, topic: &str, tenant: Option<&Tenant>, key: &str) -> Job<u64> {
    let last: Option<i64> = conn.first(
        "SELECT entered FROM besom_outbox_sequence WHERE topic = ?1 AND key = ?2 AND tenant = ?3",
        params![topic, key, tenant_cell(tenant)],
        |r| r.get(0),
    )?;
    Ok(last.unwrap_or_default() as u64)
}

/// The topics of the rows; usually there are none.
pub(super) fn topics(conn: &Connection, known: &[String], others_max: u32) -> Job<FeedTopics> {
    let mut found = FeedTopics::default();
    let mut has = conn.prepare_cached("SELECT 1 FROM besom_feed WHERE topic = ?1 LIMIT 1")?;
    for topic in known {
        if has.exists(params![topic])? {
            found.known.push(topic.clone());
        }
    }
    let mut last = Vec::new();
    while found.others.len() < others_max as usize
        && let Some(topic) = topic_after(conn, &last)?
    {
        let name = String::from_utf8_lossy(&topic).into_owned();
        if !known.contains(&name) {
            found.others.push(name);
        }
        last = topic;
    }
    Ok(found)
}

/// The next topic of the rows, as bytes: a text in SQLite need not be one of Unicode.
pub(super) fn topic_after(conn: &Connection, last: &[u8]) -> Job<Option<Vec<u8>>> {
    Ok(conn.one(
        "SELECT CAST(min(topic) AS BLOB) FROM besom_feed WHERE topic > CAST(?1 AS TEXT)",
        params![last],
        |r| r.get(0),
    )?)
}

/// Moves inserted messages to the outbox.
pub(super) fn collect(
    tx: &mut Tx<'_>,
    fence: &FencingToken,
    topics: &[String],
    limit: u32,
    bytes: u64,
) -> Job<u64> {
    check_fence(tx, fence)?;
    let (mut ids, mut offered, mut left) = (Vec::new(), Vec::new(), bytes);
    {
        let mut select = tx.conn.prepare_cached(
            "SELECT octet_length(payload), topic, tenant, key, CAST(payload AS BLOB) FROM besom_feed
             WHERE id = ?1",
        )?;
        for id in first(tx.conn, topics, limit)? {
            let mut rows = select.query(params![id])?;
            let Some(r) = rows.next()? else { continue };
            let size = r.get::<_, i64>(0)?.unsigned_abs();
            if size > left && !ids.is_empty() {
                break;
            }
            left = left.saturating_sub(size);
            let payload: Vec<u8> = r.get(4)?;
            let unreadable = |error| {
                Error::Invalid(format!("row {id} of besom_feed: {error}: correct or delete it"))
            };
            let tenant: Option<String> = r.get(2).map_err(unreadable)?;
            offered.push(Offered {
                topic: r.get(1).map_err(unreadable)?,
                tenant: tenant.map(Tenant::from),
                key: r.get(3).map_err(unreadable)?,
                number: None,
                payload,
            });
            ids.push(id);
        }
    }
    outbox::emit_all(tx, offered.iter().map(emitted))?;
    tx.conn.run(
        "DELETE FROM besom_feed WHERE id IN (SELECT value FROM json_each(?1))",
        params![json(&ids)?],
    )?;
    Ok(ids.len() as u64)
}

/// The ids of the first rows of these topics, by the index of each: a sort would read every row that waits.
fn first(conn: &Connection, topics: &[String], limit: u32) -> Job<Vec<i64>> {
    let mut select =
        conn.prepare_cached("SELECT id FROM besom_feed WHERE topic = ?1 ORDER BY id LIMIT ?2")?;
    let mut ids = Vec::new();
    for topic in topics {
        let of = select.query_map(params![topic, limit], |r| r.get(0))?;
        ids.extend(of.collect::<Result<Vec<i64>, _>>()?);
    }
    ids.sort_unstable();
    ids.truncate(limit as usize);
    Ok(ids)
}

/// What the outbox stores of a message.
fn emitted(of: &Offered) -> Emitted<'_> {
    let Offered { topic, tenant, key, number, payload } = of;
    let (history, task, tenant, entered) = (0, None, tenant.as_ref(), *number);
    Emitted { history, task, tenant, topic, key, payload, entered }
}
