//! A user's choice at the same moment as the task's (T1 to T4 of the race): the user wins in every
//! order.

use besom_ports::store::Outcome;

use super::estate::{Estate, on_every_store};

on_every_store! {
    /// T1: the user writes RUNNING. T2: the task has seen an idle workspace. T3: it writes STANDBY.
    /// T4: the user's choice would be lost.
    async fn what_the_user_wants_while_the_ttl_decides_is_not_overwritten(estate: "RUNNING", "") {
        estate.plan("ttl").await;
        let decided = estate.decide("ttl").await.expect("it is idle");
        estate.wants("RUNNING").await;
        let outcome = estate.commit(decided).await;
        assert!(
            matches!(&outcome, Outcome::Skipped(why) if why.contains("changed since it was read")),
            "{outcome:?}"
        );
        assert_eq!(estate.state().await, ["RUNNING", "NONE", "RUNNING", "-"]);
        assert_eq!(estate.plan("reconciler").await, 0);
    }

    async fn what_the_user_wants_before_the_step_begins_is_what_happens(estate: "RUNNING", "") {
        estate.slot("ttl").await;
        estate.plan("reconciler").await;
        let decided = estate.decide("reconciler").await.expect("it is to stand by");
        estate.wants("RUNNING").await;
        let outcome = estate.commit(decided).await;
        assert!(matches!(outcome, Outcome::Retried(_)), "{outcome:?}");
        let (waiting, decision) = estate.decide("reconciler").await.expect("a second look");
        let outcome = estate.commit((waiting, decision)).await;
        assert!(matches!(outcome, Outcome::Skipped(_)), "{outcome:?}");
        assert!(estate.claim().await.is_empty(), "nobody was told to stop it");
        assert_eq!(estate.state().await, ["RUNNING", "NONE", "RUNNING", "-"]);
    }

    async fn what_the_user_wants_during_a_step_is_taken_up_when_it_has_ended(estate: "RUNNING", "") {
        estate.slot("ttl").await;
        estate.slot("reconciler").await;
        let stopping = estate.claim().await.remove(0);
        estate.wants("RUNNING").await;
        let attempt = estate.send(&stopping).await;
        estate.note(attempt).await.unwrap();
        // The end of the step is guarded by what was read: if it was read before the choice, the
        // item is retried.
        let states = estate.converge().await;
        let words: Vec<_> = states.iter().map(|s| format!("{} {} {}", s[0], s[1], s[2])).collect();
        assert_eq!(words, [
            "RUNNING STOPPING RUNNING", "STANDBY NONE RUNNING", "STANDBY STARTING RUNNING",
            "RUNNING NONE RUNNING",
        ]);
    }

    async fn a_step_that_ends_at_the_moment_of_the_choice_keeps_both(estate: "RUNNING", "") {
        estate.slot("ttl").await;
        estate.slot("reconciler").await;
        estate.deliver().await;
        estate.plan("reconciler").await;
        let decided = estate.decide("reconciler").await.expect("it has stopped");
        estate.wants("RUNNING").await;
        assert!(matches!(estate.commit(decided).await, Outcome::Retried(_)));
        let states = estate.converge().await;
        assert_eq!(states.last().unwrap()[..3], ["RUNNING", "NONE", "RUNNING"]);
        assert_eq!(estate.orchestrator.operations(), ["STOPPING", "STARTING"]);
    }
}
