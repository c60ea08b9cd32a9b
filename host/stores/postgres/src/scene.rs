//! What is known before rows are put back: what other tables refer to theirs, which triggers fire after a change, and
//! what was kept of the next items.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use besom_core::proposal::Restore;

use super::commit::Deferred;
use super::error::Job;
use super::mapping::{Mapping, Table, quote};
use super::session::{Session, params};

/// Maximum size of what is read of the next items at once, in bytes as it is packed.
const AHEAD_BYTES: i64 = 4 << 20;

/// The tables of the rows that a transaction puts back.
#[derive(Default)]
pub(super) struct Scene {
    /// The constraints that are checked after each statement.
    pub(super) deferred: Deferred,
    /// Tables, by number, with triggers that fire when a row is inserted or updated, and whether one fires after that.
    triggered: HashMap<u32, bool>,
    /// Tables, by number, with a key or unique constraint that may be deferred: no statement can pass over it.
    deferrable: HashSet<u32>,
    /// Tables, by number, whose rows nothing but a statement writes, in whatever partition they are.
    plain: HashSet<u32>,
    /// What refers to each table, by its number, and would be deleted or changed with a row of it.
    references: HashMap<u32, Vec<Reference>>,
    /// What was kept of history rows, packed.
    packed: HashMap<u64, Option<Vec<u8>>>,
}

/// Rows of a table refer to rows of another one.
#[derive(Clone)]
pub(super) struct Reference {
    /// The table that refers, as SQL names it.
    pub(super) of: String,
    /// Whether it is the same table.
    pub(super) is_own: bool,
    /// Pairs of quoted columns: its own, and the other's.
    pub(super) columns: Vec<(String, String)>,
    /// Whether this role may read it, and all of its rows.
    pub(super) sight: Sight,
}

/// Which rows of a table this role sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    All,
    /// Row-level security may hide some.
    Some,
    /// It has no privilege.
    None,
}

impl Scene {
    /// Of the rows of these items.
    pub(super) async fn of(
        session: &Session,
        mapping: &Mapping,
        restores: &[&Restore],
    ) -> Job<Scene> {
        let mut scene = Scene { deferred: Deferred::of(session).await?, ..Scene::default() };
        let names: BTreeSet<&String> =
            restores.iter().flat_map(|restore| &restore.collections).collect();
        let tables: BTreeMap<u32, &Table> = names
            .into_iter()
            .filter_map(|name| {
                let table = &**mapping.table(name).ok()?;
                Some((table.found.as_ref()?.oid, table))
            })
            .collect();
        let oids: Vec<u32> = tables.keys().copied().collect();
        for row in session.query(TRIGGERED, params![oids.clone()]).await? {
            scene.triggered.insert(row.try_get(0)?, row.try_get(1)?);
        }
        for row in session.query(PLAIN, params![oids.clone()]).await? {
            scene.plain.insert(row.try_get(0)?);
        }
        for row in session.query(DEFERRABLE, params![oids.clone()]).await? {
            scene.deferrable.insert(row.try_get(0)?);
        }
        for row in session.query(REFERRING, params![oids]).await? {
            let (own, theirs): (Vec<String>, Vec<String>) = (row.try_get(3)?, row.try_get(4)?);
            let quoted = own.iter().zip(&theirs).map(|(own, theirs)| (quote(own), quote(theirs)));
            let reference = Reference {
                of: row.try_get(1)?,
                is_own: row.try_get(2)?,
                columns: quoted.collect(),
                sight: match (row.try_get(5)?, row.try_get(6)?) {
                    (false, _) => Sight::None,
                    (true, true) => Sight::Some,
                    (true, false) => Sight::All,
                },
            };
            scene.references.entry(row.try_get(0)?).or_default().push(reference);
        }
        // Where there is no foreign key, the mapping may say what goes with a row.
        for (oid, table) in tables {
            for name in &table.collection.dependants {
                let Ok(of) = mapping.table(name) else { continue };
                for anchor in of.collection.anchors_in(&table.collection.name) {
                    let pair = |(own, theirs): (&String, &String)| (quote(own), quote(theirs));
                    let mut columns: Vec<_> =
                        anchor.columns.iter().zip(&table.collection.key).map(pair).collect();
                    if let (Some((own, _)), Some((theirs, _))) = (&of.tenant, &table.tenant) {
                        columns.push((own.clone(), theirs.clone()));
                    }
                    let is_own = of.name == table.name;
                    let (of, sight) = (of.name.clone(), Sight::All);
                    let reference = Reference { of, is_own, columns, sight };
                    scene.references.entry(oid).or_default().push(reference);
                }
            }
        }
        Ok(scene)
    }

