//! A misconfigured cluster is rejected at once, with the fix.

use std::process::Stdio;

use besom_demo::cluster::{Host, Which};

use crate::site::{Site, said};

/// Starts a host that is expected to refuse; returns its exit code and its message.
fn refused(site: &Site, host: &Host, more: &[&str]) -> (i32, String) {
    let mut command = site.command(host, &[&["serve"], more].concat());
    said(command.stdout(Stdio::null()).output().expect("it ends"))
}

#[test]
fn wrong_neighbours_are_refused_with_the_fix() {
    let mut site = Site::new(1);
    site.create_tables();
    site.start();

    // Another node of the same name.
    let twin = site.prepare("twin", |config| config.replace("\"twin\"", "\"node-1\""));
    let (code, words) = refused(&site, &twin, &[]);
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("is already running under the name `node-1`"), "{words}");
    assert!(words.contains("[node] name"), "{words}");

    // The store of another cluster, and a cluster of another store.
    let stranger = site.prepare("stranger", |config| config);
    let (code, words) = refused(&site, &stranger, &["--set", "coordination.cluster=other"]);
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("belongs to the cluster \"demo\""), "{words}");
    let (code, words) = refused(&site, &stranger, &["--set", "store.schema=other"]);
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("the cluster `demo` uses the store"), "{words}");

    // A file where a server is needed, and a lease that cannot be renewed in time.
    let file = site.prepare("file", |config| {
        let lines = config.lines().filter(|line| !line.starts_with("url = "));
        lines.collect::<Vec<_>>().join("\n")
    });
    let (code, words) = refused(&site, &file, &[]);
    assert_eq!(code, 78, "{words}");
    assert!(words.contains("set store.url to a PostgreSQL server"), "{words}");
    let (code, words) = refused(&site, &stranger, &["--set", "lease.renew=2s"]);
    assert_eq!(code, 78, "{words}");
    assert!(words.contains("more than a third"), "{words}");
}

#[test]
fn a_start_without_its_servers_is_given_up_after_the_time_that_was_set() {
    let mut site = Site::new(1);
    site.create_tables();
    let waits = ["--set", "host.connect_wait_max=1s"];
    for (which, words) in [(Which::Postgres, "postgres"), (Which::Etcd(0), "etcd")] {
        site.servers.stop(which);
        if let Which::Etcd(_) = which {
            site.servers.restart(Which::Postgres).expect("it is back");
            for member in [1, 2] {
                site.servers.stop(Which::Etcd(member));
            }
        }
        let (code, said) = refused(&site, &site.hosts[0], &waits);
        assert_eq!(code, 69, "{said}");
        assert!(said.to_lowercase().contains(words), "{said}");
        assert!(said.contains("retrying for"), "{said}");
        assert!(said.contains("connect_wait_max"), "{said}");
    }
}
