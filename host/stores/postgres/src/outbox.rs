//! The outbox: claims messages for an attempt, records the results, and answers a task's questions
//! about its messages.
//!
//! A message is pending until it is delivered or given up. Each sequence (topic, tenant, key) knows its
//! head and when it is due, so that a claim costs the same however many messages wait behind it. The head
//! may lag behind: only the claim needs it, and what a broker accepts, or what is removed, does not move it.
//!
//! Whoever moves a head, or makes messages pending, has locked the sequence in an earlier statement: only
//! then does it see every message of the sequence, because commits number theirs under the same lock.
//! Sequences are locked before messages, and in one order.
//!
//! Payloads are read after the claim is committed, so that a claim whose answer is large or not
//! read does not hold the fence.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use besom_core::command::MessageCriteria;
use besom_core::delivery::{Attempt, Claim, Claimed, Delivery, End, Reply, Sequence, State};
use besom_core::ids::{FencingToken, RunId, TaskName, Tenant};
use besom_core::time::Time;
use tokio_postgres::Row;

use super::clock::{Clock, NOW};
use super::error::Job;
use super::lookup::Fetch;
use super::session::{Param, Session, Tx, cell, params};
use super::snapshot::View;
use super::text::{escaped, plain, tenant_of, tenant_text};
use besom_ports::store::{
    DISCARDED, GIVEN_UP_READ_MAX, Message, MessageQuery, MessageSelector, OutboxTopic, Pending,
    Result,
};

/// Sequences of a topic that are due. Those that a commit has locked come later.
const DUE: &str = "SELECT sequence, head FROM @.outbox_sequence
    WHERE topic = $1 AND head IS NOT NULL AND due <= $2
    ORDER BY due, turn LIMIT $3 FOR UPDATE SKIP LOCKED";

/// The first pending message of the sequence `s` from its head on, to be joined; see [`PENDING`].
const FIRST: &str = "LATERAL (SELECT o.id, o.no FROM @.outbox o
    WHERE o.sequence = s.sequence AND o.no >= s.head
      AND coalesce(o.delivered_at, o.given_up_at) IS NULL ORDER BY o.no LIMIT 1)";

/// Whether there is anything to claim; usually there is not.
async fn any(session: &Session, clock: &Clock, claim: &Claim) -> Job<bool> {
    let now: i64 = session.one(&format!("SELECT {NOW}"), params![clock.given()]).await?;
    let never = (Time(now) + claim.wait_max).0;
    let sql = "SELECT 1 FROM (
        (SELECT FROM @.outbox_sequence WHERE topic = $1 AND head IS NOT NULL AND due <= $2 LIMIT 1)
        UNION ALL
        (SELECT FROM @.outbox_sequence WHERE topic = $1 AND head IS NOT NULL AND due > $3 LIMIT 1)) s
        LIMIT 1";
    for (topic, _) in &claim.room {
        let asked = params![escaped(topic).into_owned(), now, never];
        if session.row(sql, asked).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Moves the head of locked sequences to their first pending message, which is due now if it is another
/// than before.
async fn advance(tx: &Tx, sequences: Vec<String>) -> Job<()> {
    if sequences.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "UPDATE @.outbox_sequence of SET head = f.no, due = $2, turn = coalesce(f.id, 0)
         FROM @.outbox_sequence s LEFT JOIN {FIRST} f ON true
         WHERE s.sequence = ANY($1::text[]) AND of.sequence = s.sequence
           AND of.head IS DISTINCT FROM f.no"
    );
    tx.execute(&sql, params![sequences, tx.now.0]).await?;
    Ok(())
}

/// Locks the sequences of messages that a condition selects, and returns them.
async fn lock(tx: &Tx, of: &str, params: Vec<Param<'_>>) -> Job<Vec<String>> {
    let sql = format!(
        "SELECT sequence FROM @.outbox_sequence
         WHERE sequence IN (SELECT o.sequence FROM @.outbox o WHERE {of})
         ORDER BY sequence COLLATE \"C\" FOR UPDATE"
    );
    tx.all(&sql, params, cell).await
}

