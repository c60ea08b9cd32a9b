//! Documents go in and out, and the demo fills a directory.

use std::process::Command;

use serde_json::Value;

use crate::site::Site;

#[test]
fn a_document_goes_in_and_comes_out_as_it_was() {
    let site = Site::new("");
    site.log("note.log", &[&[1, 1, 5, 0], &[1, 1, 6, 0]]);
    let (code, rows) = site.json(&["doc", "import", "note.log", "--tenant", "a"]);
    assert_eq!((code, &rows[0]["document"]), (0, &Value::from("note")));
    let out = site.besom(&["doc", "export", "note"]);
    assert_eq!(out.stdout, std::fs::read(site.dir().join("note.log")).expect("there"));

    // The document exists; once another tenant has one with the same name, the name is ambiguous.
    assert_eq!(site.fails(&["doc", "import", "note.log", "--tenant", "a"]).0, 1);
    assert_eq!(site.json(&["doc", "import", "note.log", "--tenant", "b"]).0, 0);
    assert_eq!(site.fails(&["doc", "export", "note"]).0, 2);
    let (code, shown) = site.json(&["doc", "show", "b/note"]);
    assert_eq!(code, 0);
    for (key, value) in [("server_seq", 2), ("epoch", 0), ("rows", 2), ("bytes", 8)] {
        assert_eq!(shown[key], value, "{shown}");
    }
    assert_eq!(shown["last_compaction"], Value::Null);

    // Another format changes only the format column; its bytes are imported and exported unchanged.
    site.log("other.log", &[b"loro", b"s own"]);
    assert_eq!(site.json(&["doc", "import", "other.log", "--format", "loro"]).0, 0);
    assert_eq!(site.json(&["doc", "show", "other"]).1["format"], "loro");
    for (limit, is_cut) in [("1", true), ("1000", false)] {
        let out = site.besom(&["commands", "ls", "--limit", limit]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(said.contains("cut at --limit"), is_cut, "{limit}: {said}");
    }
    let out = site.besom(&["doc", "export", "other"]);
    assert_eq!(out.stdout, std::fs::read(site.dir().join("other.log")).expect("there"));
    assert_eq!(site.fails(&["doc", "import", "other.log", "--format", "word"]).0, 2);

    std::fs::write(site.dir().join("cut.log"), [2, 0, 0, 0, 1, 0, 0, 0, 7, 9]).expect("written");
    let (code, said) = site.fails(&["doc", "import", "cut.log"]);
    assert_eq!(code, 1);
    assert!(said.contains("cut.log: byte 0: the file announces 2 updates"), "{said}");
    assert_eq!(site.fails(&["doc", "show", "cut"]).0, 1);
}

/// As in the README: with a relative directory, and running until it is stopped.
#[test]
fn a_demo_in_a_relative_directory_goes_on_and_is_taken_up_again() {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;

    let parent = tempfile::tempdir().expect("a directory");
    for turn in ["first", "again"] {
        let mut demo = Command::new(env!("CARGO_BIN_EXE_besom"))
            .args(["demo", "--dir", "shown/here", "--plain"])
            .current_dir(parent.path())
            .env_remove("BESOM_CONFIG")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let (lines, heard) = std::sync::mpsc::channel();
        let stderr = BufReader::new(demo.stderr.take().expect("piped"));
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let mut said: Vec<String> = Vec::new();
        // It has ended when its output ends.
        // Without a line, a plugin is being compiled, on machines that do much else at the same time.
        while let Ok(line) = heard.recv_timeout(std::time::Duration::from_secs(300)) {
            said.push(line);
            if said.last().is_some_and(|line| line.contains("term=")) {
                break;
            }
        }
        let pid = rustix::process::Pid::from_child(&demo);
        // If it has already ended, the exit code shows why.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let status = demo.wait().expect("it ends");
        // The signal may arrive before the host handles it.
        let asked = status.success() || status.signal() == Some(15);
        let led = said.last().is_some_and(|line| line.contains("term="));
        assert!(asked && led, "{turn}: {status}: {}", said.join("\n"));
        assert!(said.len() > 3 && said[0].contains("shown/here"), "{turn}: {}", said.join("\n"));
    }
    let check = |expected: i32| {
        let out = Command::new(env!("CARGO_BIN_EXE_besom"))
            .args(["--config", "shown/here/besom.toml", "check"])
            .current_dir(parent.path())
            .output()
            .expect("the binary runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(expected), "{said}");
        said
    };
    check(0);
    // The check finds everything that prevents a host from starting.
    std::fs::remove_file(parent.path().join("shown/here/orchestrator.token")).expect("removed");
    let said = check(78);
    assert!(said.contains("orchestrator.token: No such file"), "{said}");
    assert!(said.contains("token_file"), "{said}");
}

#[test]
fn a_trace_that_cannot_be_read_is_told_once() {
    let site = Site::new("");
    let (code, said) = site.fails(&["demo", "--dir", "d", "--exit", "--trace", "none.json"]);
    assert_eq!(code, 1, "{said}");
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}
