//! Compares the mapping with the database, so that faults are found when the store is configured
//! and not when a task runs.

use besom_core::collection::{Anchor, Collection, Collections, Column};
use besom_ports::store::MappingFault;

use crate::{Dialect, named};

/// The minimum similarity of a suggested name (0 to 1).
const SIMILAR_MIN: f64 = 0.7;

/// An index of the database over all rows, or over those in which certain columns are not NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Whether it is unique.
    pub unique: bool,
    /// Whether it is that of the primary key.
    pub primary: bool,
    /// Columns in their order; an expression is an empty text.
    pub columns: Vec<String>,
    /// The columns that are not NULL in its rows.
    pub not_null: Vec<String>,
}

impl Index {
    /// Whether it contains all rows.
    pub fn is_whole(&self) -> bool {
        self.not_null.is_empty()
    }

    /// Whether it contains no expression.
    pub fn is_of_columns(&self) -> bool {
        !self.columns.iter().any(String::is_empty)
    }
}

/// The columns that identify a row: the primary key, or else the first unique index, if its columns are all
/// `set`; empty: there is none.
pub fn identifying(indexes: &[Index], set: impl Fn(&str) -> bool) -> Vec<String> {
    let is_set = |index: &&Index| index.columns.iter().all(|column| set(column));
    let primary = indexes.iter().find(|index| index.primary && is_set(index));
    let unique = indexes
        .iter()
        .find(|index| index.unique && index.is_whole() && index.is_of_columns() && is_set(index));
    primary.or(unique).map(|index| index.columns.clone()).unwrap_or_default()
}

/// The columns of the indexes over all rows, without those that contain an expression.
pub fn whole(indexes: &[Index]) -> Vec<Vec<String>> {
    let whole = indexes.iter().filter(|index| index.is_whole() && index.is_of_columns());
    whole.map(|index| index.columns.clone()).collect()
}

