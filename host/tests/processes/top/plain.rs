//! `besom top --plain`: lines for pipes and screen readers.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};

use super::{leader, stage};
use crate::wait::PATIENCE;

#[test]
fn lines_tell_the_leader_and_each_change_and_end_on_sigterm() {
    let site = stage();
    let host = leader(&site);
    let mut command = site.command(&["top", "--plain"]);
    let mut plain = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let pid = Pid::from_raw(plain.id().cast_signed()).expect("a process");
    let (tell, told) = mpsc::channel();
    let lines = BufReader::new(plain.stdout.take().expect("a pipe")).lines();
    let reader = std::thread::spawn(move || {
        for line in lines {
            // The test may have failed in the meantime.
            let _ = tell.send(line.expect("text"));
        }
    });
    let until = |words: &str| {
        let mut before = Vec::new();
        loop {
            let line = told.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("`{words}` is not in {before:#?}"));
            assert!(!line.chars().any(char::is_control), "{line:?}");
            if line.contains(words) {
                return line;
            }
            before.push(line);
        }
    };
    let line = until("leader ");
    assert!(line.ends_with(" in term 1"), "{line}");
    until("task compaction: no next run, 0 queued");
    assert_eq!(
        site.besom(&["task", "pause", "compaction", "--reason", "a test"]).status.code(),
        Some(0)
    );
    until("task compaction is paused");
    host.kill();
    until("connection lost");
    kill_process(pid, Signal::TERM).expect("sent");
    let status = plain.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
    reader.join().expect("the reader");
}

#[test]
fn lines_end_when_their_reader_does_and_json_is_refused() {
    let site = stage();
    let host = leader(&site);
    let mut plain =
        site.command(&["top", "--plain"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(plain.stdout.take().expect("a pipe")).lines();
    lines.next().expect("a line").expect("text");
    drop(lines);
    let status =
        crate::site::wait_for("the end of the lines", || plain.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(0));
    let refused = site.besom(&["top", "--plain", "--output", "json"]);
    assert_eq!(refused.status.code(), Some(2));
    host.stop();
}
