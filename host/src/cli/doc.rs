//! `besom doc`: documents from files, to stdout, and what is known of one.

use std::path::{Path, PathBuf};

use besom_core::ids::{TaskName, Tenant};
use clap::Subcommand;
use serde::Serialize;

use super::open::Outline;
use super::output::{self, Facts, Table};
use super::runs::plain;
use super::{Exit, Failure, Global, open};
use crate::config::quantity::show_bytes;
use crate::doc::{self, Error, LOG_BYTES_MAX, Name};
use crate::ports::store::Store;

/// `besom doc`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Import Yjs update logs, one document per file, named after the file.
    Import {
        /// Update logs: a little-endian u32 count, then per update a u32 length and its bytes.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The tenant (project) they belong to; created where it is missing.
        #[arg(long, default_value = "default")]
        tenant: String,
    },
    /// Write a document as an update log to stdout.
    Export {
        /// The document; TENANT is needed where several have one of that name.
        #[arg(value_name = "[TENANT/]KEY")]
        document: String,
    },
    /// What is stored of a document, and the last word on it.
    Show {
        /// The document; TENANT is needed where several have one of that name.
        #[arg(value_name = "[TENANT/]KEY")]
        document: String,
    },
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
    /// Does it.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        match self {
            Verb::Import { files, tenant } => {
                if tenant.is_empty() || tenant.contains('/') {
                    let message = "--tenant: a tenant is neither empty nor does it contain `/`";
                    return Err(Failure::Usage(message.into()));
                }
                let (store, _) = open::writing(global).await?;
                import(global, &*store, &files, &Tenant::from(tenant)).await
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
                let name = doc::find(&*store, &document).await?;
                let shown = doc::show(&*store, &name, &compactors(&outline)).await?;
                show(global, &name, &shown)
            }
        }
    }
}

/// The tasks that compact: by their plugin, or by their name where the file has none.
fn compactors(outline: &Outline) -> Vec<TaskName> {
    const PLUGIN: &str = "compaction";
    let tasks = outline.tasks.iter().filter(|(_, task)| task.plugin == PLUGIN);
    let mut tasks: Vec<_> = tasks.map(|(name, _)| name.clone()).collect();
    if tasks.is_empty() {
        tasks.push(TaskName::from(PLUGIN));
    }
    tasks
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct File {
    file: String,
    tenant: String,
    document: Option<String>,
    updates: u64,
    bytes: u64,
    error: Option<String>,
}

async fn import(
    global: &Global,
    store: &dyn Store,
    files: &[PathBuf],
    tenant: &Tenant,
) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    let mut failed = false;
    for path in files {
        let mut row = File {
            file: path.display().to_string(),
            tenant: tenant.to_string(),
            document: None,
            updates: 0,
            bytes: 0,
            error: None,
        };
        match import_file(store, path, tenant).await {
            Ok((name, imported)) => {
                row.document = Some(name.key);
                row.updates = imported.updates;
                row.bytes = imported.bytes;
            }
            // The store is gone: the files that follow would fail in the same way.
            Err(failure @ Failure::Unreachable(_)) => return Err(failure),
            Err(failure) => {
                failed = true;
                eprintln!(
                    "besom: {}: {}",
                    printable_path(path),
                    crate::config::printable(&failure.to_string())
                );
                row.error = Some(failure.to_string());
            }
        }
        rows.push(row);
    }
    output::show(global.output, &rows, || {
        let mut table = Table::new(&["FILE", "DOCUMENT", ">UPDATES", ">BYTES", "ERROR"], "");
        for row in &rows {
            table.row([
                row.file.clone(),
                row.document
                    .as_ref()
                    .map_or_else(|| "-".into(), |key| format!("{}/{key}", row.tenant)),
                row.updates.to_string(),
                row.bytes.to_string(),
                row.error.clone().unwrap_or_default(),
            ]);
        }
        table.render()
    })?;
    Ok(if failed { Exit::Failed } else { Exit::Fine })
}

fn printable_path(path: &Path) -> String {
    crate::config::printable(&path.display().to_string())
}

async fn import_file(
    store: &dyn Store,
    path: &Path,
    tenant: &Tenant,
) -> Result<(Name, doc::Imported), Failure> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| !stem.is_empty());
    let Some(key) = stem else {
        return Err(Failure::Failed("its name is no UTF-8, and it names the document".into()));
    };
    let size = std::fs::metadata(path).map_err(|e| Failure::Failed(e.to_string()))?.len();
    if size > LOG_BYTES_MAX {
        let message = format!(
            "byte {LOG_BYTES_MAX}: the file has {size} bytes, at most {} are imported",
            show_bytes(LOG_BYTES_MAX)
        );
        return Err(Failure::Failed(message));
    }
    let bytes = std::fs::read(path).map_err(|e| Failure::Failed(e.to_string()))?;
    let updates = doc::read_log(&bytes).map_err(|e| Failure::Failed(e.to_string()))?;
    let name = Name { tenant: tenant.clone(), key: key.to_owned() };
    let imported = doc::import(store, &name, &updates).await?;
    Ok((name, imported))
}

fn show(global: &Global, name: &Name, shown: &doc::Shown) -> Result<Exit, Failure> {
    let d = &shown.document;
    let rows = shown.edits + shown.presences + shown.snapshots;
    let last = shown.last_compaction.as_ref().map(|row| {
        let notes: serde_json::Map<String, serde_json::Value> =
            row.notes.iter().map(|field| (field.name.clone(), plain(&field.value))).collect();
        serde_json::json!({ "at": row.at.to_string(), "run": row.run, "node": row.node, "notes": notes })
    });
    let json = serde_json::json!({
        "tenant": name.tenant,
        "document": name.key,
        "format": d.format,
        "server_seq": d.server_seq,
        "compacted_seq": d.compacted_seq,
        "epoch": d.epoch,
        "rows": rows,
        "edits": shown.edits,
        "presences": shown.presences,
        "snapshots": shown.snapshots,
        "bytes": shown.bytes,
        "state": shown.state,
        "compacted_at": d.compacted_at.map(|t| t.to_string()),
        "last_compaction": last,
        "left_alone": shown.left_alone,
    });
    output::show(global.output, &json, || {
        let mut facts = Facts::default();
        facts.add("document", name).add("format", &d.format);
        facts.add("state", in_words(shown));
        facts.add("server_seq", d.server_seq).add("compacted_seq", d.compacted_seq);
        facts.add("epoch", d.epoch);
        facts.add(
            "rows",
            format!(
                "{rows} ({} edits, {} presences, {} snapshots)",
                shown.edits, shown.presences, shown.snapshots
            ),
        );
        facts.add("bytes", shown.bytes);
        match (&shown.last_compaction, d.compacted_at) {
            (Some(row), _) => facts.add("last compaction", row.at),
            (None, Some(at)) => facts.add("last compaction", at),
            (None, None) => facts.add("last compaction", "never"),
        };
        for field in shown.last_compaction.iter().flat_map(|row| &row.notes) {
            let value = plain(&field.value);
            facts.add(
                format!("  {}", field.name),
                value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            );
        }
        facts.render()
    })?;
    Ok(Exit::Fine)
}

fn in_words(shown: &doc::Shown) -> String {
    let reason = shown.left_alone.as_deref().unwrap_or("no reason is kept");
    match shown.state {
        doc::State::Untouched => "untouched: no compaction has looked at it so far".into(),
        doc::State::Compacted => "compacted".into(),
        doc::State::LeftAlone => format!("left alone: {reason}"),
        doc::State::Dead => format!("set aside (see `besom dead ls`): {reason}"),
    }
}
