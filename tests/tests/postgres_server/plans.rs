//! The plans of the engine's statements, which every connection keeps.

use besom_tests::conformance::block_on;

use super::granted::{SHARES, SUPERUSER, Site};

/// Items that wait at once.
const ITEMS: i64 = 5_000;
/// Index entries that may be read for each item: by its planning, its reads, its commit and its
/// removal, each of which looks into a few indexes.
const READ_MAX: i64 = 40;

/// Statistics of an empty queue must not make a commit read the whole queue once one waits.
#[test]
fn a_backlog_after_an_idle_time_is_not_read_by_every_commit() {
    let site = Site::with("[host]\nbatch_items = 10");
    site.product(SHARES);
    let passed = site.json(SUPERUSER, &["run"]);
    assert_eq!(passed[0]["committed"], 1, "{passed:#}");
    site.product("VACUUM ANALYZE besom.item");
    site.product(&format!(
        "INSERT INTO shares SELECT 'p', 'over-' || n, 'f', now() - interval '1 day', 600, NULL
         FROM generate_series(1, {ITEMS}) n"
    ));
    let read = || {
        block_on(async {
            let client = site.database.connect().await;
            // Sessions report when they are idle or end, as those of the pass have.
            let sum = "SELECT pg_stat_clear_snapshot(), sum(idx_tup_read)::int8
                       FROM pg_stat_user_indexes WHERE schemaname = 'besom' AND relname = 'item'";
            client.query_one(sum, &[]).await.expect("statistics").get::<_, i64>(1)
        })
    };
    let before = read();
    let passed = site.json(SUPERUSER, &["run"]);
    assert_eq!(passed[0]["committed"], ITEMS, "{passed:#}");
    let read = read() - before;
    assert!((1..READ_MAX * ITEMS).contains(&read), "{read} index entries for {ITEMS} items");
}
