//! Reads by key and by conditions.

use besom_core::ids::Tenant;
use besom_core::proposal::Condition;
use besom_core::value::{Kind, Row, RowKey};

use super::conditions::Conditions;
use super::error::{Job, invalid};
use super::guards::matched;
use super::mapping::{Refusal, Table, quote};
use super::plan::refuse_full_scan;
use super::session::Param;
use super::set::Set;
use super::snapshot::View;
use super::units;
use super::values::{Cell, Form};
use besom_tables::encoding::Round;

/// The named columns as they are read, and their forms.
pub(super) fn selected(
    table: &Table,
    columns: &[String],
) -> Result<(Vec<String>, Vec<Form>), Refusal> {
    let (mut read, mut forms) = (Vec::new(), Vec::new());
    for name in columns {
        let form = table.form(name)?;
        read.push(form.read(&format!("t.{}", quote(name))));
        forms.push(form.clone());
    }
    Ok((read, forms))
}

/// Rows by key.
pub(super) async fn get_many(
    view: &View<'_>,
    tenant: Option<&Tenant>,
    collection: &str,
    keys: &[RowKey],
    columns: &[String],
) -> Job<Vec<Option<Row>>> {
    let table = view.mapping.table(collection).map_err(invalid)?;
    let (mut read, forms) = selected(table, columns).map_err(invalid)?;
    // Without a tenant, the key finds the row in any tenant.
    let mut by = table.key_columns().map_err(invalid)?;
    let everybody = tenant.is_none() && table.tenant.is_some();
    if everybody {
        by.remove(0);
    }
    let mut found: Vec<Option<Row>> = vec![None; keys.len()];
    read.insert(0, "u.i".to_owned());
    let (mut room, mut fetch) = (view.room(), Fetch::of(&forms));
    let (mut from, mut suspect) = (0, None);
    while from < keys.len() {
        let to = keys.len().min(from + fetch.rows(room.left()));
        let mut set = Set::new(by.iter().map(|(_, form)| form.wire).collect());
        for (at, key) in keys.iter().enumerate().take(to).skip(from) {
            let cells =
                if everybody { plain_key(table, key) } else { table.key_cells(tenant, key) };
            set.push(at, cells.map_err(invalid)?);
        }
        let sql = format!(
            "SELECT {} FROM {} JOIN {} t ON {}",
            read.join(", "),
            set.sql(1),
            table.name,
            matched(&by)
        );
        let params = set.params();
        if from == 0 {
            refuse_full_scan(view.session, view.good, table, &sql, &params).await?;
        }
        let take = |row: &tokio_postgres::Row| {
            let weight = row.raw_size_bytes();
            room.take(weight)?;
            fetch.came(weight);
            let at = row.try_get::<_, i32>(0)? as usize;
            if found[at].is_some() {
                // Which of them is meant cannot be known.
                return Err(invalid(table.collection.ambiguous()));
            }
            let value = |(i, form): (usize, &Form)| form.value_in(row, i + 1);
            let row = forms.iter().enumerate().map(value).collect::<Result<Row, _>>()?;
            suspect = suspect.or_else(|| units::suspect(&forms, &row));
            found[at] = Some(row);
            Ok(true)
        };
        view.session.each(&sql, params, take).await?;
        from = to;
    }
    if let Some(at) = suspect {
        units::refuse(view.session, table, &columns[at]).await?;
    }
    Ok(found)
}

/// How many rows are requested at once: few until their length is known.
pub(super) struct Fetch {
    first: usize,
    came: u64,
    bytes: u64,
}

impl Fetch {
    /// The first request for rows whose values may be long.
    const FIRST: usize = 16;
    /// The first request for rows with short values.
    const FIRST_SHORT: usize = 256;
    /// The maximum per request.
    const MAX: usize = 4_096;

    /// For rows whose values may be long.
    pub(super) fn long() -> Fetch {
        Fetch { first: Fetch::FIRST, came: 0, bytes: 0 }
    }