/// Maximum number of heads that lag behind and are moved in one transaction.
const LAGGING_MAX: i64 = 1_000;

/// Records results, and claims messages for one attempt each; writes nothing if there are none. Whether heads that
/// lag behind may be left: the claim has to be repeated if it found nothing.
pub(super) async fn claim(
    session: Session,
    clock: &Clock,
    fence: &FencingToken,
    attempts: &[Attempt],
    claim: &Claim,
) -> Result<(Vec<Claimed>, bool)> {
    if attempts.is_empty() && !any(&session, clock, claim).await? {
        return Ok((Vec::new(), false));
    }
    let tx = Tx::fenced(session, clock, fence).await?;
    let done = async {
        if !attempts.is_empty() {
            ended(&tx, attempts).await?;
        }
        claimed(&tx, claim).await
    };
    let done = done.await;
    let ((claimed, lagging), session) = tx.finish_with(done).await?;
    Ok((with_payloads(&session, claimed).await?, lagging))
}

const CLAIMED: &str = "t.id, t.at, (SELECT name FROM @.task WHERE id = t.task) AS task,
    (SELECT run FROM @.history WHERE id = t.history) AS run, t.tenant, t.key, t.no, t.attempts";

/// A message of the columns [`CLAIMED`].
fn message(row: &Row, topic: &str, payload: Vec<u8>) -> Job<Claimed> {
    Ok(Claimed {
        id: row.try_get::<_, i64>(0)? as u64,
        at: Time(row.try_get(1)?),
        task: row.try_get::<_, Option<String>>(2)?.map(TaskName::from),
        run: row.try_get::<_, Option<i64>>(3)?.map(|run| RunId(run as u64)),
        tenant: tenant_of(row.try_get(4)?),
        topic: topic.to_owned(),
        key: plain(row.try_get(5)?),
        sequence: row.try_get::<_, i64>(6)? as u64,
        attempt: row.try_get::<_, i32>(7)?.max(0) as u32,
        payload,
    })
}

async fn claimed(tx: &Tx, claim: &Claim) -> Job<(Vec<Claimed>, bool)> {
    let (mut claimed, mut lagging) = (Vec::new(), false);
    hasten(tx, claim).await?;
    for (topic, limit) in &claim.room {
        let begin = claimed.len();
        if !take(tx, topic, *limit, claim.hold, &mut claimed).await? {
            // Some of the first have nothing pending: those behind them may have.
            let due = params![escaped(topic).into_owned(), tx.now.0, LAGGING_MAX];
            let due: Vec<String> = tx.all(DUE, due, cell).await?;
            lagging |= due.len() as i64 == LAGGING_MAX;
            advance(tx, due).await?;
            take(tx, topic, *limit, claim.hold, &mut claimed).await?;
        }
        claimed[begin..].sort_unstable_by_key(|message| message.id);
    }
    Ok((claimed, lagging))
}

/// Makes sequences due that wait for longer than any can: the clock was set back.
async fn hasten(tx: &Tx, claim: &Claim) -> Job<()> {
    let sql = "UPDATE @.outbox_sequence SET due = $2 WHERE sequence IN (
        SELECT sequence FROM @.outbox_sequence
        WHERE topic = ANY($1::text[]) AND head IS NOT NULL AND due > $3 FOR UPDATE SKIP LOCKED)";
    let topics: Vec<String> =
        claim.room.iter().map(|(topic, _)| escaped(topic).into_owned()).collect();
    tx.execute(sql, params![topics, tx.now.0, (tx.now + claim.wait_max).0]).await?;
    Ok(())
}

/// The next number of attempts of a message `t`; somebody else may have written any.
const ONE_MORE: &str = "least(greatest(t.attempts, 0), 2147483646) + 1";

