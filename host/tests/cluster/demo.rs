//! `besom demo --cluster` as a user runs it.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tokio_postgres::NoTls;

use crate::site::alone;
use crate::wait::wait_for;

fn demo(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_besom"));
    command.args(["demo", "--cluster", "2", "--exit", "--output", "json", "--dir"]).arg(dir);
    command.env_remove("BESOM_CONFIG").stdin(Stdio::null());
    command
}

/// The value of a key in the configuration of the first host.
fn setting(dir: &Path, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(dir.join("node-1/besom.toml")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
    Some(value.trim_matches(['[', ']', '"']).to_owned())
}

/// Each server refuses a client without the password.
fn locked_out(dir: &Path, demo: &mut Child) {
    let url = wait_for("the servers to have started", || {
        assert!(demo.try_wait().expect("waited").is_none(), "the demo has ended");
        setting(dir, "url").filter(|url| url.starts_with("postgres://"))
    });
    let url = url.replace("?sslmode=disable", "");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let refused = tokio_postgres::connect(&url, NoTls).await.err().expect("refused");
        assert!(format!("{refused:?}").contains("password missing"), "{refused:?}");
        let guessed = url.replace("postgres@", "postgres:postgres@");
        let refused = tokio_postgres::connect(&guessed, NoTls).await.err().expect("refused");
        assert_eq!(refused.code().map(|code| code.code()), Some("28P01"), "{refused:?}");
        let etcd = setting(dir, "etcd").expect("an address");
        let mut etcd = etcd_client::Client::connect([etcd], None).await.expect("it listens");
        let refused = etcd.get("/besom/", None).await.expect_err("refused").to_string();
        assert!(refused.contains("user name is empty"), "{refused}");
    });
    // A peer of etcd needs no password.
    let peers = dir.join("servers/etcd-peers");
    let is_socket = |name: &str| {
        std::fs::metadata(peers.join(name)).is_ok_and(|found| found.file_type().is_socket())
    };
    assert!(is_socket("m0:0"));
    let mode = std::fs::metadata(&peers).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    let redis = setting(dir, "redis").expect("an address").replace("redis://", "");
    let said = crate::site::exchange(&redis, "PING\r\n");
    assert!(said.starts_with("-NOAUTH"), "{said}");
}

#[test]
fn the_cluster_of_the_demo_works_to_its_end_and_lets_nobody_else_in() {
    let _one = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("demo");
    let mut running = demo(&place)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(dir.path().join("log")).expect("a log"))
        .spawn()
        .expect("it starts");
    locked_out(&place, &mut running);
    let out = running.wait_with_output().expect("it ends");
    let log = std::fs::read_to_string(dir.path().join("log")).expect("a log");
    assert_eq!(out.status.code(), Some(0), "{log}");
    let told: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(told["balanced"], true, "{told}");
    assert_eq!(told["nodes"], 2);
    assert!(told["second_term"].as_u64() > told["first_term"].as_u64(), "{told}");
    assert!(told["shares_expired"].as_u64() > Some(0), "{told}");
}