    /// For rows of these columns.
    pub(super) fn of(columns: &[Form]) -> Fetch {
        let short = |form: &Form| match form.kind {
            Kind::Bool
            | Kind::Integer
            | Kind::Float
            | Kind::Timestamp
            | Kind::Uuid
            | Kind::Date => true,
            Kind::Decimal | Kind::Text | Kind::Bytes | Kind::Json => false,
        };
        let first = if columns.iter().all(short) { Self::FIRST_SHORT } else { Self::FIRST };
        Fetch { first, came: 0, bytes: 0 }
    }

    /// Records a row of this size.
    pub(super) fn came(&mut self, bytes: usize) {
        self.came += 1;
        self.bytes += bytes as u64;
    }

    /// The number of rows to request next, with room for this many bytes. While none has come, more
    /// are requested each time: most of the named rows may not exist.
    pub(super) fn rows(&mut self, left: u64) -> usize {
        match self.bytes.checked_div(self.came) {
            None => {
                let first = self.first;
                self.first = (first * 4).min(Self::MAX);
                first
            }
            Some(each) => {
                usize::try_from(left / each.max(1) + 1).unwrap_or(Self::MAX).min(Self::MAX)
            }
        }
    }
}

fn plain_key(table: &Table, key: &RowKey) -> Result<Vec<Cell>, Refusal> {
    let columns = &table.collection.key;
    table.collection.require_key(key.len())?;
    columns.iter().zip(key).map(|(name, value)| table.cell(name, value, Round::Down)).collect()
}

/// The number of rows that match all conditions, up to a limit.
pub(super) async fn count(
    view: &View<'_>,
    tenant: Option<&Tenant>,
    collection: &str,
    conditions: &[Condition],
    limit: u32,
) -> Job<u32> {
    let table = view.mapping.table(collection).map_err(invalid)?;
    let mut sql = format!("SELECT 1 FROM {} t WHERE ", table.name);
    let mut params: Vec<Param<'_>> = Vec::new();
    match (tenant, &table.tenant) {
        (Some(tenant), Some((name, form))) => {
            params.push(Box::new(Cell::Text(tenant.as_str().to_owned())));
            sql.push_str(&form.equals(&format!("t.{name}"), "$1::text"));
        }
        _ => sql.push_str("true"),
    }
    let of = Conditions::of(table, conditions).map_err(invalid)?;
    sql.push_str(&of.numbered(&mut params));
    sql.push_str(&format!(" LIMIT {limit}"));
    // Without any condition the first rows answer, however they are found.
    if !(conditions.is_empty() && params.is_empty()) {
        refuse_full_scan(view.session, view.good, table, &sql, &params).await?;
    }
    // Scans update their counters within the transaction, and the select list is evaluated from
    // left to right.
    let looked = looked_at(table);
    let sql = format!("SELECT {looked}, (SELECT count(*)::int8 FROM ({sql}) found), {looked}");
    let row = view.session.row(&sql, params).await?;
    let row = row.ok_or_else(|| invalid("the database gave no answer"))?;
    view.look(row.try_get::<_, i64>(2)? - row.try_get::<_, i64>(0)?);
    Ok(u32::try_from(row.try_get::<_, i64>(1)?).unwrap_or(limit))
}

/// The rows of a table that this transaction's scans have read so far, as SQL: from the table's
/// counters and those of its indexes, because an index-only scan is counted by its index. Rows
/// behind a view are unknown.
pub(super) fn looked_at(table: &Table) -> String {
    let name = format!("'{}'::regclass", table.name.replace('\'', "''"));
    let of = |relation: &str| {
        format!(
            "pg_catalog.pg_stat_get_xact_tuples_returned({relation})
             + greatest(pg_catalog.pg_stat_get_xact_tuples_fetched({relation}),
                 (SELECT coalesce(sum(pg_catalog.pg_stat_get_xact_tuples_returned(x.indexrelid)),
                    0)::int8 FROM pg_catalog.pg_index x WHERE x.indrelid = {relation}))"
        )
    };
    match table.found.as_ref().map(|found| found.kind.as_str()) {
        Some("r") => of(&name),
        Some("p") => format!(
            "(SELECT coalesce(sum({}), 0)::int8 FROM pg_catalog.pg_partition_tree({name}) p
              WHERE p.isleaf)",
            of("p.relid")
        ),
        _ => "0::int8".to_owned(),
    }
}
