//! The mapping is compared with the tables before anything runs.

use besom_core::collection::{Anchor, Collections};
use besom_core::value::Kind;

use crate::conformance::World;
use crate::conformance::tables::{collections, thing};

/// The places of the faults of a mapping, without warnings.
async fn faults(world: &World, change: impl FnOnce(&mut Collections)) -> Vec<(String, String)> {
    let mut changed = (*collections()).clone();
    change(&mut changed);
    let faults = world.store().check(&changed).await.unwrap();
    let errors = faults.into_iter().filter(|fault| !fault.warning);
    errors
        .map(|fault| {
            assert!(!fault.message.is_empty(), "{fault:?}");
            (fault.collection, fault.place)
        })
        .collect()
}

fn at(collection: &str, place: &str) -> (String, String) {
    (collection.to_owned(), place.to_owned())
}

/// A correct mapping has no fault.
pub async fn the_mapping_of_the_tables_has_no_fault(world: &mut World) {
    assert_eq!(faults(world, |_| {}).await, []);
}

/// Each fault names its collection and the key in the collection's table.
pub async fn each_fault_of_a_mapping_is_named_by_its_place(world: &mut World) {
    fn things(all: &mut Collections) -> &mut besom_core::collection::Collection {
        all.get_mut("things").expect("things are mapped")
    }
    let missing = faults(world, |all| things(all).table = "nowhere".into()).await;
    assert!(missing.contains(&at("things", "table")), "{missing:?}");

    let column = |all: &mut Collections| {
        let copy = things(all).columns["n"];
        things(all).columns.insert("colour".into(), copy);
    };
    let missing = faults(world, column).await;
    assert!(missing.contains(&at("things", "columns.colour")), "{missing:?}");

    let key = |all: &mut Collections| things(all).key = vec!["title".into()];
    let missing = faults(world, key).await;
    assert!(missing.contains(&at("things", "key")), "{missing:?}");

    let anchor = |all: &mut Collections| {
        let gone = Anchor { collection: "gone".into(), columns: vec!["parent".into()] };
        all.get_mut("children").expect("children are mapped").anchors = vec![gone];
    };
    let missing = faults(world, anchor).await;
    assert!(missing.iter().any(|(c, place)| c == "children" && place.starts_with("anchor")));
}

/// A new mapping applies at once, and the previous one no longer does.
pub async fn a_new_mapping_is_in_force_at_once(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    let mut renamed = (*collections()).clone();
    let mut things = renamed.remove("things").expect("things are mapped");
    things.name = "items".into();
    assert_eq!(things.columns["n"].kind, Kind::Integer);
    renamed.insert("items".into(), things);
    world.store().set_collections(renamed.into());
    assert_eq!(world.rows("items", &["id"]).await.len(), 1);
    let old = world.read(&crate::conformance::world::range("things", None, &["id"])).await;
    assert!(old.is_err(), "{old:?}");
}
