//! The user's tables in the model: rows by tenant and key, with the constraints that a database
//! would enforce.
//!
//! A change takes effect entirely or is a [`Violation`], which fails its own item. The previous
//! state of what it touched is returned, for the before-images and for undoing an item whose later
//! change is a violation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use besom_core::collection::{Collection, Collections};
use besom_core::ids::Tenant;
use besom_core::proposal::{Change, Condition, Filter, ReadSet, Test};
use besom_core::value::{Field, Kind, RowKey, Value, is_decimal};
use besom_ports::compare::holds;

use besom_record::restore::{Answer, Ask, Did, Found};

use super::ordered::Ordered;
use super::view::keys_of;
use besom_ports::store::{BeforeImage, Left};

/// Why a guard or a change cannot be executed on these tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation(pub(super) String);

/// A row: a value for every column of its table.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    /// In ascending order, and shared by the rows of a table.
    names: Arc<[String]>,
    /// In the order of the names.
    values: Vec<Value>,
}

impl Columns {
    /// A row of nulls.
    fn empty(names: &Arc<[String]>) -> Columns {
        Columns { names: Arc::clone(names), values: vec![Value::Null; names.len()] }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.position(name).map(|at| &self.values[at])
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.position(name).map(|at| &mut self.values[at])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.names.iter().zip(&self.values)
    }
}

/// The identity of a row in its table; defines the order of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowId {
    pub(super) tenant: Option<Tenant>,
    pub(super) key: Vec<Ordered>,
}

impl RowId {
    pub(super) fn key(&self) -> RowKey {
        self.key.iter().map(|value| value.0.clone()).collect()
    }
}

/// One table.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) has_tenant: bool,
    pub(super) key: Vec<String>,
    pub(super) columns: BTreeMap<String, Kind>,
    /// The names of the columns.
    names: Arc<[String]>,
    pub(super) not_null: BTreeSet<String>,
    pub(super) rows: BTreeMap<Arc<RowId>, Arc<Columns>>,
}

/// The previous state of a row that a change has touched.
#[derive(Debug, Clone)]
pub(super) struct Touched {
    pub(super) collection: String,
    table: String,
    id: Arc<RowId>,
    before: Option<Arc<Columns>>,
    /// Whether it is the other place of a row that was moved.
    pub(super) is_copy: bool,
    /// Whether it was deleted as a dependant of another row.
    pub(super) is_dependant: bool,
    /// How it was left.
    pub(super) left: Left,
}

impl Touched {
    /// The before-image, with the mapped columns.
    pub(super) fn image(&self, collections: &Collections) -> BeforeImage {
        let mapped = collections.get(&self.collection);
        let fields = |row: &Arc<Columns>| -> Vec<Field> {
            row.iter()
                .filter(|(name, _)| mapped.is_some_and(|c| c.columns.contains_key(*name)))
                .map(|(name, value)| Field::new(name, value.clone()))
                .collect()
        };
        let row = self.before.as_ref().map(fields);
        BeforeImage {
            collection: self.collection.clone(),
            tenant: self.id.tenant.clone(),
            key: self.id.key(),
            stored: row.clone().unwrap_or_default(),
            row,
            left: self.left.clone(),
        }
    }
}

/// All tables, by name. Cloning is cheap: rows are shared until they are written.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables(BTreeMap<String, Arc<Table>>);

impl Tables {
    /// Creates a table for a collection; an existing one is not changed.
    pub(super) fn create(&mut self, collection: &Collection, not_null: &[&str]) {
        self.0.entry(collection.table.clone()).or_insert_with(|| {
            Arc::new(Table {
                has_tenant: collection.tenant.is_some(),
                key: collection.key.clone(),
                columns: collection.columns.iter().map(|(n, c)| (n.clone(), c.kind)).collect(),
                names: collection.columns.keys().cloned().collect(),
                not_null: not_null.iter().map(|&name| name.to_owned()).collect(),
                rows: BTreeMap::new(),
            })
        });
    }

