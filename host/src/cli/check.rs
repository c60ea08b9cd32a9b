//! `besom check`: everything that can be known to be wrong before anything is started.

use besom_core::time::Time;

use super::open::{Loader, is_there, open_store};
use super::output;
use super::{Exit, Failure, Global};
use crate::config::schedule::remark;
use crate::config::{Diagnostic, Overrides, Problems, Resolved, printable, read};
use crate::courier::look_at_token;

/// `besom check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Compare the mapping with the database as well.
    #[arg(long)]
    store: bool,
}

impl Args {
    /// Loads everything, and prints what is wrong. Diagnostics are on stderr, the verdict on
    /// stdout; as JSON stdout has both.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let parsed = read(&global.config, &Overrides::from_env(global.set.clone()))?;
        let loader = Loader::start(&parsed)?;
        let mut resolved = loader.resolve(parsed).await;
        tokens(&mut resolved);
        notes(&mut resolved, Time::from_jiff(jiff::Timestamp::now()));
        let mut unreachable = None;
        if self.store {
            if !is_there(resolved.partial()) {
                let path = resolved.partial().store.path.display();
                unreachable = Some(format!("there is no database {path}"));
            } else {
                let used = resolved.used_collections();
                let faults = match open_store(resolved.partial()).await {
                    Ok(store) => store.check(&used).await,
                    Err(error) => Err(error),
                };
                match faults {
                    Ok(faults) => resolved.mapping_faults(&faults),
                    Err(error) => unreachable = Some(error.to_string()),
                }
            }
        }
        let (tasks, diagnostics) = match resolved.finish() {
            Ok(config) => (config.tasks.len(), config.warnings),
            Err(Problems(all)) => (0, all),
        };
        let errors = diagnostics.iter().filter(|d| d.is_error()).count();
        let warnings = diagnostics.len() - errors;
        if !diagnostics.is_empty() {
            eprintln!("{}", Problems(diagnostics.clone()));
        }
        let json = serde_json::json!({
            "ok": errors == 0 && unreachable.is_none(),
            "errors": errors,
            "warnings": warnings,
            "unreachable": unreachable,
            "diagnostics": diagnostics.iter().map(shown).collect::<Vec<_>>(),
        });
        output::show(global.output, &json, || {
            let file = printable(&global.config.display().to_string());
            match (errors, warnings) {
                (0, 0) => format!("{file}: fine, {tasks} tasks\n"),
                (0, n) => format!("{file}: usable, {tasks} tasks, {n} warnings\n"),
                (n, m) => format!("{file}: {n} errors, {m} warnings\n"),
            }
        })?;
        match (errors, unreachable) {
            (0, None) => Ok(Exit::Fine),
            (0, Some(message)) => Err(Failure::Unreachable(message)),
            _ => Ok(Exit::Configuration),
        }
    }
}

/// A diagnostic as JSON, with its text as it is printed.
fn shown(diagnostic: &Diagnostic) -> serde_json::Value {
    let mut json = serde_json::to_value(diagnostic).unwrap_or_default();
    json["text"] = diagnostic.to_string().into();
    json
}

/// A host does not start with a token that it cannot send.
fn tokens(resolved: &mut Resolved) {
    let topics = resolved.partial().topics.clone();
    for (name, route) in &topics {
        if let Some(Err(message)) = route.token_file.as_deref().map(look_at_token) {
            resolved.token_fault(name, format!("the topic `{name}`: {message}"));
        }
    }
}

/// What is allowed but deserves a look.
fn notes(resolved: &mut Resolved, now: Time) {
    let tasks: Vec<_> = resolved.partial().tasks.values().cloned().collect();
    for task in &tasks {
        let schedule = task.schedule.as_deref();
        if let Some((warning, fix)) = schedule.and_then(|s| remark(s, &task.timezone, now)) {
            resolved.warn_schedule(&task.name, warning, fix);
        }
    }
    let workspaces = resolved.used_collections().remove("workspaces");
    if let Some(workspaces) = workspaces {
        let guarded = ["version", "last_manual_change_at"];
        if !guarded.iter().any(|column| workspaces.columns.contains_key(*column)) {
            resolved.warn_collection(
                "workspaces",
                "without `version` or `last_manual_change_at`, a user who chooses the state that already stands may be overruled",
                "map a column that changes with every choice of a user",
            );
        }
    }
}
