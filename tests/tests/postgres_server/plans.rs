//! The plans of the statements that find rows of the queue and the dead letters. A connection keeps a
//! plan for as long as it lives, so one that was made for an empty table must suit a full one.

use std::collections::BTreeSet;

use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::store::{dead_letters, outbox, settling, streams};
use besom_tests::conformance::{World, block_on};
use besom_tests::servers::postgres::{Disk, Server};

/// Plans are made as for a statement that was executed often, and logged. Without the joins that read
/// a whole table at once, a plan that has to read one shows as an index that is read from end to end.
const SETTINGS: [&str; 7] = [
    "session_preload_libraries=auto_explain",
    "auto_explain.log_min_duration=0",
    "plan_cache_mode=force_generic_plan",
    "enable_seqscan=off",
    "enable_hashjoin=off",
    "enable_mergejoin=off",
    "jit=off",
];

/// The tables in which a commit looks rows up.
const TABLES: [&str; 3] = ["item", "dead", "settled"];

/// The statements of a commit that look rows up and then change them by their physical places.
const STATEMENTS: usize = 8;

#[test]
fn a_commit_looks_its_rows_up_whatever_the_statistics_say() {
    let server: &'static Server = Box::leak(Box::new(Server::start(Disk::Ignored, &SETTINGS)));
    macro_rules! run {
        ($($case:path),+ $(,)?) => {
            $(block_on(async {
                let fixture = Postgres::open_on(server, patient()).await;
                let client = fixture.database().connect().await;
                for table in TABLES {
                    let vacuum = format!("VACUUM ANALYZE besom.{table}");
                    client.batch_execute(&vacuum).await.expect("statistics of an empty table");
                }
                let mut world = World::new(Box::new(fixture)).await;
                $case(&mut world).await;
            });)+
        };
    }
    run![
        settling::one_batch_mixes_tasks_streams_timers_and_retries,
        settling::a_failed_guard_goes_on_as_its_decision_says,
        streams::an_acknowledgement_moves_the_cursor,
        dead_letters::a_retried_dead_letter_waits_with_fresh_attempts,
        dead_letters::a_later_commit_lifts_a_discard,
        dead_letters::a_later_commit_resolves_an_open_dead_letter,
    ];
    let log = server.log();
    let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
    for plan in log.split("Query Text: ").skip(1) {
        let (statement, plan) = plan.split_once("(cost=").expect("a statement and its plan");
        if !statement.contains("ctid") {
            continue;
        }
        seen.insert(statement.to_owned());
        let lines: Vec<&str> = plan.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let reads = TABLES.iter().any(|table| line.contains(&format!(" on {table} ")));
            let index = line.contains("Index Scan using") || line.contains("Index Only Scan using");
            let bounded = lines.get(at + 1).is_some_and(|next| next.contains("Index Cond: "));
            if reads && (line.contains("Seq Scan") || (index && !bounded)) {
                faults.push(format!("{}\n{statement}", line.trim()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert_eq!(seen.len(), STATEMENTS, "{seen:#?}");
}

/// Statistics of a time with an empty queue make the index of all pending messages look shorter than any other.
#[test]
fn a_claim_finds_the_first_message_of_a_key_in_its_sequence_whatever_the_statistics_say() {
    let server: &'static Server = Box::leak(Box::new(Server::start(Disk::Ignored, &SETTINGS)));
    block_on(async {
        let fixture = Postgres::open_on(server, patient()).await;
        let client = fixture.database().connect().await;
        let vacuum = "VACUUM ANALYZE besom.outbox, besom.outbox_sequence";
        client.batch_execute(vacuum).await.expect("statistics of an empty table");
        let mut world = World::new(Box::new(fixture)).await;
        outbox::messages_of_a_key_go_one_after_the_other(&mut world).await;
    });
    let log = server.log();
    let plans = log.split("Query Text: ").skip(1).filter_map(|plan| plan.split_once("(cost="));
    let of_first = |statement: &str| statement.contains("o.no >= s.head");
    let plans: Vec<_> = plans.filter(|(statement, _)| of_first(statement)).collect();
    assert!(plans.len() >= 2, "a claim, and a result that makes the next message the first");
    for (statement, plan) in plans {
        assert!(plan.contains("outbox_by_sequence"), "{statement}\n{plan}");
        assert!(!plan.contains("outbox_order"), "{statement}\n{plan}");
    }
}
