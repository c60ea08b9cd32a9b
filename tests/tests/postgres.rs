//! The store on PostgreSQL under the conformance suites, on a real server.

use std::sync::{Arc, Mutex};

use besom_tests::adapters::lease::Machine;
use besom_tests::adapters::postgres::Postgres;
use besom_tests::conformance::activity::Observed;
use besom_tests::conformance::coordination::Contest;
use besom_tests::conformance::world::START;
use besom_tests::conformance::{Fixture, block_on};
use besom_tests::servers::postgres::Server;
use besom_tests::statements;

mod store {
    use super::*;

    async fn open() -> Box<dyn Fixture> {
        Box::new(Postgres::open().await)
    }

    besom_tests::store_conformance!(crate::store::open);
}

/// The same as a role with the rights that `besom grants` prints.
mod store_as_granted {
    use super::*;

    async fn open() -> Box<dyn Fixture> {
        Box::new(Postgres::open_as_granted().await)
    }

    besom_tests::store_conformance!(crate::store_as_granted::open);
}

mod activity_in_the_store {
    use super::*;

    async fn open() -> Observed {
        let postgres = Postgres::open().await;
        let activity = postgres.activity();
        let set_now = Box::new(move |now| postgres.set_now(now));
        Observed { activity, set_now, keep: Box::new(()) }
    }

    besom_tests::activity_conformance!(crate::activity_in_the_store::open);
}

/// Two nodes that have the database open.
mod coordination {
    use super::*;

    async fn open() -> Contest {
        let postgres = Postgres::open().await;
        // Two machines with unrelated boot ids: the server's clock counts.
        let (first, second) = (Machine::booted("boot-1"), Machine::booted("boot-2"));
        let now = Mutex::new(START);
        Contest {
            one: Arc::new(first.lease(postgres.inner(), "n1".into())),
            two: Arc::new(second.lease(postgres.another().await, "n2".into())),
            advance: Box::new(move |span| {
                let mut now = now.lock().expect("one at a time");
                *now = *now + span;
                postgres.set_now(*now);
            }),
            keep: Box::new(()),
        }
    }

    besom_tests::coordination_conformance!(crate::coordination::open);
}

#[test]
fn every_statement_can_be_prepared() {
    block_on(async {
        let database = Server::shared().database();
        let client = database.connect().await;
        let mut faults = Vec::new();
        for (source, sql) in statements::of("postgres") {
            if let Err(error) = client.prepare(&sql.replace("@.", "besom.")).await {
                let words = error.as_db_error().map_or(error.to_string(), ToString::to_string);
                faults.push(format!("{source}: {words}\n{sql}"));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    });
}
