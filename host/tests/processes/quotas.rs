//! What a task may leave behind: at each bound its work is refused with the key of the bound, nothing
//! is lost, and it goes on once there is room.

use serde_json::Value;

use crate::load::{SECOND_US, add_share, now_us};
use crate::reload::shares_every;
use crate::site::{Site, hostile, wait_for};
use crate::undo::OLD_SESSIONS;

/// Waits until the task is held by these words.
#[track_caller]
fn is_held(site: &Site, task: &str, words: &str) {
    wait_for(&format!("`{task}` to be held by `{words}`"), || {
        let task = site.task(task);
        let holds = task["held"].as_array().expect("holds");
        let says = |hold: &Value| hold["why"].as_str().is_some_and(|why| why.contains(words));
        holds.iter().any(says).then_some(())
    });
}

fn dead(site: &Site) -> usize {
    site.json(&["dead", "ls", "--task", "poison"]).1.as_array().expect("a list").len()
}

#[test]
fn a_task_with_too_many_dead_letters_plans_nothing_until_some_are_discarded() {
    let keys = "schedule = \"@every 1s\"\nretry.attempts_max = 1\ndead_max = 2";
    let site = Site::new(&hostile("poison", "keys:panic", keys));
    site.add_hostile();
    let mut host = site.serve();
    host.leads();
    is_held(&site, "poison", "`tasks.poison.dead_max`");
    let open = dead(&site);
    assert!(open >= 2, "{open}");
    let (code, said) = site.said(&["dead", "discard", "--task", "poison", "--reason", "a test"]);
    assert_eq!(code, 0, "{said}");
    wait_for("new dead letters", || (dead(&site) >= 2).then_some(()));
    host.stop();
    site.balanced();
}

#[test]
fn a_task_with_too_many_timers_plans_nothing_until_fewer_wait() {
    let task = shares_every("@every 1s");
    let site = Site::new(&format!("{task}timers_max = 3\n"));
    site.create_tables();
    let db = site.database();
    let soon = now_us() + 20 * SECOND_US;
    for n in 0..3 {
        add_share(&db, &format!("soon-{n}"), soon);
    }
    let mut host = site.serve();
    host.leads();
    is_held(&site, "share-expiry", "`tasks.share-expiry.timers_max`");
    add_share(&db, "late", now_us() - SECOND_US);
    let ended = |like: &str| -> u32 {
        let sql = "SELECT count(*) FROM shares WHERE unshared_at IS NOT NULL AND share_id LIKE ?1";
        db.query_row(sql, [like], |row| row.get(0)).expect("read")
    };
    // Due work is done at the bound as well, and makes room for the rest.
    wait_for("the timers to end", || (ended("soon-%") == 3).then_some(()));
    wait_for("the rest to be planned", || (ended("late") == 1).then_some(()));
    host.stop();
    site.balanced();
}

#[test]
fn a_host_whose_disk_has_less_room_than_is_to_stay_free_plans_and_commits_nothing() {
    let task = shares_every("@every 1s");
    let site = Site::new(&format!("[store]\ndisk_free_min = \"1000000GiB\"\n{task}"));
    site.create_tables();
    let db = site.database();
    add_share(&db, "late", now_us() - SECOND_US);
    let mut host = site.serve();
    host.leads();
    is_held(&site, "share-expiry", "`store.disk_free_min`");
    let ended = || -> bool {
        let sql = "SELECT unshared_at IS NOT NULL FROM shares";
        db.query_row(sql, [], |row| row.get(0)).expect("read")
    };
    assert!(!ended());
    site.configure(&task);
    host.stop();
    let mut host = site.serve();
    host.leads();
    wait_for("the share to be ended", || ended().then_some(()));
    host.stop();
    site.balanced();
}

#[test]
fn text_beyond_the_days_bound_is_cut_off_in_the_history() {
    // The plugin gives its setting as the reason, about 700 bytes.
    let keys = vec!["settings"; 80].join(",");
    let keys = format!("keys:settings,{keys}");
    let task = hostile("wordy", &keys, "schedule = \"@every 1s\"");
    let site = Site::new(&format!("[host]\nhistory_text_max = \"1KiB\"\n{task}"));
    site.add_hostile();
    let mut host = site.serve();
    host.leads();
    host.says("`host.history_text_max`");
    let db = site.database();
    let shortest = wait_for("a shorter reason", || {
        let sql = "SELECT min(length(reason)) FROM besom_history";
        let shortest: Option<u64> = db.query_row(sql, [], |row| row.get(0)).expect("read");
        shortest.filter(|bytes| *bytes <= 256)
    });
    assert_eq!(shortest, 256);
    host.stop();
    site.balanced();
}

/// Every transaction is too long for a target of 1 ms, so the task goes as slowly as it may, and says why.
#[test]
fn a_task_that_yields_slows_down_and_says_why() {
    let site = Site::new(&format!("{OLD_SESSIONS}yield = {{ latency = \"1ms\", floor = 400 }}\n"));
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE sessions (id INTEGER PRIMARY KEY, expire_date INTEGER, data);
         CREATE INDEX sessions_by_expire ON sessions (expire_date);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
         INSERT INTO sessions SELECT i, i, hex(randomblob(60)) FROM n;",
    )
    .expect("the product's table");
    let left =
        || db.query_row("SELECT count(*) FROM sessions", [], |r| r.get::<_, u64>(0)).unwrap();
    let mut host = site.serve();
    host.leads();
    assert_eq!(site.json(&["task", "trigger", "old-sessions"]).0, 0);
    let (pace, status) = wait_for("the task yields", || {
        let (_, status) = site.json(&["status"]);
        let pace = status["tasks"][0]["paces"][0].clone();
        // The reason stays when nothing was measured since.
        let waited = pace["lock_wait_us"].as_u64().is_some_and(|us| us > 1_000);
        (pace["reason"] == "lock_waits" && waited).then_some((pace, status))
    });
    assert_eq!(
        (&pace["floor"], &pace["latency_max_us"]),
        (&400.into(), &1_000.into()),
        "{status:#}"
    );
    let shown = site.besom(&["status"]).stdout;
    assert!(String::from_utf8_lossy(&shown).contains("less because of lock waits"));
    let (_, shown) = site.json(&["task", "show", "old-sessions"]);
    assert_eq!(shown["rate"], "down to 400 rows/s from a latency of 1ms or lag of 10s on");
    assert!(left() > 0, "it has time");
    // Without the table it goes as fast as it can.
    site.configure(OLD_SESSIONS);
    wait_for("everything is gone", || (left() == 0).then_some(()));
    host.stop();
    site.balanced();
}
