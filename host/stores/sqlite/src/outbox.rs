//! The outbox: claims messages for an attempt, records the results, and answers a task's questions
//! about its messages.
//!
//! A message is pending until it is delivered or given up. Each sequence (topic, tenant, key) knows its
//! head and when it is due, so that a claim costs the same however many messages wait behind it. The head
//! may lag behind: only the claim needs it, and what a broker accepts, or what is removed, does not move it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use besom_core::command::MessageCriteria;
use besom_core::delivery::{self, Attempt, Claim, Claimed, Delivery, End, Reply, State};
use besom_core::ids::{FencingToken, RunId, TaskName, Tenant};
use besom_core::time::Time;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, Statement, ToSql, params};

use super::error::Job;
use super::feed;
use super::leadership::check_fence;
use super::statements::Statements;
use super::values::{RawCell, TenantCell, tenant_cell};
use super::writer::Tx;
use besom_ports::store::{
    DISCARDED, GIVEN_UP_READ_MAX, Message, MessageQuery, MessageSelector, OutboxTopic, Pending,
};
use besom_record::text::json;
use besom_tables::room::Room;

/// A message to be delivered.
pub(super) struct Emitted<'a> {
    /// The history row of its item; 0: the product entered it.
    pub(super) history: i64,
    /// The number of its task; none: the product entered it.
    pub(super) task: Option<i64>,
    pub(super) tenant: Option<&'a Tenant>,
    pub(super) topic: &'a str,
    pub(super) key: &'a str,
    pub(super) payload: &'a [u8],
    /// The product's own number, which is above all before it.
    pub(super) entered: Option<u64>,
}

/// Puts a message into the outbox; returns its number in its sequence.
pub(super) fn emit(tx: &mut Tx<'_>, message: &Emitted<'_>) -> Job<u64> {
    let id = tx.number()?;
    let no = reserve(tx, message, id, 1)?;
    let mut statement = tx.conn.prepare_cached(INSERT)?;
    insert(&mut statement, tx.now, message, (id, no))?;
    Ok(no as u64)
}

/// Puts messages without numbers of the product's own into the outbox, in their order.
pub(super) fn emit_all<'a>(
    tx: &mut Tx<'_>,
    messages: impl Iterator<Item = Emitted<'a>> + Clone,
) -> Job<()> {
    // Of each sequence, in the order of its first message: how many there are, and the next number.
    let (mut known, mut sequences) = (HashMap::new(), Vec::<(i64, Option<i64>)>::new());
    let mut places = Vec::new();
    for Emitted { topic, key, tenant, .. } in messages.clone() {
        let place = *known.entry((topic, key, tenant)).or_insert(sequences.len());
        if place == sequences.len() {
            sequences.push((0, None));
        }
        sequences[place].0 += 1;
        places.push(place);
    }
    let mut statement = tx.conn.prepare_cached(INSERT)?;
    for (message, place) in messages.zip(places) {
        let id = tx.number()?;
        let (count, next) = &mut sequences[place];
        let no = match *next {
            Some(no) => no,
            None => reserve(tx, &message, id, *count)?,
        };
        *next = Some(no + 1);
        insert(&mut statement, tx.now, &message, (id, no))?;
    }
    Ok(())
}

/// Takes this many numbers of a sequence, and returns the first. `message` with this id gets it.
fn reserve(tx: &Tx<'_>, message: &Emitted<'_>, id: i64, count: i64) -> Job<i64> {
    let entered = message.entered.map(|number| number as i64);
    let tenant = tenant_cell(message.tenant);
    let (topic, key) = (message.topic, message.key);
    // Asked first: `RETURNING` costs more than the question.
    let known = tx.conn.first(
        "SELECT last, head IS NOT NULL FROM besom_outbox_sequence
         WHERE topic = ?1 AND key = ?2 AND tenant = ?3",
        params![topic, key, tenant],
        |r| Ok::<(i64, bool), rusqlite::Error>((r.get(0)?, r.get(1)?)),
    )?;
    let Some((last, waits)) = known else { return begin(tx, message, id, count) };
    if waits {
        // While messages of it wait, a sequence keeps its turn, and no index changes.
        tx.conn.run(
            "UPDATE besom_outbox_sequence SET last = last + ?5, entered = coalesce(?4, entered)
             WHERE topic = ?1 AND key = ?2 AND tenant = ?3",
            params![topic, key, tenant, entered, count],
        )?;
    } else {
        tx.conn.run(
            "UPDATE besom_outbox_sequence SET last = last + ?7, entered = coalesce(?4, entered),
               head = last + 1, due = ?5, turn = ?6
             WHERE topic = ?1 AND key = ?2 AND tenant = ?3",
            params![topic, key, tenant, entered, tx.now.0, id, count],
        )?;
    }
    Ok(last + 1)
}

