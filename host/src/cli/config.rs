//! `besom config`: prints the JSON Schema, writes a commented configuration, and maps tables.

use std::io::Write as _;
use std::time::Duration;

use besom_core::collection::Collection;
use besom_ports::embedded::Dialect;
use besom_ports::shape::Described;
use besom_product::model::collections_for;
use besom_product::retention::{age_of, remark};
use clap::Subcommand;

use super::{Exit, Failure, Global, open, output};
use besom_config::keys::suggestion;
use besom_config::map::{Retaining, Rule};
use besom_config::quantity::duration_argument;
use besom_config::template::Template;
use besom_config::{Overrides, file, map, printable, read, schema, template};

/// `besom config`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Print the JSON Schema of besom.toml.
    Schema,
    /// Write a commented configuration to the path given by --config.
    Init {
        /// Print the configuration to stdout instead.
        #[arg(long)]
        stdout: bool,
    },
    /// Read a table of the database, and print the section that maps it for tasks.
    ///
    /// The section is a proposal: confirm what a comment asks to confirm, then run `besom check --store`. A foreign
    /// key to a table that the file maps becomes an anchor. The database is only read.
    Map(Mapping),
}

/// What `besom config map` is given.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("rule").args(["older_than", "keep"]).multiple(true))]
pub struct Mapping {
    /// Name of the table or view (on PostgreSQL, SCHEMA.TABLE if it is not on the search path).
    table: String,
    /// Name of the collection (default: the name of the table, without its schema).
    #[arg(long)]
    name: Option<String>,
    /// Column with the tenant, if the table has tenants.
    #[arg(long, value_name = "COLUMN")]
    tenant: Option<String>,
    /// Columns that identify a row (default: the primary key, or else a unique index).
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    key: Vec<String>,
    /// Also a task that deletes rows of this age; without a mode, it only shows them.
    #[arg(long, value_name = "SPAN", value_parser = duration_argument)]
    older_than: Option<Duration>,
    /// Also a task that deletes rows beyond this number of newest ones.
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    keep: Option<u32>,
    /// Column of which each value has its own newest rows, for the task.
    #[arg(long, value_name = "COLUMN", requires = "keep")]
    per: Option<String>,
    /// Column that tells the age of a row, for the task (default: the only one of this kind).
    #[arg(long, value_name = "COLUMN", requires = "rule")]
    by: Option<String>,
    /// Add the sections at the end of the configuration file.
    #[arg(long)]
    write: bool,
}

impl Verb {
    /// Carries out the verb.
    ///
    /// # Errors
    /// A file that cannot be written, or a table that cannot be read or mapped.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        match self {
            Verb::Map(mapping) => mapped(global, mapping).await?,
            Verb::Schema => {
                let text = serde_json::to_string_pretty(&schema())
                    .map_err(|e| Failure::Failed(e.to_string()))?;
                output::write(format!("{text}\n").as_bytes())?;
            }
            Verb::Init { stdout: true } => {
                output::write(template(&Template::default()).as_bytes())?;
            }
            Verb::Init { stdout: false } => {
                let path = &global.config;
                // `create_new` never overwrites: it checks and creates in one step.
                std::fs::File::create_new(path)
                    .and_then(|mut file| file.write_all(template(&Template::default()).as_bytes()))
                    .map_err(|e| match e.kind() {
                        std::io::ErrorKind::AlreadyExists => Failure::Failed(format!(
                            "{} already exists and is not overwritten; write to another file with \
                             --config, or print with --stdout",
                            path.display()
                        )),
                        _ => Failure::Failed(format!("{}: {e}", path.display())),
                    })?;
                output::show(global.output, &serde_json::json!({ "file": path }), || {
                    format!("Wrote {}\n", besom_config::printable(&path.display().to_string()))
                })?;
            }
        }
        Ok(Exit::Fine)
    }
}

