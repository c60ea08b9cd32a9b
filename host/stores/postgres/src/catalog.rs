//! Reads the database's catalog: columns with their types, keys, indexes.

use std::collections::BTreeMap;

use super::error::Job;
use super::session::{Session, params};
use besom_tables::check::Index;

/// A column of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnFound {
    pub(super) name: String,
    /// The name of its type in `pg_type`; of a domain, its base type's.
    pub(super) ty: String,
    /// The type as used in a cast, without a length; for a domain, its base type.
    pub(super) full: String,
    /// Whether it may hold NULL.
    pub(super) nullable: bool,
    /// Whether a `numeric` contains only whole numbers of 64 bits: its scale is 0, and it has at most 18
    /// digits.
    pub(super) whole: bool,
    /// The declared type: a domain's name, with a length.
    pub(super) declared: String,
    /// Whether this role may read it.
    pub(super) readable: bool,
    /// Whether the database computes it.
    pub(super) generated: bool,
    /// Whether it is an identity column of which an UPDATE can set no value.
    pub(super) fixed: bool,
    /// Whether a value is the same after its spelling was read by the same type: it is no computed one, and its
    /// type is an enum or one of PostgreSQL's own that does not depend on the locale.
    pub(super) exact: bool,
    /// Its collation, if texts that it calls equal may differ; otherwise empty.
    pub(super) loose: String,
}

/// A foreign key that is enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForeignKey {
    pub(super) target: u32,
    pub(super) own: Vec<String>,
    pub(super) theirs: Vec<String>,
}

/// A table of the database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TableFound {
    pub(super) oid: u32,
    /// Its quoted name with its schema, which means this table whatever the search path is.
    pub(super) name: String,
    /// `r` table, `p` partitioned, `v` view, `m` materialized view, `f` foreign.
    pub(super) kind: String,
    /// Whether other tables inherit from it, other than partitions: their rows are read and changed with
    /// its own.
    pub(super) inherited: bool,
    /// The tables of which it is a partition.
    pub(super) within: Vec<u32>,
    /// Whether a trigger may keep a row from being deleted.
    pub(super) keeps_rows: bool,
    pub(super) columns: Vec<ColumnFound>,
    pub(super) indexes: Vec<Index>,
    pub(super) foreign_keys: Vec<ForeignKey>,
}

impl TableFound {
    /// A column by name.
    pub(super) fn column(&self, name: &str) -> Option<&ColumnFound> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// The existing tables among these (quoted) names.
pub(super) async fn tables(
    session: &Session,
    names: &[String],
) -> Job<BTreeMap<String, TableFound>> {
    let mut found: BTreeMap<String, TableFound> = BTreeMap::new();
    let mut by_oid: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let rows = session
        .query(
            "SELECT n, c.oid, c.relkind::text, format('%I.%I', s.nspname, c.relname),
               c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid),
               ARRAY(SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) a WHERE a.relid <> c.oid),
               EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND NOT g.tgisinternal
                 AND g.tgenabled IN ('O', 'A') AND g.tgtype & 11 = 11)
             FROM unnest($1::text[]) n JOIN pg_class c ON c.oid = to_regclass(n)
             JOIN pg_namespace s ON s.oid = c.relnamespace",
            params![names.to_vec()],
        )
        .await?;
    for row in rows {
        let (name, oid): (String, u32) = (row.try_get(0)?, row.try_get(1)?);
        by_oid.entry(oid).or_default().push(name.clone());
        let table = TableFound {
            oid,
            kind: row.try_get(2)?,
            name: row.try_get(3)?,
            inherited: row.try_get(4)?,
            within: row.try_get(5)?,
            keeps_rows: row.try_get(6)?,
            ..TableFound::default()
        };
        found.insert(name, table);
    }
    let oids: Vec<u32> = by_oid.keys().copied().collect();
    let mut each = |oid: u32, add: &dyn Fn(&mut TableFound)| {
        for name in by_oid.get(&oid).into_iter().flatten() {
            if let Some(table) = found.get_mut(name) {
                add(table);
            }
        }
    };
    for row in session.query(COLUMNS, params![oids.clone()]).await? {
        let column = ColumnFound {
            name: row.try_get(1)?,
            ty: row.try_get(2)?,
            full: row.try_get(3)?,
            nullable: row.try_get(4)?,
            whole: row.try_get(5)?,
            declared: row.try_get(6)?,
            readable: row.try_get(7)?,
            generated: row.try_get(8)?,
            loose: row.try_get(9)?,
            exact: row.try_get(10)?,
            fixed: row.try_get(11)?,
        };
        each(row.try_get(0)?, &|table| table.columns.push(column.clone()));
    }
    for row in session.query(INDEXES, params![oids.clone()]).await? {
        let (unique, columns, primary) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        let Some(not_null) = row.try_get(4)? else { continue };
        let index = Index { unique, columns, primary, not_null };
        each(row.try_get(0)?, &|table| table.indexes.push(index.clone()));
    }
    for row in session.query(FOREIGN_KEYS, params![oids.clone()]).await? {
        let key =
            ForeignKey { target: row.try_get(1)?, own: row.try_get(2)?, theirs: row.try_get(3)? };
        each(row.try_get(0)?, &|table| table.foreign_keys.push(key.clone()));
    }
    Ok(found)
}

