//! Compares the mapping with the database, so that faults are found when the store is configured
//! and not when a task runs.

use besom_core::collection::{Anchor, Collection, Collections, Column};
use besom_ports::store::MappingFault;

use crate::Dialect;

/// The minimum similarity of a suggested name (0 to 1).
const SIMILAR_MIN: f64 = 0.7;

/// An index of the database over all rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Whether it is unique.
    pub unique: bool,
    /// Whether it is that of the primary key.
    pub primary: bool,
    /// Columns in their order; an expression is an empty text.
    pub columns: Vec<String>,
}

impl Index {
    /// Whether it contains no expression.
    pub fn is_of_columns(&self) -> bool {
        !self.columns.iter().any(String::is_empty)
    }
}

/// The columns that identify a row: the primary key, or else the first unique index whose columns are all
/// `set`; empty: there is none.
pub fn identifying(indexes: &[Index], set: impl Fn(&str) -> bool) -> Vec<String> {
    let primary = || indexes.iter().find(|index| index.primary);
    let unique = indexes.iter().find(|index| {
        index.unique && index.is_of_columns() && index.columns.iter().all(|column| set(column))
    });
    primary().or(unique).map(|index| index.columns.clone()).unwrap_or_default()
}

/// The faults of one collection.
pub struct Check<'a> {
    /// The database's.
    pub dialect: &'a Dialect,
    /// The collection.
    pub collection: &'a Collection,
    /// Those found so far, also of other collections.
    pub faults: &'a mut Vec<MappingFault>,
}

/// The columns by which a row refers to its anchor.
pub struct Reference<'a> {
    /// The anchor's collection.
    pub target: &'a Collection,
    /// Its key, with the tenant.
    pub theirs: Vec<&'a str>,
    /// The columns that refer to it, in the same order.
    pub own: Vec<&'a str>,
}

/// A foreign key that changes rows by itself when those it refers to are deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaction {
    /// The table whose rows are changed.
    pub of: String,
    /// The table that it refers to.
    pub to: String,
    /// Whether they are deleted (CASCADE), rather than set to NULL or a default.
    pub deletes: bool,
}

/// A foreign key by which rows keep those that they refer to from being deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keeper {
    /// The table whose rows refer.
    pub of: String,
    /// The columns that refer.
    pub columns: Vec<String>,
    /// The table that they refer to.
    pub to: String,
}

/// What is said of changes that the database makes by itself.
const UNSEEN: &str = "are not guarded, not counted and not among the before-images";

impl<'a> Check<'a> {
    /// Adds a fault.
    pub fn fault(&mut self, place: impl Into<String>, message: String) {
        self.push(place, message, false);
    }

    /// Adds a warning.
    pub fn warning(&mut self, place: impl Into<String>, message: String) {
        self.push(place, message, true);
    }

    /// Adds a fault or a warning.
    pub fn push(&mut self, place: impl Into<String>, message: String, warning: bool) {
        let collection = self.collection.name.clone();
        self.faults.push(MappingFault { collection, place: place.into(), message, warning });
    }

    /// Whether no fault found so far prevents reading its rows.
    pub fn is_whole(&self) -> bool {
        !self.faults.iter().any(|f| f.collection == self.collection.name && !f.warning)
    }

