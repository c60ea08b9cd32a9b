//! Two hosts on one file: one leads; if it dies, stops or freezes, the other takes over.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;

use crate::host::Host;
use crate::load::{SECOND_US, add_share, now_us};
use crate::site::{Site, wait_for};

/// A lease so long that its end cannot cause any takeover in a test.
const LONG_LEASE: &str = r#"
[lease]
ttl = "10m"
[tasks.share-expiry]
plugin = "share-expiry"
schedule = "@every 1s"
"#;

/// The shortest lease there is.
const SHORT_LEASE: &str = r#"
[lease]
ttl = "1s"
renew = "300ms"
[tasks.share-expiry]
plugin = "share-expiry"
schedule = "@every 1s"
"#;

/// How often a leader is frozen.
const FREEZES: usize = 4;

fn named(site: &Site, name: &str) -> Host {
    Host::start(site, &["--set", &format!("node.name={name}")])
}

fn leader(site: &Site) -> (String, u64) {
    let (code, status) = site.json(&["status"]);
    assert_eq!(code, 0);
    let leader = status["leader"].as_str().unwrap_or("none").to_owned();
    (leader, status["term"].as_u64().expect("a term"))
}

/// The state of the node whose name begins so.
fn state(site: &Site, name: &str) -> Value {
    let (_, status) = site.json(&["status"]);
    let nodes = status["nodes"].as_array().expect("nodes");
    let of = |node: &&Value| node["node"].as_str().is_some_and(|n| n.starts_with(name));
    nodes.iter().rev().find(of).map_or(Value::Null, |node| node["state"].clone())
}

#[test]
fn the_follower_leads_at_once_when_the_leader_dies_or_goes() {
    let site = Site::new(LONG_LEASE);
    site.create_tables();
    let mut one = named(&site, "one");
    one.leads();
    let mut two = named(&site, "two");
    two.says("role=Following");
    wait_for("both to be seen", || {
        (state(&site, "one") == "leading" && state(&site, "two") == "following").then_some(())
    });
    let (first, term) = leader(&site);
    assert!(first.starts_with("one-"), "{first}");

    let killed = Instant::now();
    one.kill();
    two.leads();
    eprintln!("after SIGKILL the other leads in {:?}", killed.elapsed());
    let (second, higher) = leader(&site);
    assert!(second.starts_with("two-"), "{second}");
    assert!(higher > term, "{higher} after {term}");

    let mut three = named(&site, "three");
    three.says("role=Following");
    let stopped = Instant::now();
    two.stop();
    three.leads();
    eprintln!("after SIGTERM the other leads in {:?}", stopped.elapsed());
    wait_for("the one that left to be off the list", || {
        (state(&site, "one-") == "gone" && state(&site, "two-").is_null()).then_some(())
    });
    let (third, highest) = leader(&site);
    assert!(third.starts_with("three-") && highest > higher, "{third} {highest}");
    three.stop();
    assert_eq!(leader(&site), ("none".to_owned(), highest));
    site.balanced();
}

#[test]
fn a_leader_frozen_beyond_its_lease_writes_nothing_and_follows() {
    let site = Site::new(SHORT_LEASE);
    site.create_tables();
    let db = site.database();
    let hosts = [named(&site, "one"), named(&site, "two")];
    let mut leading = wait_for("a leader", || {
        hosts.iter().position(|host| !host.lines(&["role=Leading"]).is_empty())
    });
    // A frozen leader may hold what the other needs to start.
    for host in &hosts {
        wait_for("both to have started", || {
            (!host.lines(&["role=Following"]).is_empty()).then_some(())
        });
    }
    for round in 0..FREEZES {
        let (old, before) = leader(&site);
        // The leader is frozen during its work.
        add_shares(&db, round, "before");
        freeze(&hosts[leading], &db);
        let (new, after) = wait_for("the other to lead", || {
            let found = leader(&site);
            (found.0 != old && found.0 != "none").then_some(found)
        });
        assert!(after > before, "{new}: {after} after {before}");
        add_shares(&db, round, "after");
        hosts[leading].signal(Signal::CONT);
        // It learns that it was replaced, and follows; on a slow machine the leader may change once
        // more.
        let name = ["one", "two"][leading];
        wait_for(&format!("{name} to follow again"), || {
            (state(&site, name) == "following" || leader(&site).0 == old).then_some(())
        });
        wait_for("all shares to end", || (open_shares(&db) == 0).then_some(()));
        let now = leader(&site).0;
        leading = usize::from(now.starts_with("two"));
    }
    for host in hosts {
        host.stop();
    }
    site.balanced();
    let twice = "SELECT count(*) FROM (SELECT 1 FROM besom_history WHERE outcome = 1
                 GROUP BY task, tenant, key, due HAVING count(*) > 1)";
    assert_eq!(number(&db, twice), 0);
    terms_never_go_back(&db);
}

/// Freezes a host between two transactions. Frozen within one it would hold SQLite's write lock, and
/// nobody could take over before it continues or dies.
fn freeze(host: &Host, db: &Connection) {
    wait_for("the host to be frozen outside a transaction", || {
        host.freeze();
        db.busy_timeout(Duration::from_millis(100)).expect("set");
        let free = db.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
        db.busy_timeout(Duration::from_secs(5)).expect("set");
        if free.is_err() {
            host.signal(Signal::CONT);
        }
        free.ok()
    });
}

