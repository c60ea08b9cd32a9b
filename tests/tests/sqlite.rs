//! The store on SQLite under the conformance suites.

use besom_tests::adapters::sqlite::Sqlite;
use besom_tests::conformance::Fixture;
use besom_tests::conformance::activity::Observed;

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