    /// The number of rows of a collection, of all tenants.
    pub(super) fn rows_of(&self, collection: &Collection) -> usize {
        self.get(&collection.table).map_or(0, |table| table.rows.len())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Table> {
        self.0.get(name).map(Arc::as_ref)
    }

    /// The table of a collection.
    pub(super) fn of(&self, collection: &Collection) -> Result<&Table, Violation> {
        self.get(&collection.table)
            .ok_or_else(|| Violation(format!("the table {} does not exist", collection.table)))
    }

    /// The row with this key.
    pub(super) fn row(
        &self,
        collection: &Collection,
        tenant: Option<&Tenant>,
        key: &[Value],
    ) -> Result<Option<&Arc<Columns>>, Violation> {
        let id = row_id(collection, tenant, key)?;
        Ok(self.of(collection)?.rows.get(&id))
    }

    /// Whether a row of the tenant (none: of any tenant) meets all conditions.
    pub(super) fn exists(
        &self,
        collections: &Collections,
        tenant: Option<&Tenant>,
        filter: &Filter,
    ) -> Result<bool, Violation> {
        Ok(self.count(collections, tenant, filter, 1)? > 0)
    }

    /// The number of rows that match, counted up to `limit`.
    pub(super) fn count(
        &self,
        collections: &Collections,
        tenant: Option<&Tenant>,
        filter: &Filter,
        limit: usize,
    ) -> Result<usize, Violation> {
        let collection = collection(collections, &filter.collection)?;
        check_conditions(collection, &filter.conditions)?;
        let rows = visible(self.of(collection)?, collection, tenant);
        let matching = rows.filter(|(_, row)| meets(row, &filter.conditions));
        Ok(matching.take(limit).count())
    }

    /// Applies a change in the tenant entirely, or not at all.
    pub(super) fn apply(
        &mut self,
        collections: &Collections,
        tenant: Option<&Tenant>,
        change: &Change,
    ) -> Result<Vec<Touched>, Violation> {
        let mut touched = Vec::new();
        let applied = self.apply_to(collections, tenant, change, &mut touched);
        if applied.is_err() {
            self.restore(&touched);
        }
        applied.map(|()| touched)
    }

    /// Applies a change, and adds what it touches up to a violation.
    fn apply_to(
        &mut self,
        collections: &Collections,
        tenant: Option<&Tenant>,
        change: &Change,
        touched: &mut Vec<Touched>,
    ) -> Result<(), Violation> {
        match change {
            Change::Insert { collection: name, fields } => {
                let collection = collection(collections, name)?;
                let id = id_of_fields(collection, tenant, fields)?;
                if self.of(collection)?.rows.contains_key(&id) {
                    return Err(Violation(format!("a row with this key exists in {name}")));
                }
                touched.extend(self.put(collection, id, None, fields)?);
            }
            Change::Upsert { collection: name, fields } => {
                let collection = collection(collections, name)?;
                let id = id_of_fields(collection, tenant, fields)?;
                let before = self.of(collection)?.rows.get(&id).cloned();
                touched.extend(self.put(collection, id, before, fields)?);
            }
            Change::Update { collection: name, key, fields } => {
                let collection = collection(collections, name)?;
                let (id, before) = self.existing(collection, tenant, key)?;
                touched.extend(self.put(collection, id, Some(before), fields)?);
            }
            Change::Increment { collection: name, key, fields } => {
                let collection = collection(collections, name)?;
                let (id, before) = self.existing(collection, tenant, key)?;
                let sums = fields.iter().map(|field| sum(&before, field));
                let sums = sums.collect::<Result<Vec<_>, _>>()?;
                touched.extend(self.put(collection, id, Some(before), &sums)?);
            }
            Change::Delete { collection: name, key } => {
                let id = row_id(collection(collections, name)?, tenant, key)?;
                touched.extend(self.remove_all(collections, name, id)?);
            }
            Change::DeleteReadSet(set) => {
                let collection = collection(collections, &set.collection)?;
                for key in set.keys() {
                    let id = row_id(collection, tenant, &key)?;
                    touched.extend(self.remove_all(collections, &set.collection, id)?);
                }
            }
            Change::DeleteRange(range) => {
                let keys = keys_of(self, collections, tenant, range)?;
                let collection = collection(collections, &range.collection)?;
                for key in keys {
                    let id = row_id(collection, tenant, &key)?;
                    touched.extend(self.remove_all(collections, &range.collection, id)?);
                }
            }
            Change::UpdateRange { range, fields, increments } => {
                let keys = keys_of(self, collections, tenant, range)?;
                let collection = collection(collections, &range.collection)?;
                for key in keys {
                    let (id, before) = self.existing(collection, tenant, &key)?;
                    let sums = increments.iter().map(|field| sum(&before, field));
                    let all = fields.iter().cloned().map(Ok).chain(sums);
                    let all = all.collect::<Result<Vec<_>, _>>()?;
                    touched.extend(self.put(collection, id, Some(before), &all)?);
                }
            }
            Change::MoveRange { range, into } => {
                let keys = keys_of(self, collections, tenant, range)?;
                let from = collection(collections, &range.collection)?;
                let other = collection(collections, into)?;
                for key in keys {
                    let (id, row) = self.existing(from, tenant, &key)?;
                    let fields: Vec<Field> =
                        row.iter().map(|(name, value)| Field::new(name, value.clone())).collect();
                    let new = id_of_fields(other, tenant, &fields)?;
                    if self.of(other)?.rows.contains_key(&new) {
                        return Err(Violation(format!("a row with this key exists in {into}")));
                    }
                    let left = Left::Moved(into.clone());
                    touched.extend(self.remove(from, id)?.map(|gone| Touched { left, ..gone }));
                    let put = self.put(other, new, None, &fields)?.into_iter();
                    let copy = |put| Touched { is_copy: true, left: Left::Copy, ..put };
                    touched.extend(put.map(copy));
                }
                // The images of the copies follow.
                touched.sort_by_key(|touched| touched.is_copy);
            }
            // The outbox is not one of the user's tables, and rows are put back by the store.
            Change::Emit { .. } | Change::Restore(_) => {}
        }
        Ok(())
    }

    /// Executes a statement that puts rows back.
    pub(super) fn put_back(
        &mut self,
        collections: &Collections,
        ask: Ask<'_>,
        (touched, mark): (&mut Vec<Touched>, &mut usize),
    ) -> Result<Answer, Violation> {
        Ok(match ask {
            Ask::Mark => {
                *mark = touched.len();
                Answer::Done(Vec::new())
            }
            Ask::Back => {
                self.restore(&touched[*mark..]);
                touched.truncate(*mark);
                Answer::Done(Vec::new())
            }
            Ask::Keep => Answer::Done(Vec::new()),
            Ask::Look { collection: name, rows } => {
                let of = collection(collections, name)?;
                let mut found = Vec::new();
                for image in rows {
                    let row = self.row(of, image.tenant.as_ref(), &image.key)?;
                    found.push(
                        row.map(|row| Found { row: fields_of(row), holds: has(row, &image.left) }),
                    );
                }
                Answer::Looked(found)
            }
            Ask::Put { rows, exact } => {
                let mut did = Vec::new();
                for image in rows {
                    let of = collection(collections, &image.collection)?;
                    let id = row_id(of, image.tenant.as_ref(), &image.key)?;
                    if self.of(of)?.rows.contains_key(&id) {
                        let said = "a row with this key exists".to_owned();
                        did.push(if exact { Did::Refused(said) } else { Did::Taken });
                        continue;
                    }
                    let put = self.put(of, id, None, &image.stored)?;
                    let left = Left::As(image.stored.clone());
                    touched
                        .extend(put.into_iter().map(|put| Touched { left: left.clone(), ..put }));
                    did.push(Did::Put(None));
                }
                Answer::Done(did)
            }
            Ask::Set { rows } => {
                let mut did = Vec::new();
                for (image, fields) in rows {
                    let of = collection(collections, &image.collection)?;
                    let (id, before) = self.existing(of, image.tenant.as_ref(), &image.key)?;
                    let put = self.put(of, id, Some(before), &fields)?;
                    let left = Left::As(fields);
                    touched
                        .extend(put.into_iter().map(|put| Touched { left: left.clone(), ..put }));
                    did.push(Did::Set(None));
                }
                Answer::Done(did)
            }
            Ask::Remove { collection: name, rows } => {
                let of = collection(collections, name)?;
                let mut did = Vec::new();
                for image in rows {
                    let id = row_id(of, image.tenant.as_ref(), &image.key)?;
                    if let Some(other) = self.refers(collections, of, &id)? {
                        let why = format!(
                            "rows of {other:?} refer to it, which are not part of this undo"
                        );
                        did.push(Did::Refused(why));
                        continue;
                    }
                    let row = self.of(of)?.rows.get(&id).map(fields_of);
                    let is_copy = *name != image.collection;
                    let gone = self.remove(of, id)?;
                    touched.extend(gone.map(|gone| Touched { is_copy, ..gone }));
                    did.push(row.map_or(Did::Missing, Did::Removed));
                }
                Answer::Done(did)
            }
        })
    }

    /// The dependant of which rows refer to a row; none: no row does.
    fn refers<'c>(
        &self,
        collections: &'c Collections,
        own: &'c Collection,
        id: &RowId,
    ) -> Result<Option<&'c str>, Violation> {
        for dependant in &own.dependants {
            let other = collection(collections, dependant)?;
            let refers = |(of, row): (&Arc<RowId>, &Arc<Columns>)| {
                of.tenant == id.tenant && refers_by(other, &own.name, row, id)
            };
            if self.of(other)?.rows.iter().any(refers) {
                return Ok(Some(dependant));
            }
        }
        Ok(None)
    }

    /// Undoes changes, the last one first.
    pub(super) fn restore(&mut self, touched: &[Touched]) {
        for Touched { table, id, before, .. } in touched.iter().rev() {
            let Some(table) = self.0.get_mut(table) else { continue };
            let rows = &mut Arc::make_mut(table).rows;
            match before {
                Some(row) => rows.insert(Arc::clone(id), Arc::clone(row)),
                None => rows.remove(id),
            };
        }
    }

    fn existing(
        &self,
        collection: &Collection,
        tenant: Option<&Tenant>,
        key: &[Value],
    ) -> Result<(RowId, Arc<Columns>), Violation> {
        let id = row_id(collection, tenant, key)?;
        match self.of(collection)?.rows.get(&id) {
            Some(row) => Ok((id, Arc::clone(row))),
            None => Err(Violation(format!("no row with this key in {}", collection.name))),
        }
    }

    fn put(
        &mut self,
        collection: &Collection,
        id: RowId,
        before: Option<Arc<Columns>>,
        fields: &[Field],
    ) -> Result<Vec<Touched>, Violation> {
        if fields.is_empty() {
            return Err(Violation(format!("a change of {} names no column", collection.name)));
        }
        let table = self.of(collection)?;
        let mut row = match &before {
            Some(row) => Columns::clone(row),
            None => Columns::empty(&table.names),
        };
        for Field { name, value } in fields {
            check_kind(collection, name, value)?;
            match row.get_mut(name.as_str()) {
                Some(column) => *column = value.clone(),
                None => return Err(Violation(format!("no column {name} in {}", collection.table))),
            }
        }
        let null = |name: &&String| row.get(name).is_none_or(|value| *value == Value::Null);
        if let Some(name) = table.not_null.iter().find(null) {
            return Err(Violation(format!("{}.{name} may not be null", collection.name)));
        }
        let key = collection.key.iter().map(|name| row.get(name));
        if !key.eq(id.key.iter().map(|value| Some(&value.0))) {
            return Err(Violation(format!(
                "the key of a row of {} cannot be changed",
                collection.name
            )));
        }
        let id = Arc::new(id);
        self.table_mut(collection).rows.insert(Arc::clone(&id), Arc::new(row));
        Ok(vec![touched(collection, id, before, Left::Set(fields.to_vec()))])
    }

    /// Removes a row, and before it the rows that go with it.
    fn remove_all(
        &mut self,
        collections: &Collections,
        name: &str,
        id: RowId,
    ) -> Result<Vec<Touched>, Violation> {
        let own = collection(collections, name)?;
        if !self.of(own)?.rows.contains_key(&id) {
            return Ok(Vec::new());
        }
        let mut touched = Vec::new();
        for dependant in &own.dependants {
            let other = collection(collections, dependant)?;
            let rows = self.of(other)?.rows.iter();
            let ids =
                rows.filter(|(of, row)| of.tenant == id.tenant && refers_by(other, name, row, &id));
            let ids: Vec<RowId> = ids.map(|(id, _)| RowId::clone(id)).collect();
            for id in ids {
                let gone = self.remove_all(collections, dependant, id)?;
                touched.extend(gone.into_iter().map(|gone| Touched { is_dependant: true, ..gone }));
            }
        }
        touched.extend(self.remove(own, id)?);
        Ok(touched)
    }

    fn remove(&mut self, collection: &Collection, id: RowId) -> Result<Option<Touched>, Violation> {
        if !self.of(collection)?.rows.contains_key(&id) {
            return Ok(None);
        }
        let before = self.table_mut(collection).rows.remove(&id);
        Ok(Some(touched(collection, Arc::new(id), before, Left::Gone)))
    }

    /// The table of a collection for which [`Tables::of`] has found one.
    fn table_mut(&mut self, collection: &Collection) -> &mut Table {
        Arc::make_mut(self.0.get_mut(&collection.table).expect("the table was found before"))
    }
}

