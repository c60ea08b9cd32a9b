//! The planner wakes the executors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use besom_core::time::Time;
use besom_ports::store::{Arrivals, Command, Store};
use besom_tests::adapters::postgres::Postgres;
use besom_tests::conformance::world::{candidate, due};
use besom_tests::conformance::{World, block_on};
use tokio_postgres::Client;

/// Longer than any test waits: a wait that ends earlier was woken.
const NEVER: Duration = Duration::from_secs(60);

async fn stage() -> (World, Arc<besom_postgres::PostgresStore>, Client) {
    let fixture = Postgres::open().await;
    let onlooker = fixture.database().connect().await;
    let executes = fixture.another().await;
    (World::new(Box::new(fixture)).await, executes, onlooker)
}

const LISTENING: &str = "FROM pg_stat_activity
     WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'";

/// Returns once one node listens.
async fn until_listening(onlooker: &Client) {
    let sql = format!("SELECT count(*) {LISTENING}");
    while onlooker.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) != 1 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn what_was_planned_wakes_the_nodes_that_do_not_lead() {
    block_on(async {
        let (world, executes, onlooker) = stage().await;
        // The first return is that of the new connection.
        executes.nudged(NEVER).await;
        until_listening(&onlooker).await;
        let asked = Instant::now();
        let woken = tokio::spawn(async move { executes.nudged(NEVER).await });
        world.planned("task", vec![candidate("k")]).await;
        woken.await.unwrap();
        assert!(asked.elapsed() < NEVER);
    });
}

#[test]
fn a_command_wakes_whoever_may_lead() {
    block_on(async {
        let (world, executes, onlooker) = stage().await;
        executes.nudged(NEVER).await;
        until_listening(&onlooker).await;
        let asked = Instant::now();
        world.store().submit(&Command::Trigger { task: "t".into() }, "ann", "now").await.unwrap();
        executes.nudged(NEVER).await;
        assert!(asked.elapsed() < NEVER);
    });
}

/// A broken connection is opened again, and all waiters are woken, because a nudge may have been
/// missed.
#[test]
fn a_broken_connection_wakes_and_listens_again() {
    block_on(async {
        let (world, executes, onlooker) = stage().await;
        executes.nudged(NEVER).await;
        until_listening(&onlooker).await;
        let asked = Instant::now();
        let kill = format!("SELECT pg_terminate_backend(pid) {LISTENING}");
        onlooker.execute(&kill, &[]).await.unwrap();
        executes.nudged(NEVER).await;
        until_listening(&onlooker).await;
        world.planned("task", vec![candidate("k")]).await;
        executes.nudged(NEVER).await;
        assert!(asked.elapsed() < NEVER);
    });
}

/// Without a nudge the wait ends after its time.
#[test]
fn a_wait_for_a_nudge_is_bounded() {
    block_on(async {
        let (_world, executes, onlooker) = stage().await;
        executes.nudged(NEVER).await;
        until_listening(&onlooker).await;
        executes.nudged(Duration::from_millis(20)).await;
    });
}

/// A reader learns of each arrival once, and of nothing else.
#[test]
fn arrivals_name_what_there_is_and_nothing_else() {
    block_on(async {
        let (world, executes, _onlooker) = stage().await;
        let nothing = executes.arrivals(0).await.unwrap();
        assert_eq!(nothing, Arrivals::default());
        world.planned("task", vec![candidate("k")]).await;
        let at = world.now + Duration::from_secs(60);
        world.planned("task", vec![due("t", at), due("u", at + Duration::from_secs(1))]).await;
        let both = executes.arrivals(nothing.mark).await.unwrap();
        let expected = Arrivals { mark: both.mark, log: true, timer: Some(at), retry: None };
        assert_eq!(both, expected);
        let again = executes.arrivals(both.mark).await.unwrap();
        assert_eq!(again, Arrivals { mark: both.mark, ..Arrivals::default() });
        // A waiting item is not planned again, so nothing arrives.
        world.planned("task", vec![candidate("k")]).await;
        assert_eq!(executes.arrivals(both.mark).await.unwrap(), again);
    });
}

/// A reader that is further behind than the journal reaches reads everything.
#[test]
fn a_mark_beyond_the_journal_names_everything() {
    block_on(async {
        let (world, executes, onlooker) = stage().await;
        world.planned("task", vec![candidate("k")]).await;
        world.planned("task", vec![candidate("l")]).await;
        onlooker.execute("DELETE FROM besom.arrival WHERE mark = 1", &[]).await.unwrap();
        let all = executes.arrivals(0).await.unwrap();
        let any = Some(Time(i64::MIN));
        assert_eq!(all, Arrivals { mark: 2, log: true, timer: any, retry: any });
        let last = executes.arrivals(1).await.unwrap();
        assert_eq!(last, Arrivals { mark: 2, log: true, ..Arrivals::default() });
        // A store that was restored from a backup has a lower mark.
        assert!(executes.arrivals(9).await.unwrap().retry.is_some());
    });
}
