//! Races of several connections on PostgreSQL, each in a forced order: nothing here depends on
//! timing.

use std::sync::Arc;
use std::time::Duration;

use besom_core::delivery;
use besom_core::ids::{Partition, RunId, Term};
use besom_core::item::Candidate;
use besom_core::proposal::{Change, Condition, Filter, Guard, RowRange};
use besom_core::value::{Field, Value};
use besom_ports::store::{
    Batch, BeforeImage, Claim, Command, CommandEffect, Committed, DeadSelector, Decision,
    EndOfScan, Entered, Error, LockedRows, MessageQuery, NewRun, Offered, Outcome, RingPosition,
    SlotDecision, SlotOutcome, SlotRecord, Trigger,
};
use besom_postgres::Options;
use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::tables::{counter, parent, text, thing};
use besom_tests::conformance::world::{
    LETTERS, apply, candidate, dead, fence, in_one_stream, n_is, new_run, page, set_n, skip, task,
    tenant, unqueued,
};
use besom_tests::conformance::{World, block_on};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// A world, and connections beside the store's: two of the product, and one that observes.
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
    /// Returns once this many statements of the store wait for a lock.
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

    /// A commit in progress.
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

/// If a client attaches while the guard waits for the anchor, nothing is deleted.
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

/// With the order of the test above, a guard in the locking statement would not see the attach.
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

/// An attach during the commit waits for it, and finds its parent.
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

/// A row that a guard has read does not change until the commit.
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

/// Guard, image and change use the same version of a row: the one after the wait for its lock. For
/// text keys and number keys, because different statements change them, and others delete them.
#[test]
fn a_row_that_changes_while_it_is_awaited_is_judged_and_kept_as_it_became() {
    for (guards, outcome, n, images) in [
        (vec![1], Outcome::Skipped("guard".into()), 2, vec![]),
        (vec![2], Outcome::Committed, 9, vec![2]),
        (vec![], Outcome::Committed, 9, vec![2]),
    ] {
        for (table, deletes) in
            [("things", false), ("counters", false), ("things", true), ("counters", true)]
        {
            block_on(async {
                let stage = stage().await;
                stage.world.write(vec![thing("1", 1), counter(1, 1)]).await;
                let key = if table == "things" { text("1") } else { Value::Integer(1) };
                let is = |n: &i64| Guard::Columns {
                    collection: table.into(),
                    key: vec![key.clone()],
                    conditions: vec![Condition::equal("n", Value::Integer(*n))],
                };
                let (collection, key) = (table.into(), vec![key.clone()]);
                let change = match deletes {
                    true => Change::Delete { collection, key },
                    false => {
                        let fields = vec![Field::new("n", Value::Integer(9))];
                        Change::Update { collection, key, fields }
                    }
                };
                let decision = apply(guards.iter().map(is).collect(), vec![change]);
                let batch = stage.batch(decision).await;
                stage.product(&format!("BEGIN; UPDATE {table} SET n = 2 WHERE id = '1'")).await;
                let commit = stage.commit(&batch);
                stage.until_waiting(1).await;
                stage.product("COMMIT").await;
                let outcomes = commit.await.unwrap().unwrap().outcomes;
                let case = format!("{table}, deletes: {deletes}, {guards:?}");
                assert_eq!(outcomes, std::slice::from_ref(&outcome), "{case}");
                let rows = stage.world.rows(table, &["n"]).await;
                let stays = !deletes || outcome != Outcome::Committed;
                let expected: Vec<_> = stays.then_some([Value::Integer(n)]).into_iter().collect();
                assert_eq!(rows, expected, "{case}");
                let kept = stage.world.latest_images().await;
                let kept: Vec<Value> = kept.iter().map(n_before).collect();
                let expected: Vec<Value> = images.iter().copied().map(Value::Integer).collect();
                assert_eq!(kept, expected, "{case}");
            });
        }
    }
}

/// The same with numbers as keys: the change of the first row waits, and locks no later row.
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

        // Another connection locks in the same order.
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

