//! `besom doc`: imports, exports, shows and verifies documents.

mod left_alone;
mod show;
mod verify;

use std::path::{Path, PathBuf};
use std::time::Duration;

use besom_core::command::counted;
use besom_core::ids::{TaskName, Tenant};
use besom_snapshot::Cause;
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

use super::open::Outline;
use super::output::{self, Table};
use super::{Exit, Failure, Global, open, submit};
use besom_config::quantity::{bytes, duration_argument, show_bytes};
use besom_ports::store::{self, Command, Store};
use besom_product::doc::{self, Error, Format, LOG_BYTES_MAX, Name};
use besom_system::child::Limits;

/// `besom doc`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Import update logs, one document per file, named after the file.
    Import {
        /// Update logs: a little-endian u32 count, then per update a u32 length and its bytes.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Tenant (project) of the documents; created if it does not exist.
        #[arg(long, default_value = "default")]
        tenant: String,
        /// Format of the updates.
        #[arg(long, default_value = Format::Yjs.as_str(), value_parser = format())]
        format: Format,
        /// Reason, recorded with the import.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Write a document to stdout as an update log.
    Export {
        /// The document; TENANT is required if several tenants have a document with this key.
        #[arg(value_name = "[TENANT/]KEY")]
        document: String,
    },
    /// Show what is stored for a document, its last outcome, and the attached clients.
    Show {
        /// The document; TENANT is required if several tenants have a document with this key.
        #[arg(value_name = "[TENANT/]KEY")]
        document: String,
    },
    /// Compare every compaction of a document again with the rows kept for undo. Exits with 65 if a
    /// compaction differs from its source.
    Verify {
        /// The document; TENANT is required if several tenants have a document with this key.
        #[arg(value_name = "[TENANT/]KEY")]
        document: String,
        /// Maximum address space of the process that reads a compaction.
        #[arg(long, default_value = "4GiB", value_name = "BYTES", value_parser = bytes)]
        memory: u64,
        /// Maximum CPU time for reading one compaction.
        #[arg(long, default_value = "60s", value_name = "SPAN", value_parser = duration_argument)]
        time: Duration,
    },
    /// List documents that compaction left alone or set aside, with a count for each reason.
    LeftAlone,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Ambiguous(..) => Failure::Usage(error.to_string()),
            Error::Exists(_) | Error::Missing(_) => Failure::Failed(error.to_string()),
            Error::Store(error) => error.into(),
        }
    }
}

impl Verb {
    /// Runs the verb and prints its result.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        match self {
            Verb::Import { files, tenant, format, reason } => {
                if tenant.is_empty() || tenant.contains('/') {
                    let message = "--tenant: a tenant must not be empty or contain `/`";
                    return Err(Failure::Usage(message.into()));
                }
                submit::checked(&reason)?;
                let (store, _) = open::writing(global).await?;
                import(global, &*store, &files, (&Tenant::from(tenant), format), &reason).await
            }
            Verb::Export { document } => {
                let (store, _) = open::reading(global).await?;
                let name = doc::find(&*store, &document).await?;
                let updates = doc::export(&*store, &name).await?;
                output::write(&doc::write_log(&updates))?;
                Ok(Exit::Fine)
            }
            Verb::Show { document } => {
                let (store, outline) = open::reading(global).await?;
                let name = doc::find(&*store, &document).await.map_err(without_documents)?;
                let shown = doc::show(&*store, &name, &compactors(&outline)).await?;
                show::print(global, &name, &shown)
            }
            Verb::Verify { document, memory, time } => {
                let (store, outline) = open::reading(global).await?;
                let name = doc::find(&*store, &document).await?;
                let child = Limits::of_this_program(memory, time);
                let tasks = compactors(&outline);
                let found = doc::verify(&*store, &name, &tasks, Some(&child)).await?;
                verify::print(global, &name, &found)
            }
            Verb::LeftAlone => {
                let (store, outline) = open::reading(global).await?;
                let words = doc::left_alone(&*store, &compactors(&outline)).await?;
                left_alone::print(global, &words)
            }
        }
    }
}

/// Says that a database without the tables of documents has none.
fn without_documents(error: Error) -> Failure {
    match error {
        Error::Store(store::Error::Refused(Cause::Schema, words)) => Failure::Failed(format!(
            "this database has no documents: {words}; `besom doc import` creates the tables of documents"
        )),
        error => error.into(),
    }
}

/// Returns the tasks that use the compaction plugin, or the default name if the file has none.
fn compactors(outline: &Outline) -> Vec<TaskName> {
    let tasks = outline.tasks.iter().filter(|(_, task)| task.plugin == doc::COMPACTION);
    let mut tasks: Vec<_> = tasks.map(|(name, _)| name.clone()).collect();
    if tasks.is_empty() {
        tasks.push(TaskName::from(doc::COMPACTION));
    }
    tasks
}

