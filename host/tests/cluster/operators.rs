//! The operators' verbs in a cluster.

use serde_json::Value;

use crate::site::Site;
use crate::wait::wait_for;

fn owned_by(site: &mut Site, index: usize) -> i64 {
    let name = site.hosts[index].name().to_owned();
    site.number(&format!("SELECT count(*) FROM besom.partition WHERE owner LIKE '{name}-%'"))
}

#[test]
fn a_node_is_drained_and_resumed_and_the_ring_is_shown() {
    let mut site = Site::new(3);
    site.create_tables();
    site.start();
    let (code, ring) = site.json(&["ring", "show"]);
    assert_eq!(code, 0);
    let parts: Vec<u64> =
        ring.as_array().unwrap().iter().map(|n| n["partitions"].as_u64().unwrap()).collect();
    assert_eq!(parts.iter().sum::<u64>(), 1_024);
    // Bounded load: no node has more than 5 % above an equal share.
    assert!(parts.iter().all(|part| *part <= 359), "{parts:?}");

    let (_, owner) = site.json(&["ring", "owner", "note-1", "--tenant", "acme"]);
    let partition = owner["partition"].as_u64().expect("a partition");
    let sql = format!(
        "SELECT count(*) FROM besom.partition WHERE id = {partition} AND owner LIKE '{}-%'",
        owner["node"].as_str().expect("a node")
    );
    assert_eq!(site.number(&sql), 1, "who should own it does");

    let before = owned_by(&mut site, 1);
    assert!(before > 300, "{before}");
    let (code, said) = site.said(&["node", "drain", "node-2"]);
    assert_eq!(code, 0, "{said}");
    wait_for("node-2 to own nothing", || (owned_by(&mut site, 1) == 0).then_some(()));
    let state = |site: &Site| {
        let members = site.members();
        members.iter().find(|m| m["name"] == "node-2").map(|m| m["state"].clone())
    };
    assert_eq!(state(&site), Some(Value::from("draining")));
    site.add_shares("drained", 300, 0.0, 2.0);
    site.comes_to_rest();
    let (code, said) = site.said(&["node", "resume", "node-2"]);
    assert_eq!(code, 0, "{said}");
    wait_for("node-2 to have its share again", || (owned_by(&mut site, 1) == before).then_some(()));
    site.balanced();

    let (code, said) = site.said(&["node", "drain", "nobody"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("node-1"), "{said}");
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("is a member of the cluster"), "{said}");
}

/// Owners that do not lead learn of it by themselves.
#[test]
fn a_pause_of_all_tasks_holds_what_is_planned_on_every_node() {
    let mut site = Site::new(3);
    site.create_tables();
    site.start();
    site.shared_out();
    // They are planned shortly before they are due, so that some of them always wait.
    site.add_shares("paused", 3_000, 2.0, 14.0);
    let open = "SELECT count(*) FROM shares WHERE unshared_at IS NULL";
    let planned = "SELECT count(*) FROM besom.item WHERE place = 1";
    wait_for("some shares to have ended", || (site.number(open) < 2_800).then_some(()));
    let (code, said) = site.said(&["pause", "--all", "--reason", "INC-9"]);
    assert_eq!(code, 0, "{said}");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let left = (site.number(open), site.number(planned));
    assert!(left.0 > 100 && left.1 > 10, "{left:?}");
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!((site.number(open), site.number(planned)), left, "all that is planned is due");
    let (code, said) = site.said(&["resume", "--all"]);
    assert_eq!(code, 0, "{said}");
    site.comes_to_rest();
    site.balanced();
}