/// A commit locks all of its rows in the order of their keys, whichever item comes first, and
/// whether a guard or a change names them. So it holds no lock that another commit in that order
/// waits for. (Otherwise the server would end one of the two as a deadlock.)
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

            // Like another commit of the same rows: first `t`, then `u`.
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

/// A commit that is still in transit when its mark is looked up is never applied.
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

/// A backend that is killed before its COMMIT changes nothing, and the caller learns that.
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

/// A commit that waits too long is busy: nothing is changed and no attempt is counted.
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

/// The fence is not raised while a leader's write is in progress.
#[test]
fn a_trial_names_what_another_session_has_locked_and_does_not_wait_for_it() {
    block_on(async {
        let stage = stage().await;
        stage.world.write(vec![thing("a", 1), thing("b", 1), thing("c", 1)]).await;
        stage.product("BEGIN; SELECT 1 FROM things WHERE id = 'b' FOR UPDATE").await;
        let world = &stage.world;
        let range = RowRange { collection: "things".into(), rows: 10, ..RowRange::default() };
        let alone = |id: &str| vec![set_n(id, 2)];
        let changes = [alone("b"), alone("c"), vec![Change::DeleteRange(Arc::new(range))]]
            .map(|changes| unqueued(world.fence.term, world.now, Some(tenant("a")), changes));
        let batch = world.batch(changes.to_vec());
        let tried = world.store().try_commit(&batch).await.expect("it does not wait");
        let [b, c, range] = &tried.changes[..] else { panic!("{tried:?}") };
        let locked = |rows, first: Option<&str>| {
            Some(LockedRows { rows, first: first.map(ToOwned::to_owned) })
        };
        assert_eq!((&b.locked, b.rows), (&locked(1, None), 0));
        assert_eq!((&c.locked, c.rows), (&None, 1));
        assert_eq!((&range.locked, range.rows), (&locked(1, Some("\"b\"")), 2));
        assert_eq!(tried.outcomes[1..], [Outcome::Committed, Outcome::Committed]);
        stage.product("COMMIT").await;
        let tried = stage.world.store().try_commit(&batch).await.expect("it is tried again");
        assert!(tried.changes.iter().all(|changes| changes.locked.is_none()), "{tried:?}");
        assert_eq!(tried.changes[2].rows, 3);
    });
}

#[test]
fn a_raise_waits_for_the_write_of_the_leader_before() {
    block_on(async {
        let stage = stage().await;
        // The beginning of every write of a leader.
        stage.product("BEGIN; SELECT 1 FROM besom.fence WHERE term = 1 FOR SHARE").await;
        let store = stage.world.store();
        let raise =
            tokio::spawn(async move { store.raise_fence(&fence(2), &"n2".into(), None).await });
        stage.until_waiting(1).await;
        stage.product("COMMIT").await;
        assert!(raise.await.unwrap().is_ok());
        let store = stage.world.store();
        let end = EndOfScan::of("task".into(), RunId(1));
        let stale = store.end_scan(&stage.world.fence, &end).await;
        assert!(matches!(stale, Err(Error::Fenced)), "{stale:?}");
    });
}

/// Concurrent commits of one run lose no count, and the last of them ends the run.
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

/// A decision that is repeated while its first copy commits starts no second run.
#[test]
fn a_decision_repeated_beside_its_first_copy_is_written_once() {
    block_on(async {
        let stage = stage().await;
        let slot = stage.world.now;
        let decision = SlotDecision {
            slots: vec![SlotRecord {
                task: task("task"),
                from: slot,
                to: slot,
                count: 1,
                outcome: SlotOutcome::Ran,
                reason: String::new(),
                run: None,
                term: Term(1),
            }],
            runs: vec![NewRun { trigger: Trigger::Schedule, ..new_run("task", slot) }],
            ..SlotDecision::default()
        };
        let decide = || {
            let (store, leader) = (stage.world.store(), stage.world.fence.clone());
            let decision = decision.clone();
            tokio::spawn(async move { store.decide_slots(&leader, &decision).await })
        };
        // The first copy waits after it has started its run; its answer arrives too late.
        stage.product("BEGIN; LOCK TABLE besom.slot IN SHARE MODE").await;
        let first = decide();
        stage.until_waiting(1).await;
        let second = decide();
        stage.until_waiting(2).await;
        stage.product("COMMIT").await;
        let first = first.await.unwrap().unwrap();
        assert_eq!(second.await.unwrap().unwrap(), first);
        assert_eq!(stage.world.store().active_runs().await.unwrap().len(), 1);
        let slots = stage.world.store().slots(&task("task"), slot, slot, 10).await.unwrap();
        assert_eq!(slots.len(), 1, "{slots:?}");
    });
}

