//! An orchestrator that is unavailable, refuses, hangs, never ends its answer or redirects; and a
//! host that dies between a delivery and its record.

use besom_core::delivery::{Claim, Delivery, End, State};
use besom_ports::store::{Error, MessageQuery, Outcome};
use besom_tests::servers::orchestrator::{Orchestrator, Reply, willing};

use super::estate::{Estate, on_every_store};

/// The state of the only message.
async fn message(estate: &Estate) -> Delivery {
    let query = MessageQuery { limit: 10, ..MessageQuery::default() };
    let mut messages = estate.store().messages(&query).await.unwrap();
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0).delivery
}

/// A workspace whose stop is in the outbox.
async fn stopping(estate: &mut Estate) {
    estate.wants("STANDBY").await;
    assert_eq!(estate.slot("reconciler").await, Some(Outcome::Committed));
}

on_every_store! {
    async fn what_says_later_is_tried_again_with_the_same_key(estate: "RUNNING", "") {
        estate.orchestrator.answer(|request, before| match before {
            0 => Reply::Status(500, "down".into()),
            1 => Reply::Status(429, String::new()),
            _ => willing(request, before),
        });
        stopping(&mut estate).await;
        assert_eq!(estate.deliver().await, 1, "the next attempt waits");
        let error = message(&estate).await.error;
        assert_eq!(error.as_deref(), Some("answered 500"));
        estate.converge().await;
        for _ in 0..3 {
            estate.advance(60);
            estate.converge().await;
        }
        assert_eq!(estate.state().await[..2], ["STANDBY", "NONE"]);
        let told = estate.orchestrator.seen();
        assert_eq!(told.len(), 3);
        assert!(told.iter().all(|request| request.key == told[0].key), "{told:?}");
        let attempts: Vec<_> = told.iter().map(|r| r.headers["besom-attempt"].clone()).collect();
        assert_eq!(attempts, ["1", "2", "3"]);
    }

    async fn what_nobody_takes_is_given_up_and_shown(estate: "RUNNING", "attempts_max = 2") {
        estate.orchestrator.answer(|_, _| Reply::Status(503, "no room".into()));
        stopping(&mut estate).await;
        for _ in 0..40 {
            estate.deliver().await;
            estate.advance(61);
            estate.slot("reconciler").await;
        }
        // Three calls of two attempts each; then it is FAILED, and retried once an hour.
        let [status, operation, desired, _] = estate.state().await;
        assert_eq!((status.as_str(), desired.as_str()), ("RUNNING", "STANDBY"));
        assert_eq!(operation, "FAILED");
        assert_eq!(estate.orchestrator.seen().len(), 6);
        assert_eq!(estate.orchestrator.operations(), ["STOPPING"]);
        let query = besom_ports::store::HistoryQuery { limit: 100, ..Default::default() };
        let history = estate.store().history(&query).await.unwrap();
        let notes = history.iter().flat_map(|row| &row.notes);
        let reason = notes.into_iter().find(|note| note.name == "reason").expect("a reason");
        assert!(format!("{reason:?}").contains("answered 503 (attempt 2 of 2): no room"));
        // The user chooses RUNNING again: nothing has to be repaired.
        estate.wants("RUNNING").await;
        estate.converge().await;
        assert_eq!(estate.state().await, ["RUNNING", "NONE", "RUNNING", "-"]);
    }

    async fn silence_ends_with_the_time_out(estate: "RUNNING", "timeout = \"50ms\"") {
        estate.orchestrator.answer(|_, _| Reply::Silence);
        stopping(&mut estate).await;
        estate.deliver().await;
        let found = message(&estate).await;
        assert_eq!(found.error.as_deref(), Some("no answer within 50ms"));
        assert_eq!((found.state, found.attempts), (State::Pending, 1));
    }

    async fn nobody_there_is_a_reason_to_try_again(estate: "RUNNING", "") {
        stopping(&mut estate).await;
        let message_before = estate.claim().await.remove(0);
        let gone = Orchestrator::start().await;
        drop(std::mem::replace(&mut estate.orchestrator, gone));
        tokio::task::yield_now().await;
        let attempt = estate.send(&message_before).await;
        let End::Again { error, .. } = &attempt.end else { panic!("{attempt:?}") };
        assert!(error.contains("connect") || error.contains("closed"), "{error}");
    }

    async fn an_answer_without_end_is_cut_and_counts(estate: "RUNNING", "reply_bytes_max = \"1KiB\"") {
        estate.orchestrator.answer(|_, _| Reply::Endless);
        stopping(&mut estate).await;
        estate.deliver().await;
        let reply = message(&estate).await.reply.expect("a reply");
        assert_eq!((reply.status, reply.body.len(), reply.cut), (200, 1_024, true));
        estate.converge().await;
        assert_eq!(estate.state().await[0], "STANDBY");
    }

    async fn a_redirect_is_an_answer_and_leads_nowhere(estate: "RUNNING", "attempts_max = 1") {
        let elsewhere = Orchestrator::start().await;
        let there = format!("http://{}/stop", elsewhere.address());
        estate.orchestrator.answer(move |_, _| Reply::Redirect(there.clone()));
        stopping(&mut estate).await;
        estate.deliver().await;
        let found = message(&estate).await;
        assert_eq!(found.state, State::GivenUp);
        assert_eq!(found.error.as_deref(), Some("answered 307: redirects are not followed (attempt 1 of 1)"));
        assert!(elsewhere.seen().is_empty(), "only what is listed is called");
    }

    async fn an_archiving_that_names_no_archive_has_failed(estate: "STANDBY", "") {
        estate.orchestrator.answer(|_, _| Reply::ok("{\"archive\":7}"));
        estate.wants("PENDING").await;
        for _ in 0..10 {
            estate.slot("reconciler").await;
            estate.deliver().await;
            estate.advance(61);
        }
        assert_eq!(estate.state().await, ["STANDBY", "FAILED", "PENDING", "-"]);
        assert_eq!(estate.orchestrator.seen().len(), 3);
    }

    /// A host dies after the orchestrator has performed the operation and before the store has
    /// recorded it.
    async fn what_was_delivered_and_not_marked_is_delivered_again_with_the_same_key(estate: "RUNNING", "") {
        stopping(&mut estate).await;
        let sent = estate.claim().await.remove(0);
        let late = estate.send(&sent).await;
        let stale = besom_tests::conformance::world::fence(1);
        estate.lead(2).await;
        let none = Claim::default();
        let marked = estate.store().claim_messages(&stale, &[late], &none).await;
        assert!(matches!(marked, Err(Error::Fenced)), "{marked:?}");
        assert!(estate.claim().await.is_empty(), "it shows itself after its hold");
        estate.advance(15);
        assert_eq!(estate.deliver().await, 1);
        let told = estate.orchestrator.seen();
        assert_eq!(told.len(), 2);
        assert_eq!(told[0].key, told[1].key);
        assert_eq!(told[0].body, told[1].body);
        estate.converge().await;
        assert_eq!(estate.state().await[..2], ["STANDBY", "NONE"]);
    }
}