/// The same of the other indexes, with the columns that are not NULL in their rows.
pub fn of_some_rows(indexes: &[Index]) -> Vec<(Vec<String>, Vec<String>)> {
    let some = indexes.iter().filter(|index| !index.is_whole() && index.is_of_columns());
    some.map(|index| (index.columns.clone(), index.not_null.clone())).collect()
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
    /// The columns that refer.
    pub columns: Vec<String>,
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

    /// The dependant of a table; `last` of its name.
    fn dependant<'c>(&self, table: &str, all: &'c Collections) -> Option<&'c Collection> {
        let mut dependants = self.collection.dependants.iter().filter_map(|name| all.get(name));
        dependants.find(|other| last(&other.table) == last(table))
    }

    /// Whether rows that refer to a row by these columns of a table go with it, as dependants.
    fn goes(&self, table: &str, columns: &[String], all: &Collections) -> bool {
        let same = |a: &str, b: &str| self.dialect.same(a, b);
        let dependant = self.dependant(table, all);
        dependant.is_some_and(|of| of.anchors_by(&self.collection.name, columns, same))
    }

    /// A delete in this table, which `reactions` calls `table`, reaches no rows but those of its dependants,
    /// which are deleted before, unless the mapping accepts that.
    pub fn cascades(&mut self, table: &str, reactions: &[Reaction], all: &Collections) {
        let goes_before = |one: &Reaction| one.to == table && self.goes(&one.of, &one.columns, all);
        // A dependant is named with the columns for which it lacks the anchor.
        let of_dependant =
            |one: &Reaction| one.to == table && self.dependant(&one.of, all).is_some();
        let (mut deleted, mut changed): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let (mut open, mut lacks) = (vec![table], Vec::new());
        let mut seen: Vec<&str> = Vec::new();
        while let Some(above) = open.pop() {
            for one in reactions.iter().filter(|one| one.to == above && !goes_before(one)) {
                let found = if one.deletes { &mut deleted } else { &mut changed };
                let mut said = one.of.clone();
                if of_dependant(one) {
                    let columns = one.columns.join(", ");
                    lacks.push(format!("{columns} in {said}"));
                    said = format!("{said} ({columns})");
                }
                if !found.contains(&said) {
                    found.push(said);
                }
                if one.deletes && !seen.contains(&&*one.of) {
                    seen.push(&one.of);
                    open.push(&one.of);
                }
            }
        }
        let (own, name) = (&self.collection.table, &self.collection.name);
        let anchors = match lacks.is_empty() {
            true => String::new(),
            false => format!(
                " (a dependant needs an `anchor` of each foreign key: {})",
                lacks.join("; ")
            ),
        };
        let cleared = reactions.iter().filter(|one| !one.deletes && goes_before(one));
        let cleared: Vec<String> =
            cleared.map(|one| format!("{} ({})", one.of, one.columns.join(", "))).collect();
        if !deleted.is_empty() && !self.collection.accept_cascades {
            let rows = deleted.join(", ");
            let itself = match deleted.iter().any(|of| of == table) {
                true => " (a table cannot be its own dependant)",
                false => "",
            };
            let said = format!(
                "when a task deletes a row of {own:?}, a foreign key also deletes rows of {rows}: those {UNSEEN}. Map \
                 the other table, and name it in `dependants` of [collections.{name}]: its rows are then deleted \
                 first, and kept{itself}{anchors}. Or accept that they are lost: accept_cascades = true"
            );
            self.fault(MappingFault::CASCADES, said);
        }
        if !changed.is_empty() {
            let rows = changed.join(", ");
            let said = format!(
                "when a task deletes a row of {own:?}, a foreign key also changes rows of {rows}: those changes \
                 {UNSEEN}. To delete these rows as well, map their table, and name it in `dependants` of \
                 [collections.{name}]{anchors}"
            );
            self.warning("table", said);
        }
        if !cleared.is_empty() {
            let rows = cleared.join(", ");
            let said = format!(
                "when a task deletes a row of {own:?}, rows of {rows} that refer to it are deleted as `dependants`, \
                 although the foreign key keeps them, without the reference. To keep them, remove that `anchor`"
            );
            self.warning("table", said);
        }
    }

    /// No row of this table, which `keepers` call `table`, is kept by rows of other tables that refer to it.
    pub fn keepers(&mut self, table: &str, keepers: &[Keeper], all: &Collections) {
        let own = &self.collection.name;
        let mut keepers: Vec<&Keeper> = keepers
            .iter()
            .filter(|one| one.to == table && !self.goes(&one.of, &one.columns, all))
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
        let mut anchors = Vec::new();
        for keeper in &keepers {
            let (table, columns) = (last(&keeper.of), &keeper.columns);
            if let Some(dependant) = self.dependant(&table, all) {
                let (columns, of) = (columns.join(", "), &dependant.name);
                anchors.push(format!("an `anchor` of {columns} to [collections.{of}]"));
                continue;
            }
            let same = |a: &str, b: &str| self.dialect.same(a, b);
            let found = all
                .values()
                .find(|of| last(&of.table) == table && of.anchors_by(own, columns, same));
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
        let mut steps = Vec::new();
        if !anchors.is_empty() {
            steps.push(format!("add {}", anchors.join(" and ")));
        }
        if mapped.len() > self.collection.dependants.len() {
            let list = list.join(", ");
            steps.push(format!("{first}write dependants = [{list}] in [collections.{own}]"));
        }
        let said = format!(
            "a row of {table:?} stays if rows of {names} refer to it (a foreign key). To delete those as well, {}",
            steps.join(", and ")
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

    /// The key, with the tenant, identifies at most one row; returns whether it does.
    pub fn key(&mut self, indexes: &[Index]) -> bool {
        let wanted = self.whole(&self.collection.key);
        // A key without columns, or with some that are missing, is reported by itself.
        let own = &self.collection.name;
        let is_missing = |name: &&str| {
            let of = |fault: &&MappingFault| fault.collection == *own && !fault.warning;
            let place = format!("columns.{name}");
            self.faults.iter().filter(of).any(|f| f.place == place || f.place == "key")
        };
        if self.collection.key.is_empty() || wanted.iter().any(is_missing) {
            return false;
        }
        if self.is_unique(indexes, &self.collection.key) {
            return true;
        }
        let table = &self.collection.table;
        let name = format!("{}_key", last(table));
        let create = self.dialect.create("UNIQUE INDEX", &name, table, &wanted);
        let said = format!(
            "nothing keeps two rows of {table:?} from having the same key: {create}, or name the \
             columns that are unique"
        );
        self.fault("key", said);
        false
    }

    /// A column of the key may be NULL, or is in rows that were `found`; `fix` says how to correct it.
    pub fn null_key(&mut self, column: &str, found: bool, fix: &str) {
        let table = &self.collection.table;
        let is = if found { "is NULL in rows" } else { "may be NULL in rows" };
        let said = format!(
            "the key column {column:?} {is} of {table:?}, and a row is not found again by NULL: what changes rows one \
             by one leaves it out: {fix}, or name a key whose columns are NOT NULL"
        );
        self.warning("key", said);
    }

    /// Whether an index of the rows of a mapped one begins with the tenant and these columns.
    pub fn is_begun(&self, indexes: &[Index], name: &str, columns: &[String]) -> bool {
        let tenant = self.collection.tenant.iter();
        let wanted: Vec<&String> = tenant.clone().chain(columns).collect();
        let not_null = self.collection.not_null(Some(name));
        let present: Vec<&String> = tenant.chain(not_null).collect();
        indexes.iter().any(|index| {
            index.columns.len() >= wanted.len()
                && index.columns.iter().zip(&wanted).all(|(a, b)| self.dialect.same(a, b))
                && index.not_null.iter().all(|a| present.iter().any(|b| self.dialect.same(a, b)))
        })
    }

    /// Whether no two rows have the same values in these columns, so that a read by them has no equal rows.
    pub fn is_unique(&self, indexes: &[Index], columns: &[String]) -> bool {
        let wanted = self.whole(columns);
        let known = |column: &String| wanted.iter().any(|name| self.dialect.same(name, column));
        indexes
            .iter()
            .any(|index| index.unique && index.is_whole() && index.columns.iter().all(known))
    }

    /// A declared index is covered by an index of the database that begins with it; returns whether
    /// it is.
    pub fn index(&mut self, indexes: &[Index], name: &str, columns: &[String]) -> bool {
        let found = self.is_begun(indexes, name, columns);
        if !found {
            let (table, list) = (&self.collection.table, self.whole(columns).join(", "));
            // Followed by the key, which pages need.
            let create = self.created(name, columns, &format!("{table}_{name}"));
            let begun = |index: &&Index| {
                let whole = Index { not_null: Vec::new(), ..(*index).clone() };
                self.is_begun(&[whole], name, columns)
            };
            let partial = indexes.iter().find(begun).map_or_else(String::new, |index| {
                let columns: Vec<String> =
                    index.not_null.iter().map(|column| format!("{column:?}")).collect();
                format!(
                    " over all of its rows, but one over some: if the task may leave out the others, write {{ columns, \
                     not_null = [{}] }}; otherwise",
                    columns.join(", ")
                )
            });
            let said = format!("no index of {table:?} begins with ({list}){partial}: {create}");
            self.fault(format!("indexes.{name}"), said);
        }
        found
    }

    /// No index continues with the key, so a read over the declared one does what `done` says. A
    /// plugin that reads only one page never notices.
    pub fn next_page(&mut self, name: &str, columns: &[String], done: &str) {
        let create = self.created(name, columns, &format!("{}_{name}_key", self.collection.table));
        let said = format!("a read {done} because no index continues with the key: {create}");
        self.warning(format!("indexes.{name}"), said);
    }

    /// The statement that creates a mapped index in the database, by this name.
    fn created(&self, index: &str, columns: &[String], name: &str) -> String {
        let order = self.collection.order_of(columns);
        let whole: Vec<&str> =
            self.collection.tenant.iter().chain(&order).map(String::as_str).collect();
        let create = self.dialect.create("INDEX", name, &self.collection.table, &whole);
        let not_null = self.collection.not_null(Some(index)).iter();
        let present: Vec<String> =
            not_null.map(|column| format!("{} IS NOT NULL", named(column))).collect();
        match present.is_empty() {
            true => create,
            false => format!("{create} WHERE {}", present.join(" AND ")),
        }
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

/// The columns of which the predicate of an index requires that they are not NULL, if it requires nothing else:
/// `a IS NOT NULL AND (b IS NOT NULL)`. `text` is the predicate, or the statement up to its end.
pub fn present(text: &str) -> Option<Vec<String>> {
    let tokens = tokens(text)?;
    let begin = tokens.iter().position(|token| token.is("where")).map_or(0, |at| at + 1);
    let (mut rest, mut columns) = (&tokens[begin..], Vec::new());
    conjunction(&mut rest, &mut columns)?;
    rest.is_empty().then_some(columns)
}

fn conjunction(rest: &mut &[Token], columns: &mut Vec<String>) -> Option<()> {
    let takes = |rest: &mut &[Token], words: &[&str]| {
        let found = rest.len() >= words.len() && words.iter().zip(*rest).all(|(w, t)| t.is(w));
        *rest = &rest[if found { words.len() } else { 0 }..];
        found
    };
    loop {
        if takes(rest, &["("]) {
            conjunction(rest, columns)?;
            takes(rest, &[")"]).then_some(())?;
        } else {
            let (column, behind) = rest.split_first()?;
            *rest = behind;
            columns.push(Some(column).filter(|column| column.is_name())?.text.clone());
            let tests = [&["is", "not", "null"][..], &["not", "null"], &["notnull"]];
            tests.iter().any(|words| takes(rest, words)).then_some(())?;
        }
        if !takes(rest, &["and"]) {
            return Some(());
        }
    }
}

/// A name, a word or a sign of a statement.
struct Token {
    text: String,
    quoted: bool,
}

impl Token {
    fn is(&self, word: &str) -> bool {
        !self.quoted && self.text.eq_ignore_ascii_case(word)
    }

    fn is_name(&self) -> bool {
        self.quoted || self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// The tokens of a statement; none: it has a text, a comment or another thing that no name is.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' | '`' => Some(first),
            '[' => Some(']'),
            _ => None,
        };
        if let Some(end) = end {
            let (mut name, mut after) = (String::new(), &rest[1..]);
            loop {
                let (part, behind) = after.split_once(end)?;
                name.push_str(part);
                after = behind;
                // A quote within a name is doubled.
                match after.strip_prefix(end).filter(|_| end != ']') {
                    Some(behind) => after = behind,
                    None => break,
                }
                name.push(end);
            }
            tokens.push(Token { text: name, quoted: true });
            rest = after.trim_start();
            continue;
        }
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
        let length = match is_part(first) {
            true => rest.find(|c: char| !is_part(c)).unwrap_or(rest.len()),
            false if matches!(first, '(' | ')' | ',' | '.') => 1,
            false => return None,
        };
        tokens.push(Token { text: rest[..length].to_owned(), quoted: false });
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::present;

    #[test]
    fn only_a_predicate_of_columns_that_are_not_null_is_understood() {
        for (text, columns) in [
            ("(deleted_at IS NOT NULL)", Some(&["deleted_at"][..])),
            ("((a IS NOT NULL) AND (\"b \"\"c\" IS NOT NULL))", Some(&["a", "b \"c"])),
            (
                "CREATE INDEX i ON t (a, \"where\") WHERE a notnull and [b] not null",
                Some(&["a", "b"]),
            ),
            ("CREATE INDEX i ON t (lower(a)) where (`a` is  not\nnull)", Some(&["a"])),
            ("(a IS NULL)", None),
            ("(NOT a IS NOT NULL)", None),
            ("((a IS NOT NULL) OR (b IS NOT NULL))", None),
            ("((a IS NOT NULL) AND (b = 1))", None),
            ("(a + b) IS NOT NULL", None),
            ("lower(a) IS NOT NULL", None),
            ("(a, b) IS NOT NULL", None),
            ("('a' IS NOT NULL)", None),
            ("(1 IS NOT NULL)", None),
            ("NOT (a IS NOT NULL)", None),
            ("a IS (NOT NULL)", None),
            ("(a IS NOT NULL AND b) IS NOT NULL", None),
            ("(a IS NOT NULL", None),
            ("CREATE INDEX i ON t (a) -- where a is not null\n WHERE b = 1", None),
            ("", None),
        ] {
            let columns = columns.map(|all| all.iter().map(|&name| name.to_owned()).collect());
            assert_eq!(present(text), columns, "{text}");
        }
    }
}
