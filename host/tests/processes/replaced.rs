//! The database's file or its write-ahead log is moved, removed, replaced or overwritten while a host
//! has it open: the host ends, and says what happened.

use std::fs;

use rustix::process::Signal;

use crate::load::{SECOND_US, add_share, now_us};
use crate::site::{Site, wait_for};

const CONFIG: &str = r#"
[lease]
ttl = "3s"
renew = "500ms"
[tasks.share-expiry]
plugin = "share-expiry"
schedule = "@every 1s"
"#;

#[test]
fn a_host_ends_when_its_database_is_moved_removed_or_replaced() {
    let site = Site::new(CONFIG);
    site.create_tables();
    let (db, elsewhere) = (site.path("besom.db"), site.path("elsewhere.db"));
    for (what, said) in [
        ("moved", "was moved or removed"),
        ("removed", "was moved or removed"),
        ("replaced", "was replaced by another file"),
    ] {
        let copy = site.path("copy.db");
        // Then all data is in the file itself.
        let whole = "PRAGMA wal_checkpoint(TRUNCATE)";
        site.database().query_row(whole, [], |_| Ok(())).expect("written out");
        fs::copy(&db, &copy).expect("copied");
        let (mut leader, mut follower) = (site.serve(), None);
        leader.leads();
        if what == "replaced" {
            let two = crate::host::Host::start(&site, &["--set", "node.name=two"]);
            follower.insert(two).says("role=Following");
        }
        match what {
            "moved" => fs::rename(&db, &elsewhere).expect("moved"),
            "removed" => fs::remove_file(&db).expect("removed"),
            _ => fs::rename(&copy, &db).expect("replaced"),
        }
        for host in [Some(&mut leader), follower.as_mut()].into_iter().flatten() {
            assert_eq!(host.ends().code(), Some(69), "{what}: {}", host.log());
            let log = host.log();
            assert!(log.contains(said) && log.contains("besom.db"), "{what}: {log}");
            assert!(log.contains("restart the host"), "{what}: {log}");
        }
        match what {
            "moved" => fs::rename(&elsewhere, &db).expect("moved back"),
            // SQLite's files beside the database do not belong to another file.
            "removed" => fs::rename(&copy, &db).expect("put back"),
            _ => {}
        }
        if what != "moved" {
            for beside in ["besom.db-wal", "besom.db-shm"] {
                let _ = fs::remove_file(site.path(beside));
            }
        }
    }
    // The next start uses the file that is there now.
    add_share(&site.database(), "new", now_us() + SECOND_US);
    let mut host = site.serve();
    host.leads();
    wait_for("the share to end", || {
        let sql = "SELECT count(*) FROM shares WHERE unshared_at IS NULL";
        let open: i64 = site.database().query_row(sql, [], |row| row.get(0)).expect("a count");
        (open == 0).then_some(())
    });
    host.stop();
    site.balanced();
}

/// Commits since the last checkpoint are only in the write-ahead log. The host that still has it
/// open writes them into the database before it exits, also if another process has opened the
/// database meanwhile: a verb refuses to, and SQLite begins an empty log.
#[test]
fn a_host_ends_when_its_write_ahead_log_is_removed_and_what_it_held_is_not_lost() {
    let site = Site::new(CONFIG);
    site.create_tables();
    let log_path = site.path("besom.db-wal");
    let open = || {
        let sql = "SELECT count(*) FROM shares WHERE unshared_at IS NULL";
        site.database().query_row(sql, [], |row| row.get::<_, i64>(0))
    };
    for (meanwhile, said) in [
        ("nothing", "besom.db-wal was moved or removed"),
        ("a verb", "besom.db-wal was moved or removed"),
        ("the product", "besom.db-wal was replaced by an empty file"),
    ] {
        let mut host = site.serve();
        host.leads();
        add_share(&site.database(), meanwhile, now_us());
        wait_for("the share to end", || (open().expect("a count") == 0).then_some(()));
        host.freeze();
        fs::remove_file(&log_path).expect("removed");
        match meanwhile {
            "a verb" => {
                let (code, said) = site.said(&["status"]);
                assert_eq!(code, 69, "{said}");
                assert!(said.contains("besom.db-wal was removed"), "{said}");
                assert!(!log_path.exists(), "a verb has begun another log");
            }
            "the product" => {
                // What it reads without the log is an error or outdated.
                let _ = open();
                assert_eq!(fs::metadata(&log_path).expect("a log").len(), 0);
            }
            _ => {}
        }
        host.signal(Signal::CONT);
        assert_eq!(host.ends().code(), Some(69), "{meanwhile}: {}", host.log());
        let log = host.log();
        assert!(log.contains(said), "{meanwhile}: {log}");
        assert!(log.contains("nothing is lost"), "{meanwhile}: {log}");
        let (code, said) = site.said(&["status"]);
        assert_eq!(code, 0, "{meanwhile}: the database can be used again: {said}");
        assert_eq!(
            open().expect("a count"),
            0,
            "{meanwhile}: what was committed is in the database"
        );
        let intact = site.database().query_row("PRAGMA integrity_check", [], |row| row.get(0));
        assert_eq!(intact, Ok("ok".to_owned()), "{meanwhile}");
    }
    let mut host = site.serve();
    host.leads();
    host.stop();
    site.balanced();
}