    /// Reads what was kept of these items, as far as it is not too much.
    pub(super) async fn read_ahead(&mut self, session: &Session, restores: &[&Restore]) -> Job<()> {
        let ids = restores.iter().map(|restore| i64::try_from(restore.history).unwrap_or(i64::MAX));
        let ids: Vec<i64> = ids.collect();
        for row in session.query(AHEAD, params![ids, AHEAD_BYTES]).await? {
            self.packed.insert(row.try_get::<_, i64>(0)? as u64, row.try_get(1)?);
        }
        Ok(())
    }

    /// What was read ahead of a history row; `None`: it was not.
    pub(super) fn take(&mut self, history: u64) -> Option<Option<Vec<u8>>> {
        self.packed.remove(&history)
    }

    /// Whether a row of a table may be different as soon as the statement that has written it has ended.
    pub(super) fn is_triggered(&self, table: &Table) -> bool {
        let found = table.found.as_ref().and_then(|found| self.triggered.get(&found.oid));
        found.is_some_and(|after| *after)
    }

    /// Whether a row of a table may be written otherwise than a statement says, or not at all.
    pub(super) fn has_triggers(&self, table: &Table) -> bool {
        table.found.as_ref().is_some_and(|found| self.triggered.contains_key(&found.oid))
    }

    /// Whether rows of a table are written by statements alone.
    pub(super) fn is_plain(&self, table: &Table) -> bool {
        table.found.as_ref().is_some_and(|found| self.plain.contains(&found.oid))
    }

    /// Whether `ON CONFLICT` is refused for the table.
    pub(super) fn is_deferrable(&self, table: &Table) -> bool {
        table.found.as_ref().is_some_and(|found| self.deferrable.contains(&found.oid))
    }

    /// What refers to rows of a table.
    pub(super) fn references(&self, table: &Table) -> &[Reference] {
        let of = table.found.as_ref().and_then(|found| self.references.get(&found.oid));
        of.map_or(&[], Vec::as_slice)
    }
}

/// The bits of a trigger's type are documented in the catalog: insert or update; and neither before nor instead of it.
const TRIGGERED: &str = "SELECT t.tgrelid, bool_or(t.tgtype & 66 = 0) FROM pg_trigger t
  WHERE t.tgrelid = ANY($1::oid[]) AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
    AND t.tgtype & 20 <> 0 GROUP BY t.tgrelid";

/// Those of the tables that have neither triggers nor rules, nor have their partitions.
const PLAIN: &str = "SELECT c.oid FROM pg_class c
  WHERE c.oid = ANY($1::oid[]) AND c.relkind IN ('r', 'p') AND NOT EXISTS (
    SELECT FROM (SELECT c.oid UNION SELECT p.relid FROM pg_partition_tree(c.oid) p) t
    JOIN pg_class r ON r.oid = t.oid
    WHERE r.relhasrules OR r.relkind = 'f'
      OR EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = r.oid AND NOT g.tgisinternal))";

const DEFERRABLE: &str = "SELECT DISTINCT c.conrelid FROM pg_constraint c
  WHERE c.conrelid = ANY($1::oid[]) AND c.condeferrable AND c.contype IN ('p', 'u', 'x')";

/// Foreign keys that delete or change rows by themselves; those of partitions are their tables'.
const REFERRING: &str = "SELECT f.confrelid,
    (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = f.conrelid),
    f.conrelid = f.confrelid,
    ARRAY(SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY k(no, i)
      JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.no ORDER BY k.i),
    ARRAY(SELECT a.attname::text FROM unnest(f.confkey) WITH ORDINALITY k(no, i)
      JOIN pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.no ORDER BY k.i),
    has_table_privilege(f.conrelid, 'SELECT'), row_security_active(f.conrelid)
  FROM pg_constraint f
  WHERE f.contype = 'f' AND f.confdeltype IN ('c', 'n', 'd') AND f.conparentid = 0
    AND f.confrelid = ANY($1::oid[]) ORDER BY 1, 2, f.conname";

const AHEAD: &str = "SELECT id, undo FROM (
    SELECT h.id, h.undo, sum(h.undo_bytes) OVER (ORDER BY u.i) AS size
    FROM unnest($1::int8[]) WITH ORDINALITY u(id, i) JOIN @.history h ON h.id = u.id) s
  WHERE size <= $2::int8";