/// That a message `t`, which is found by its id or in its sequence, is pending. The words of the partial index
/// would invite a plan that goes through all pending messages for each of them, if the statistics are of a time with
/// hardly any.
const PENDING: &str = "coalesce(t.delivered_at, t.given_up_at) IS NULL";

/// Claims the first messages of at most this many sequences. Whether each had one.
async fn take(
    tx: &Tx,
    topic: &str,
    limit: u32,
    hold: Duration,
    claimed: &mut Vec<Claimed>,
) -> Job<bool> {
    let take = format!(
        "WITH due AS ({DUE}),
           first AS MATERIALIZED (SELECT s.sequence, f.id, f.no
             FROM due s LEFT JOIN {FIRST} f ON true),
           hidden AS (UPDATE @.outbox_sequence s SET head = first.no, due = $4, turn = 0
             FROM first WHERE s.sequence = first.sequence AND first.no IS NOT NULL),
           taken AS (UPDATE @.outbox t SET attempts = {ONE_MORE}
             FROM first WHERE t.id = first.id AND {PENDING}
             RETURNING {CLAIMED})
         SELECT taken.* FROM first LEFT JOIN taken ON taken.id = first.id"
    );
    let until = (tx.now + hold).0;
    let asked = params![escaped(topic).into_owned(), tx.now.0, i64::from(limit), until];
    let mut all = true;
    for row in tx.query(&take, asked).await? {
        match row.try_get::<_, Option<i64>>(0)? {
            Some(_) => claimed.push(message(&row, topic, Vec::new())?),
            None => all = false,
        }
    }
    Ok(all)
}

/// The claimed messages with their payloads, which never change. A missing one was ended and pruned
/// by another node in the meantime.
async fn with_payloads(session: &Session, claimed: Vec<Claimed>) -> Job<Vec<Claimed>> {
    if claimed.is_empty() {
        return Ok(claimed);
    }
    let ids: Vec<i64> = claimed.iter().map(|message| message.id as i64).collect();
    let sql = "SELECT id, payload FROM @.outbox WHERE id = ANY($1::int8[])";
    let mut payloads = HashMap::with_capacity(ids.len());
    for row in session.query(sql, params![ids]).await? {
        payloads.insert(row.try_get::<_, i64>(0)? as u64, row.try_get::<_, Vec<u8>>(1)?);
    }
    let with = |message: Claimed| {
        payloads.remove(&message.id).map(|payload| Claimed { payload, ..message })
    };
    Ok(claimed.into_iter().filter_map(with).collect())
}

/// The first pending messages of a topic, without those that are known or of a sequence that is held.
pub(super) async fn read(
    session: &Session,
    topic: &str,
    known: &[u64],
    held: &[Sequence],
    limit: u32,
    bytes: u64,
) -> Job<Vec<Claimed>> {
    let known: Vec<i64> = known.iter().map(|id| *id as i64).collect();
    let mut params = params![escaped(topic).into_owned(), known, i64::from(limit)];
    let mut others = "";
    if !held.is_empty() {
        others = "AND (t.key, t.tenant) NOT IN (SELECT * FROM unnest($4::text[], $5::text[]))";
        let keys: Vec<_> = held.iter().map(|of| escaped(&of.key)).collect();
        let tenants: Vec<_> = held.iter().map(|of| tenant_text(of.tenant.as_ref())).collect();
        params.extend(params![keys, tenants]);
    }
    let sql = format!(
        "SELECT {CLAIMED}, t.payload FROM @.outbox t
         WHERE t.delivered_at IS NULL AND t.given_up_at IS NULL AND t.topic = $1
           AND t.id <> ALL ($2::int8[]) {others}
         ORDER BY t.id LIMIT $3"
    );
    let (mut read, mut left) = (Vec::new(), bytes);
    let take = |r: &Row| {
        let payload: Vec<u8> = r.try_get(8)?;
        let size = payload.len() as u64;
        if size > left && !read.is_empty() {
            return Ok(false);
        }
        left = left.saturating_sub(size);
        let message = message(r, topic, payload)?;
        read.push(Claimed { attempt: message.attempt + 1, ..message });
        Ok(true)
    };
    session.each(&sql, params, take).await?;
    Ok(read)
}

