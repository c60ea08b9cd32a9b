//! PostgreSQL is restored to an earlier state under running hosts.

use besom_demo::cluster::Which;

use crate::site::Site;
use crate::wait::wait_for;

/// Whether a node reports that its store was restored.
fn is_told(site: &Site) -> Option<()> {
    let (_, status) = site.json(&["status"]);
    let nodes = status["nodes"].as_array()?;
    let held = nodes.iter().filter_map(|node| node["held"].as_array()).flatten();
    held.filter(|held| held["cause"] == "restored").map(drop).next()
}

#[test]
fn a_store_that_was_put_back_is_noticed_and_everything_goes_on() {
    let mut site = Site::new(2);
    site.create_tables();
    site.start();
    site.add_shares("before", 200, 0.0, 1.0);
    site.comes_to_rest();
    let data = site.as_ref().join("servers/postgres/data");
    let copy = data.with_file_name("copy");
    site.servers.stop(Which::Postgres);
    let copied = std::process::Command::new("cp").arg("-a").args([&data, &copy]).status();
    assert!(copied.expect("it runs").success());
    site.servers.restart(Which::Postgres).expect("it starts again");
    // Terms and positions that the copy lacks.
    for _ in 0..2 {
        let term = site.term();
        let (code, said) = site.said(&["node", "resign"]);
        assert_eq!(code, 0, "{said}");
        wait_for("the next term", || (site.term() > term).then_some(()));
    }
    site.add_shares("forgotten", 500, 0.0, 1.0);
    site.comes_to_rest();
    let term = site.term();
    assert_eq!(is_told(&site), None);
    site.servers.stop(Which::Postgres);
    std::fs::remove_dir_all(&data).expect("removed");
    std::fs::rename(&copy, &data).expect("put back");
    site.servers.restart(Which::Postgres).expect("the copy starts");
    wait_for("the nodes to say that their store went back", || is_told(&site));
    wait_for("the fence to be raised again", || (site.term() >= term).then_some(()));
    site.add_shares("after", 500, 0.0, 3.0);
    site.comes_to_rest();
    site.shared_out();
    site.balanced();
}
