//! The database's file or its write-ahead log is moved, removed, replaced or overwritten while a host
//! has it open: the host ends, and says what happened.

use std::fs;

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
/// open writes them into the database before it exits.
#[test]
fn a_host_ends_when_its_write_ahead_log_is_removed_and_what_it_held_is_not_lost() {
    let site = Site::new(CONFIG);
    site.create_tables();
    let mut host = site.serve();
    host.leads();
    add_share(&site.database(), "ended", now_us());
    let open = || {
        let sql = "SELECT count(*) FROM shares WHERE unshared_at IS NULL";
        site.database().query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a count")
    };
    wait_for("the share to end", || (open() == 0).then_some(()));
    fs::remove_file(site.path("besom.db-wal")).expect("removed");
    assert_eq!(host.ends().code(), Some(69), "{}", host.log());
    let log = host.log();
    assert!(log.contains("besom.db-wal was moved or removed"), "{log}");
    assert!(log.contains("nothing is lost"), "{log}");
    assert_eq!(open(), 0, "what was committed is in the database");
    let mut host = site.serve();
    host.leads();
    host.stop();
    site.balanced();
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