/// Records the results of messages that were read for a broker.
pub(super) async fn end_read(
    session: Session,
    clock: &Clock,
    fence: &FencingToken,
    ends: &[(u64, End)],
) -> Result<()> {
    let tx = Tx::fenced(session, clock, fence).await?;
    let done = ended_read(&tx, ends).await;
    tx.finish(done).await
}

async fn ended_read(tx: &Tx, ends: &[(u64, End)]) -> Job<()> {
    let (mut ids, mut delivered, mut given_up, mut errors) = (vec![], vec![], vec![], vec![]);
    for (id, end) in ends {
        ids.push(*id as i64);
        delivered.push(matches!(end, End::Delivered(_)));
        given_up.push(matches!(end, End::GivenUp { .. }));
        errors.push(match end {
            End::Delivered(_) => None,
            End::Again { error, .. } | End::Unsent { error, .. } | End::GivenUp { error, .. } => {
                Some(escaped(error))
            }
        });
    }
    let sql = format!(
        "UPDATE @.outbox t SET attempts = {ONE_MORE},
           delivered_at = CASE WHEN e.delivered THEN $5::int8 END,
           given_up_at = CASE WHEN e.given_up THEN $5::int8 END, error = e.error
         FROM unnest($1::int8[], $2::bool[], $3::bool[], $4::text[])
           e(id, delivered, given_up, error)
         WHERE t.id = e.id AND {PENDING}"
    );
    tx.execute(&sql, params![ids, delivered, given_up, errors, tx.now.0]).await?;
    Ok(())
}

/// What a selector selects, with `$1` and `$2`.
const SELECTED: &str =
    "($1::int8[] IS NULL OR o.id = ANY($1)) AND ($2::text IS NULL OR o.topic = $2)";

/// That a message `o` is pending and selected.
fn selected_pending() -> String {
    format!("o.delivered_at IS NULL AND o.given_up_at IS NULL AND {SELECTED}")
}

/// The ids and the topic of a selector, as [`SELECTED`] takes them.
fn selected(selector: &MessageSelector) -> (Option<Vec<i64>>, Option<String>) {
    let MessageCriteria { ids, topic } = selector.criteria();
    let ids = ids.map(|ids| ids.iter().map(|id| *id as i64).collect());
    (ids, topic.map(|topic| escaped(topic).into_owned()))
}

/// Whether a later message of the sequence of `o` was delivered, or may have been. One that was discarded is
/// superseded by any later one.
fn superseded() -> String {
    format!(
        "EXISTS (SELECT 1 FROM @.outbox l WHERE l.sequence = o.sequence AND l.no > o.no
           AND (l.delivered_at IS NOT NULL OR (l.given_up_at IS NULL AND l.attempts > 0)
             OR o.error = '{DISCARDED}'))"
    )
}

/// Makes messages due that wait for their next attempt, and messages pending again that were given up.
pub(super) async fn retry(tx: &Tx, selector: &MessageSelector) -> Job<u64> {
    let (ids, topic) = selected(selector);
    let pending = selected_pending();
    let (of, superseded) = (format!("o.given_up_at IS NOT NULL AND {SELECTED}"), superseded());
    let any = format!("({pending}) OR ({of})");
    let locked = lock(tx, &any, params![ids.clone(), topic.clone()]).await?;
    let sql = format!(
        "UPDATE @.outbox_sequence SET due = $3 WHERE sequence = ANY($4::text[])
           AND head IS NOT NULL AND due > $3 AND turn > 0
           AND sequence IN (SELECT o.sequence FROM @.outbox o WHERE {pending})"
    );
    let asked = params![ids.clone(), topic.clone(), tx.now.0, locked.clone()];
    let due = tx.execute(&sql, asked).await?;
    let sql = format!(
        "WITH again AS (UPDATE @.outbox o SET given_up_at = NULL, attempts = 0,
           reply_status = NULL, reply_body = NULL, reply_cut = NULL
         WHERE {of} AND o.sequence = ANY($4::text[]) AND ($5 OR NOT {superseded})
           AND ($1 IS NOT NULL OR o.error IS DISTINCT FROM '{DISCARDED}')
         RETURNING sequence, no, id),
         first AS (SELECT sequence, min(no) AS no, min(id) AS id FROM again GROUP BY sequence),
         due AS (UPDATE @.outbox_sequence s SET head = first.no, due = $3, turn = first.id
           FROM first WHERE s.sequence = first.sequence AND (s.head IS NULL OR s.head > first.no))
         SELECT count(*) FROM again"
    );
    let again = params![ids, topic, tx.now.0, locked, selector.force];
    Ok(due + tx.one::<i64>(&sql, again).await?.unsigned_abs())
}