/// A command that is repeated while its first copy commits is applied once.
#[test]
fn a_command_repeated_beside_its_first_copy_is_applied_once() {
    block_on(async {
        let stage = stage().await;
        for key in ["a", "b"] {
            stage.world.settle(candidate(key), dead("broken")).await;
        }
        let selector = DeadSelector::default();
        let command = Command::DiscardDead(selector.clone());
        let id = stage.world.store().submit(&command, "ann", "useless").await.unwrap();
        let effect = CommandEffect::DiscardDead(selector);
        let asked = stage.world.asked(id).await;
        let apply = || {
            let (store, leader) = (stage.world.store(), stage.world.fence.clone());
            let (asked, effect) = (asked.clone(), effect.clone());
            tokio::spawn(async move {
                store.apply_command(&leader, &asked, &effect, "done", LETTERS).await
            })
        };
        stage.product("BEGIN; LOCK TABLE besom.history IN SHARE MODE").await;
        let first = apply();
        stage.until_waiting(1).await;
        let second = apply();
        stage.until_waiting(2).await;
        stage.product("COMMIT").await;
        let first = first.await.unwrap().unwrap();
        assert_eq!(first.dead, 2);
        assert_eq!(second.await.unwrap().unwrap(), first);
        assert_eq!(stage.world.history().await.len(), 4, "two set aside, two discarded");
        stage.world.balanced().await;
    });
}

/// A dead letter that a commit resolves while a command discards it is only resolved.
#[test]
fn a_dead_letter_resolved_beside_its_discard_is_counted_once() {
    block_on(async {
        let stage = stage().await;
        stage.world.settle(candidate("k"), dead("broken")).await;
        stage.product("BEGIN; UPDATE besom.dead SET resolved_at = 1").await;
        let selector = DeadSelector::default();
        let command = Command::DiscardDead(selector.clone());
        let id = stage.world.store().submit(&command, "ann", "useless").await.unwrap();
        let (store, leader) = (stage.world.store(), stage.world.fence.clone());
        let asked = stage.world.asked(id).await;
        let discard = tokio::spawn(async move {
            let effect = CommandEffect::DiscardDead(selector);
            store.apply_command(&leader, &asked, &effect, "done", LETTERS).await
        });
        stage.until_waiting(1).await;
        stage.product("COMMIT").await;
        assert_eq!(discard.await.unwrap().unwrap().dead, 0);
        assert_eq!(stage.world.history().await.len(), 1, "nothing was discarded");
    });
}

