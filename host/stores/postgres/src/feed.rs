//! Messages of the product itself: entered through the host, or inserted into the table `feed`.
//!
//! A transaction locks the rows of its sequences before it reads them, in the same order as commits do
//! (`ledger`), so that two of them number the messages of a key one after the other.

use std::borrow::Cow;
use std::collections::BTreeMap;

use besom_core::delivery::feed::{Judged, judge};
use besom_core::ids::{FencingToken, Tenant};

use super::clock::Clock;
use super::error::Job;
use super::session::{Session, Tx, cell, params};
use super::text::{escaped, tenant_text};
use besom_ports::store::{Entered, Error, FeedTopics, Offered, Result};

/// The sequence of a topic, a tenant and a key: as the column of `outbox` is generated.
const SEQUENCE: &str = "md5($1::text || E'\\x02' || $2::text || E'\\x02' || $3::text)";

/// Stores messages, and judges their numbers.
pub(super) async fn enter(
    session: Session,
    clock: &Clock,
    offered: &[Offered],
) -> Result<Vec<Entered>> {
    let tx = Tx::begin(session, clock).await?;
    let done = entered(&tx, offered).await;
    tx.finish(done).await
}

async fn entered(tx: &Tx, offered: &[Offered]) -> Job<Vec<Entered>> {
    let (mut topics, mut tenants, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for one in offered {
        topics.push(escaped(&one.topic));
        tenants.push(tenant_text(one.tenant.as_ref()));
        keys.push(escaped(&one.key));
    }
    let sequences: Vec<String> = tx
        .all(
            "SELECT md5(u.tenant || E'\\x02' || u.topic || E'\\x02' || u.key)
             FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY
               u(tenant, topic, key, i) ORDER BY u.i",
            params![tenants.clone(), topics.clone(), keys.clone()],
            cell,
        )
        .await?;
    let mut known = BTreeMap::new();
    for row in tx
        .query(
            "INSERT INTO @.outbox_sequence AS of (sequence, topic, last)
             SELECT sequence COLLATE \"C\" AS s, min(topic), 0
             FROM unnest($1::text[], $2::text[]) u(sequence, topic) GROUP BY s ORDER BY s
             ON CONFLICT (sequence) DO UPDATE SET last = of.last RETURNING sequence, last, entered",
            params![sequences.clone(), topics.clone()],
        )
        .await?
    {
        let (sequence, last, entered): (String, i64, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        known.insert(sequence, (last, entered as u64, 0));
    }
    // A row that is new here may have been deleted: its sequence goes on after the messages that are there.
    let new: Vec<&str> =
        known.iter().filter(|(_, of)| of.0 == 0).map(|(name, _)| name.as_str()).collect();
    if !new.is_empty() {
        let sql = "SELECT sequence, max(no), coalesce(max(entered), 0) FROM @.outbox
            WHERE sequence = ANY($1::text[]) GROUP BY sequence";
        for row in tx.query(sql, params![new]).await? {
            let (last, entered): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
            known.insert(row.try_get(0)?, (last, entered as u64, 0));
        }
    }
    let (mut answers, mut repeated) = (Vec::new(), Vec::new());
    let (mut at, mut numbers, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (one, sequence)) in offered.iter().zip(&sequences).enumerate() {
        let (last, highest, turn) = known.entry(sequence.clone()).or_default();
        answers.push(match judge(*highest, one.number) {
            Judged::Gap(missing) => Entered::Gap { missing },
            Judged::Known(number) => {
                repeated.push((place, number));
                Entered::Repeated
            }
            Judged::New(number) => {
                let full = || Error::Invalid(format!("the key {} has no number left", one.key));
                *last = last.checked_add(1).ok_or_else(full)?;
                *highest = number;
                if *turn == 0 {
                    *turn = place as i64 + 1;
                }
                at.push(place);
                numbers.push(*last);
                own.push(one.number.map(|number| number as i64));
                Entered::Stored { sequence: *last as u64 }
            }
        });
    }
    let payloads: Vec<&[u8]> = at.iter().map(|place| offered[*place].payload.as_slice()).collect();
    let of = |texts: &[Cow<'_, str>]| -> Vec<String> {
        at.iter().map(|place| texts[*place].clone().into_owned()).collect()
    };
    tx.execute(
        "INSERT INTO @.outbox (id, history, topic, tenant, key, no, entered, payload, at)
         SELECT nextval('@.number'), 0, n.* FROM (
           SELECT u.topic, u.tenant, u.key, u.no, u.entered, u.payload, $7::int8
           FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::int8[], $6::bytea[])
             WITH ORDINALITY u(topic, tenant, key, no, entered, payload, i) ORDER BY u.i) n",
        params![of(&topics), of(&tenants), of(&keys), numbers, own, payloads, tx.now.0],
    )
    .await?;
    let (mut names, mut lasts, mut highest, mut turns) = (vec![], vec![], vec![], vec![]);
    for (sequence, (last, entered, turn)) in known {
        names.push(sequence);
        lasts.push(last);
        highest.push(entered as i64);
        turns.push(turn);
    }
    tx.execute(
        "UPDATE @.outbox_sequence of SET last = u.last, entered = u.entered,
           head = coalesce(of.head, of.last + 1),
           due = CASE WHEN of.head IS NULL THEN $4::int8 ELSE of.due END,
           turn = CASE WHEN of.head IS NULL THEN u.turn ELSE of.turn END
         FROM unnest($1::text[], $2::int8[], $3::int8[], $5::int8[]) u(sequence, last, entered, turn)
         WHERE of.sequence = u.sequence AND of.last < u.last",
        params![names, lasts, highest, tx.now.0, turns],
    )
    .await?;
    // After the writes: a number may be repeated in the same call.
    for (place, number) in repeated {
        let sql = "SELECT payload = $3 FROM @.outbox WHERE sequence = $1 AND entered = $2";
        let asked =
            params![sequences[place].clone(), number as i64, offered[place].payload.clone()];
        if tx.maybe(sql, asked, cell).await? == Some(false) {
            answers[place] = Entered::Differs;
        }
    }
    Ok(answers)
}

/// The highest number that the product has given; 0: none.
pub(super) async fn last(
    session: &Session,
    topic: &str,
    tenant: Option<&Tenant>,
    key: &str,
) -> Job<u64> {
    let sql = format!("SELECT entered FROM @.outbox_sequence WHERE sequence = {SEQUENCE}");
    let asked = params![tenant_text(tenant), escaped(topic), escaped(key)];
    Ok(session.maybe::<i64>(&sql, asked, cell).await?.unwrap_or_default() as u64)
}

/// The topics of the rows; usually there are none.
pub(super) async fn topics(
    session: &Session,
    known: &[String],
    others_max: u32,
) -> Job<FeedTopics> {
    let sql = "SELECT u.topic FROM unnest($1::text[]) WITH ORDINALITY u(topic, i)
        WHERE EXISTS (SELECT 1 FROM @.feed f WHERE f.topic = u.topic) ORDER BY u.i";
    let known_found = session.all(sql, params![names(known)], cell).await?;
    let mut found = FeedTopics { known: known_found, others: Vec::new() };
    let sql = "SELECT f.topic FROM @.feed f WHERE f.topic > $1 ORDER BY f.topic LIMIT 1";
    let mut last = String::new();
    while found.others.len() < others_max as usize
        && let Some(topic) = session.maybe(sql, params![last], cell).await?
    {
        last = topic;
        if !known.contains(&last) {
            found.others.push(last.clone());
        }
    }
    Ok(found)
}

/// The topics that the table can have, as it has them.
fn names(topics: &[String]) -> Vec<&str> {
    topics.iter().map(String::as_str).filter(|topic| !topic.contains('\0')).collect()
}

/// Moves inserted messages to the outbox. Those that another transaction has locked come later.
pub(super) async fn collect(
    session: Session,
    clock: &Clock,
    fence: &FencingToken,
    topics: &[String],
    limit: u32,
    bytes: u64,
) -> Result<u64> {
    let tx = Tx::fenced(session, clock, fence).await?;
    let done = collected(&tx, topics, limit, bytes).await;
    tx.finish(done).await
}

async fn collected(tx: &Tx, topics: &[String], limit: u32, bytes: u64) -> Job<u64> {
    // The first of each topic, so that rows of topics that take none are not passed again and again.
    // By topic and id: with outdated statistics, PostgreSQL may choose the index of both for either.
    let sql = "WITH near AS (SELECT u.topic, f.id FROM unnest($1::text[]) u(topic)
          CROSS JOIN LATERAL (SELECT id FROM @.feed WHERE topic = u.topic ORDER BY id LIMIT $2) f),
        first AS (SELECT topic, id, octet_length(payload)::int8 AS size FROM @.feed
          WHERE (topic, id) IN (SELECT topic, id FROM near ORDER BY id LIMIT $2)
          ORDER BY id FOR UPDATE SKIP LOCKED),
        sized AS (SELECT topic, id, sum(size) OVER (ORDER BY id) - size AS before,
          sum(size) OVER (ORDER BY id) AS after FROM first)
        DELETE FROM @.feed WHERE (topic, id) IN (
          SELECT topic, id FROM sized WHERE before = 0 OR after <= $3::int8)
        RETURNING id, topic, tenant, key, payload";
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let mut rows = Vec::new();
    for row in tx.query(sql, params![names(topics), i64::from(limit), bytes]).await? {
        let offered = Offered {
            topic: row.try_get(1)?,
            tenant: row.try_get::<_, Option<String>>(2)?.map(Tenant::from),
            key: row.try_get(3)?,
            number: None,
            payload: row.try_get(4)?,
        };
        rows.push((row.try_get::<_, i64>(0)?, offered));
    }
    rows.sort_unstable_by_key(|(id, _)| *id);
    let offered: Vec<Offered> = rows.into_iter().map(|(_, offered)| offered).collect();
    if !offered.is_empty() {
        entered(tx, &offered).await?;
    }
    Ok(offered.len() as u64)
}