/// Gives up pending messages.
pub(super) async fn discard(tx: &Tx, selector: &MessageSelector) -> Job<u64> {
    let (ids, topic) = selected(selector);
    let of = selected_pending();
    let locked = lock(tx, &of, params![ids.clone(), topic.clone()]).await?;
    let sql = format!(
        "WITH ended AS (UPDATE @.outbox o SET given_up_at = $3, error = $4
           WHERE {of} AND o.sequence = ANY($5::text[]) RETURNING sequence)
         SELECT sequence, count(*) FROM ended GROUP BY sequence"
    );
    let (mut sequences, mut discarded) = (Vec::new(), 0);
    for row in tx.query(&sql, params![ids, topic, tx.now.0, DISCARDED, locked]).await? {
        sequences.push(row.try_get(0)?);
        discarded += row.try_get::<_, i64>(1)?;
    }
    advance(tx, sequences).await?;
    Ok(discarded.unsigned_abs())
}

/// Records the results of attempts.
async fn ended(tx: &Tx, attempts: &[Attempt]) -> Job<()> {
    let ids: Vec<i64> = attempts.iter().map(|attempt| attempt.id as i64).collect();
    lock(tx, "o.id = ANY($1::int8[])", params![ids.clone()]).await?;
    let (mut numbers, mut delivered, mut given_up) = (vec![], vec![], vec![]);
    let (mut next, mut errors, mut unsent) = (vec![], vec![], vec![]);
    let (mut statuses, mut bodies, mut cuts) = (vec![], vec![], vec![]);
    for Attempt { attempt, end, .. } in attempts {
        let (again, error, reply) = match end {
            End::Delivered(reply) => (None, None, reply.as_ref()),
            End::Again { after, error } | End::Unsent { after, error } => {
                (Some((tx.now + *after).0), Some(error), None)
            }
            End::GivenUp { error, reply } => (None, Some(error), reply.as_ref()),
        };
        numbers.push(*attempt as i32);
        delivered.push(matches!(end, End::Delivered(_)));
        given_up.push(matches!(end, End::GivenUp { .. }));
        next.push(again);
        errors.push(error.map(|text| escaped(text).into_owned()));
        unsent.push(matches!(end, End::Unsent { .. }));
        statuses.push(reply.map(|r| i32::from(r.status)));
        bodies.push(reply.map(|r| r.body.as_slice()));
        cuts.push(reply.map(|r| r.cut));
    }
    // Of several results of one attempt, one that ends the message, or else the last.
    let sql = format!(
        "WITH e AS (SELECT DISTINCT ON (e.id) e.* FROM unnest($1::int8[], $2::int4[], $3::bool[],
             $4::bool[], $5::int8[], $6::text[], $7::bool[], $8::int4[], $9::bytea[], $10::bool[])
             WITH ORDINALITY e(id, attempt, delivered, given_up, next, error, unsent, status, body,
               cut, i)
           JOIN @.outbox t ON t.id = e.id AND t.attempts = e.attempt AND {PENDING}
           ORDER BY e.id, (e.delivered OR e.given_up) DESC, e.i DESC),
         o AS (UPDATE @.outbox t SET error = e.error, reply_status = e.status, reply_body = e.body,
             reply_cut = e.cut, attempts = t.attempts - e.unsent::int,
             delivered_at = CASE WHEN e.delivered THEN $11::int8 END,
             given_up_at = CASE WHEN e.given_up THEN $11::int8 END
           FROM e WHERE t.id = e.id AND t.attempts = e.attempt AND {PENDING}
           RETURNING t.id, t.sequence, e.next),
         due AS (UPDATE @.outbox_sequence s SET due = o.next, turn = o.id FROM o
           WHERE s.sequence = o.sequence AND o.next IS NOT NULL)
         SELECT sequence FROM o WHERE next IS NULL"
    );
    let recorded = params![
        ids, numbers, delivered, given_up, next, errors, unsent, statuses, bodies, cuts, tx.now.0
    ];
    advance(tx, tx.all(&sql, recorded, cell).await?).await
}

