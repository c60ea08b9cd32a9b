//! The binary end to end: documents are imported, compacted by `besom run`, exported, and judged by
//! Yjs; documents that are left alone are exported byte for byte as imported.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use besom_oracle::{names_in, read_log, run, shared_data, slices, write_log};
use serde_json::Value;

use super::node::{scratch, script};

/// Of the generated cases, those that are not compacted: the state and the code that
/// `besom doc show` gives. All others are compacted: a case that moves between the two fails
/// the test, in either direction. What is one row already needs no compaction.
const LEFT_ALONE: &[(&str, &str)] = &[
    ("client_reused", "left_alone conflict"),
    ("embed_no_json", "dead undecodable"),
    ("hole_delete_only", "dead missing-dependency"),
    ("hole_dependent", "dead hole"),
    ("hole_independent", "dead hole"),
    ("mark_no_json", "left_alone already-compact"),
    ("missing_author", "left_alone already-compact"),
    ("subdocument_no_options", "left_alone already-compact"),
    ("truncated", "dead undecodable"),
    ("unknown_content", "left_alone already-compact"),
    ("version_2_row", "dead undecodable"),
];

/// The same for the cases in the shared data.
const SHARED_LEFT_ALONE: &[(&str, &str)] = &[
    ("clientdup", "left_alone conflict"),
    ("hole_dep", "dead hole"),
    ("hole_indep", "dead hole"),
    ("keyorder", "left_alone already-compact"),
];

#[test]
fn what_yjs_has_written_goes_through_the_binary_and_back() {
    let directory = scratch("binary-generated");
    run(script("generate.mjs").arg(&directory));
    let names = names_in(&directory);
    assert!(names.len() > 60, "{} cases", names.len());
    two_rounds(&directory, &names, LEFT_ALONE);
}

#[test]
fn the_shared_cases_go_through_the_binary_and_back() {
    let Some(shared) = shared_data("yjs-cases") else { return };
    let directory = scratch("binary-shared");
    let names = names_in(&shared);
    for name in &names {
        let file = format!("{name}.log");
        std::fs::copy(shared.join(&file), directory.join(&file)).unwrap();
    }
    two_rounds(&directory, &names, SHARED_LEFT_ALONE);
}

#[test]
fn public_editing_traces_go_through_the_demo() {
    let Some(shared) = shared_data("editing-traces") else { return };
    let site = Site::empty();
    let directory = scratch("binary-traces");
    let mut args = vec!["demo", "--dir", ".", "--exit", "--output", "json"];
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(shared).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in &files {
        args.extend(["--trace", file.to_str().unwrap()]);
    }
    let output = site.besom(&args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let last = text.lines().last().unwrap();
    let summary: Value = serde_json::from_str(last).unwrap();
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().unwrap().keys().map(String::clone).collect()
    };
    let top =
        ["balanced", "documents", "bytes", "clients_deactivated", "shares_expired", "transitions"];
    assert_eq!(keys(&summary), top, "{last}");
    let documents = &summary["documents"];
    assert_eq!(keys(documents), ["total", "compacted", "verified", "left_alone"], "{last}");
    assert_eq!(keys(&summary["bytes"]), ["before", "after"], "{last}");
    assert_eq!(summary["balanced"], true, "{last}");
    assert_eq!(documents["verified"], documents["compacted"], "{last}");
    assert!(documents["compacted"].as_u64() > Some(150), "{last}");

    let mut names = Vec::new();
    for file in &files {
        let trace = besom_demo::trace::load(file).unwrap();
        let name = trace.name();
        let log = trace.replay(&mut |_, _| {}).unwrap();
        let updates: Vec<&[u8]> = log.edits.iter().map(|edit| edit.payload.as_slice()).collect();
        write_log(&directory.join(format!("{name}.log")), &updates);
        std::fs::write(directory.join(format!("{name}.txt")), &trace.end).unwrap();
        let exported = site.export(&format!("traces/{name}"));
        std::fs::write(directory.join(format!("{name}.compacted.log")), exported).unwrap();
        let shown = site.json(&["doc", "show", &format!("traces/{name}")]);
        assert_eq!(shown["edits"], 1, "{shown}");
        assert_eq!(shown["server_seq"], log.edits.len(), "{shown}");
        names.push(name);
    }
    run(script("judge.mjs").arg("--brief").arg(&directory).args(names));
}

