//! A restored database may have given the number of a task to another one.

use besom_core::ids::Incarnation;
use besom_core::time::Time;
use besom_ports::store::NodeRow;
use besom_snapshot::Role;
use besom_tests::adapters::postgres::Postgres;
use besom_tests::conformance::world::{candidate, fence, task};
use besom_tests::conformance::{World, block_on};

#[test]
fn a_task_never_uses_the_number_of_another_after_a_restore() {
    block_on(async {
        let fixture = Postgres::open().await;
        let client = fixture.database().connect().await;
        let mut world = World::new(Box::new(fixture)).await;
        world.planned("lost", vec![candidate("before")]).await;
        // As after a restore: the number of `lost` is that of `other`.
        let rename = "UPDATE besom.task SET name = 'other' WHERE name = 'lost'";
        assert_eq!(client.execute(rename, &[]).await.expect("the table"), 1);
        let row = NodeRow {
            node: Incarnation::from("n"),
            state: Role::Leading,
            seen_at: Time::EPOCH,
            config_digest: String::new(),
            missing: Vec::new(),
            hostname: String::new(),
            address: String::new(),
            weight: 1,
            report: None,
        };
        world.store().report_node(&row).await.expect("a report");
        world.planned("lost", vec![candidate("after")]).await;
        let keys = async |of: &str| -> Vec<String> {
            let waiting = world.log(of).await.into_iter();
            waiting.map(|waiting| waiting.item.identity.key).collect()
        };
        assert_eq!(keys("lost").await, ["after"]);
        assert_eq!(keys("other").await, ["before"]);
        let streams = world.store().streams(Some(&task("lost"))).await.expect("streams");
        assert_eq!(streams.len(), 1);

        // A new leadership reads them again as well.
        client
            .execute("UPDATE besom.task SET name = 'third' WHERE name = 'lost'", &[])
            .await
            .expect("it");
        world.lead(fence(2).term.0, "n").await;
        world.planned("lost", vec![candidate("last")]).await;
        let waiting = world.log("lost").await.into_iter().map(|w| w.item.identity.key);
        assert_eq!(waiting.collect::<Vec<_>>(), ["last"]);
    });
}