const DELIVERY: &str = "o.id, o.at, o.payload, o.delivered_at, o.given_up_at, o.attempts, o.error,
    o.reply_status, o.reply_body, o.reply_cut, o.no";

fn delivery(r: &Row) -> Job<Delivery> {
    let (delivered, given_up): (Option<i64>, Option<i64>) = (r.try_get(3)?, r.try_get(4)?);
    let status: Option<i32> = r.try_get(7)?;
    Ok(Delivery {
        id: r.try_get::<_, i64>(0)? as u64,
        sequence: r.try_get::<_, i64>(10)? as u64,
        emitted_at: Time(r.try_get(1)?),
        payload: r.try_get(2)?,
        state: match (delivered, given_up) {
            (Some(_), _) => State::Delivered,
            (None, Some(_)) => State::GivenUp,
            (None, None) => State::Pending,
        },
        attempts: r.try_get::<_, i32>(5)? as u32,
        error: r.try_get::<_, Option<String>>(6)?.map(plain),
        reply: match status {
            None => None,
            Some(status) => {
                Some(Reply { status: status as u16, body: r.try_get(8)?, cut: r.try_get(9)? })
            }
        },
        ended_at: delivered.or(given_up).map(Time),
    })
}

/// The latest message of each key among a task's own messages.
pub(super) async fn deliveries(
    view: &View<'_>,
    task: &TaskName,
    tenant: Option<&Tenant>,
    topic: &str,
    keys: &[String],
) -> Job<Vec<Option<Delivery>>> {
    let sql = format!(
        "SELECT {DELIVERY}, u.i FROM unnest($1::text[]) WITH ORDINALITY u(key, i)
         CROSS JOIN LATERAL (SELECT * FROM @.outbox o
           WHERE o.sequence = md5($2::text || E'\\x02' || $3::text || E'\\x02' || u.key)
             AND o.task = (SELECT id FROM @.task WHERE name = $4)
           ORDER BY o.no DESC LIMIT 1) o"
    );
    let mut found = vec![None; keys.len()];
    let (mut room, mut fetch) = (view.room(), Fetch::long());
    let mut from = 0;
    while from < keys.len() {
        let to = keys.len().min(from + fetch.rows(room.left()));
        let asked: Vec<_> = keys[from..to].iter().map(|key| escaped(key)).collect();
        let params = params![asked, tenant_text(tenant), escaped(topic), task.as_str()];
        let take = |row: &Row| {
            let weight = row.raw_size_bytes();
            room.take(weight)?;
            fetch.came(weight);
            let at = usize::try_from(row.try_get::<_, i64>(11)? - 1).unwrap_or(usize::MAX);
            if let Some(place) = found.get_mut(from.saturating_add(at)) {
                *place = Some(delivery(row)?);
            }
            Ok(true)
        };
        view.session.each(&sql, params, take).await?;
        from = to;
    }
    Ok(found)
}

