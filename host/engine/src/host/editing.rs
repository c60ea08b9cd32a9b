//! Shows and edits the host's own configuration file for the dashboard.
//!
//! Combines [`besom_config::edit`] (the new text, and whether it may be saved) with
//! [`besom_config::file`] (the file on disk) behind the model of the dashboard. All functions wait
//! for the disk: call them on a thread that may block.

use std::path::PathBuf;
use std::sync::Arc;

use besom_core::ids::TaskName;
use besom_core::time::Time;
use besom_snapshot::{ConfigFile, DiffKind, DiffLine, Edit, Edited, Problem};

use besom_config::diagnostic::Place;
use besom_config::edit::{self, Base, Change, Field, Finding};
use besom_config::file::{self, FileDigest, Version};
use besom_config::hunk::{Fate, Line};
use besom_config::{Diagnostic, Overrides, RawConfig};
use besom_product::model::collections_for;
use besom_system::secret::redact;
use tokio::sync::Notify;

/// The configuration file of a host.
#[derive(Debug, Clone)]
pub struct Desk {
    /// The permanent name of the host.
    pub host: String,
    /// The path of the file, as it was given to the host.
    pub path: PathBuf,
    /// The settings from flags and the environment, which take precedence over the file.
    pub overrides: Overrides,
    /// Told of each file that was saved, so that it takes effect at once.
    pub saved: Arc<Notify>,
}

/// The result of an edit.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The result, or the preview, of the edit.
    pub edited: Edited,
    /// A description of the changed keys, if the file was replaced.
    pub change: Option<String>,
}

impl Desk {
    /// The current file without passwords, because every viewer can see it.
    ///
    /// # Errors
    /// The file cannot be read; the message says why.
    pub fn show(&self) -> Result<ConfigFile, String> {
        let version = self.read()?;
        Ok(ConfigFile {
            host: self.host.clone(),
            path: version.path.display().to_string(),
            digest: version.digest.to_string(),
            text: self.masked(&version.text),
            locked: version.read_only,
        })
    }

    /// The text without passwords, and without the values of unknown keys: a misspelt key may name a
    /// secret.
    fn masked(&self, text: &str) -> String {
        let redacted = redact(text);
        let parsed = RawConfig::parse(text, &self.path, &self.overrides);
        let Err(problems) = parsed.outline(&collections_for(&[])).finish() else {
            return redacted.into_owned();
        };
        let mut lines: Vec<&str> = redacted.split('\n').collect();
        for problem in problems.0.iter().filter(|found| found.message.starts_with("unknown key")) {
            if let Place::Line { line, text, .. } = &problem.place
                && let Some(shown) = lines.get_mut(line.saturating_sub(1))
            {
                *shown = text;
            }
        }
        lines.join("\n")
    }

    /// Performs an edit, or previews it. A result that has errors caused by the edit is returned
    /// but not saved.
    ///
    /// # Errors
    /// There is no result, the file has changed since the edit was prepared, or the file cannot be
    /// replaced. The message says which; the file is unchanged.
    pub fn edit(&self, wanted: &Edit, now: Time) -> Result<Done, String> {
        let version = self.read()?;
        let task = TaskName::from(wanted.task.as_str());
        let changes = wanted.set.iter().map(change).collect::<Result<Vec<_>, _>>()?;
        let base = Base {
            text: &version.text,
            origin: &self.path,
            overrides: &self.overrides,
            collections: collections_for,
            now,
        };
        let result = edit::edit(&base, &task, &changes).map_err(|refusal| refusal.to_string())?;
        let saves = wanted.save && result.in_the_way().is_empty();
        let mut digest = version.digest;
        if saves {
            // Also detects that the file was changed in the meantime.
            let base = FileDigest::from(wanted.base.clone());
            digest = file::replace(&self.path, &base, &result.text).map_err(|e| e.to_string())?;
            self.saved.notify_one();
        }
        let problem = |finding: &Finding| problem(&finding.diagnostic, &result);
        let lines = result.hunks.iter().flat_map(|hunk| &hunk.lines);
        let edited = Edited {
            diff: lines.map(diff_line).collect(),
            problems: result.findings.iter().map(problem).collect(),
            saved: saves,
            digest: digest.to_string(),
        };
        let change = saves.then(|| edit::summary(&version.text, &result.text, &task));
        Ok(Done { edited, change })
    }

    fn read(&self) -> Result<Version, String> {
        file::read(&self.path).map_err(|error| error.to_string())
    }
}

fn change((key, value): (&String, &Option<String>)) -> Result<Change, String> {
    let field = Field::named(key).ok_or_else(|| {
        let known = Field::ALL.map(Field::name).join(", ");
        format!("`{key}` cannot be edited here; editable keys: {known}")
    })?;
    Ok(Change { field, value: value.clone() })
}

fn diff_line(line: &Line) -> DiffLine {
    let kind = match line.fate {
        Fate::Kept => DiffKind::Kept,
        Fate::Removed => DiffKind::Removed,
        Fate::Added => DiffKind::Added,
    };
    let number = line.new.or(line.old).unwrap_or_default();
    DiffLine { kind, line: small(number), text: redact(&line.text).into_owned() }
}

