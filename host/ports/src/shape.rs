//! A table of the product as its database describes it, and the collection that it becomes.

use std::collections::BTreeMap;

use besom_core::collection::{Collection, Column, Encoding};

/// A table or view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape {
    /// Its name, as a collection names it.
    pub table: String,
    /// Its columns, in their order.
    pub columns: Vec<Found>,
    /// The columns of its primary key; without one, of a unique index; empty: it has neither.
    pub key: Vec<String>,
    /// The columns of its indexes over all rows, without those that contain an expression.
    pub indexes: Vec<Vec<String>>,
    /// Those of its indexes over the rows in which certain columns are not NULL, and these columns.
    pub not_null: Vec<(Vec<String>, Vec<String>)>,
    /// The names of its indexes over other rows, which are not used.
    pub partial: Vec<String>,
    /// Its foreign keys.
    pub references: Vec<Reference>,
    /// Whether it is a view, which has no key of its own.
    pub is_view: bool,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Its type in the words of the database; empty: none is declared.
    pub declared: String,
    /// How it is mapped; none: no kind fits.
    pub column: Option<Column>,
    /// What a person has to know or to confirm about that.
    pub remark: Option<String>,
    /// Whether it refuses NULL.
    pub not_null: bool,
    /// Whether the database computes it, so that no statement sets it.
    pub computed: bool,
    /// The labels of its type, if that is an enum.
    pub labels: Vec<String>,
}

/// A foreign key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The columns that refer.
    pub columns: Vec<String>,
    /// The table that they refer to.
    pub table: String,
    /// The columns there; empty: its primary key.
    pub theirs: Vec<String>,
    /// Whether a row loses its reference, and stays, when the other one is deleted (`ON DELETE SET NULL`, `SET DEFAULT`).
    pub clears: bool,
}

/// What a database knows under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Described {
    /// A table.
    Table(Shape),
    /// Nothing; these are the tables of the product.
    Unknown(Vec<String>),
}

impl Shape {
    /// Replaces the key by these columns.
    ///
    /// # Errors
    /// There is no such column.
    pub fn with_key(mut self, key: Vec<String>) -> Result<Shape, String> {
        for column in &key {
            self.named(column)?;
        }
        self.key = key;
        Ok(self)
    }

    /// The collection of that name: all columns that a kind fits, and all indexes that a task can read by.
    ///
    /// # Errors
    /// Why the table cannot be a collection, and the fix.
    pub fn collection(&self, name: &str, tenant: Option<&str>) -> Result<Collection, String> {
        let tenant = match tenant {
            None => None,
            Some(tenant) => Some(self.named(tenant)?.name.clone()),
        };
        let is_tenant = |column: &String| Some(column) == tenant.as_ref();
        let columns: BTreeMap<String, Column> = self
            .columns
            .iter()
            .filter(|found| !is_tenant(&found.name))
            .filter_map(|found| Some((found.name.clone(), found.column?)))
            .collect();
        let key: Vec<String> = self.key.iter().filter(|name| !is_tenant(name)).cloned().collect();
        if key.is_empty() && self.is_view {
            return Err(format!(
                "{:?} is a view, which has no key: add --key COLUMN,...",
                self.table
            ));
        }
        if key.is_empty() {
            return Err(format!(
                "the table {:?} has no primary key and no unique index{}, so nothing identifies a row: \
                 add one",
                self.table,
                tenant.map_or_else(String::new, |tenant| format!(
                    " with other columns than {tenant:?}"
                )),
            ));
        }
        if let Some(found) = self
            .columns
            .iter()
            .find(|found| key.contains(&found.name) && !columns.contains_key(&found.name))
        {
            return Err(format!(
                "the key column {:?} has the type {}, which no kind of Besom fits",
                found.name, found.declared
            ));
        }
        if let Some((name, _)) =
            columns.iter().find(|(name, column)| key.contains(name) && !column.kind.identifies())
        {
            return Err(format!(
                "the key column {name:?} is neither an integer, a text, a uuid, bytes, a timestamp nor a date: name \
                 a unique index of such columns by hand"
            ));
        }
        let (mut indexes, mut not_null) = (BTreeMap::new(), BTreeMap::new());
        let whole = self.indexes.iter().map(|index| (index, &[][..]));
        let partial = self.not_null.iter().map(|(index, columns)| (index, &columns[..]));
        for (index, present) in whole.chain(partial) {
            // A row that is read has its tenant.
            let present: Vec<String> = present.iter().filter(|c| !is_tenant(c)).cloned().collect();
            let own = match (&tenant, index.split_first()) {
                (None, _) => &index[..],
                (Some(tenant), Some((first, rest))) if first == tenant => rest,
                (Some(_), _) => continue,
            };
            let own = without_key(own, &key);
            let is_mapped = own.iter().chain(&present).all(|column| columns.contains_key(column));
            if own.is_empty() || !is_mapped || *own == key[..] {
                continue;
            }
            let mut name = own.join("_");
            if !present.is_empty() {
                if indexes.contains_key(&name) {
                    name = format!("{name}_with_{}", present.join("_"));
                }
                not_null.insert(name.clone(), present);
            }
            indexes.insert(name, own.to_vec());
        }
        let (name, table) = (name.to_owned(), self.table.clone());
        let (anchors, dependants) = (Vec::new(), Vec::new());
        Ok(Collection {
            name,
            table,
            tenant,
            key,
            columns,
            indexes,
            not_null,
            anchors,
            dependants,
            accept_cascades: false,
        })
    }