const INSERT: &str =
    "INSERT INTO besom_outbox (id, history, at, topic, key, no, payload, task, tenant, entered)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

/// Stores a message with its id and its number.
fn insert(
    statement: &mut Statement<'_>,
    now: Time,
    message: &Emitted<'_>,
    (id, no): (i64, i64),
) -> Job<()> {
    let Emitted { history, task, tenant, topic, key, payload, entered } = message;
    let entered = entered.map(|number| number as i64);
    let tenant = tenant_cell(*tenant);
    statement
        .execute(params![id, history, now.0, topic, key, no, payload, task, tenant, entered])?;
    Ok(())
}

/// Begins a sequence, and returns the first of these numbers. If its row was deleted, it goes on after the messages
/// that are there.
fn begin(tx: &Tx<'_>, message: &Emitted<'_>, id: i64, count: i64) -> Job<i64> {
    let tenant = tenant_cell(message.tenant);
    let (topic, key) = (message.topic, message.key);
    let (last, before, head): (i64, i64, i64) = tx.conn.one(
        "SELECT coalesce(max(no), 0), coalesce(max(entered), 0),
           coalesce(min(no) FILTER (WHERE delivered_at IS NULL AND given_up_at IS NULL),
             max(no) + 1, 1)
         FROM besom_outbox WHERE topic = ?1 AND key = ?2 AND tenant = ?3",
        params![topic, key, tenant],
        |r| Ok::<_, rusqlite::Error>((r.get(0)?, r.get(1)?, r.get(2)?)),
    )?;
    let entered = message.entered.map_or(before, |number| number as i64);
    tx.conn.run(
        "INSERT INTO besom_outbox_sequence (topic, key, tenant, last, entered, head, due, turn)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![topic, key, tenant, last + count, entered, head, tx.now.0, id],
    )?;
    Ok(last + 1)
}

/// Sequences of a topic that are due, with the number and the place of their first pending message.
const DUE: &str = "SELECT s.key, s.tenant, o.id, o.no FROM besom_outbox_sequence s
    LEFT JOIN besom_outbox o ON o.id = (SELECT f.id FROM besom_outbox f
      WHERE f.topic = s.topic AND f.key = s.key AND f.tenant = s.tenant AND f.no >= s.head
        AND f.delivered_at IS NULL AND f.given_up_at IS NULL ORDER BY f.no LIMIT 1)
    WHERE s.topic = ?1 AND s.head IS NOT NULL AND s.due <= ?2 ORDER BY s.due, s.turn LIMIT ?3";

