//! Activity outside the store is read again just before a commit.

use std::sync::Arc;
use std::time::Duration;

use besom_core::clock::SkewBounds;
use besom_core::proposal::Guard;
use besom_core::time::Mono;
use besom_core::value::Value;
use besom_engine::host::clock::StoreTime;
use besom_engine::host::perform::Ports;
use besom_node::executor::{Command as Execute, Event as Executed};
use besom_node::flight::Ticket;
use besom_node::{Command, Event, Tenure};
use besom_ports::activity::{Activity, State};
use besom_ports::guests::StopFlag;
use besom_ports::store::Outcome;
use besom_simulation::script::Script;
use besom_tests::adapters::lease::Machine;
use besom_tests::adapters::redis::{listening, single};
use besom_tests::adapters::sqlite::Sqlite;
use besom_tests::conformance::tables::thing;
use besom_tests::conformance::world::{apply, candidate, set_n};
use besom_tests::conformance::{World, block_on};

#[test]
fn a_connection_between_act_and_commit_defeats_the_change() {
    block_on(async {
        let server = single();
        let activity = listening(vec![server.url()]).await;
        server.pass(301_000);
        let sqlite = Sqlite::open();
        let store = sqlite.inner();
        let world = World::new(Box::new(sqlite)).await;
        world.write(vec![thing("t", 1)]).await;
        let ports = Ports {
            coordination: Arc::new(Machine::new().lease(store.clone(), world.node.clone())),
            cluster: None,
            store,
            activity: activity.clone(),
            guests: Arc::new(Script::default()),
            clock: StoreTime::of_machine(SkewBounds::DEFAULT),
            clock_read_every: Duration::from_secs(10),
            health: Arc::default(),
            node: world.node.clone(),
            snapshot_max: Duration::from_secs(5),
            history_retention: Duration::from_secs(3_600),
            node_retention: Duration::from_secs(600),
            keep_removed: Vec::new(),
            recorder: Arc::default(),
            lines: Arc::default(),
            quota: Arc::default(),
            braking: Arc::default(),
            pacing: Arc::default(),
            trying: Arc::default(),
            routed: Arc::default(),
            delivery: None,
        };
        let key = "ws-1".to_owned();
        // The event between the decision and the commit, the outcome, and the resulting row.
        for (between, expected, n) in [
            ("", Outcome::Committed, 2),
            ("INCR ws_conn:ws-1", Outcome::Skipped("guard".into()), 2),
            ("SETEX idle_timer:ws-1 300 1", Outcome::Skipped("guard".into()), 2),
            ("HSET besom:observed server another", Outcome::Skipped("guard".into()), 2),
        ] {
            world.planned("task", vec![candidate("k")]).await;
            let item = world.only("task").await;
            let states = activity.states(std::slice::from_ref(&key)).await.expect("states");
            assert_eq!(states, [State::Idle], "the act finds it idle");
            let guards = vec![Guard::Idle(key.clone())];
            let decision = apply(guards, vec![set_n("t", n)]);
            let batch = world.batch(vec![world.entry(&item, decision)]);
            if !between.is_empty() {
                let _: redis::Value = server.command(between);
            }
            let commit = Execute::Commit(Ticket(1), batch.into());
            let command = Command::Executor(Tenure(1), commit);
            let answer = ports.perform(command, Mono(0), &StopFlag::default()).await;
            let Some(Event::Executor(_, Executed::Committed(_, _, committed))) = answer else {
                panic!("a commit answers with what it has done");
            };
            assert_eq!(committed.expect("a commit").outcomes, [expected], "{between}");
            let _: i64 = server.command("DEL ws_conn:ws-1 idle_timer:ws-1");
            server.pass(301_000);
            assert_eq!(world.rows("things", &["n"]).await, [[Value::Integer(n)]], "{between}");
        }
    });
}
