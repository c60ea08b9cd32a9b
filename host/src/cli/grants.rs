//! `besom grants`: prints SQL that grants Besom's role the privileges its tasks need, and nothing else.
//!
//! This module decides which privileges follow from the configuration. It does not connect to the
//! database: an administrator reviews the statements and runs them.

use std::collections::{BTreeMap, BTreeSet};

use besom_core::collection::{Collection, Collections, Operations, all_dependants};

use super::open::{Loader, connections};
use super::{Exit, Failure, Global, output};
use besom_config::Config;
use besom_ports::task::TaskDefinition;
use besom_product::retention::{columns_set, moved, needed};

/// `besom grants`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Role that hosts connect as (default: the user in store.url).
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Read-only role for `besom status` and `besom audit`.
    #[arg(long, value_name = "ROLE", default_value = "besom_reader")]
    reader: String,
}

/// What all tasks together may do to a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The union of the operations granted to the tasks.
    pub operations: Operations,
    /// The columns that tasks change; `None` means all mapped columns.
    pub columns: Option<BTreeSet<String>>,
    /// Whether rows are inserted with all columns of the table.
    pub whole: bool,
}

impl Args {
    /// Prints the statements.
    ///
    /// # Errors
    /// An invalid configuration, a SQLite store, or no role in the flags or in `store.url`.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let parsed = global.parsed()?;
        let loader = Loader::start(&parsed)?;
        let resolved = loader.resolve(parsed).await;
        let used = resolved.used_collections();
        let config = resolved.finish()?;
        let Some(url) = &config.store.url else {
            return Err(Failure::Usage(
                "the store is a SQLite file, which has no roles: protect the file instead (mode 0600, \
                 owned by the user of the host)"
                    .into(),
            ));
        };
        let role = self
            .role
            .or_else(|| user_of(url))
            .ok_or_else(|| Failure::Usage("store.url names no user: add --role ROLE".into()))?;
        for role in [&role, &self.reader] {
            if role.is_empty() || role.chars().any(char::is_control) {
                return Err(Failure::Usage("a role has a name without control characters".into()));
            }
        }
        let all = statements(&used, &wanted(&config), &config.store.schema, &role, &self.reader);
        output::show(global.output, &all, || {
            let mut text = String::from(
                "-- Run as a superuser in the product's database. (The owner of the tables may run the GRANTs on them.)\n\
                 -- Set passwords with \\password in psql. Run this again after tasks or tables have changed. It revokes\n\
                 -- nothing: REVOKE the privileges of removed tasks by hand.\n",
            );
            for statement in &all {
                text.push_str(statement);
                text.push_str(";\n");
            }
            text.push_str(&suggestions(connections(&config) + OF_VERBS, &role));
            if config.topics.values().any(|route| route.feed) {
                text.push_str(&entering(&config.store.schema));
            }
            text.push_str(&undoing(&used, &wanted(&config), &role));
            text
        })?;
        Ok(Exit::Fine)
    }
}

/// Connections reserved for verbs that run beside the hosts.
const OF_VERBS: usize = 8;

/// Returns statements, commented out, that affect other users or depend on the number of hosts.
fn suggestions(connections: usize, role: &str) -> String {
    let role = quote(role);
    format!(
        "\n-- Optional, because these statements affect other users as well:\n\
         -- allow only table owners to create objects in the schema where unqualified names are resolved\n\
         -- REVOKE CREATE ON SCHEMA public FROM PUBLIC;\n\
         -- limit the connections of Besom, so that the product can always connect: {connections} for each host\n\
         -- ALTER ROLE {role} CONNECTION LIMIT {connections};\n"
    )
}

/// Returns a statement, commented out, that lets the product's own role enter messages. It names the columns, so
/// that the role cannot choose `id`, the order.
fn entering(schema: &str) -> String {
    let schema = quote(schema);
    format!(
        "-- let your product enter messages, once a host has created the table; put its role for APP\n\
         -- GRANT USAGE ON SCHEMA {schema} TO APP;\n\
         -- GRANT INSERT (topic, tenant, key, payload) ON {schema}.feed TO APP;\n"
    )
}