fn touched(
    collection: &Collection,
    id: Arc<RowId>,
    before: Option<Arc<Columns>>,
    left: Left,
) -> Touched {
    let (table, collection) = (collection.table.clone(), collection.name.clone());
    Touched { collection, table, id, before, is_copy: false, is_dependant: false, left }
}

fn fields_of(row: &Arc<Columns>) -> Vec<Field> {
    row.iter().map(|(name, value)| Field::new(name, value.clone())).collect()
}

/// Whether a row has the values that were set.
fn has(row: &Columns, left: &Left) -> bool {
    let Left::Set(fields) = left else { return false };
    let conditions: Vec<Condition> = fields
        .iter()
        .map(|field| Condition::equal(field.name.as_str(), field.value.clone()))
        .collect();
    meets(row, &conditions)
}

/// The sum of a column and an integer.
fn sum(row: &Columns, field: &Field) -> Result<Field, Violation> {
    let name = &field.name;
    match (row.get(name.as_str()), &field.value) {
        (Some(Value::Integer(a)), Value::Integer(b)) => match a.checked_add(*b) {
            Some(sum) => Ok(Field::new(name.clone(), Value::Integer(sum))),
            None => Err(Violation(format!("{name} would overflow a 64-bit integer"))),
        },
        (Some(Value::Null), Value::Integer(_)) => {
            Err(Violation(format!("{name} is null and cannot be incremented")))
        }
        _ => Err(Violation(format!(
            "{name} is not an integer column, or its increment is not an integer"
        ))),
    }
}