/// Removes the oldest pending messages of a task and a topic. Messages that another transaction
/// removes are skipped.
pub(super) async fn drop_oldest(
    session: &Session,
    task: &TaskName,
    topic: &str,
    count: u32,
) -> Job<Pending> {
    let sql = "WITH gone AS (DELETE FROM @.outbox WHERE id IN (SELECT id FROM @.outbox
            WHERE delivered_at IS NULL AND given_up_at IS NULL AND topic = $1
              AND task = (SELECT id FROM @.task WHERE name = $2)
            ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED)
          RETURNING octet_length(key) + octet_length(payload) AS bytes)
        SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM gone";
    let asked = params![escaped(topic).into_owned(), task.as_str(), i64::from(count)];
    Ok(session.maybe(sql, asked, counted).await?.unwrap_or_default())
}

fn counted(row: &Row) -> Job<Pending> {
    let (messages, bytes): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Pending { messages: messages.unsigned_abs(), bytes: bytes.unsigned_abs() })
}

/// The pending messages of a topic, of a task or of none; counts at most this many.
pub(super) async fn pending(
    session: &Session,
    task: Option<&TaskName>,
    topic: &str,
    limit: u32,
) -> Job<Pending> {
    let sql = "SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM (
          SELECT octet_length(key) + octet_length(payload) AS bytes FROM @.outbox
          WHERE delivered_at IS NULL AND given_up_at IS NULL AND topic = $1
            AND CASE WHEN $2::text IS NULL THEN task IS NULL
                ELSE task = (SELECT id FROM @.task WHERE name = $2) END LIMIT $3) pending";
    let asked = params![escaped(topic).into_owned(), task.map(TaskName::as_str), i64::from(limit)];
    Ok(session.maybe(sql, asked, counted).await?.unwrap_or_default())
}

/// Messages, newest first.
pub(super) async fn messages(session: &Session, query: &MessageQuery) -> Job<Vec<Message>> {
    let state = match query.state {
        None => "true",
        Some(State::Pending) => "o.delivered_at IS NULL AND o.given_up_at IS NULL",
        Some(State::Delivered) => "o.delivered_at IS NOT NULL",
        Some(State::GivenUp) => "o.given_up_at IS NOT NULL",
    };
    let of = if query.history.is_some() { "o.history = $3" } else { "$3::int8 IS NULL" };
    let id = if query.id.is_some() { "o.id = $4" } else { "$4::int8 IS NULL" };
    let superseded = superseded();
    let sql = format!(
        "SELECT {DELIVERY}, (SELECT name FROM @.task WHERE id = o.task), o.tenant,
           o.topic, o.key, coalesce((SELECT s.due FROM @.outbox_sequence s
             WHERE s.sequence = o.sequence AND s.head = o.no), 0),
           {superseded}
         FROM @.outbox o WHERE ($1::text IS NULL OR o.topic = $1) AND {state} AND {of}
           AND {id} AND ($5::text IS NULL OR o.key = $5)
         ORDER BY o.id DESC LIMIT $2"
    );
    let row = |r: &Row| {
        Ok(Message {
            delivery: delivery(r)?,
            task: r.try_get::<_, Option<String>>(11)?.map(TaskName::from),
            tenant: tenant_of(r.try_get(12)?),
            topic: plain(r.try_get(13)?),
            key: plain(r.try_get(14)?),
            next_at: Time(r.try_get(15)?),
            superseded: r.try_get(16)?,
        })
    };
    let asked = params![
        query.topic.as_deref().map(escaped),
        i64::from(query.limit),
        query.history.map(u64::cast_signed),
        query.id.map(u64::cast_signed),
        query.key.as_deref().map(escaped)
    ];
    session.all(&sql, asked, row).await
}