/// Returns statements, commented out, without which `besom undo` is refused: what the tasks take away is put
/// back, and what they add is removed.
fn undoing(collections: &Collections, wanted: &BTreeMap<String, Wanted>, role: &str) -> String {
    let undoes = |wanted: &Wanted| {
        let adds = wanted.operations.insert || wanted.whole;
        match (wanted.operations.delete, adds) {
            (true, true) => Some("INSERT, DELETE"),
            (true, false) => Some("INSERT"),
            (false, true) => Some("DELETE"),
            (false, false) => None,
        }
    };
    // A row that has taken the key of a deleted one gets all of its columns, and a changed one that is gone comes back.
    let forces = |wanted: &Wanted| match (wanted.operations.delete, wanted.operations.update) {
        (true, _) => Some("UPDATE"),
        (false, true) => Some("INSERT"),
        (false, false) => None,
    };
    let heading =
        "let `besom undo` put back what tasks have deleted, and remove what they have inserted";
    let forced = "let `besom undo --force-keys` put rows back in place of others, or that are gone";
    let lines = |heading, rights: &dyn Fn(&Wanted) -> Option<&'static str>| {
        proposed((collections, wanted), role, heading, rights)
    };
    lines(heading, &undoes) + &lines(forced, &forces)
}

/// Statements, commented out, that grant these rights on each collection, under a heading; empty: there are none.
fn proposed(
    (collections, wanted): (&Collections, &BTreeMap<String, Wanted>),
    role: &str,
    heading: &str,
    rights: &dyn Fn(&Wanted) -> Option<&'static str>,
) -> String {
    let role = quote(role);
    let grant = |(name, wanted): (&String, &Wanted)| {
        let table = table_of(collections.get(name)?);
        Some(format!("-- GRANT {} ON {table} TO {role};\n", rights(wanted)?))
    };
    let lines: String = wanted.iter().filter_map(grant).collect();
    if lines.is_empty() { lines } else { format!("-- {heading}\n{lines}") }
}

fn table_of(collection: &Collection) -> String {
    collection.table.split('.').map(quote).collect::<Vec<_>>().join(".")
}

/// Returns the user in a connection URL.
fn user_of(url: &str) -> Option<String> {
    let rest = url.split_once("://")?.1;
    let before = rest.split(['/', '?']).next()?.rsplit_once('@').map(|(user, _)| user);
    let by_key = || url.split(['?', '&']).find_map(|part| part.strip_prefix("user="));
    let user = before.or_else(by_key).filter(|user| !user.is_empty())?;
    Some(user.split(':').next().unwrap_or(user).to_owned())
}

/// The columns of a collection that a task may change; `None`: all mapped ones.
fn changed(
    task: &TaskDefinition,
    collection: &str,
    operations: Operations,
) -> Option<BTreeSet<String>> {
    if !operations.update && !operations.insert {
        return Some(BTreeSet::new());
    }
    let set = columns_set(task);
    let is_of_it = needed(task).is_some_and(|(rows, _)| rows == collection);
    match is_of_it && !set.is_empty() {
        true => Some(set.into_iter().collect()),
        false => task.columns.get(collection).map(|own| own.iter().cloned().collect()),
    }
}

fn wanted(config: &Config) -> BTreeMap<String, Wanted> {
    let mut all: BTreeMap<String, Wanted> = BTreeMap::new();
    for task in config.tasks.values() {
        for (name, operations) in &task.grants {
            let first = !all.contains_key(name);
            let of = all.entry(name.clone()).or_default();
            of.operations.read |= operations.read;
            of.operations.insert |= operations.insert;
            of.operations.update |= operations.update;
            of.operations.delete |= operations.delete;
            of.columns = match (changed(task, name, *operations), of.columns.take()) {
                (Some(own), None) if first => Some(own),
                (Some(own), Some(others)) => Some(others.into_iter().chain(own).collect()),
                (None, _) | (Some(_), None) => None,
            };
        }
    }
    for (_, into) in config.tasks.values().filter_map(|task| moved(task)) {
        all.entry(into).or_default().whole = true;
    }
    let deleted = all.iter().filter(|(_, wanted)| wanted.operations.delete);
    let deleted: Vec<String> = deleted.map(|(name, _)| name.clone()).collect();
    for dependant in deleted.iter().flat_map(|name| all_dependants(&config.collections, name)) {
        let none = Wanted { columns: Some(BTreeSet::new()), ..Wanted::default() };
        all.entry(dependant.name.clone()).or_insert(none).operations.delete = true;
    }
    all
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn columns<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    names.into_iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ")
}