    /// A column that may hold the tenant, by its name.
    pub fn likely_tenant(&self) -> Option<&str> {
        let is_likely = |found: &&Found| TENANTS.contains(&found.name.to_lowercase().as_str());
        self.columns.iter().find(is_likely).map(|found| found.name.as_str())
    }

    fn named(&self, column: &str) -> Result<&Found, String> {
        self.columns.iter().find(|found| found.name == column).ok_or_else(|| {
            let names: Vec<&str> = self.columns.iter().map(|found| found.name.as_str()).collect();
            let (table, names) = (&self.table, names.join(", "));
            format!("the table {table:?} has no column {column:?}; its columns: {names}")
        })
    }
}

/// Names of columns that usually hold a tenant.
const TENANTS: [&str; 8] = [
    "tenant",
    "tenant_id",
    "organization_id",
    "organisation_id",
    "org_id",
    "account_id",
    "company_id",
    "team_id",
];

/// The columns of an index without the key at its end, which orders equal values.
fn without_key<'a>(index: &'a [String], key: &[String]) -> &'a [String] {
    let at = (0..index.len()).find(|at| {
        let (before, rest) = index.split_at(*at);
        let left = key.iter().filter(|column| !before.contains(column));
        !rest.is_empty() && left.eq(rest.iter())
    });
    match at {
        Some(at @ 1..) => &index[..at],
        _ => index,
    }
}

/// Number of rows in which values are looked for, if no index finds them: a column may be NULL in most rows.
pub const ROWS_LOOKED_AT: u32 = 100_000;
/// A remark: what a mapping as instants was guessed from.
pub const BY_NUMBERS: &str = "instants, judging by the name and the numbers in the rows";
/// A remark: the same of texts.
pub const BY_TEXTS: &str = "judging by the name and the texts in the rows";
/// A remark: how a column in which no number was found is mapped if it holds instants.
pub const FOR_INSTANTS: &str = "no number was found in its rows; for instants: { type = \"timestamp\", encoding = \"seconds\" }, or \"millis\"";

/// Words in the name of a column that holds instants.
const WORDS: [&str; 17] = [
    "activity",
    "at",
    "created",
    "date",
    "deleted",
    "expiration",
    "expires",
    "expiry",
    "login",
    "modified",
    "on",
    "seen",
    "time",
    "timestamp",
    "ts",
    "until",
    "updated",
];

/// Whether a column holds instants, judging by its name.
pub fn is_named_as_instant(name: &str) -> bool {
    let words = words(name);
    // Names such as `on_sale` begin with one of the words.
    let begins = words.len() > 1 && matches!(words[0].as_str(), "on" | "at" | "time");
    words[usize::from(begins)..].iter().any(|word| WORDS.contains(&word.as_str()))
}