/// Puts sequences right of which a message waits behind their head, or without one: somebody else has changed
/// rows. At most so many.
pub(super) async fn mend(tx: &Tx, limit: i64) -> Job<()> {
    let sql = "INSERT INTO @.outbox_sequence AS s (sequence, topic, last, head, due, turn)
        SELECT o.sequence, min(o.topic), max(o.no), min(o.no), $1::int8, min(o.id) FROM @.outbox o
        LEFT JOIN @.outbox_sequence s ON s.sequence = o.sequence
        WHERE o.delivered_at IS NULL AND o.given_up_at IS NULL
          AND (s.head IS NULL OR s.head > o.no OR s.last < o.no)
        GROUP BY o.sequence ORDER BY o.sequence COLLATE \"C\" LIMIT $2
        ON CONFLICT (sequence) DO UPDATE SET
          head = least(coalesce(s.head, excluded.head), excluded.head),
          last = greatest(s.last, excluded.last), due = excluded.due, turn = excluded.turn";
    tx.execute(sql, params![tx.now.0, limit]).await?;
    Ok(())
}

/// What waits and what was given up, by topic.
pub(super) async fn topics(
    session: &Session,
    topics_max: u32,
    count_max: u32,
) -> Job<Vec<OutboxTopic>> {
    let mut topics: BTreeMap<String, OutboxTopic> = BTreeMap::new();
    let next = "SELECT o.topic, o.at, o.error, (SELECT count(*) FROM (SELECT FROM @.outbox c
          WHERE c.delivered_at IS NULL AND c.given_up_at IS NULL AND c.topic = o.topic LIMIT $2) counted)
        FROM @.outbox o WHERE o.delivered_at IS NULL AND o.given_up_at IS NULL AND o.topic > $1
        ORDER BY o.topic, o.id LIMIT 1";
    let mut last = String::new();
    while topics.len() < topics_max as usize
        && let Some(row) = session.row(next, params![last, i64::from(count_max)]).await?
    {
        last = row.try_get(0)?;
        let found = topics.entry(plain(last.clone())).or_default();
        found.oldest = Some(Time(row.try_get(1)?));
        found.waiting_error = row.try_get::<_, Option<String>>(2)?.map(plain);
        found.waiting = row.try_get::<_, i64>(3)?.unsigned_abs();
    }
    let next = "SELECT f.topic, (SELECT count(*) FROM (SELECT FROM @.feed c WHERE c.topic = f.topic LIMIT $2) counted)
        FROM @.feed f WHERE f.topic > $1 ORDER BY f.topic LIMIT 1";
    let (mut last, mut count) = (String::new(), 0);
    while count < topics_max
        && let Some(row) = session.row(next, params![last, i64::from(count_max)]).await?
    {
        (last, count) = (row.try_get(0)?, count + 1);
        let found = topics.entry(plain(last.clone())).or_default();
        found.inserted = row.try_get::<_, i64>(1)?.unsigned_abs();
    }
    let next = "SELECT topic FROM @.outbox WHERE given_up_at IS NOT NULL AND topic > $1
        ORDER BY topic, id LIMIT 1";
    let superseded = superseded();
    // In the order of the index of both: whatever the statistics say, none is read that was not given up.
    let latest = format!(
        "SELECT o.given_up_at, o.error FROM (SELECT * FROM @.outbox
           WHERE given_up_at IS NOT NULL AND topic >= $1 AND topic <= $1
           ORDER BY topic DESC, id DESC LIMIT {GIVEN_UP_READ_MAX}) o
         WHERE o.error IS DISTINCT FROM '{DISCARDED}' AND NOT {superseded} ORDER BY o.id DESC"
    );
    let (mut last, mut count) = (String::new(), 0);
    while count < topics_max
        && let Some(row) = session.row(next, params![last.clone()]).await?
    {
        (last, count) = (row.try_get(0)?, count + 1);
        for row in session.query(&latest, params![last.clone()]).await? {
            let found = topics.entry(plain(last.clone())).or_default();
            found.given_up += 1;
            if found.last_given_up.is_none() {
                let error = row.try_get::<_, Option<String>>(1)?.unwrap_or_default();
                found.last_given_up = Some((Time(row.try_get(0)?), plain(error)));
            }
        }
    }
    Ok(topics.into_iter().map(|(topic, found)| OutboxTopic { topic, ..found }).collect())
}