/// Prints the sections of a table, or adds them to the file.
async fn mapped(global: &Global, mapping: Mapping) -> Result<(), Failure> {
    let Mapping { table, name, tenant, key, older_than, keep, per, by, write } = mapping;
    let table = &*table;
    let overrides = Overrides::from_env(global.set.clone());
    let parsed = read(&global.config, &overrides)?;
    let model = collections_for(&parsed.plugins());
    let resolved = parsed.outline(&model);
    let shape = match open::describe(resolved.partial(), table).await? {
        Described::Table(shape) if key.is_empty() => shape,
        Described::Table(shape) => shape.with_key(key).map_err(Failure::Failed)?,
        Described::Unknown(known) if known.is_empty() => {
            let (what, fix) = match &resolved.partial().store.url {
                Some(_) => (
                    "the database".to_owned(),
                    "connect as a role that sees them, or correct store.url",
                ),
                None => {
                    let path = resolved.partial().store.path.display().to_string();
                    (format!("the database {path}"), "correct store.path")
                }
            };
            return Err(Failure::Failed(format!("{what} has no tables of a product: {fix}")));
        }
        Described::Unknown(known) => {
            return Err(Failure::Failed(format!(
                "there is no table `{}` in the database; {}",
                printable(table),
                suggestion(table, known.iter().map(String::as_str))
            )));
        }
    };
    let name = name.unwrap_or_else(|| table.rsplit('.').next().unwrap_or(table).to_owned());
    let mut collection = shape.collection(&name, tenant.as_deref()).map_err(Failure::Failed)?;
    collection.anchors = map::anchors(&shape, &collection, &resolved.partial().collections);
    let mut section = map::section(&shape, &collection);
    let on = open::dialect(resolved.partial());
    let remark = match shape.is_view {
        true => Some(of_view(&collection.name, on)),
        false => remark(&collection, per.as_deref(), on),
    };
    if let Some(remark) = remark {
        section.push_str(&format!("\n{}\n", printable(&remark)));
    }
    let rule = Rule { older_than, keep, per };
    let task = rule.is_given().then(|| retaining(&collection, by, rule)).transpose()?;
    if let Some(task) = &task {
        section.push_str(&format!("\n{}", task.section(&name)));
    }
    if write {
        let failed = |error: file::Error| Failure::Failed(error.to_string());
        let version = file::read(&global.config).map_err(failed)?;
        let text = map::added(
            &version.text,
            &global.config,
            &overrides,
            &name,
            task.as_ref().map(|task| &*task.task),
            &section,
        )
        .map_err(|refusal| Failure::Failed(refusal.to_string()))?;
        file::replace(&global.config, &version.digest, &text).map_err(failed)?;
    }
    let json = serde_json::json!({
        "collection": collection,
        "task": task.as_ref().map(|task| &task.task),
        "toml": section,
        "file": write.then_some(&global.config),
    });
    output::show(global.output, &json, || {
        if !write {
            return section;
        }
        let (name, file) = (besom_config::keys::written(&name), &global.config);
        let file = printable(&file.display().to_string());
        let compare = "compare it with the database: besom check --store";
        match task {
            Some(Retaining { task, .. }) => format!(
                "Added [collections.{name}] and [tasks.{task}] to {file}; {compare}\n\
                 Then see what the task would delete: besom run {task}\n"
            ),
            None => format!("Added [collections.{name}] to {file}; {compare}\n"),
        }
    })?;
    Ok(())
}

/// The task that deletes rows of a collection by this rule.
fn retaining(
    collection: &Collection,
    by: Option<String>,
    rule: Rule,
) -> Result<Retaining, Failure> {
    let known = |flag: &str, column: &str| match collection.columns.contains_key(column) {
        true => Ok(()),
        false => Err(Failure::Failed(format!(
            "{flag}: the table has no column `{}`; {}",
            printable(column),
            suggestion(column, collection.columns.keys().map(String::as_str))
        ))),
    };
    if let Some(per) = &rule.per {
        known("--per", per)?;
    }
    let by = match by {
        Some(by) => known("--by", &by).map(|()| by)?,
        None => age_of(collection, rule.per.as_deref()).map_err(Failure::Failed)?.to_owned(),
    };
    Ok(Retaining::of(&collection.name, by, rule))
}

/// A comment for the mapping of a view.
fn of_view(collection: &str, on: Dialect) -> String {
    match on {
        Dialect::Sqlite => {
            "# tasks can only read the rows of a view of SQLite: to change or delete them, map the table below it".to_owned()
        }
        Dialect::Postgres => format!(
            "# a view has no index of its own: write indexes of the table below it that tasks read by into \
             [collections.{}.indexes], as by_at = [\"at\"]; `retention` needs chunk = 0 for a view",
            besom_config::keys::written(collection)
        ),
    }
}