/// Whether there is anything to claim; usually there is not.
pub(super) fn any(conn: &Connection, claim: &Claim, now: Time) -> Job<bool> {
    let mut due = conn.prepare_cached(
        "SELECT 1 FROM besom_outbox_sequence
         WHERE topic = ?1 AND head IS NOT NULL AND due BETWEEN ?2 AND ?3 LIMIT 1",
    )?;
    let never = now + claim.wait_max;
    for (topic, _) in &claim.room {
        if due.exists(params![topic, i64::MIN, now.0])?
            || due.exists(params![topic, never.0.saturating_add(1), i64::MAX])?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A topic, a key and a tenant.
type Sequence = [RawCell; 3];

/// Moves the head of sequences to their first pending message, which is due now if it is another than
/// before.
fn advance(tx: &Tx<'_>, sequences: &[Sequence]) -> Job<()> {
    let mut advance = tx.conn.prepare_cached(
        "WITH f AS MATERIALIZED (SELECT o.no, o.id FROM besom_outbox_sequence s
           JOIN besom_outbox o ON o.topic = s.topic AND o.key = s.key AND o.tenant = s.tenant
             AND o.no >= s.head AND o.delivered_at IS NULL AND o.given_up_at IS NULL
           WHERE s.topic = ?1 AND s.key = ?2 AND s.tenant = ?3 ORDER BY o.no LIMIT 1)
         UPDATE besom_outbox_sequence AS s SET head = (SELECT no FROM f),
           due = ?4, turn = coalesce((SELECT id FROM f), 0)
         WHERE topic = ?1 AND key = ?2 AND tenant = ?3 AND head IS NOT (SELECT no FROM f)",
    )?;
    for [topic, key, tenant] in sequences {
        advance.execute(params![topic, key, tenant, tx.now.0])?;
    }
    Ok(())
}

const CLAIMED: &str = "id, at, (SELECT name FROM besom_task WHERE id = task),
    CASE history WHEN 0 THEN NULL ELSE (SELECT run FROM besom_history WHERE id = history) END,
    tenant, key, no, attempts, payload";

/// A message of the columns [`CLAIMED`].
fn claimed(r: &Row<'_>, topic: &str) -> rusqlite::Result<Claimed> {
    Ok(Claimed {
        id: r.get::<_, i64>(0)? as u64,
        at: Time(r.get(1)?),
        task: r.get::<_, Option<String>>(2)?.map(TaskName::from),
        run: r.get::<_, Option<i64>>(3)?.map(|run| RunId(run as u64)),
        tenant: r.get::<_, TenantCell>(4)?.0,
        topic: topic.to_owned(),
        key: r.get(5)?,
        sequence: r.get::<_, i64>(6)? as u64,
        attempt: attempts(r.get(7)?),
        payload: r.get(8)?,
    })
}

/// The next number of attempts; somebody else may have written any.
const ONE_MORE: &str = "min(max(attempts, 0), 2147483646) + 1";

/// Maximum number of heads that lag behind and are moved in one transaction.
const LAGGING_MAX: u32 = 1_000;

/// Records results, and claims messages for one attempt each. Whether heads that lag behind may be left: the claim
/// has to be repeated if it found nothing.
pub(super) fn claim(
    tx: &mut Tx<'_>,
    fence: &FencingToken,
    ended: &[Attempt],
    claim: &Claim,
) -> Job<(Vec<Claimed>, bool)> {
    check_fence(tx, fence)?;
    end(tx, ended)?;
    let (mut claimed, mut lagging) = (Vec::new(), false);
    for (topic, limit) in &claim.room {
        hasten(tx, topic, claim.wait_max)?;
        if take(tx, topic, *limit, claim.hold, &mut claimed)? {
            continue;
        }
        // Some of the first have nothing pending: those behind them may have.
        let due = due(tx, topic, LAGGING_MAX)?;
        lagging |= due.len() == LAGGING_MAX as usize;
        let sequences: Vec<Sequence> = due.into_iter().map(|(sequence, _)| sequence).collect();
        advance(tx, &sequences)?;
        take(tx, topic, *limit, claim.hold, &mut claimed)?;
    }
    Ok((claimed, lagging))
}

/// Makes sequences due that wait for longer than any can: the clock was set back.
fn hasten(tx: &Tx<'_>, topic: &str, wait_max: Duration) -> Job<()> {
    tx.conn.run(
        "UPDATE besom_outbox_sequence SET due = ?2
         WHERE topic = ?1 AND head IS NOT NULL AND due > ?3",
        params![topic, tx.now.0, (tx.now + wait_max).0],
    )?;
    Ok(())
}

/// A sequence that is due, and the id and number of its first pending message.
type Due = (Sequence, Option<(i64, i64)>);

fn due(tx: &Tx<'_>, topic: &str, limit: u32) -> Job<Vec<Due>> {
    tx.conn.all(DUE, params![topic, tx.now.0, limit], |r| {
        let (id, no): (Option<i64>, Option<i64>) = (r.get(2)?, r.get(3)?);
        Ok(([RawCell::from(topic), r.get(0)?, r.get(1)?], id.zip(no)))
    })
}

/// Claims the first messages of at most this many sequences. Whether each had one.
fn take(
    tx: &Tx<'_>,
    topic: &str,
    limit: u32,
    hold: Duration,
    claimed: &mut Vec<Claimed>,
) -> Job<bool> {
    let until = (tx.now + hold).0;
    let mut all = true;
    let mut hide = tx.conn.prepare_cached(
        "UPDATE besom_outbox_sequence SET head = ?4, due = ?5, turn = 0
         WHERE topic = ?1 AND key = ?2 AND tenant = ?3",
    )?;
    let mut take = tx.conn.prepare_cached(&format!(
        "UPDATE besom_outbox SET attempts = {ONE_MORE} WHERE id = ?1 RETURNING {CLAIMED}"
    ))?;
    for (sequence, first) in due(tx, topic, limit)? {
        let Some((id, no)) = first else {
            all = false;
            continue;
        };
        let [topic_cell, key, tenant] = &sequence;
        hide.execute(params![topic_cell, key, tenant, no, until])?;
        match take.query_row(params![id], |r| self::claimed(r, topic)) {
            Ok(message) => claimed.push(message),
            Err(error) if is_unreadable(&error) => {
                give_up_unread(tx, &Unreadable { id, why: error.to_string() })?;
                advance(tx, &[sequence])?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// A message that somebody else has written, or damaged.
pub(super) struct Unreadable {
    id: i64,
    why: String,
}

/// Whether the cells of a row are not what the program can have written.
fn is_unreadable(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::*;
    matches!(
        error,
        FromSqlConversionFailure(..)
            | IntegralValueOutOfRange(..)
            | InvalidColumnType(..)
            | Utf8Error(..)
    )
}

/// Gives up a message that cannot be read, so that it holds up no other.
pub(super) fn give_up_unread(tx: &Tx<'_>, message: &Unreadable) -> Job<()> {
    let Unreadable { id, why } = message;
    let error = format!("row {id} of besom_outbox: {why}");
    tracing::error!(error, "a message cannot be read; it is given up");
    tx.conn.run(
        "UPDATE besom_outbox SET given_up_at = ?2, error = ?3
         WHERE id = ?1 AND delivered_at IS NULL AND given_up_at IS NULL",
        params![id, tx.now.0, error],
    )?;
    Ok(())
}

/// Records the results of attempts.
fn end(tx: &Tx<'_>, attempts: &[Attempt]) -> Job<()> {
    for Attempt { id, attempt, end } in attempts {
        let (delivered, given_up, next, error, reply) = match end {
            End::Delivered(reply) => (Some(tx.now.0), None, None, None, reply.as_ref()),
            End::Again { after, error } | End::Unsent { after, error } => {
                (None, None, Some((tx.now + *after).0), Some(error), None)
            }
            End::GivenUp { error, reply } => {
                (None, Some(tx.now.0), None, Some(error), reply.as_ref())
            }
        };
        let recorded = params![
            *id as i64,
            attempt,
            delivered,
            given_up,
            error,
            reply.map(|r| r.status),
            reply.map(|r| &r.body),
            reply.map(|r| r.cut),
            matches!(end, End::Unsent { .. })
        ];
        let ended = tx.conn.first(
            "UPDATE besom_outbox SET delivered_at = ?3, given_up_at = ?4, error = ?5,
               reply_status = ?6, reply_body = ?7, reply_cut = ?8, attempts = attempts - ?9
             WHERE id = ?1 AND attempts = ?2 AND delivered_at IS NULL AND given_up_at IS NULL
             RETURNING topic, key, tenant",
            recorded,
            sequence,
        )?;
        let Some(sequence) = ended else { continue };
        let Some(next) = next else {
            advance(tx, &[sequence])?;
            continue;
        };
        let [topic, key, tenant] = sequence;
        tx.conn.run(
            "UPDATE besom_outbox_sequence SET due = ?4, turn = ?5
             WHERE topic = ?1 AND key = ?2 AND tenant = ?3",
            params![topic, key, tenant, next, *id as i64],
        )?;
    }
    Ok(())
}

fn sequence(r: &Row<'_>) -> rusqlite::Result<Sequence> {
    Ok([r.get(0)?, r.get(1)?, r.get(2)?])
}

/// The first pending messages of a topic, without those that are known or of a sequence that is held; and those among
/// them that cannot be read.
pub(super) fn read(
    conn: &Connection,
    topic: &str,
    known: &[u64],
    held: &[delivery::Sequence],
    limit: u32,
    bytes: u64,
) -> Job<(Vec<Claimed>, Vec<Unreadable>)> {
    let others = match held.len() {
        0 => String::new(),
        count => {
            let pair = |at: usize| format!("(?{}, ?{})", 2 * at + 4, 2 * at + 5);
            let pairs: Vec<String> = (0..count).map(pair).collect();
            format!("AND (key, tenant) NOT IN (VALUES {})", pairs.join(", "))
        }
    };
    let mut select = conn.prepare_cached(&format!(
        "SELECT {CLAIMED} FROM besom_outbox
         WHERE delivered_at IS NULL AND given_up_at IS NULL AND topic = ?1
           AND id NOT IN (SELECT value FROM json_each(?2)) {others}
         ORDER BY id LIMIT ?3"
    ))?;
    let known = json(&known)?;
    let tenants: Vec<_> = held.iter().map(|of| TenantCell(of.tenant.clone())).collect();
    let mut asked: Vec<&dyn ToSql> = vec![&topic, &known, &limit];
    for (of, tenant) in held.iter().zip(&tenants) {
        asked.extend([&of.key as &dyn ToSql, tenant]);
    }
    let mut rows = select.query(&*asked)?;
    let (mut read, mut unreadable, mut left) = (Vec::new(), Vec::new(), bytes);
    while let Some(r) = rows.next()? {
        let mut message = match claimed(r, topic) {
            Ok(message) => message,
            Err(error) if is_unreadable(&error) => {
                unreadable.push(Unreadable { id: r.get(0)?, why: error.to_string() });
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        message.attempt += 1;
        let size = message.payload.len() as u64;
        if size > left && !read.is_empty() {
            break;
        }
        left = left.saturating_sub(size);
        read.push(message);
    }
    Ok((read, unreadable))
}

/// Records the results of messages that were read for a broker.
pub(super) fn end_read(tx: &mut Tx<'_>, fence: &FencingToken, ends: &[(u64, End)]) -> Job<()> {
    check_fence(tx, fence)?;
    let mut delivered = Vec::with_capacity(ends.len());
    let mut update = tx.conn.prepare_cached(&format!(
        "UPDATE besom_outbox SET attempts = {ONE_MORE}, given_up_at = ?2, error = ?3
         WHERE id = ?1 AND delivered_at IS NULL AND given_up_at IS NULL"
    ))?;
    for (id, end) in ends {
        let (given_up, error) = match end {
            End::Delivered(_) => {
                delivered.push(id);
                continue;
            }
            End::Again { error, .. } | End::Unsent { error, .. } => (None, error),
            End::GivenUp { error, .. } => (Some(tx.now.0), error),
        };
        update.execute(params![*id as i64, given_up, error])?;
    }
    tx.conn.run(
        &format!(
            "UPDATE besom_outbox SET attempts = {ONE_MORE}, delivered_at = ?2, error = NULL
             WHERE id IN (SELECT value FROM json_each(?1))
               AND delivered_at IS NULL AND given_up_at IS NULL"
        ),
        params![json(&delivered)?, tx.now.0],
    )?;
    Ok(())
}

/// Whether a later message of the sequence of `o` was delivered, or may have been. One that was discarded is
/// superseded by any later one.
fn superseded() -> String {
    format!(
        "EXISTS (SELECT 1 FROM besom_outbox l WHERE l.topic = o.topic AND l.key = o.key AND l.tenant = o.tenant AND l.no > o.no
           AND (l.delivered_at IS NOT NULL OR (l.given_up_at IS NULL AND l.attempts > 0)
             OR o.error = '{DISCARDED}'))"
    )
}

/// Makes messages due that wait for their next attempt, and messages pending again that were given up.
pub(super) fn retry(tx: &mut Tx<'_>, selector: &MessageSelector) -> Job<u64> {
    let MessageCriteria { ids, topic } = selector.criteria();
    let ids = ids.map(|ids| json(&ids)).transpose()?;
    let due = tx.conn.run(
        "UPDATE besom_outbox_sequence SET due = ?3
         WHERE head IS NOT NULL AND due > ?3 AND turn > 0 AND (?2 IS NULL OR topic = ?2)
           AND (?1 IS NULL OR (topic, key, tenant) IN (SELECT topic, key, tenant FROM besom_outbox
             WHERE id IN (SELECT value FROM json_each(?1))
               AND delivered_at IS NULL AND given_up_at IS NULL))",
        params![ids, topic, tx.now.0],
    )?;
    let superseded = superseded();
    let again = format!(
        "UPDATE besom_outbox AS o SET given_up_at = NULL, attempts = 0,
           reply_status = NULL, reply_body = NULL, reply_cut = NULL
         WHERE o.given_up_at IS NOT NULL
           AND (?1 IS NULL OR o.id IN (SELECT value FROM json_each(?1)))
           AND (?2 IS NULL OR o.topic = ?2)
           AND (?1 IS NOT NULL OR o.error IS NOT '{DISCARDED}') AND (?3 OR NOT {superseded})
         RETURNING topic, key, tenant, no, id"
    );
    let again: Vec<(Sequence, i64, i64)> =
        tx.conn.all(&again, params![ids, topic, selector.force], |r| {
            sequence(r).and_then(|of| Ok((of, r.get(3)?, r.get(4)?)))
        })?;
    let mut first = tx.conn.prepare_cached(
        "UPDATE besom_outbox_sequence SET head = ?4, due = ?5, turn = ?6
         WHERE topic = ?1 AND key = ?2 AND tenant = ?3 AND (head IS NULL OR head > ?4)",
    )?;
    for ([topic, key, tenant], no, id) in &again {
        first.execute(params![topic, key, tenant, no, tx.now.0, id])?;
    }
    Ok((due + again.len()) as u64)
}

/// Gives up pending messages.
pub(super) fn discard(tx: &mut Tx<'_>, selector: &MessageSelector) -> Job<u64> {
    let MessageCriteria { ids, topic } = selector.criteria();
    let ids = ids.map(|ids| json(&ids)).transpose()?;
    let mut ended = tx.conn.all(
        "UPDATE besom_outbox SET given_up_at = ?3, error = ?4
         WHERE delivered_at IS NULL AND given_up_at IS NULL
           AND (?1 IS NULL OR id IN (SELECT value FROM json_each(?1)))
           AND (?2 IS NULL OR topic = ?2)
         RETURNING topic, key, tenant",
        params![ids, topic, tx.now.0, DISCARDED],
        sequence,
    )?;
    let discarded = ended.len() as u64;
    ended.sort_unstable();
    ended.dedup();
    advance(tx, &ended)?;
    Ok(discarded)
}

const DELIVERY: &str = "o.id, o.at, o.payload, o.delivered_at, o.given_up_at, o.attempts, o.error,
    o.reply_status, o.reply_body, o.reply_cut, o.no";

/// A text as it can be shown: somebody else may have written anything.
fn lossy(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Null => String::new(),
    }
}

/// An error as it can be shown; none: there is none.
fn error_text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        error => Some(lossy(error)),
    }
}

/// A number of attempts; somebody else may have written any.
fn attempts(number: i64) -> u32 {
    number.clamp(0, i64::from(u32::MAX - 1)) as u32
}

fn delivery(r: &Row<'_>) -> rusqlite::Result<Delivery> {
    let (delivered, given_up): (Option<i64>, Option<i64>) = (r.get(3)?, r.get(4)?);
    let status: Option<i64> = r.get(7)?;
    Ok(Delivery {
        id: r.get(0)?,
        sequence: r.get::<_, i64>(10)? as u64,
        emitted_at: Time(r.get(1)?),
        payload: r.get(2)?,
        state: match (delivered, given_up) {
            (Some(_), _) => State::Delivered,
            (None, Some(_)) => State::GivenUp,
            (None, None) => State::Pending,
        },
        attempts: attempts(r.get(5)?),
        error: error_text(r.get_ref(6)?),
        reply: match status {
            None => None,
            Some(status) => {
                let status = status.clamp(0, i64::from(u16::MAX)) as u16;
                Some(Reply { status, body: r.get(8)?, cut: r.get(9)? })
            }
        },
        ended_at: delivered.or(given_up).map(Time),
    })
}

/// The latest message of each key among a task's own messages.
pub(super) fn deliveries(
    conn: &Connection,
    task: &TaskName,
    tenant: Option<&Tenant>,
    topic: &str,
    keys: &[String],
    mut room: Room,
) -> Job<Vec<Option<Delivery>>> {
    let mut latest = conn.prepare_cached(&format!(
        "SELECT {DELIVERY} FROM besom_outbox o
         WHERE o.topic = ?1 AND o.key = ?2 AND o.tenant = ?3
           AND o.task = (SELECT id FROM besom_task WHERE name = ?4)
         ORDER BY o.no DESC LIMIT 1"
    ))?;
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let asked = params![topic, key, tenant_cell(tenant), task.as_str()];
        let one = latest.query_row(asked, delivery).optional()?;
        room.take(one.as_ref().map_or(0, Delivery::bytes))?;
        found.push(one);
    }
    Ok(found)
}

/// Removes the oldest pending messages of a task and a topic.
pub(super) fn drop_oldest(
    tx: &mut Tx<'_>,
    task: &TaskName,
    topic: &str,
    count: u32,
) -> Job<Pending> {
    let mut remove = tx.conn.prepare_cached(
        "DELETE FROM besom_outbox WHERE id IN (SELECT id FROM besom_outbox
           WHERE delivered_at IS NULL AND given_up_at IS NULL AND topic = ?1
             AND task = (SELECT id FROM besom_task WHERE name = ?2)
           ORDER BY id LIMIT ?3)
         RETURNING octet_length(key) + octet_length(payload)",
    )?;
    let bytes = remove.query_map(params![topic, task.as_str(), count], |r| r.get::<_, i64>(0))?;
    let mut gone = Pending::default();
    for bytes in bytes {
        gone.messages += 1;
        gone.bytes += bytes?.unsigned_abs();
    }
    Ok(gone)
}

/// The pending messages of a topic, of a task or of none; counts at most this many.
pub(super) fn pending(
    conn: &Connection,
    task: Option<&TaskName>,
    topic: &str,
    limit: u32,
) -> Job<Pending> {
    let row = |r: &Row<'_>| {
        let (messages, bytes): (i64, i64) = (r.get(0)?, r.get(1)?);
        Ok(Pending { messages: messages.unsigned_abs(), bytes: bytes.unsigned_abs() })
    };
    conn.one(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM (
           SELECT octet_length(key) + octet_length(payload) AS bytes FROM besom_outbox
           WHERE delivered_at IS NULL AND given_up_at IS NULL AND topic = ?1
             AND CASE WHEN ?2 IS NULL THEN task IS NULL
                 ELSE task = (SELECT id FROM besom_task WHERE name = ?2) END LIMIT ?3)",
        params![topic, task.map(TaskName::as_str), limit],
        row,
    )
}