/// Returns the statements in the order in which they must be run.
pub fn statements(
    collections: &Collections,
    wanted: &BTreeMap<String, Wanted>,
    schema: &str,
    role: &str,
    reader: &str,
) -> Vec<String> {
    let (role, reader, own) = (quote(role), quote(reader), quote(schema));
    let created = |role: &str| {
        format!("DO $$ BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    };
    let mut all = vec![
        created(&role),
        created(&reader),
        format!("CREATE SCHEMA IF NOT EXISTS {own} AUTHORIZATION {role}"),
        format!("GRANT USAGE ON SCHEMA {own} TO {reader}"),
        format!("GRANT SELECT ON ALL TABLES IN SCHEMA {own} TO {reader}"),
        format!(
            "ALTER DEFAULT PRIVILEGES FOR ROLE {role} IN SCHEMA {own} GRANT SELECT ON TABLES TO {reader}"
        ),
    ];
    let anchors: BTreeSet<&String> = wanted
        .keys()
        .filter_map(|name| collections.get(name))
        .flat_map(|collection| collection.anchors.iter().map(|anchor| &anchor.collection))
        .collect();
    let needed: BTreeSet<&String> = wanted.keys().chain(anchors).collect();
    // What is mapped and used by no task is compared with the database as well.
    let names: BTreeSet<&String> = needed.iter().copied().chain(collections.keys()).collect();
    let mut schemas = BTreeSet::new();
    for name in names {
        let Some(collection) = collections.get(name) else { continue };
        if let Some((schema, _)) = collection.table.split_once('.') {
            schemas.insert(schema);
        }
        let none = Wanted::default();
        let is_needed = needed.contains(name);
        all.extend(of_table(collection, wanted.get(name).unwrap_or(&none), is_needed, &role));
    }
    let usage = schemas
        .into_iter()
        .map(|schema| format!("GRANT USAGE ON SCHEMA {} TO {role}", quote(schema)));
    // A table without a schema is found through the search path, which usually means `public`.
    let usage: Vec<String> =
        std::iter::once(format!("GRANT USAGE ON SCHEMA public TO {role}")).chain(usage).collect();
    let place = 3;
    all.splice(place..place, usage);
    all
}

/// Returns the privileges on one table: SELECT, UPDATE on at least one column (to lock rows), and what the
/// tasks do to it.
fn of_table(collection: &Collection, wanted: &Wanted, is_needed: bool, role: &str) -> Vec<String> {
    let table = table_of(collection);
    let operations = wanted.operations;
    let mapped: BTreeSet<&String> =
        collection.columns.keys().chain(&collection.key).chain(&collection.tenant).collect();
    let key = collection.key.first().or(collection.tenant.as_ref());
    // An upsert without other columns sets the key.
    let changed: BTreeSet<&String> = match &wanted.columns {
        Some(columns) if columns.is_empty() || operations.insert => {
            columns.iter().chain(key).collect()
        }
        Some(columns) => columns.iter().collect(),
        None => collection.columns.keys().chain(key).collect(),
    };
    // A row is kept with all its columns before it changes, and is changed at its place: `ctid` and the
    // other system columns need SELECT on the whole table.
    let mut rights = vec![match operations.insert || operations.update || operations.delete {
        true => "SELECT".to_owned(),
        false => format!("SELECT ({})", columns(mapped.iter().copied())),
    }];
    if operations.update {
        rights.push(format!("UPDATE ({})", columns(changed)));
    } else if is_needed {
        rights.push(format!("UPDATE ({})", columns(key)));
    }
    if wanted.whole {
        rights.push("INSERT".to_owned());
    } else if operations.insert {
        rights.push(format!("INSERT ({})", columns(mapped)));
    }
    if operations.delete {
        rights.push("DELETE".to_owned());
    }
    vec![format!("GRANT {} ON {table} TO {role}", rights.join(", "))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use besom_core::collection::{Anchor, Column, Encoding};
    use besom_core::value::Kind;

    fn collection(name: &str, table: &str, names: &[&str]) -> Collection {
        let column = Column { kind: Kind::Text, encoding: Encoding::Native };
        Collection {
            name: name.into(),
            table: table.into(),
            tenant: None,
            key: vec!["id".into()],
            columns: names.iter().map(|name| ((*name).to_owned(), column)).collect(),
            indexes: BTreeMap::new(),
            anchors: vec![],
            dependants: Vec::new(),
            not_null: Default::default(),
            accept_cascades: false,
        }
    }

    #[test]
    fn a_role_gets_what_tasks_do_and_no_more() {
        let mut uses = collection("uses", "app.uses", &["id", "owner"]);
        uses.tenant = Some("org".into());
        uses.anchors = vec![Anchor { collection: "owners".into(), columns: vec!["owner".into()] }];
        let all =
            [uses, collection("owners", "owners", &["id"]), collection("other", "o", &["id"])];
        let all: Collections = all.into_iter().map(|c| (c.name.clone(), c)).collect();
        let operations = Operations { read: true, delete: true, ..Operations::default() };
        let wanted =
            BTreeMap::from([("uses".to_owned(), Wanted { operations, ..Wanted::default() })]);
        let said = statements(&all, &wanted, "besom", "b\"x", "look");
        assert!(said[0].contains("CREATE ROLE \"b\"\"x\" LOGIN"), "{said:?}");
        let tail: Vec<&str> = said.iter().rev().take(2).map(String::as_str).collect();
        assert_eq!(
            tail,
            [
                "GRANT SELECT, UPDATE (\"id\"), DELETE ON \"app\".\"uses\" TO \"b\"\"x\"",
                "GRANT SELECT (\"id\"), UPDATE (\"id\") ON \"owners\" TO \"b\"\"x\"",
            ]
        );
        assert!(
            said.contains(&"GRANT USAGE ON SCHEMA \"app\" TO \"b\"\"x\"".to_owned()),
            "{said:?}"
        );
        // No task uses it, but it is compared with the database.
        assert!(
            said.contains(&"GRANT SELECT (\"id\") ON \"o\" TO \"b\"\"x\"".to_owned()),
            "{said:?}"
        );
        // An upsert must find out whether the row existed.
        let operations = Operations { read: true, insert: true, ..Operations::default() };
        let wanted =
            BTreeMap::from([("owners".to_owned(), Wanted { operations, ..Wanted::default() })]);
        let said = statements(&all, &wanted, "besom", "b", "look");
        let owners = "GRANT SELECT, UPDATE (\"id\"), INSERT (\"id\") ON \"owners\" TO \"b\"";
        assert!(said.iter().any(|statement| statement == owners), "{said:?}");
        // Rows that are moved have columns that are not mapped.
        let whole = Wanted { operations, whole: true, ..Wanted::default() };
        let said = statements(&all, &[("owners".to_owned(), whole)].into(), "besom", "b", "look");
        let owners = "GRANT SELECT, UPDATE (\"id\"), INSERT ON \"owners\" TO \"b\"";
        assert!(said.iter().any(|statement| statement == owners), "{said:?}");
    }

    /// The printed statements can be run unchanged, so optional ones must be commented out.
    #[test]
    fn what_concerns_others_is_suggested_in_comments() {
        let text = suggestions(40, "b\"x");
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with("-- ")), "{text}");
        for line in [
            "-- REVOKE CREATE ON SCHEMA public FROM PUBLIC;",
            "-- ALTER ROLE \"b\"\"x\" CONNECTION LIMIT 40;",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }

    #[test]
    fn the_user_is_that_of_the_url() {
        for (url, user) in [
            ("postgres://ann@h:1/d", Some("ann")),
            ("postgres://ann:pw@h/d?user=x", Some("ann")),
            ("postgres:///d?host=/run&user=bob", Some("bob")),
            ("postgres://h/d", None),
        ] {
            assert_eq!(user_of(url).as_deref(), user, "{url}");
        }
    }
}