/// A collection by name.
pub(super) fn collection<'a>(
    collections: &'a Collections,
    name: &str,
) -> Result<&'a Collection, Violation> {
    collections.get(name).ok_or_else(|| Violation(format!("the collection {name} is not mapped")))
}

/// The identity of the row with this key; each value is checked against its column.
pub(super) fn row_id(
    collection: &Collection,
    tenant: Option<&Tenant>,
    key: &[Value],
) -> Result<RowId, Violation> {
    let name = &collection.name;
    if key.len() != collection.key.len() {
        let (given, asked) = (key.len(), collection.key.len());
        return Err(Violation(format!("a key of {name} has {asked} values, not {given}")));
    }
    for (column, value) in collection.key.iter().zip(key) {
        check_kind(collection, column, value)?;
        if *value == Value::Null {
            return Err(Violation(format!(
                "{name}.{column} is part of the key and cannot be null"
            )));
        }
    }
    let tenant = match (&collection.tenant, tenant) {
        (Some(_), None) => return Err(Violation(format!("a row of {name} has a tenant"))),
        (Some(_), Some(tenant)) => Some(tenant.clone()),
        (None, _) => None,
    };
    Ok(RowId { tenant, key: key.iter().cloned().map(Ordered).collect() })
}

fn id_of_fields(
    collection: &Collection,
    tenant: Option<&Tenant>,
    fields: &[Field],
) -> Result<RowId, Violation> {
    let value = |column: &String| {
        let field = fields.iter().find(|field| field.name == *column);
        field.map_or(Value::Null, |field| field.value.clone())
    };
    let key: RowKey = collection.key.iter().map(value).collect();
    row_id(collection, tenant, &key)
}