/// Imports, compacts and judges; appends, compacts and judges again; and a third time, which
/// changes nothing.
fn two_rounds(directory: &Path, names: &[String], expected: &[(&str, &str)]) {
    let site = Site::compacting();
    let files = names.iter().map(|name| directory.join(format!("{name}.log")));
    let files: Vec<String> = files.map(|file| file.to_str().unwrap().to_owned()).collect();
    let mut args = vec!["doc", "import"];
    args.extend(files.iter().map(String::as_str));
    assert_eq!(site.json(&args).as_array().unwrap().len(), names.len());

    let first = site.json(&["run", "compaction"]);
    assert_eq!(first[0]["pending"], 0, "{first}");
    let left_alone = site.exported(directory, names, expected);
    let compacted: Vec<&String> =
        names.iter().filter(|name| !left_alone.contains(&name.as_str())).collect();
    assert_eq!(first[0]["committed"], compacted.len(), "{first}");
    run(script("judge.mjs").arg(directory).args(&compacted));

    run(script("continue.mjs").arg(directory).args(&compacted));
    for name in &compacted {
        let next = read_log(&directory.join(format!("{name}.next.log")));
        site.append(name, &next);
        let mut whole = read_log(&directory.join(format!("{name}.log")));
        whole.extend(next);
        write_log(&directory.join(format!("{name}.log")), &slices(&whole));
    }
    let second = site.json(&["run", "compaction"]);
    assert_eq!(second[0]["committed"], compacted.len(), "{second}");
    site.exported(directory, names, expected);
    run(script("judge.mjs").arg(directory).args(&compacted));

    let exports = || names.iter().map(|name| site.export(name)).collect::<Vec<_>>();
    let before = exports();
    let third = site.json(&["run", "compaction"]);
    assert_eq!(third[0]["committed"], 0, "{third}");
    assert!(before == exports(), "the third run has changed a document");
    let audit = site.json(&["audit"]);
    assert_eq!(audit["balanced"], true, "{audit}");
}

/// A directory with a configuration and a database.
struct Site(tempfile::TempDir);

impl Site {
    fn empty() -> Site {
        Site(tempfile::tempdir().unwrap())
    }

    fn compacting() -> Site {
        let site = Site::empty();
        let config = "[tasks.compaction]\nplugin = \"compaction\"\nschedule = \"@every 30s\"\n\
                      [tasks.compaction.settings]\nmin_changes = 1\n";
        std::fs::write(site.0.path().join("besom.toml"), config).unwrap();
        site
    }

    fn besom(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_besom-under-test"))
            .args(args)
            .current_dir(self.0.path())
            .env_remove("BESOM_CONFIG")
            .env("BESOM_HOST_DEFAULT_MODE", "live")
            .output()
            .unwrap()
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let output = self.besom(&[args, &["--output", "json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        // A pass with new dead letters has not done everything.
        let dead = args[0] == "run" && json[0]["dead"] != 0;
        assert_eq!(output.status.code(), Some(i32::from(dead)), "{args:?}: {said}");
        json
    }

    #[track_caller]
    fn export(&self, name: &str) -> Vec<u8> {
        let output = self.besom(&["doc", "export", name]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
        output.stdout
    }

    /// Exports every document beside its log, and compares the output of `doc show` with the
    /// expected one. Returns the documents that are left alone, which are exported unchanged.
    fn exported<'a>(
        &self,
        directory: &Path,
        names: &'a [String],
        expected: &[(&str, &str)],
    ) -> Vec<&'a str> {
        let mut left_alone = BTreeMap::new();
        for name in names {
            let export = self.export(name);
            let shown = self.json(&["doc", "show", name]);
            if let Some(reason) = shown["left_alone"].as_str() {
                let log = std::fs::read(directory.join(format!("{name}.log"))).unwrap();
                assert!(export == log, "{name}: {reason}, and yet it has changed");
                let code = reason.split(':').next().unwrap_or_default();
                let state = shown["state"].as_str().unwrap();
                left_alone.insert(name.as_str(), format!("{state} {code}"));
            } else {
                assert_eq!(shown["state"], "compacted", "{name}: {shown}");
                assert_eq!(shown["edits"], 1, "{name}: {shown}");
                assert_eq!(shown["last_compaction"]["notes"]["verified"], true, "{name}: {shown}");
            }
            std::fs::write(directory.join(format!("{name}.compacted.log")), export).unwrap();
        }
        let expected = expected.iter().map(|(name, state)| (*name, (*state).to_owned()));
        assert_eq!(left_alone, expected.collect::<BTreeMap<_, _>>());
        left_alone.into_keys().collect()
    }

    /// Appends updates to a document, as a product does.
    fn append(&self, name: &str, updates: &[Vec<u8>]) {
        let mut database = rusqlite::Connection::open(self.0.path().join("besom.db")).unwrap();
        let tx = database.transaction().unwrap();
        for update in updates {
            tx.execute(
                "UPDATE documents SET server_seq = server_seq + 1 WHERE doc_id = ?1",
                [name],
            )
            .unwrap();
            tx.execute(
                "INSERT INTO changes
                     (project_id, doc_id, server_seq, actor_id, client_seq, lamport, payload)
                 SELECT project_id, doc_id, server_seq, 'a client', server_seq, server_seq, ?2
                 FROM documents WHERE doc_id = ?1",
                rusqlite::params![name, update],
            )
            .unwrap();
        }
        tx.commit().unwrap();
    }
}