// With a modifier of -1 `char(8)` is `bpchar` and `bit(8)` is `"bit"`. Without a modifier they
// are `character` and `bit`, which in a cast mean a length of one, to which values are cut.
const COLUMNS: &str = "SELECT a.attrelid, a.attname::text,
    coalesce(b.typname, t.typname)::text, format_type(coalesce(b.oid, t.oid), -1),
    NOT a.attnotnull,
    coalesce(b.oid, t.oid) = 'numeric'::regtype AND m.typmod >= 4 AND (m.typmod - 4) & 2047 = 0
      AND (m.typmod - 4) >> 16 <= 18,
    format_type(a.atttypid, a.atttypmod), has_column_privilege(a.attrelid, a.attnum, 'SELECT'),
    a.attgenerated <> '',
    coalesce((SELECT l.oid::regcollation::text FROM pg_collation l
              WHERE l.oid = a.attcollation AND NOT l.collisdeterministic), ''),
    a.attgenerated = '' AND (t.typtype = 'e' OR t.typtype IN ('b', 'r', 'm')
      AND t.typnamespace = 'pg_catalog'::regnamespace AND t.typname NOT IN ('money', '_money')),
    a.attidentity = 'a'
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_type b ON b.oid = t.typbasetype AND t.typtype = 'd'
  CROSS JOIN LATERAL (SELECT CASE WHEN b.oid IS NULL THEN a.atttypmod ELSE t.typtypmod END) m(typmod)
  WHERE a.attrelid = ANY($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
  ORDER BY a.attrelid, a.attnum";

// Equal is what the collation of the column says, so that of a unique index has to say so, too.
const INDEXES: &str = "SELECT i.indrelid, i.indisunique AND NOT EXISTS (
      SELECT FROM unnest(i.indkey::int2[], i.indcollation::oid[]) k(no, of)
      JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.no
      JOIN pg_collation l ON l.oid = a.attcollation
      WHERE NOT l.collisdeterministic AND k.of <> a.attcollation),
    ARRAY(SELECT coalesce(a.attname::text, '') FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(no, at)
          LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.no
          WHERE k.at <= i.indnkeyatts ORDER BY k.at),
    i.indisprimary,
    -- pg_get_expr would wait for whoever has locked the table.
    CASE WHEN i.indpred IS NULL THEN ARRAY[]::text[]
      WHEN i.indpred::text ~ ('^(\\{BOOLEXPR :boolop and :args )?\\(?(\\{NULLTEST :arg \\{VAR [^{}]*\\} :nulltesttype 1 '
        || ':argisrow false :location -?[0-9]+\\} ?)+\\)?( :location -?[0-9]+\\})?$')
      THEN ARRAY(SELECT a.attname::text
        FROM regexp_matches(i.indpred::text, ':varattno ([0-9]+)', 'g') m(no)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = m.no[1]::int2) END
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
  WHERE i.indrelid = ANY($1::oid[]) AND i.indisvalid AND m.amname = 'btree'
  ORDER BY c.relname";

const FOREIGN_KEYS: &str = "SELECT f.conrelid, f.confrelid,
    ARRAY(SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY k(no, at)
          JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.no ORDER BY k.at),
    ARRAY(SELECT a.attname::text FROM unnest(f.confkey) WITH ORDINALITY k(no, at)
          JOIN pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.no ORDER BY k.at)
  FROM pg_constraint f WHERE f.contype = 'f' AND f.conrelid = ANY($1::oid[])";