    /// There is no such table, but these.
    pub fn no_table<'n>(&mut self, known: impl Iterator<Item = &'n str>) {
        let table = &self.collection.table;
        let nearest = nearest(table, known);
        self.fault("table", format!("there is no table {table:?} in the database{nearest}"));
    }

    /// The tenant column and every mapped column exist and fit. `unlike` compares one of the columns
    /// of the table (by position) with a mapped one, or with the tenant (none): the message, and
    /// whether it is only a warning.
    pub fn columns(
        &mut self,
        present: &[&str],
        mut unlike: impl FnMut(usize, Option<(&str, Column)>) -> Option<(String, bool)>,
    ) {
        let collection = self.collection;
        let mapped = collection.columns.iter().map(|(name, column)| {
            (format!("columns.{name}"), name, Some((name.as_str(), *column)))
        });
        let tenant = collection.tenant.iter().map(|name| ("tenant".to_owned(), name, None));
        for (place, name, column) in tenant.chain(mapped) {
            match present.iter().position(|known| self.dialect.same(known, name)) {
                None => {
                    let nearest = nearest(name, present.iter().copied());
                    let table = &collection.table;
                    let said = format!("the table {table:?} has no column {name:?}{nearest}");
                    self.fault(place, said);
                }
                Some(at) => {
                    if let Some((message, warning)) = unlike(at, column) {
                        self.push(place, message, warning);
                    }
                }
            }
        }
        for name in &collection.key {
            if !collection.columns.contains_key(name) {
                self.fault("key", format!("the key column {name:?} is not among the columns"));
            }
        }
    }

    /// The tables of its dependants, by [`last`].
    fn dependant_tables(&self, all: &Collections) -> Vec<String> {
        let dependants = self.collection.dependants.iter().filter_map(|name| all.get(name));
        dependants.map(|other| last(&other.table)).collect()
    }

    /// A delete in this table, which `reactions` calls `table`, reaches no rows but those of its dependants,
    /// which are deleted before, unless the mapping accepts that.
    pub fn cascades(&mut self, table: &str, reactions: &[Reaction], all: &Collections) {
        let dependants = self.dependant_tables(all);
        let goes_before = |one: &Reaction| one.to == table && dependants.contains(&last(&one.of));
        let (mut deleted, mut changed): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        let mut open = vec![table];
        while let Some(above) = open.pop() {
            let others = reactions.iter().filter(|one| one.to == above && !goes_before(one));
            for Reaction { of, deletes, .. } in others {
                let found = if *deletes { &mut deleted } else { &mut changed };
                if !found.contains(&of.as_str()) {
                    found.push(of);
                    open.extend(deletes.then_some(of.as_str()));
                }
            }
        }
        let (own, name) = (&self.collection.table, &self.collection.name);
        if !deleted.is_empty() && !self.collection.accept_cascades {
            let rows = deleted.join(", ");
            let itself = match deleted.contains(&table) {
                true => " (a table cannot be its own dependant)",
                false => "",
            };
            let said = format!(
                "when a task deletes a row of {own:?}, a foreign key also deletes rows of {rows}: those {UNSEEN}. Map \
                 the other table, and name it in `dependants` of [collections.{name}]: its rows are then deleted \
                 first, and kept{itself}. Or accept that they are lost: accept_cascades = true"
            );
            self.fault(MappingFault::CASCADES, said);
        }
        if !changed.is_empty() {
            let rows = changed.join(", ");
            let said = format!(
                "when a task deletes a row of {own:?}, a foreign key also changes rows of {rows}: those changes \
                 {UNSEEN}. To delete these rows as well, map their table, and name it in `dependants` of \
                 [collections.{name}]"
            );
            self.warning("table", said);
        }
    }

    /// No row of this table, which `keepers` call `table`, is kept by rows of other tables that refer to it.
    pub fn keepers(&mut self, table: &str, keepers: &[Keeper], all: &Collections) {
        let own = &self.collection.name;
        let dependants = self.dependant_tables(all);
        let mut keepers: Vec<&Keeper> = keepers
            .iter()
            .filter(|keeper| keeper.to == table && !dependants.contains(&last(&keeper.of)))
            .collect();
        keepers.sort_unstable();
        keepers.dedup();
        if keepers.is_empty() {
            return;
        }
        let named = |keeper: &&Keeper| format!("{} ({})", keeper.of, keeper.columns.join(", "));
        let names: Vec<String> = keepers.iter().map(named).collect();
        // The mapped ones, and those that `config map` maps with their anchors.
        let (mut mapped, mut others) = (self.collection.dependants.clone(), Vec::new());
        for keeper in &keepers {
            let (table, columns) = (last(&keeper.of), &keeper.columns);
            let refers = |anchor: &&Anchor| {
                let same = |a: &String, b: &String| self.dialect.same(a, b);
                let ends = columns.len().checked_sub(anchor.columns.len());
                ends.is_some_and(|at| {
                    anchor.collection == *own
                        && anchor.columns.iter().zip(&columns[at..]).all(|(a, b)| same(a, b))
                })
            };
            let found = all.values().find(|of| {
                last(&of.table) == table && of.anchors.iter().any(|anchor| refers(&anchor))
            });
            match found {
                Some(found) if !mapped.contains(&found.name) => mapped.push(found.name.clone()),
                Some(_) => {}
                None if !others.contains(&keeper.of) => others.push(keeper.of.clone()),
                None => {}
            }
        }
        let map: Vec<String> =
            others.iter().map(|table| format!("`besom config map {table} --write`")).collect();
        let first = match map.is_empty() {
            true => String::new(),
            false => {
                format!("map them with {}, which writes their anchors, and ", map.join(" and "))
            }
        };
        mapped.extend(others.iter().map(|table| last(table)));
        let (table, names) = (&self.collection.table, names.join(", "));
        let list: Vec<String> = mapped.iter().map(|name| format!("{name:?}")).collect();
        let said = format!(
            "a row of {table:?} stays if rows of {names} refer to it (a foreign key). To delete those as well, \
             {first}write dependants = [{}] in [collections.{own}]",
            list.join(", ")
        );
        self.warning("table", said);
    }

    /// Nothing else runs when a task performs its operations; `triggers` names what does.
    pub fn triggers(&mut self, triggers: &[String]) {
        if triggers.is_empty() {
            return;
        }
        let (table, names) = (&self.collection.table, triggers.join(", "));
        let said = format!(
            "when a task changes {table:?}, its triggers run ({names}): changes that they make in other \
             rows {UNSEEN}"
        );
        self.warning("table", said);
    }

    /// The key, with the tenant, identifies at most one row.
    pub fn key(&mut self, indexes: &[Index]) {
        let wanted = self.whole(&self.collection.key);
        if self.is_unique(indexes, &self.collection.key) {
            return;
        }
        let table = &self.collection.table;
        let create = self.dialect.create("UNIQUE INDEX", "...", table, &wanted);
        let said = format!(
            "nothing keeps two rows of {table:?} from having the same key: {create}, or name the \
             columns that are unique"
        );
        self.fault("key", said);
    }

    /// Whether an index begins with the tenant and these columns.
    pub fn is_begun(&self, indexes: &[Index], columns: &[String]) -> bool {
        let wanted: Vec<&String> = self.collection.tenant.iter().chain(columns).collect();
        indexes.iter().any(|index| {
            index.columns.len() >= wanted.len()
                && index.columns.iter().zip(&wanted).all(|(a, b)| self.dialect.same(a, b))
        })
    }

    /// Whether no two rows have the same values in these columns, so that a read by them has no equal rows.
    pub fn is_unique(&self, indexes: &[Index], columns: &[String]) -> bool {
        let wanted = self.whole(columns);
        let known = |column: &String| wanted.iter().any(|name| self.dialect.same(name, column));
        indexes.iter().any(|index| index.unique && index.columns.iter().all(known))
    }

    /// A declared index is covered by an index of the database that begins with it; returns whether
    /// it is.
    pub fn index(&mut self, indexes: &[Index], name: &str, columns: &[String]) -> bool {
        let found = self.is_begun(indexes, columns);
        if !found {
            let (table, list) = (&self.collection.table, self.whole(columns).join(", "));
            // Followed by the key, which pages need.
            let create = self.created(columns, &format!("{table}_{name}"));
            let said = format!("no index of {table:?} begins with ({list}): {create}");
            self.fault(format!("indexes.{name}"), said);
        }
        found
    }

    /// No index continues with the key, so a read over the declared one does what `done` says. A
    /// plugin that reads only one page never notices.
    pub fn next_page(&mut self, name: &str, columns: &[String], done: &str) {
        let create = self.created(columns, &format!("{}_{name}_key", self.collection.table));
        let said = format!("a read {done} because no index continues with the key: {create}");
        self.warning(format!("indexes.{name}"), said);
    }

    fn created(&self, columns: &[String], name: &str) -> String {
        let order = self.collection.order_of(columns);
        let whole: Vec<&str> =
            self.collection.tenant.iter().chain(&order).map(String::as_str).collect();
        self.dialect.create("INDEX", name, &self.collection.table, &whole)
    }

    /// The anchor exists. Returns what refers to it, unless there is a fault.
    pub fn anchor(&mut self, anchor: &'a Anchor, all: &'a Collections) -> Option<Reference<'a>> {
        let Some(target) = all.get(&anchor.collection) else {
            let nearest = nearest(&anchor.collection, all.keys().map(String::as_str));
            let name = &anchor.collection;
            self.fault("anchor", format!("there is no collection {name:?}{nearest}"));
            return None;
        };
        if anchor.columns.len() != target.key.len() {
            let (name, key) = (&target.name, target.key.join(", "));
            self.fault("anchor", format!("name one column for each of {name:?}'s key ({key})"));
            return None;
        }
        for column in &anchor.columns {
            if !self.collection.columns.contains_key(column) {
                let nearest = nearest(column, self.collection.columns.keys().map(String::as_str));
                self.fault("anchor", format!("there is no column {column:?}{nearest}"));
                return None;
            }
        }
        let theirs = target.tenant.iter().chain(&target.key).map(String::as_str).collect();
        Some(Reference { target, theirs, own: self.whole(&anchor.columns) })
    }

    /// The tenant column followed by these.
    fn whole(&self, columns: &'a [String]) -> Vec<&'a str> {
        self.collection.tenant.iter().chain(columns).map(String::as_str).collect()
    }
}

fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let score = |k: &str| strsim::jaro_winkler(&name.to_lowercase(), &k.to_lowercase());
    let best = known.map(|k| (score(k), k)).max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((alike, k)) if alike >= SIMILAR_MIN => format!("; did you mean {k:?}?"),
        _ => String::new(),
    }
}
/// The last part of a table's name, in small letters: a database may leave out the schema, and quotes what it
/// has to.
fn last(name: &str) -> String {
    name.rsplit('.').next().unwrap_or(name).trim_matches('"').to_lowercase()
}