/// Whether a value can be stored in a column or compared with it.
pub(super) fn check_kind(
    collection: &Collection,
    column: &str,
    value: &Value,
) -> Result<(), Violation> {
    let place = format!("{}.{column}", collection.name);
    let Some(definition) = collection.columns.get(column) else {
        return Err(Violation(format!("the column {place} is not mapped")));
    };
    let fits = match value {
        Value::Null => true,
        Value::Float(float) if float.is_nan() => false,
        Value::Decimal(text) if !is_decimal(text) => false,
        value => value.kind() == Some(definition.kind),
    };
    if fits {
        return Ok(());
    }
    Err(Violation(format!("{place} holds {:?}, which {value:?} is not", definition.kind)))
}

/// Whether all columns and values of the conditions fit the collection.
pub(super) fn check_conditions(
    collection: &Collection,
    conditions: &[Condition],
) -> Result<(), Violation> {
    conditions.iter().try_for_each(|Condition { column, test }| match test {
        Test::Value(comparison, value) => {
            check_kind(collection, column, value)?;
            let of = collection.column(column).map_err(Violation)?;
            of.has_order(column, *comparison).map_err(Violation)
        }
        Test::OneOf(values) | Test::NoneOf(values) => {
            check_kind(collection, column, &Value::Null)?;
            values.iter().try_for_each(|value| check_kind(collection, column, value))
        }
        Test::Column(comparison, other) => {
            let of = |name: &str| collection.column(name).map_err(Violation);
            of(column)?.comparable(column, of(other)?, other).map_err(Violation)?;
            of(column)?.has_order(column, *comparison).map_err(Violation)
        }
        Test::StartsWith(_) => {
            let of = collection.column(column).map_err(Violation)?;
            of.has_prefixes(column).map_err(Violation)
        }
    })
}

