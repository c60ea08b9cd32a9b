//! What several connections do to each other on PostgreSQL, each order forced: nothing here
//! depends on which is faster.

use std::sync::Arc;
use std::time::Duration;

use besom::ports::store::{Batch, BeforeImage, Committed, Decision, Error, Outcome};
use besom::store::postgres::Options;
use besom_core::ids::RunId;
use besom_core::proposal::{Change, Condition, Filter, Guard};
use besom_core::value::{Field, Value};
use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::tables::{counter, parent, text, thing};
use besom_tests::conformance::world::{apply, candidate, fence, in_one_stream, n_is, set_n, skip};
use besom_tests::conformance::{World, block_on};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// A world, and connections beside the store's: two of the product, one that looks on.
struct Stage {
    world: World,
    product: Client,
    rival: Arc<Client>,
    onlooker: Client,
}

async fn stage() -> Stage {
    stage_with(patient()).await
}

async fn stage_with(options: Options) -> Stage {
    let fixture = Postgres::open_with(options).await;
    let product = fixture.database().connect().await;
    let rival = Arc::new(fixture.database().connect().await);
    let onlooker = fixture.database().connect().await;
    let world = World::new(Box::new(fixture)).await;
    Stage { world, product, rival, onlooker }
}

impl Stage {
    /// Returns once so many statements of the store wait for a lock.
    async fn until_waiting(&self, statements: i64) {
        let sql = "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'";
        loop {
            let row = self.onlooker.query_one(sql, &[]).await.expect("the activity is read");
            if row.get::<_, i64>(0) == statements {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// A commit under way.
    fn commit(&self, batch: &Batch) -> JoinHandle<Result<Committed, Error>> {
        let (store, batch) = (self.world.store(), batch.clone());
        tokio::spawn(async move { store.commit(&batch).await })
    }

    async fn product(&self, sql: &str) {
        self.product.batch_execute(sql).await.expect("the product's statement");
    }

    /// One item that is to be applied.
    async fn batch(&self, decision: Decision) -> Batch {
        self.world.planned("task", vec![candidate("k")]).await;
        let item = self.world.only("task").await;
        self.world.batch(vec![self.world.entry(&item, decision)])
    }
}

const ATTACH: &str = "BEGIN;
    INSERT INTO children (tenant_id, parent, seq, state) VALUES ('a', 'p', 1, 'attached')";

fn nobody_attached() -> Guard {
    let conditions =
        vec![Condition::equal("parent", text("p")), Condition::equal("state", text("attached"))];
    Guard::Absent(Filter { collection: "children".into(), conditions })
}

fn delete_thing() -> Change {
    Change::Delete { collection: "things".into(), key: vec![text("t")] }
}

/// Whoever attaches while the guard waits for the anchor has attached: nothing is deleted.
#[test]
fn an_attach_that_commits_while_the_guard_waits_for_its_anchor_is_not_overrun() {
    block_on(async {
        let stage = stage().await;
        stage.world.write(vec![parent("p"), thing("t", 1)]).await;
        let batch = stage.batch(apply(vec![nobody_attached()], vec![delete_thing()])).await;

        stage.product(ATTACH).await;
        let commit = stage.commit(&batch);
        stage.until_waiting(1).await;
        stage.product("COMMIT").await;

        let committed = commit.await.unwrap().unwrap();
        assert_eq!(committed.outcomes, [Outcome::Skipped("guard".into())]);
        assert_eq!(stage.world.rows("things", &["id"]).await, [[text("t")]]);
        assert_eq!(stage.world.rows("children", &["state"]).await, [[text("attached")]]);
        stage.world.balanced().await;
    });
}

/// The order that the test above forces does overrun a guard in the statement of its lock.
#[test]
fn a_guard_in_the_statement_of_its_lock_would_overrun_the_attach() {
    block_on(async {
        let stage = stage().await;
        stage.world.write(vec![parent("p"), thing("t", 1)]).await;
        stage.product(ATTACH).await;
        let naive = "WITH anchor AS (
              SELECT 1 FROM parents WHERE tenant_id = 'a' AND id = 'p' FOR UPDATE)
            DELETE FROM things WHERE tenant_id = 'a' AND id = 't' AND EXISTS (SELECT 1 FROM anchor)
              AND NOT EXISTS (SELECT 1 FROM children
                              WHERE tenant_id = 'a' AND parent = 'p' AND state = 'attached')";
        let rival = Arc::clone(&stage.rival);
        let deleting = tokio::spawn(async move { rival.execute(naive, &[]).await });
        stage.until_waiting(1).await;
        stage.product("COMMIT").await;
        assert_eq!(deleting.await.unwrap().unwrap(), 1, "deleted although somebody is attached");
    });
}

/// An attach that comes while the commit is under way waits for it, and finds its parent.
#[test]
fn an_attach_waits_for_the_commit_that_holds_its_anchor() {
    block_on(async {
        let stage = stage().await;
        stage.world.write(vec![parent("p"), thing("t", 1), thing("u", 1)]).await;
        // The product holds a row that the item changes after its guards.
        stage.product("BEGIN; UPDATE things SET n = 5 WHERE tenant_id = 'a' AND id = 'u'").await;
        let changes = vec![delete_thing(), set_n("u", 9)];
        let batch = stage.batch(apply(vec![nobody_attached()], changes)).await;
        let commit = stage.commit(&batch);
        stage.until_waiting(1).await;
        let rival = Arc::clone(&stage.rival);
        let attach = tokio::spawn(async move {
            let sql = "INSERT INTO children (tenant_id, parent, seq, state)
                 VALUES ('a', 'p', 1, 'attached')";
            rival.execute(sql, &[]).await
        });
        stage.until_waiting(2).await;
        stage.product("COMMIT").await;
        assert_eq!(commit.await.unwrap().unwrap().outcomes, [Outcome::Committed]);
        assert_eq!(attach.await.unwrap().unwrap(), 1);
    });
}

/// A row that a guard looked at stays as it was until the commit.
#[test]
fn a_guard_sees_what_was_committed_while_it_waited_for_the_row() {
    block_on(async {
        let stage = stage().await;
        stage.world.write(vec![thing("t", 1)]).await;
        let batch = stage.batch(apply(vec![n_is("t", 1)], vec![set_n("t", 9)])).await;
        stage.product("BEGIN; UPDATE things SET n = 2 WHERE tenant_id = 'a' AND id = 't'").await;
        let commit = stage.commit(&batch);
        stage.until_waiting(1).await;
        stage.product("COMMIT").await;
        let committed = commit.await.unwrap().unwrap();
        assert_eq!(committed.outcomes, [Outcome::Skipped("guard".into())]);
        assert_eq!(stage.world.rows("things", &["n"]).await, [[Value::Integer(2)]]);
    });
}

/// The judgement, the image and the change are about the same version of a row: the one that was
/// there when the wait for it was over. Whether its key is a text or a number, which are not
/// changed by the same statement.
#[test]
fn a_row_that_changes_while_it_is_awaited_is_judged_and_kept_as_it_became() {
    for (guards, outcome, n, images) in [
        (vec![1], Outcome::Skipped("guard".into()), 2, vec![]),
        (vec![2], Outcome::Committed, 9, vec![2]),
        (vec![], Outcome::Committed, 9, vec![2]),
    ] {
        for table in ["things", "counters"] {
            block_on(async {
                let stage = stage().await;
                stage.world.write(vec![thing("1", 1), counter(1, 1)]).await;
                let key = if table == "things" { text("1") } else { Value::Integer(1) };
                let is = |n: &i64| Guard::Columns {
                    collection: table.into(),
                    key: vec![key.clone()],
                    conditions: vec![Condition::equal("n", Value::Integer(*n))],
                };
                let change = Change::Update {
                    collection: table.into(),
                    key: vec![key.clone()],
                    fields: vec![Field::new("n", Value::Integer(9))],
                };
                let decision = apply(guards.iter().map(is).collect(), vec![change]);
                let batch = stage.batch(decision).await;
                stage.product(&format!("BEGIN; UPDATE {table} SET n = 2 WHERE id = '1'")).await;
                let commit = stage.commit(&batch);
                stage.until_waiting(1).await;
                stage.product("COMMIT").await;
                let outcomes = commit.await.unwrap().unwrap().outcomes;
                assert_eq!(outcomes, std::slice::from_ref(&outcome), "{table}, {guards:?}");
                let rows = stage.world.rows(table, &["n"]).await;
                assert_eq!(rows, [[Value::Integer(n)]], "{table}, {guards:?}");
                let kept = stage.world.latest_images().await;
                let kept: Vec<Value> = kept.iter().map(n_before).collect();
                let expected: Vec<Value> = images.iter().copied().map(Value::Integer).collect();
                assert_eq!(kept, expected, "{table}, {guards:?}");
            });
        }
    }
}

/// The same where keys are numbers: the change of the first waits, and holds nothing behind it.
#[test]
fn rows_are_changed_in_the_order_of_their_numbers_whatever_the_order_of_items() {
    block_on(async {
        let stage = stage().await;
        stage.world.write(vec![counter(-5, 0), counter(3, 0), counter(20, 0)]).await;
        let add = |id: i64| Change::Increment {
            collection: "counters".into(),
            key: vec![Value::Integer(id)],
            fields: vec![Field::new("n", Value::Integer(5))],
        };
        stage.world.planned("task", in_one_stream(&["a", "b", "c"])).await;
        let items = stage.world.log("task").await;
        let decisions = [20, -5, 3].map(|id| apply(vec![], vec![add(id)]));
        let entries = items.iter().zip(decisions).map(|(i, d)| stage.world.entry(i, d));
        let batch = stage.world.batch(entries.collect());

        // Another connection goes in that order as well.
        stage.product("BEGIN; UPDATE counters SET n = 1 WHERE id = -5").await;
        let commit = stage.commit(&batch);
        stage.until_waiting(1).await;
        stage
            .product(
                "UPDATE counters SET n = 2 WHERE id = 3; UPDATE counters SET n = 3 WHERE id = 20",
            )
            .await;
        stage.product("COMMIT").await;

        let committed = commit.await.unwrap().unwrap();
        assert_eq!(committed.outcomes, vec![Outcome::Committed; 3]);
        let rows = stage.world.rows("counters", &["n"]).await;
        assert_eq!(rows, [6, 7, 8].map(|n| [Value::Integer(n)]));
        stage.world.balanced().await;
    });
}

/// The value of `n` in an image.
fn n_before(image: &BeforeImage) -> Value {
    let row = image.row.as_ref().expect("the row was there");
    row.iter().find(|field| field.name == "n").expect("every column is kept").value.clone()
}

/// A commit waits for all of its rows in the order of their keys, whichever item comes first,
/// and whether a guard names them or a change: so it holds nothing that a commit which goes in
/// that order waits for. (The server would end one of the two as a deadlock.)
#[test]
fn rows_are_locked_in_the_order_of_their_keys_whatever_the_order_of_items_and_changes() {
    let five = || Value::Integer(5);
    for (name, decisions) in [
        ("changes of one item", vec![apply(vec![], vec![set_n("u", 5), set_n("t", 5)])]),
        (
            "changes of one item, level by level",
            vec![apply(vec![], vec![set_n("u", 4), set_n("u", 5), set_n("t", 5)])],
        ),
        (
            "two items of a change each",
            vec![apply(vec![], vec![set_n("u", 5)]), apply(vec![], vec![set_n("t", 5)])],
        ),
        (
            "changes of two items",
            vec![
                apply(vec![n_is("v", 0)], vec![set_n("u", 5)]),
                apply(vec![], vec![set_n("t", 5)]),
            ],
        ),
        (
            "items that go one after the other",
            vec![
                apply(vec![], vec![set_n("u", 5)]),
                apply(vec![n_is("u", 5)], vec![set_n("t", 5)]),
            ],
        ),
    ] {
        block_on(async {
            let stage = stage().await;
            stage.world.write(vec![thing("t", 0), thing("u", 0), thing("v", 0)]).await;
            let keys: Vec<String> = (0..decisions.len()).map(|n| format!("k{n}")).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            stage.world.planned("task", in_one_stream(&keys)).await;
            let items = stage.world.log("task").await;
            let entries = items.iter().zip(decisions).map(|(i, d)| stage.world.entry(i, d));
            let batch = stage.world.batch(entries.collect());

            // As another commit does that wants the same rows: first `t`, then `u`.
            stage.product("BEGIN; UPDATE things SET n = 1 WHERE id = 't'").await;
            let commit = stage.commit(&batch);
            stage.until_waiting(1).await;
            stage.product("UPDATE things SET title = 'theirs' WHERE id = 'u'; COMMIT").await;

            let committed = commit.await.unwrap().unwrap();
            assert_eq!(committed.outcomes, vec![Outcome::Committed; items.len()], "{name}");
            let rows = stage.world.rows("things", &["n"]).await;
            assert_eq!(rows, [[five()], [five()], [Value::Integer(0)]], "{name}");
            stage.world.balanced().await;
        });
    }
}

/// A commit that is still under way when its mark is looked up is never applied.
#[test]
fn a_mark_that_is_given_up_stops_the_commit_that_is_under_way() {
    block_on(async {
        let stage = stage().await;
        stage.world.write(vec![thing("t", 1)]).await;
        let batch = stage.batch(apply(vec![], vec![set_n("t", 9)])).await;
        stage.product("BEGIN; UPDATE things SET n = 2 WHERE tenant_id = 'a' AND id = 't'").await;
        let commit = stage.commit(&batch);
        stage.until_waiting(1).await;
        assert_eq!(stage.world.store().find_commit(batch.id).await.unwrap(), None);
        stage.product("COMMIT").await;
        let refused = commit.await.unwrap();
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        assert_eq!(stage.world.rows("things", &["n"]).await, [[Value::Integer(2)]]);
        stage.world.balanced().await;
    });
}

/// A backend that is killed before its COMMIT has done nothing, and the caller knows.
#[test]
fn a_backend_that_is_killed_takes_everything_back() {
    block_on(async {
        let stage = stage().await;
        stage.world.write(vec![thing("t", 1)]).await;
        let batch = stage.batch(apply(vec![], vec![set_n("t", 9)])).await;
        stage.product("BEGIN; UPDATE things SET n = 2 WHERE tenant_id = 'a' AND id = 't'").await;
        let commit = stage.commit(&batch);
        stage.until_waiting(1).await;
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'";
        stage.onlooker.execute(kill, &[]).await.unwrap();
        let failed = commit.await.unwrap();
        assert!(matches!(failed, Err(Error::Unavailable(_) | Error::Unknown(_))), "{failed:?}");
        stage.product("ROLLBACK").await;
        // The pool has replaced the connection.
        let again = stage.world.store().commit(&batch).await.unwrap();
        assert_eq!(again.outcomes, [Outcome::Committed]);
        stage.world.balanced().await;
    });
}

/// What waits too long is busy, not broken: nothing has changed and nothing is counted.
#[test]
fn a_lock_that_is_not_to_be_had_in_time_makes_the_store_busy() {
    block_on(async {
        let lock_timeout = Duration::from_millis(50);
        let stage = stage_with(Options { lock_timeout, ..patient() }).await;
        stage.world.write(vec![thing("t", 1)]).await;
        let batch = stage.batch(apply(vec![n_is("t", 1)], vec![set_n("t", 9)])).await;
        stage.product("BEGIN; UPDATE things SET n = 2 WHERE tenant_id = 'a' AND id = 't'").await;
        let busy = stage.world.store().commit(&batch).await;
        assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
        stage.product("ROLLBACK").await;
        let again = stage.world.store().commit(&batch).await.unwrap();
        assert_eq!(again.outcomes, [Outcome::Committed]);
    });
}

/// A leader's write that is under way keeps the fence where it is until it has ended.
#[test]
fn a_raise_waits_for_the_write_of_the_leader_before() {
    block_on(async {
        let stage = stage().await;
        // As every write of a leader begins.
        stage.product("BEGIN; SELECT 1 FROM besom.fence WHERE term = 1 FOR SHARE").await;
        let store = stage.world.store();
        let raise =
            tokio::spawn(async move { store.raise_fence(&fence(2), &"n2".into(), None).await });
        stage.until_waiting(1).await;
        stage.product("COMMIT").await;
        assert!(raise.await.unwrap().is_ok());
        let store = stage.world.store();
        let stale = store.end_scan(&stage.world.fence, RunId(1), None, None).await;
        assert!(matches!(stale, Err(Error::Fenced)), "{stale:?}");
    });
}

/// Commits of one run side by side lose no count, and the last of them ends it.
#[test]
fn commits_of_one_run_do_not_wait_for_each_other_and_the_last_ends_it() {
    block_on(async {
        let stage = stage().await;
        let keys: Vec<String> = (0..64).map(|n| format!("k{n}")).collect();
        let run = stage.world.planned("task", keys.iter().map(|k| candidate(k)).collect()).await;
        let mut streams: std::collections::BTreeMap<_, Vec<_>> = Default::default();
        for item in stage.world.log("task").await {
            streams.entry(item.item.partition).or_default().push(item);
        }
        let mut commits = Vec::new();
        for items in streams.values() {
            let entries = items.iter().map(|i| stage.world.entry(i, skip("done"))).collect();
            commits.push(stage.commit(&stage.world.batch(entries)));
        }
        let mut ended = 0;
        for commit in commits {
            ended += commit.await.unwrap().unwrap().runs_ended.len();
        }
        assert_eq!(ended, 1);
        let run = stage.world.store().run(run).await.unwrap().unwrap();
        assert!(run.ended_at.is_some() && run.open == 0, "{run:?}");
        stage.world.balanced().await;
    });
}

/// Items of one stream, committed twice at the same time, take effect once.
#[test]
fn the_same_items_committed_twice_at_once_take_effect_once() {
    block_on(async {
        let stage = stage().await;
        stage.world.write(vec![thing("t", 0)]).await;
        stage.world.planned("task", in_one_stream(&["a"])).await;
        let item = stage.world.only("task").await;
        let by_one = || {
            let fields = vec![besom_core::value::Field::new("n", Value::Integer(1))];
            Change::Increment { collection: "things".into(), key: vec![text("t")], fields }
        };
        let batch =
            || stage.world.batch(vec![stage.world.entry(&item, apply(vec![], vec![by_one()]))]);
        let commits: Vec<_> = (0..4).map(|_| stage.commit(&batch())).collect();
        let mut applied = 0;
        for commit in commits {
            let outcomes = commit.await.unwrap().unwrap().outcomes;
            applied += usize::from(outcomes == [Outcome::Committed]);
        }
        assert_eq!(applied, 1);
        assert_eq!(stage.world.rows("things", &["n"]).await, [[Value::Integer(1)]]);
        stage.world.balanced().await;
    });
}