/// A letter that is discarded while the item is committed leaves no version behind that is blocked.
#[test]
fn a_version_that_is_discarded_beside_a_commit_of_its_item_is_not_blocked() {
    block_on(async {
        let stage = stage().await;
        stage.world.settle(candidate("k"), dead("corrupt")).await;
        let repaired = Candidate { version: "v2".into(), ..candidate("k") };
        stage.world.planned("task", vec![repaired]).await;
        let item = stage.world.only("task").await;
        let batch = stage.world.batch(vec![stage.world.entry(&item, apply(vec![], vec![]))]);
        // The commit has looked for blocks and found the letter; its books wait.
        stage.product("BEGIN; LOCK TABLE besom.tally IN SHARE MODE").await;
        let commit = stage.commit(&batch);
        stage.until_waiting(1).await;
        let discard = "BEGIN; DELETE FROM besom.dead;
            INSERT INTO besom.settled (task, tenant, key, due, version, given_up, at)
            SELECT task, tenant, key, due, 'v1', true, 1 FROM besom.item";
        stage.rival.batch_execute(discard).await.expect("the letter is discarded");
        stage.product("COMMIT").await;
        stage.until_waiting(1).await;
        stage.rival.batch_execute("COMMIT").await.expect("the discard is committed");
        assert_eq!(commit.await.unwrap().unwrap().outcomes, [Outcome::Committed]);
        let run = stage.world.run("task").await;
        let planned = stage.world.plan("task", run, vec![candidate("k")]).await;
        assert_eq!((planned.planned, planned.blocked), (1, 0));
    });
}

/// A workspace whose user returns while the commit waits for the row is not moved to standby.
#[test]
fn what_wakes_up_while_the_commit_waits_for_its_row_is_not_idle() {
    // Items that change one row by its key are judged and changed in one statement, the others in
    // several.
    for (name, also) in [("together", vec![]), ("in steps", vec![nobody_attached()])] {
        block_on(async {
            let mut stage = stage().await;
            stage.world.write(vec![parent("p"), thing("t", 1)]).await;
            stage.world.advance(Duration::from_secs(600));
            let activity = stage.world.fixture.activity();
            let guards = [vec![Guard::Idle("ws".into())], also].concat();
            let batch = stage.batch(apply(guards, vec![set_n("t", 9)])).await;
            let batch = Batch { activity_in_store: true, ..batch };

            stage.product("BEGIN; UPDATE things SET title = 'x' WHERE id = 't'").await;
            let commit = stage.commit(&batch);
            stage.until_waiting(1).await;
            activity.connect("ws", "c").await.unwrap();
            stage.product("COMMIT").await;

            let committed = commit.await.unwrap().unwrap();
            assert_eq!(committed.outcomes, [Outcome::Skipped("guard".into())], "{name}");
            assert_eq!(stage.world.rows("things", &["n"]).await, [[Value::Integer(1)]], "{name}");
            stage.world.balanced().await;
        });
    }
}

/// A user who returns during the commit that found the workspace idle returns after it.
#[test]
fn a_sign_of_life_waits_for_the_commit_that_found_none() {
    block_on(async {
        let mut stage = stage().await;
        stage.world.write(vec![parent("p"), thing("t", 1)]).await;
        stage.world.advance(Duration::from_secs(600));
        let activity = stage.world.fixture.activity();
        let guards = vec![Guard::Idle("ws".into())];
        let batch = stage.batch(apply(guards, vec![set_n("t", 9)])).await;
        let batch = Batch { activity_in_store: true, ..batch };
        // The books are waiting; the guard has been evaluated.
        stage.product("BEGIN; LOCK TABLE besom.history IN SHARE MODE").await;
        let commit = stage.commit(&batch);
        stage.until_waiting(1).await;
        let seen = tokio::spawn(async move { activity.connect("ws", "c").await });
        stage.until_waiting(2).await;
        stage.product("COMMIT").await;
        assert_eq!(commit.await.unwrap().unwrap().outcomes, [Outcome::Committed]);
        seen.await.unwrap().unwrap();
    });
}

/// The image of an upsert is the row that it has overwritten, even if that row was inserted in
/// between.
#[test]
fn an_upsert_keeps_the_row_that_somebody_else_inserts_meanwhile() {
    block_on(async {
        let stage = stage().await;
        let fields = vec![
            Field::new("id", text("t")),
            Field::new("title", text("besom")),
            Field::new("n", Value::Integer(2)),
        ];
        let upsert = Change::Upsert { collection: "things".into(), fields };
        let batch = stage.batch(apply(vec![], vec![upsert])).await;
        let insert = "BEGIN; INSERT INTO things (tenant_id, id, title, n)
             VALUES ('a', 't', 'theirs', 1)";
        stage.product(insert).await;
        let commit = stage.commit(&batch);
        stage.until_waiting(1).await;
        stage.product("COMMIT").await;
        assert_eq!(commit.await.unwrap().unwrap().outcomes, [Outcome::Committed]);
        let images = stage.world.latest_images().await;
        assert_eq!(images.len(), 1);
        assert_eq!(n_before(&images[0]), Value::Integer(1), "{images:?}");
        assert_eq!(stage.world.rows("things", &["n"]).await, [[Value::Integer(2)]]);
    });
}