/// The result of importing a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct File {
    file: String,
    tenant: String,
    document: Option<String>,
    updates: u64,
    bytes: u64,
    error: Option<String>,
}

/// Parses the name of a format.
fn format() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::as_str))
        .try_map(|word| Format::parse(&word).ok_or("unknown format"))
}

async fn import(
    global: &Global,
    store: &dyn Store,
    files: &[PathBuf],
    (tenant, format): (&Tenant, Format),
    reason: &str,
) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    let mut failed = false;
    let mut imported = Imported::default();
    for path in files {
        let mut row = File {
            file: path.display().to_string(),
            tenant: tenant.to_string(),
            document: None,
            updates: 0,
            bytes: 0,
            error: None,
        };
        match import_file(store, path, (tenant, format)).await {
            Ok((name, done)) => {
                imported.add(&name.key);
                row.document = Some(name.key);
                row.updates = done.updates;
                row.bytes = done.bytes;
            }
            // The store is unreachable: the remaining files would fail in the same way.
            Err(failure @ Failure::Unreachable(_)) => {
                imported.note(store, tenant, reason).await;
                return Err(failure);
            }
            Err(failure) => {
                failed = true;
                to_stderr!(
                    "besom: {}: {}",
                    printable_path(path),
                    besom_config::printable(&failure.to_string())
                );
                row.error = Some(failure.to_string());
            }
        }
        rows.push(row);
    }
    imported.note(store, tenant, reason).await;
    output::show(global.output, &rows, || {
        let mut table = Table::new("");
        for row in &rows {
            let document = row.document.as_ref().map(|key| format!("{}/{key}", row.tenant));
            table.row([
                ("FILE", &row.file),
                ("DOCUMENT", &output::text(document)),
                (">UPDATES", &row.updates),
                (">BYTES", &row.bytes),
                ("ERROR", &row.error.as_deref().unwrap_or_default()),
            ]);
        }
        table.render()
    })?;
    Ok(if failed { Exit::Failed } else { Exit::Fine })
}

/// Maximum number of documents that the record of an import names.
const NAMED_MAX: usize = 100;

#[derive(Debug, Default)]
struct Imported {
    count: usize,
    /// The first [`NAMED_MAX`] keys.
    names: Vec<String>,
}

impl Imported {
    fn add(&mut self, name: &str) {
        self.count += 1;
        if self.names.len() < NAMED_MAX {
            self.names.push(name.to_owned());
        }
    }

    fn words(&self) -> String {
        let more = if self.count > self.names.len() { ", ..." } else { "" };
        let count = counted(self.count as u64, "document");
        format!("{count} ({}{more})", self.names.join(", "))
    }

    /// Records who has imported the documents. If that fails, the import still succeeds with a warning.
    async fn note(&self, store: &dyn Store, tenant: &Tenant, reason: &str) {
        if self.count == 0 {
            return;
        }
        let command = Command::Imported { tenant: tenant.to_string(), documents: self.words() };
        if let Err(error) = store.submit(&command, &submit::caller(), reason).await {
            tracing::warn!(%error, "cannot record in the store who imported the documents");
        }
    }
}

fn printable_path(path: &Path) -> String {
    besom_config::printable(&path.display().to_string())
}

async fn import_file(
    store: &dyn Store,
    path: &Path,
    (tenant, format): (&Tenant, Format),
) -> Result<(Name, doc::Imported), Failure> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| !stem.is_empty());
    let Some(key) = stem else {
        return Err(Failure::Failed(
            "the file name is not UTF-8, but the document is named after it: rename the file"
                .into(),
        ));
    };
    let size = std::fs::metadata(path).map_err(|e| Failure::Failed(e.to_string()))?.len();
    if size > LOG_BYTES_MAX {
        let message = format!(
            "byte {LOG_BYTES_MAX}: the file has {size} bytes, the maximum is {}",
            show_bytes(LOG_BYTES_MAX)
        );
        return Err(Failure::Failed(message));
    }
    let bytes = std::fs::read(path).map_err(|e| Failure::Failed(e.to_string()))?;
    let updates = doc::read_log(&bytes).map_err(|e| Failure::Failed(e.to_string()))?;
    let name = Name { tenant: tenant.clone(), key: key.to_owned() };
    let imported = doc::import(store, &name, format, &updates).await?;
    Ok((name, imported))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_imported_documents_the_first_are_named() {
        let mut all = Imported::default();
        all.add("note");
        assert_eq!(all.words(), "1 document (note)");
        for number in 0..2 * NAMED_MAX {
            all.add(&format!("n{number}"));
        }
        let words = all.words();
        assert!(words.starts_with("201 documents (note, n0, "), "{words}");
        assert!(words.ends_with("n98, ...)"), "{words}");
    }
}