/// Once a later leader has written, an earlier term writes nothing.
fn terms_never_go_back(db: &Connection) {
    let sql = "SELECT count(*) FROM besom_run a JOIN besom_run b ON b.id > a.id
               WHERE b.term < a.term";
    assert_eq!(number(db, sql), 0, "a run under an old term");
    let sql = "SELECT count(DISTINCT term) FROM besom_run";
    assert!(number(db, sql) > FREEZES as i64, "every leader has planned");
    // Every leadership is one unbroken series of commits: in commit order, the node changes at most
    // once per term.
    let changes = "SELECT count(*) FROM (SELECT node, lag(node) OVER (ORDER BY no) AS was
                   FROM besom_commit) WHERE was IS NOT NULL AND was <> node";
    let terms = number(db, "SELECT term FROM besom_fence");
    assert!(number(db, changes) < terms, "{} changes, {terms} terms", number(db, changes));
}

fn number(db: &Connection, sql: &str) -> i64 {
    db.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn open_shares(db: &Connection) -> i64 {
    number(db, "SELECT count(*) FROM shares WHERE unshared_at IS NULL")
}

/// Shares that end within two seconds.
fn add_shares(db: &Connection, round: usize, when: &str) {
    for share in 0..40 {
        let ends = now_us() + share * SECOND_US / 20;
        add_share(db, &format!("{when}-{round}-{share}"), ends);
    }
}

#[test]
fn a_leader_that_is_asked_to_resign_hands_over_and_alone_leads_again() {
    let site = Site::new(SHORT_LEASE);
    site.create_tables();
    let (code, said) = site.said(&["node", "resign", "--reason", "too early"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("there is no leader"), "{said}");

    let mut one = named(&site, "one");
    one.leads();
    let (name, first) = leader(&site);
    assert!(name.starts_with("one-"), "{name}");
    let (code, asked) = site.json(&["node", "resign", "--reason", "alone"]);
    assert_eq!((code, &asked["applied"]), (0, &Value::Bool(true)), "{asked}");
    assert_eq!(asked["result"], format!("resigned term {first}"));
    let second = wait_for("it to lead again", || {
        let (name, term) = leader(&site);
        (name.starts_with("one-") && term > first).then_some(term)
    });

    let mut two = named(&site, "two");
    two.says("role=Following");
    wait_for("both to be seen", || {
        (state(&site, "one") == "leading" && state(&site, "two") == "following").then_some(())
    });
    let db = site.database();
    add_shares(&db, 0, "before");
    let (code, said) = site.said(&["node", "resign", "--reason", "an upgrade of one"]);
    assert_eq!(code, 0, "{said}");
    two.leads();
    let (name, third) = leader(&site);
    assert!(name.starts_with("two-") && third > second, "{name} {third}");
    wait_for("one to follow", || (state(&site, "one") == "following").then_some(()));
    // No work in flight is lost or repeated with effects.
    wait_for("all shares to end", || (open_shares(&db) == 0).then_some(()));

    let (code, asked) = site.json(&["commands", "ls"]);
    let resigned = |row: &&Value| row["command"]["command"] == "resign";
    let resigned = asked.as_array().map(|rows| rows.iter().filter(resigned).count());
    assert_eq!((code, resigned), (0, Some(2)), "{asked}");
    assert_eq!(asked[0]["what"], "resign the leadership");
    assert_eq!(asked[0]["reason"], "an upgrade of one");
    assert_eq!(asked[0]["result"], format!("resigned term {second}"));
    assert!(asked[0]["by"].as_str().is_some_and(|by| by.contains("uid ")), "{asked}");
    one.stop();
    two.stop();
    site.balanced();
}

/// The status of the host at the admin socket; none: no host answers.
fn answering(site: &Site) -> Option<String> {
    let mut stream = UnixStream::connect(site.path("besom.sock")).ok()?;
    let request = "GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn the_second_host_answers_on_the_socket_once_the_first_has_ended() {
    let site = Site::new(LONG_LEASE);
    site.create_tables();
    let mut one = named(&site, "one");
    one.leads();
    let answers = |name: &str| {
        let name = format!("\"node\":\"{name}-");
        wait_for(&format!("{name} to answer"), || answering(&site)?.contains(&name).then_some(()));
    };
    answers("one");
    let mut two = named(&site, "two");
    two.says("another host uses the admin socket");
    answers("one");
    one.kill();
    answers("two");
    two.stop();
}

/// Two configurations in one directory have the same sockets unless they name others.
#[test]
fn a_host_of_another_store_is_neither_shown_nor_asked() {
    let site = Site::new(LONG_LEASE);
    site.create_tables();
    let other = site.path("other.db").display().to_string();
    site.database().execute("VACUUM INTO ?1", [other]).expect("copied");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(site.path("other.db"), private).expect("set");
    let mut one = named(&site, "one");
    one.leads();
    wait_for("one to answer", || answering(&site));
    let other = ["--set", "store.path=other.db"];
    let (code, said) = site.said(&[&["top", "--plain"], &other[..]].concat());
    assert_eq!(code, 78, "{said}");
    for part in
        ["/besom.db (", "not /", "/other.db (", "besom.toml)", "set api.socket to another path"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (code, said) = site.said(&[&["status"], &other[..]].concat());
    assert!(code == 0 && said.contains("set api.socket to another path"), "{code}: {said}");
    let (code, said) = site.said(&["status"]);
    assert!(code == 0 && !said.contains("api.socket"), "{code}: {said}");
    let mut two = Host::start(&site, &other);
    two.says("another host uses the admin socket").says("set api.socket to another path");
    two.says("reports of activity do not reach this host").says("set activity.socket to another");
    one.stop();
    two.stop();
}