/// The messages of an item. Their numbers follow that of its history row.
const OF_HISTORY: &str = "o.id > ?3 AND o.id <= ?3 + 2000 AND o.history = ?3";

/// Messages, newest first.
pub(super) fn messages(conn: &Connection, query: &MessageQuery) -> Job<Vec<Message>> {
    let state = match query.state {
        None => "1",
        Some(State::Pending) => "o.delivered_at IS NULL AND o.given_up_at IS NULL",
        Some(State::Delivered) => "o.delivered_at IS NOT NULL",
        Some(State::GivenUp) => "o.given_up_at IS NOT NULL",
    };
    let of = if query.history.is_some() { OF_HISTORY } else { "?3 IS NULL" };
    let id = if query.id.is_some() { "o.id = ?4" } else { "?4 IS NULL" };
    let key = if query.key.is_some() { "o.key = ?5" } else { "?5 IS NULL" };
    let superseded = superseded();
    let sql = format!(
        "SELECT {DELIVERY}, (SELECT name FROM besom_task WHERE id = o.task), o.tenant, o.topic,
           o.key, coalesce((SELECT s.due FROM besom_outbox_sequence s WHERE s.topic = o.topic
             AND s.key = o.key AND s.tenant = o.tenant AND s.head = o.no), 0),
           {superseded}
         FROM besom_outbox o
         WHERE (?1 IS NULL OR o.topic = ?1) AND {state} AND {of} AND {id} AND {key}
         ORDER BY o.id DESC LIMIT ?2"
    );
    let asked = params![query.topic, query.limit, query.history, query.id, query.key];
    conn.all(&sql, asked, |r| {
        Ok(Message {
            delivery: delivery(r)?,
            task: r.get::<_, Option<String>>(11)?.map(TaskName::from),
            tenant: match r.get_ref(12)? {
                ValueRef::Integer(_) => None,
                tenant => Some(lossy(tenant).into()),
            },
            topic: lossy(r.get_ref(13)?),
            key: lossy(r.get_ref(14)?),
            next_at: Time(r.get(15)?),
            superseded: r.get(16)?,
        })
    })
}