fn tell(payload: &str) -> Change {
    Change::Emit { topic: "t".into(), key: "k".into(), payload: payload.into() }
}

/// Messages of a sequence are delivered in commit order, whichever commit began first.
#[test]
fn messages_of_a_sequence_follow_the_order_of_their_commits() {
    block_on(async {
        let stage = stage().await;
        stage.world.write(vec![thing("s", 1), thing("t", 1)]).await;
        stage.world.planned("task", vec![candidate("a"), candidate("b")]).await;
        let items = stage.world.log("task").await;
        let batch = |at: usize, changes| {
            stage.world.batch(vec![stage.world.entry(&items[at], apply(vec![], changes))])
        };
        let slow = batch(0, vec![set_n("s", 2), set_n("t", 2), tell("slow")]);
        let fast = batch(1, vec![set_n("t", 3), tell("fast")]);
        stage.product("BEGIN; UPDATE things SET title = 'x' WHERE id = 's'").await;
        let commit = stage.commit(&slow);
        stage.until_waiting(1).await;
        stage.world.store().commit(&fast).await.unwrap();
        stage.product("COMMIT").await;
        commit.await.unwrap().unwrap();
        let n = Value::Integer(2);
        assert_eq!(stage.world.rows("things", &["n"]).await[1], [n], "the slow one was later");
        let told: Vec<_> =
            stage.world.fixture.outbox().await.into_iter().map(|(_, _, payload)| payload).collect();
        assert_eq!(told, [b"fast".to_vec(), b"slow".to_vec()]);
    });
}

/// The numbers of a sequence become visible in their order and without gaps, and two commits that emit
/// to the same sequences in opposite orders do not block each other.
#[test]
fn concurrent_commits_number_their_messages_one_after_the_other() {
    block_on(async {
        let stage = stage().await;
        let tell =
            |key: &str| Change::Emit { topic: "t".into(), key: key.into(), payload: Vec::new() };
        let all = ["a", "b", "c", "d"].map(candidate);
        stage.world.planned("task", all.to_vec()).await;
        let items = stage.world.log("task").await;
        let commit = |at: usize, changes: Vec<Change>| {
            let entry = stage.world.entry(&items[at], apply(vec![], changes));
            stage.commit(&stage.world.batch(vec![entry]))
        };
        commit(0, vec![tell("k"), tell("l")]).await.unwrap().unwrap();
        stage.product("BEGIN; SELECT 1 FROM besom.outbox_sequence FOR UPDATE").await;
        let waiting = [
            commit(1, vec![tell("k"), tell("l")]),
            commit(2, vec![tell("l"), tell("k"), tell("l")]),
            commit(3, vec![tell("k")]),
        ];
        stage.until_waiting(3).await;
        stage.product("COMMIT").await;
        for commit in waiting {
            assert_eq!(commit.await.unwrap().unwrap().outcomes, [Outcome::Committed]);
        }
        let query = MessageQuery { limit: 100, ..MessageQuery::default() };
        let mut messages = stage.world.store().messages(&query).await.unwrap();
        messages.reverse();
        let of = |key: &str| -> Vec<u64> {
            let of = messages.iter().filter(|message| message.key == key);
            of.map(|message| message.delivery.sequence).collect()
        };
        // In the order of their ids, which is the order of delivery.
        assert_eq!(of("k"), [1, 2, 3, 4]);
        assert_eq!(of("l"), [1, 2, 3, 4]);
    });
}

