//! The whole cycle, in order.

use besom_core::delivery::State;
use besom_ports::store::{MessageQuery, Outcome};

use super::estate::{Estate, on_every_store};

fn words(states: &[[String; 4]]) -> Vec<String> {
    states.iter().map(|[status, operation, ..]| format!("{status} {operation}")).collect()
}

on_every_store! {
    async fn a_workspace_goes_to_its_archive_and_comes_back(estate: "RUNNING", "") {
        // It is idle: its desired state is STANDBY.
        assert_eq!(estate.slot("ttl").await, Some(Outcome::Committed));
        let states = estate.converge().await;
        assert_eq!(words(&states), ["RUNNING NONE", "RUNNING STOPPING", "STANDBY NONE"]);
        // It has been unused for a long time: it is to be archived.
        estate.advance(3_600);
        assert_eq!(estate.slot("ttl").await, Some(Outcome::Committed));
        let states = estate.converge().await;
        assert_eq!(words(&states), ["STANDBY NONE", "STANDBY ARCHIVING", "PENDING NONE"]);
        let [status, _, desired, archive] = estate.state().await;
        assert_eq!((status.as_str(), desired.as_str()), ("PENDING", "PENDING"));
        assert!(archive.starts_with("archive of"), "{archive}");
        // A user opens it: it is restored from its archive.
        estate.wants("RUNNING").await;
        let states = estate.converge().await;
        assert_eq!(words(&states), [
            "PENDING NONE", "PENDING RESTORING", "STANDBY NONE", "STANDBY STARTING",
            "RUNNING NONE",
        ]);
        assert_eq!(estate.state().await, ["RUNNING", "NONE", "RUNNING", "-"]);
        let told = estate.orchestrator.seen();
        assert_eq!(
            estate.orchestrator.operations(),
            ["STOPPING", "ARCHIVING", "RESTORING", "STARTING"],
        );
        assert_eq!(told.len(), 4);
        let restored = &told[2];
        assert_eq!(restored.path, "/restore");
        assert_eq!(restored.field("archive_key").as_str(), Some(archive.as_str()));
        assert_eq!(restored.field("workspace_id").as_str(), Some("ws-1"));
        assert_eq!(restored.field("tenant").as_str(), Some("p"));
        assert_eq!(restored.headers["besom-tenant"], "p");
        assert_eq!(restored.headers["besom-task"], "reconciler");
        assert_eq!(restored.headers["content-type"], "application/json");
        let mut keys: Vec<_> = told.iter().map(|request| request.key.clone()).collect();
        keys.dedup();
        assert_eq!(keys.len(), 4, "each message has a key of its own");
        // Without changes it stays as it is, and is not planned.
        assert_eq!(estate.plan("reconciler").await, 0);
    }

    async fn what_was_never_provisioned_is(estate: "PENDING", "") {
        estate.wants("RUNNING").await;
        let states = estate.converge().await;
        assert_eq!(words(&states), [
            "PENDING NONE", "PENDING PROVISIONING", "STANDBY NONE", "STANDBY STARTING",
            "RUNNING NONE",
        ]);
    }

    async fn what_waits_for_its_answer_is_no_item(estate: "RUNNING", "") {
        estate.wants("STANDBY").await;
        assert_eq!(estate.slot("reconciler").await, Some(Outcome::Committed));
        for _ in 0..3 {
            estate.advance(5);
            assert_eq!(estate.plan("reconciler").await, 0);
        }
        let query = MessageQuery { limit: 10, ..MessageQuery::default() };
        let messages = estate.store().messages(&query).await.unwrap();
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].delivery.state, State::Pending);
        estate.deliver().await;
        assert_eq!(estate.plan("reconciler").await, 1);
    }

    async fn an_orchestrator_that_takes_its_time_is_asked_again(estate: "RUNNING", "") {
        use besom_tests::servers::orchestrator::Reply;
        let asked = std::sync::atomic::AtomicU32::new(0);
        estate.orchestrator.answer(move |_, _| {
            match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 | 1 => Reply::Status(202, String::new()),
                _ => Reply::Status(204, String::new()),
            }
        });
        estate.wants("STANDBY").await;
        estate.slot("reconciler").await;
        estate.deliver().await;
        assert_eq!(estate.plan("reconciler").await, 0, "not at once");
        for _ in 0..2 {
            estate.advance(10);
            assert_eq!(estate.slot("reconciler").await, Some(Outcome::Committed));
            assert_eq!(estate.state().await[1], "STOPPING");
            estate.deliver().await;
        }
        estate.advance(5);
        estate.slot("reconciler").await;
        assert_eq!(estate.state().await[..2], ["STANDBY", "NONE"]);
        assert_eq!(estate.orchestrator.operations(), ["STOPPING"], "one identity for all");
        assert_eq!(estate.orchestrator.seen().len(), 3);
    }
}