/// Puts sequences right of which a message waits behind their head, or without one: somebody else has changed
/// rows. At most so many.
pub(super) fn mend(tx: &Tx<'_>, limit: u32) -> Job<()> {
    tx.conn.run(
        "INSERT INTO besom_outbox_sequence AS s (topic, key, tenant, last, head, due, turn)
         SELECT o.topic, o.key, o.tenant, max(o.no), min(o.no), ?1, min(o.id) FROM besom_outbox o
         LEFT JOIN besom_outbox_sequence s
           ON s.topic = o.topic AND s.key = o.key AND s.tenant = o.tenant
         WHERE o.delivered_at IS NULL AND o.given_up_at IS NULL
           AND (s.head IS NULL OR s.head > o.no OR s.last < o.no)
         GROUP BY o.topic, o.key, o.tenant LIMIT ?2
         ON CONFLICT (topic, key, tenant) DO UPDATE SET
           head = min(coalesce(head, excluded.head), excluded.head),
           last = max(last, excluded.last), due = excluded.due, turn = excluded.turn",
        params![tx.now.0, limit],
    )?;
    Ok(())
}

/// What waits and what was given up, by topic.
pub(super) fn topics(conn: &Connection, topics_max: u32, count_max: u32) -> Job<Vec<OutboxTopic>> {
    // As bytes: a text in SQLite need not be one of Unicode.
    let mut topics: BTreeMap<Vec<u8>, OutboxTopic> = BTreeMap::new();
    let mut next = conn.prepare_cached(
        "SELECT CAST(topic AS BLOB), at, error FROM besom_outbox
         WHERE delivered_at IS NULL AND given_up_at IS NULL AND topic > CAST(?1 AS TEXT)
         ORDER BY topic, id LIMIT 1",
    )?;
    let mut waiting = conn.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM besom_outbox
           WHERE delivered_at IS NULL AND given_up_at IS NULL AND topic = CAST(?1 AS TEXT) LIMIT ?2)",
    )?;
    let mut last = Vec::new();
    while topics.len() < topics_max as usize {
        let first = next.query_row(params![last], |r| {
            Ok((r.get(0)?, Time(r.get(1)?), error_text(r.get_ref(2)?)))
        });
        let Some((topic, oldest, error)) = first.optional()? else { break };
        last = topic;
        let found = topics.entry(last.clone()).or_default();
        (found.oldest, found.waiting_error) = (Some(oldest), error);
        found.waiting = waiting.query_row(params![last, count_max], |r| r.get(0))?;
    }
    let mut rows = conn.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM besom_feed WHERE topic = CAST(?1 AS TEXT) LIMIT ?2)",
    )?;
    let (mut last, mut count) = (Vec::new(), 0);
    while count < topics_max
        && let Some(topic) = feed::topic_after(conn, &last)?
    {
        (last, count) = (topic, count + 1);
        let found = topics.entry(last.clone()).or_default();
        found.inserted = rows.query_row(params![last, count_max], |r| r.get(0))?;
    }
    let mut next = conn.prepare_cached(
        "SELECT CAST(topic AS BLOB) FROM besom_outbox
         WHERE given_up_at IS NOT NULL AND topic > CAST(?1 AS TEXT) ORDER BY topic, id LIMIT 1",
    )?;
    let superseded = superseded();
    let mut latest = conn.prepare_cached(&format!(
        "SELECT given_up_at, error FROM (SELECT * FROM besom_outbox
           WHERE given_up_at IS NOT NULL AND topic = CAST(?1 AS TEXT)
           ORDER BY id DESC LIMIT {GIVEN_UP_READ_MAX}) o
         WHERE o.error IS NOT '{DISCARDED}' AND NOT {superseded} ORDER BY o.id DESC"
    ))?;
    let (mut last, mut count) = (Vec::new(), 0);
    while count < topics_max
        && let Some(topic) = next.query_row(params![last], |r| r.get(0)).optional()?
    {
        (last, count) = (topic, count + 1);
        let mut rows = latest.query(params![last])?;
        while let Some(row) = rows.next()? {
            let found = topics.entry(last.clone()).or_default();
            found.given_up += 1;
            if found.last_given_up.is_none() {
                found.last_given_up = Some((Time(row.get(0)?), lossy(row.get_ref(1)?)));
            }
        }
    }
    let named = |(topic, found): (Vec<u8>, OutboxTopic)| OutboxTopic {
        topic: String::from_utf8_lossy(&topic).into_owned(),
        ..found
    };
    Ok(topics.into_iter().map(named).collect())
}