fn problem(diagnostic: &Diagnostic, result: &edit::Edited) -> Problem {
    let fault = result.faults.iter().find(|fault| fault.message == diagnostic.message);
    let bare = Problem {
        warning: !diagnostic.is_error(),
        key: fault.map(|fault| fault.field.name()),
        message: diagnostic.message.clone(),
        fix: diagnostic.fix.clone().unwrap_or_default(),
        ..Problem::default()
    };
    match &diagnostic.place {
        Place::Line { line, column, text, chars, .. } => Problem {
            line: small(*line),
            column: small(*column),
            chars: small(*chars),
            text: text.clone(),
            ..bare
        },
        Place::File { .. } => bare,
        Place::Variable { name, value } => Problem { text: format!("{name}={value}"), ..bare },
        Place::Flag { text } => Problem { text: format!("--set {text}"), ..bare },
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const NOW: Time = Time::from_secs(1_750_000_000);
    const TEXT: &str = "[tasks.sweep]\nplugin = \"compaction\"\nschedule = \"@daily\" # why\n";

    fn desk() -> (tempfile::TempDir, Desk) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("besom.toml");
        std::fs::write(&path, TEXT).expect("written");
        let (host, saved) = ("one".into(), Arc::default());
        (dir, Desk { host, path, overrides: Overrides::default(), saved })
    }

    fn schedule(base: &str, value: &str, save: bool) -> Edit {
        Edit {
            task: "sweep".into(),
            base: base.into(),
            set: [("schedule".to_owned(), Some(value.to_owned()))].into(),
            save,
            reason: String::new(),
        }
    }

    #[test]
    fn an_edit_is_tried_saved_and_refused_where_the_file_has_changed() {
        let (_dir, desk) = desk();
        let shown = desk.show().expect("read");
        assert_eq!((shown.text.as_str(), shown.host.as_str(), shown.locked), (TEXT, "one", None));

        let tried = desk.edit(&schedule(&shown.digest, "@hourly", false), NOW).expect("tried");
        assert_eq!(
            (tried.edited.saved, &tried.edited.digest, &tried.change),
            (false, &shown.digest, &None)
        );
        let lines: Vec<_> = tried.edited.diff.iter().map(|l| (l.kind, l.line)).collect();
        let (kept, removed, added) = (DiffKind::Kept, DiffKind::Removed, DiffKind::Added);
        assert_eq!(lines, [(kept, 1), (kept, 2), (removed, 3), (added, 3)]);
        assert_eq!(desk.show().expect("read").text, TEXT);
        let told = || desk.saved.notified().now_or_never().is_some();
        assert!(!told(), "nothing is saved");

        let saved = desk.edit(&schedule(&shown.digest, "@hourly", true), NOW).expect("saved");
        assert!(saved.edited.saved && told());
        assert_eq!(saved.change.as_deref(), Some("schedule \"@daily\" -> \"@hourly\""));
        let now = desk.show().expect("read");
        assert_eq!(
            (&now.digest, &now.text),
            (&saved.edited.digest, &TEXT.replace("@daily", "@hourly"))
        );

        let late = desk.edit(&schedule(&shown.digest, "@weekly", true), NOW).expect_err("refused");
        assert!(late.contains("has changed since it was read"), "{late}");
        assert_eq!(desk.show().expect("read"), now);
    }

    #[test]
    fn a_password_is_shown_to_nobody_who_looks() {
        let (_dir, desk) = desk();
        let text = format!("[store]\nurl = \"postgres://u:S3cr3t@h/d\"\n{TEXT}");
        std::fs::write(&desk.path, &text).expect("written");
        let shown = desk.show().expect("read");
        assert_eq!(shown.text, text.replace("S3cr3t", "******"));
        let tried = desk.edit(&schedule(&shown.digest, "@hourly", false), NOW).expect("tried");
        assert!(!format!("{tried:?}").contains("S3cr3t"), "{tried:?}");
        // Regardless of its format; a host that is running does not load such a file.
        for url in [
            "postgres://u:'S3cr3t@h/d",
            "postgres://u:x S3cr3t@h/d",
            "postgres://h/d?pass%77ord=S3cr3t",
            "host=h password = S3cr3t",
            "host=h password='x S3cr3t'",
        ] {
            let text = format!("[store]\nurl = \"{url}\"\n{TEXT}");
            std::fs::write(&desk.path, &text).expect("written");
            let shown = desk.show().expect("read");
            assert!(!shown.text.contains("S3cr3t"), "{}", shown.text);
            assert_eq!(shown.text.chars().count(), text.chars().count(), "{}", shown.text);
        }
    }

    #[test]
    fn what_is_wrong_has_its_key_and_its_characters_and_is_not_saved() {
        let (_dir, desk) = desk();
        let base = desk.show().expect("read").digest;
        let tried = desk.edit(&schedule(&base, "0 22-2 * * *", true), NOW).expect("tried");
        let [problem] = &tried.edited.problems[..] else { panic!("{:?}", tried.edited) };
        assert_eq!((problem.key.as_deref(), problem.warning), (Some("schedule"), false));
        assert_eq!((problem.line, problem.column, problem.chars), (3, 15, 4));
        assert_eq!((tried.edited.saved, tried.edited.digest), (false, base.clone()));
        let unknown =
            Edit { set: [("plugin".to_owned(), None)].into(), ..schedule(&base, "", true) };
        assert!(desk.edit(&unknown, NOW).expect_err("refused").contains("limits.wall"));
        assert_eq!(desk.show().expect("read").text, TEXT);
    }
}
