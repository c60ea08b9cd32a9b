//! The fence, and the owners of partitions.

use besom_core::ids::{FencingToken, Incarnation, OwnerEpoch, Partition, Term};
use besom_core::time::Time;
use rusqlite::{Connection, OptionalExtension, params};

use super::error::Job;
use super::statements::Statements;
use super::writer::Tx;
use besom_ports::store::{Claim, Error, Fence, PartitionRow, Raised, RingPosition};

/// Refuses a writer whose term and token are not the fence's. This is the first statement of every
/// leader's write.
pub(super) fn check_fence(tx: &Tx<'_>, fence: &FencingToken) -> Job<()> {
    let held = tx.conn.exists(
        "SELECT 1 FROM besom_fence WHERE term = ?1 AND token_hash = ?2",
        params![fence.term.0, fence.token_hash],
    )?;
    if held { Ok(()) } else { Err(Error::Fenced.into()) }
}

/// Refuses a writer that follows a term below the fence.
pub(super) fn not_above(tx: &Tx<'_>, term: Term) -> Job<()> {
    let above = tx.conn.exists("SELECT 1 FROM besom_fence WHERE term > ?1", [term.0])?;
    if above { Err(Error::Fenced.into()) } else { Ok(()) }
}

/// Raises the fence and takes partitions over.
pub(super) fn raise_fence(
    tx: &mut Tx<'_>,
    fence: &FencingToken,
    node: &Incarnation,
    partitions: Option<&[Partition]>,
) -> Job<Raised> {
    let raised = tx.conn.execute(
        "INSERT INTO besom_fence VALUES (1, ?1, ?2, ?3, ?4)
         ON CONFLICT (singleton) DO UPDATE SET term = excluded.term,
           token_hash = excluded.token_hash, node = excluded.node, raised_at = excluded.raised_at
         WHERE term < excluded.term",
        params![fence.term.0, fence.token_hash, node.as_str(), tx.now.0],
    )?;
    if raised == 0 {
        return Err(Error::Fenced.into());
    }
    tx.conn.execute(
        "INSERT INTO besom_term VALUES (?1, ?2, ?3)",
        params![fence.term.0, node.as_str(), tx.now.0],
    )?;
    let taken =
        |r: &rusqlite::Row<'_>| -> Job<_> { Ok((Partition(r.get(0)?), OwnerEpoch(r.get(1)?))) };
    let set = "UPDATE besom_partition SET owner = ?1, owner_epoch = owner_epoch + 1";
    let mut owned = match partitions {
        None => tx.conn.all(&format!("{set} RETURNING id, owner_epoch"), [node.as_str()], taken)?,
        Some(partitions) => {
            let one = format!("{set} WHERE id = ?2 RETURNING id, owner_epoch");
            let take = |partition: &Partition| {
                let row = tx.conn.first(&one, params![node.as_str(), partition.0], taken)?;
                let none = || Error::Invalid(format!("the store has no partition {partition}"));
                Ok(row.ok_or_else(none)?)
            };
            partitions.iter().map(take).collect::<Job<_>>()?
        }
    };
    owned.sort_unstable();
    Ok(Raised { owned })
}

pub(super) fn partition_table(conn: &Connection) -> Job<Vec<PartitionRow>> {
    let all =
        "SELECT id, owner, owner_epoch, ring_term, ring_revision FROM besom_partition ORDER BY id";
    conn.all(all, [], |r| {
        let owner: Option<String> = r.get(1)?;
        Ok(PartitionRow {
            partition: Partition(r.get(0)?),
            owner: owner.map(Incarnation::from),
            epoch: OwnerEpoch(r.get(2)?),
            at: RingPosition { term: Term(r.get(3)?), revision: r.get(4)? },
        })
    })
}

pub(super) fn claim_partitions(
    tx: &mut Tx<'_>,
    node: &Incarnation,
    at: RingPosition,
    claims: &[Claim],
) -> Job<Vec<(Partition, OwnerEpoch)>> {
    let mut claim = tx.conn.prepare_cached(
        "UPDATE besom_partition SET owner = ?1, owner_epoch = owner_epoch + 1,
           ring_term = ?2, ring_revision = ?3
         WHERE id = ?4 AND owner_epoch = ?5 AND (ring_term, ring_revision) < (?2, ?3)
         RETURNING owner_epoch",
    )?;
    let mut taken = Vec::new();
    for one in claims {
        let values = params![node.as_str(), at.term.0, at.revision, one.partition.0, one.seen.0];
        let epoch: Option<u64> = claim.query_row(values, |r| r.get(0)).optional()?;
        taken.extend(epoch.map(|epoch| (one.partition, OwnerEpoch(epoch))));
    }
    Ok(taken)
}

/// The current fence.
pub(super) fn fence(conn: &Connection) -> Job<Option<Fence>> {
    conn.first("SELECT term, node, raised_at FROM besom_fence", [], raised)
}

/// All raises of the fence, newest first.
pub(super) fn terms(conn: &Connection, limit: u32) -> Job<Vec<Fence>> {
    let newest = "SELECT term, node, raised_at FROM besom_term ORDER BY term DESC LIMIT ?1";
    conn.all(newest, [limit], raised)
}

fn raised(r: &rusqlite::Row<'_>) -> Job<Fence> {
    Ok(Fence {
        term: Term(r.get(0)?),
        node: r.get::<_, String>(1)?.into(),
        raised_at: Time(r.get(2)?),
    })
}