/// The words of a name such as `created_at`, `createdAt` or `Created At`, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && small) {
            words.push(String::new());
        }
        small = c.is_lowercase();
        if c.is_alphanumeric()
            && let Some(last) = words.last_mut()
        {
            last.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The unit of instants as whole numbers: every one of them lies between 2001 and 2100 in it. None: there
/// are none, or they have no such unit.
pub fn unit_of(numbers: &[i64]) -> Option<Encoding> {
    const FROM: i64 = 978_307_200;
    const TO: i64 = 4_102_444_800;
    let units = [(Encoding::Seconds, 1), (Encoding::Millis, 1_000), (Encoding::Native, 1_000_000)];
    let fits = |factor: i64| numbers.iter().all(|n| (FROM * factor..TO * factor).contains(n));
    let unit = units.into_iter().find(|(_, factor)| !numbers.is_empty() && fits(*factor));
    unit.map(|(encoding, _)| encoding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use besom_core::value::Kind;

    fn found(name: &str, kind: Option<Kind>) -> Found {
        let column = kind.map(|kind| Column { kind, encoding: Encoding::Native });
        Found { name: name.into(), declared: "some".into(), column, ..Found::default() }
    }

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|&text| text.to_owned()).collect()
    }

    fn shape() -> Shape {
        Shape {
            table: "app.sessions".into(),
            columns: vec![
                found("org_id", Some(Kind::Integer)),
                found("id", Some(Kind::Text)),
                found("place", None),
                found("seen_at", Some(Kind::Timestamp)),
            ],
            key: texts(&["org_id", "id"]),
            indexes: vec![
                texts(&["org_id", "id"]),
                texts(&["org_id", "seen_at", "id"]),
                texts(&["seen_at"]),
                texts(&["org_id", "place"]),
            ],
            ..Shape::default()
        }
    }

    #[test]
    fn a_table_becomes_a_collection_with_or_without_a_tenant() {
        let whole = shape().collection("sessions", None).expect("a collection");
        assert_eq!((whole.name.as_str(), whole.table.as_str()), ("sessions", "app.sessions"));
        assert_eq!(whole.key, texts(&["org_id", "id"]));
        assert_eq!(whole.columns.keys().collect::<Vec<_>>(), ["id", "org_id", "seen_at"]);
        let indexes: Vec<_> = whole.indexes.values().collect();
        assert_eq!(indexes, [&texts(&["org_id", "seen_at"]), &texts(&["seen_at"])]);

        let own = shape().collection("sessions", Some("org_id")).expect("a collection");
        assert_eq!((own.tenant.as_deref(), &own.key), (Some("org_id"), &texts(&["id"])));
        assert_eq!(own.columns.keys().collect::<Vec<_>>(), ["id", "seen_at"]);
        assert_eq!(own.indexes, BTreeMap::from([("seen_at".to_owned(), texts(&["seen_at"]))]));
        assert_eq!(shape().likely_tenant(), Some("org_id"));
    }

    #[test]
    fn a_table_without_a_usable_key_is_refused_with_the_fix() {
        let refused = |shape: &Shape, tenant| shape.collection("s", tenant).expect_err("refused");
        let bare = Shape { key: Vec::new(), ..shape() };
        assert!(refused(&bare, None).contains("no primary key and no unique index"));
        let of_tenant = Shape { key: texts(&["org_id"]), ..shape() };
        assert!(refused(&of_tenant, Some("org_id")).contains("other columns than \"org_id\""));
        let odd = Shape { key: texts(&["place"]), ..shape() };
        assert!(refused(&odd, None).contains("no kind of Besom fits"));
        let mut float = shape();
        float.columns[1].column = Some(Column { kind: Kind::Float, encoding: Encoding::Native });
        assert!(refused(&float, None).contains("neither an integer, a text"));
        let view = Shape { is_view: true, ..bare.clone() };
        assert!(refused(&view, None).contains("is a view, which has no key: add --key"));
        let keyed = view.with_key(texts(&["id"])).expect("a key");
        assert_eq!(keyed.collection("s", None).expect("a collection").key, texts(&["id"]));
        assert!(keyed.with_key(texts(&["gone"])).is_err());
        assert!(refused(&shape(), Some("tenant")).contains("its columns: org_id, id, place"));
    }

    #[test]
    fn instants_are_recognised_by_name_and_by_their_numbers() {
        for name in [
            "expires_at",
            "last_activity",
            "createdAt",
            "Created At",
            "timestamp",
            "seen_on",
            "ts_ms",
        ] {
            assert!(is_named_as_instant(name), "{name}");
        }
        for name in ["id", "on_sale", "status", "attempts", "atoms", "time_zone"] {
            assert!(!is_named_as_instant(name), "{name}");
        }
        assert_eq!(unit_of(&[1_764_000_000, 1_000_000_000]), Some(Encoding::Seconds));
        assert_eq!(unit_of(&[1_764_000_000_000]), Some(Encoding::Millis));
        assert_eq!(unit_of(&[1_764_000_000_000_000]), Some(Encoding::Native));
        assert_eq!(unit_of(&[1_764_000_000, 7]), None);
        assert_eq!(unit_of(&[]), None);
    }
}