/// Whether a row meets all conditions.
pub(super) fn meets(row: &Columns, conditions: &[Condition]) -> bool {
    let value = |column: &str| row.get(column).cloned().unwrap_or(Value::Null);
    conditions.iter().all(|condition| holds(&value, condition))
}

/// The rows of `tenant` (none: of all tenants), in the order of the table.
pub(super) fn visible<'t>(
    table: &'t Table,
    collection: &Collection,
    tenant: Option<&Tenant>,
) -> impl Iterator<Item = (&'t RowId, &'t Columns)> {
    let tenant = tenant.filter(|_| collection.tenant.is_some()).cloned();
    // Before every row of the tenant, and without one before every row.
    let first = RowId { tenant: tenant.clone(), key: Vec::new() };
    let rows = table.rows.range(first..).map(|(id, row)| (id.as_ref(), row.as_ref()));
    rows.take_while(move |(id, _)| tenant.is_none() || id.tenant == tenant)
}

/// Whether every row of a read set exists.
pub(super) fn is_complete(
    tables: &Tables,
    collections: &Collections,
    tenant: Option<&Tenant>,
    set: &ReadSet,
) -> Result<bool, Violation> {
    let collection = collection(collections, &set.collection)?;
    for key in set.keys() {
        if tables.row(collection, tenant, &key)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a row refers to another one, of the collection `to`, by any of its anchors.
fn refers_by(of: &Collection, to: &str, row: &Columns, id: &RowId) -> bool {
    of.anchors_in(to).any(|anchor| {
        let values = anchor.columns.iter().map(|column| row.get(column));
        values.eq(id.key.iter().map(|value| Some(&value.0)))
    })
}