/// SQLite removes the log of an empty file, and a host would create new tables in it.
#[test]
fn a_truncated_database_is_refused_and_its_log_is_kept() {
    let site = Site::new(CONFIG);
    site.create_tables();
    let (db, log) = (site.path("besom.db"), site.path("besom.db-wal"));
    let refused = |verb: &str| {
        let (code, said) = site.said(&[verb]);
        assert_eq!(code, 69, "{verb}: {said}");
        assert!(said.contains("is empty, although a host has used it"), "{verb}: {said}");
        assert!(said.contains("restore a backup"), "{verb}: {said}");
        assert_eq!(fs::metadata(&db).expect("a file").len(), 0, "{verb}");
    };
    let mut host = site.serve();
    host.leads();
    host.kill();
    let bytes = fs::metadata(&log).expect("a log").len();
    assert!(bytes > 0);
    fs::File::create(&db).expect("truncated");
    for verb in ["status", "serve"] {
        refused(verb);
        assert_eq!(fs::metadata(&log).expect("the log is kept").len(), bytes, "{verb}");
    }
    fs::remove_file(&log).expect("removed");
    for verb in ["status", "serve"] {
        refused(verb);
    }
}

/// A copy over the file keeps its inode. Pages that are not in the write-ahead log are then those of the
/// backup.
#[test]
fn a_host_ends_when_a_backup_is_copied_over_its_database_and_none_starts_on_it() {
    let site = Site::new(CONFIG);
    site.create_tables();
    let (db, backup) = (site.path("besom.db"), site.path("backup.db"));
    let written_out = || {
        wait_for("the log to be written out", || {
            let whole = "PRAGMA wal_checkpoint(TRUNCATE)";
            let busy = site.database().query_row(whole, [], |row| row.get::<_, bool>(0));
            busy.is_ok_and(|busy| !busy).then_some(())
        });
    };
    let add = |from: i64, count: i64| {
        let product = site.database();
        product.execute_batch("BEGIN").expect("begun");
        for n in from..from + count {
            let name = format!("{n}-{}", "x".repeat(2_000));
            add_share(&product, &name, now_us() + n % 2 * 3_600 * SECOND_US);
        }
        product.execute_batch("COMMIT").expect("committed");
    };
    written_out();
    fs::copy(&db, &backup).expect("copied");
    let mut host = site.serve();
    host.leads();
    add(0, 1_000);
    written_out();
    add(1_000, 200);
    fs::copy(&backup, &db).expect("copied over it");
    assert_eq!(host.ends().code(), Some(69), "{}", host.log());
    let log = host.log();
    assert!(log.contains("besom.db is malformed"), "{log}");
    assert!(log.contains("restore a backup"), "{log}");
    assert_eq!(log.matches("besom.db is malformed").count(), 1, "it is said once: {log}");
    let nothing_heals = !log.contains("retrying") && !log.contains("answers again");
    assert!(nothing_heals, "{log}");
    let mut again = site.serve();
    assert_eq!(again.ends().code(), Some(69), "{}", again.log());
    assert!(again.log().contains("besom.db is malformed"), "{}", again.log());
    let (code, said) = site.said(&["status"]);
    assert_eq!(code, 69, "{said}");
    assert!(said.contains("besom.db is malformed") && said.contains("restore a backup"), "{said}");
    // As the message says.
    for beside in ["besom.db-wal", "besom.db-shm"] {
        let _ = fs::remove_file(site.path(beside));
    }
    fs::copy(&backup, &db).expect("restored");
    let mut host = site.serve();
    host.leads();
    host.stop();
    site.balanced();
}