/// Somebody has deleted rows of Besom: the numbers of the messages that are there are not given again.
#[test]
fn a_sequence_whose_row_was_deleted_goes_on_after_its_messages() {
    block_on(async {
        let stage = stage().await;
        let store = stage.world.store();
        let offered = |key: &str, number| {
            let (topic, payload) = ("t".to_owned(), b"{}".to_vec());
            Offered { topic, tenant: None, key: key.to_owned(), number, payload }
        };
        let three = [offered("a", Some(1)), offered("a", Some(2)), offered("b", None)];
        store.enter_messages(&three).await.unwrap();
        stage.product("DELETE FROM besom.outbox_sequence").await;
        let more = [offered("a", Some(2)), offered("a", Some(3)), offered("b", None)];
        let entered = store.enter_messages(&more).await.unwrap();
        let stored = |sequence| Entered::Stored { sequence };
        assert_eq!(entered, [Entered::Repeated, stored(3), stored(2)]);
        let minute = Duration::from_secs(60);
        let claim =
            delivery::Claim { room: vec![("t".to_owned(), 9)], hold: minute, wait_max: minute };
        let claimed = store.claim_messages(&stage.world.fence, &[], &claim).await.unwrap();
        let mut claimed: Vec<_> = claimed.into_iter().map(|m| (m.key, m.sequence)).collect();
        claimed.sort();
        assert_eq!(claimed, [("a".to_owned(), 1), ("b".to_owned(), 1)], "from the first on");
    });
}

/// A batch that hangs keeps one partition from its next owner, not the whole share.
#[test]
fn one_commit_that_hangs_keeps_one_partition_unowned() {
    block_on(async {
        let stage = stage().await;
        stage.product("BEGIN; SELECT 1 FROM besom.partition WHERE id = 3 FOR SHARE").await;
        let store = stage.world.store();
        let table = store.partition_table().await.unwrap();
        let claims: Vec<Claim> = table[..8]
            .iter()
            .map(|row| Claim { partition: row.partition, seen: row.epoch })
            .collect();
        let ring = |revision| RingPosition { term: Term(9), revision };
        let heir = "node-2".into();
        let taken = store.claim_partitions(&heir, ring(1), &claims).await.unwrap();
        let taken: Vec<u32> = taken.iter().map(|(Partition(id), _)| *id).collect();
        assert_eq!(taken, [0, 1, 2, 4, 5, 6, 7]);
        stage.product("COMMIT").await;
        let rest = store.claim_partitions(&heir, ring(1), &claims).await.unwrap();
        assert_eq!(rest.iter().map(|(Partition(id), _)| *id).collect::<Vec<_>>(), [3]);
    });
}

/// If a dead letter is retried while a page plans the same item, the page is planned again and its
/// scan does not fail.
#[test]
fn a_page_beside_a_revived_dead_letter_is_planned_again() {
    block_on(async {
        let stage = stage().await;
        stage.world.settle(candidate("k"), dead("broken")).await;
        let run = stage.world.run("task").await;
        // The retry is in progress: its row is not visible yet.
        stage
            .product(
                "BEGIN; INSERT INTO besom.item (task, due, no, run_at, run, planned_at, part, place,
                   tenant, key, version, payload)
                 SELECT task, due, 999999, 0, run, planned_at, part, 2, tenant, key, version, payload
                 FROM besom.dead",
            )
            .await;
        let (store, leader) = (stage.world.store(), stage.world.fence.clone());
        let mut newer = candidate("k");
        newer.version = "v2".into();
        let asked = page("task", run, vec![newer]);
        let again = asked.clone();
        let planning = tokio::spawn(async move { store.plan_page(&leader, &asked).await });
        stage.until_waiting(1).await;
        stage.product("COMMIT").await;
        let busy = planning.await.unwrap();
        assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
        let planned = stage.world.store().plan_page(&stage.world.fence, &again).await.unwrap();
        assert_eq!((planned.planned, planned.deduplicated), (0, 1));
    });
}
