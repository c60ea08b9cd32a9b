//! The store on SQLite, and what is kept in its file, under the conformance suites.

use std::sync::Arc;

use besom_tests::adapters::lease::Machine;
use besom_tests::adapters::sqlite::Sqlite;
use besom_tests::conformance::Fixture;
use besom_tests::conformance::activity::Observed;
use besom_tests::conformance::coordination::Contest;
use besom_tests::statements;

mod store {
    use super::*;

    async fn open() -> Box<dyn Fixture> {
        Box::new(Sqlite::open())
    }

    besom_tests::store_conformance!(crate::store::open);
}

mod activity_in_the_store {
    use super::*;

    async fn open() -> Observed {
        let sqlite = Sqlite::open();
        let activity = sqlite.activity();
        let set_now = Box::new(move |now| sqlite.set_now(now));
        Observed { activity, set_now, keep: Box::new(()) }
    }

    besom_tests::activity_conformance!(crate::activity_in_the_store::open);
}

/// Two processes of one machine, each with the file open.
mod coordination {
    use super::*;

    async fn open() -> Contest {
        let (sqlite, machine) = (Sqlite::open(), Machine::new());
        Contest {
            one: Arc::new(machine.lease(sqlite.inner(), "n1".into())),
            two: Arc::new(machine.lease(sqlite.another(), "n2".into())),
            advance: Box::new(move |span| machine.advance(span)),
            keep: Box::new(sqlite),
        }
    }

    besom_tests::coordination_conformance!(crate::coordination::open);
}

#[test]
fn every_statement_can_be_prepared() {
    let sqlite = Sqlite::open();
    let file = rusqlite::Connection::open(sqlite.path()).unwrap();
    let faults: Vec<String> = statements::of("sqlite")
        .into_iter()
        .filter_map(|(source, sql)| {
            let error = file.prepare(&sql).err()?;
            Some(format!("{source}: {error}\n{sql}"))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}
