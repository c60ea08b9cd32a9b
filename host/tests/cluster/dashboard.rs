//! The dashboard and the admin API of a cluster, at any of its hosts.

use std::time::{Duration, Instant};

use besom_snapshot::{EventKind, Snapshot, Subject, Thresholds, attention};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::site::{Site, said};
use crate::terminal::Terminal;
use crate::wait::{wait_at_most, wait_for};

/// How long a changed file may take to take effect: at most a second, and more on a busy machine.
const TAKEN_UP_MAX: Duration = Duration::from_secs(10);

/// A cluster of three hosts with work.
fn cluster() -> Site {
    let mut site = Site::new(3);
    site.create_tables();
    site.start();
    site
}

/// A snapshot of that host, once it meets the condition.
#[track_caller]
fn sees(site: &Site, host: usize, what: &str, right: impl Fn(&Snapshot) -> bool) -> Snapshot {
    wait_for(what, || site.snapshot(host).filter(|snapshot| right(snapshot)))
}

/// How many partitions each of these nodes owns.
fn shares(snapshot: &Snapshot, nodes: &[&str]) -> Vec<u32> {
    nodes.iter().map(|name| snapshot.node(name).map_or(0, |node| node.owned)).collect()
}

#[test]
fn a_leader_that_is_killed_under_the_dashboard_is_succeeded_on_its_screen() {
    let mut site = cluster();
    let leader = site.leader();
    let term = site.term();
    let names: Vec<String> = site.hosts.iter().map(|host| host.name().to_owned()).collect();
    let others: Vec<&str> =
        (0..3).filter(|index| *index != leader).map(|index| names[index].as_str()).collect();

    // It is connected to the host that is killed; the others are its alternatives.
    let sockets: Vec<String> = (leader..leader + 3)
        .map(|index| format!("--socket {}", site.socket(index % 3).display()))
        .collect();
    let terminal = Terminal::open(&site, 160, 48);
    terminal.top(&sockets.join(" "));
    let led = format!("leader {}  term {term} ", names[leader]);
    terminal.shows(&led);
    let dashboard = terminal.foreground();
    terminal.keys(&["4"]);
    terminal.shows("1,024 partitions  3 members");
    let owned = |screen: &str, node: &str| -> Option<f64> {
        let row = screen.lines().skip_while(|line| !line.contains("AGAINST ITS SHARE"));
        let row = row.map(|line| line.split_whitespace().map(|word| word.trim_start_matches('>')));
        let mut words = row.map(Iterator::collect::<Vec<_>>).find(|words| words.contains(&node))?;
        words.retain(|word| *word != "★");
        let place = words.iter().position(|word| *word == node)?;
        words.get(place + 1)?.parse().ok()
    };
    terminal.until("a third for each", |screen| {
        names.iter().all(|name| owned(screen, name).is_some_and(|share| share < 40.0))
    });

    site.signal(leader, Signal::KILL);
    let screen = terminal.until("another leader under a higher term", |screen| {
        let leads = |name: &&str| screen.contains(&format!("leader {name}  term {} ", term + 1));
        others.iter().any(leads) && screen.contains("●live")
    });
    assert!(!screen.contains(&led), "{screen}");
    terminal.until("a half for each of the others", |screen| {
        let mut shares = others.iter().map(|name| owned(screen, name));
        shares.all(|share| share.is_some_and(|share| share > 45.0))
    });
    assert_eq!(terminal.foreground(), dashboard, "it is the same dashboard");
    terminal.keys(&["1"]);
    terminal.shows(&format!("leads under term {}", term + 1));

    site.start_host(leader);
    site.shared_out();
    terminal.keys(&["4"]);
    terminal.until("a third for each again", |screen| {
        names.iter().all(|name| owned(screen, name).is_some_and(|share| share < 40.0))
    });
    drop(terminal);
    let witness = (leader + 1) % 3;
    let snapshot = sees(&site, witness, "all of them", |snapshot| snapshot.nodes.len() == 3);
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(shares(&snapshot, &all).iter().sum::<u32>(), 1_024);
    site.balanced();
}

#[test]
fn a_schedule_edited_in_the_leaders_file_changes_the_next_run_and_loses_no_comment() {
    let mut site = Site::new(3);
    site.create_tables();
    for host in &site.hosts {
        let file = host.config();
        let text = std::fs::read_to_string(&file).expect("the file");
        // It is not due again before the end of the test.
        let text = text.replace("\"@every 1s\"", "\"0 0 1 1 *\"    # once a year, INC-300");
        std::fs::write(file, text).expect("written");
    }
    site.start();
    let leader = site.leader();
    let leads = site.hosts[leader].name().to_owned();
    let file = site.hosts[leader].config();
    let before = std::fs::read_to_string(&file).expect("the file");
    let runs = "SELECT count(*) FROM besom.run r JOIN besom.task t ON t.id = r.task
                WHERE t.name = 'share-expiry'";
    let next = |snapshot: &Snapshot| snapshot.task("share-expiry").and_then(|task| task.next);
    let far = sees(&site, leader, "the yearly slot", |snapshot| next(snapshot).is_some());
    let year = next(&far).expect("a slot").since(far.at);
    assert!(year > Duration::from_secs(3_600), "{year:?}");
    let (alike, ran) = (site.snapshot(leader).expect("an answer"), site.number(runs));
    let found = attention(&alike, &Thresholds::default());
    assert!(found.iter().all(|found| found.subject != Subject::Config), "{found:?}");

    let edit = ["task", "edit", "share-expiry", "--schedule", "* * * * * *", "--reason", "INC-301"];
    let begun = Instant::now();
    let (code, words) = said(site.command(&site.hosts[leader], &edit).output().expect("it runs"));
    assert_eq!(code, 0, "{words}");
    let saved = begun.elapsed();
    wait_at_most(TAKEN_UP_MAX, "runs by the new schedule", || {
        (site.number(runs) > ran).then_some(())
    });
    eprintln!("saved after {saved:?}, the next run was there after {:?}", begun.elapsed());

    // Nothing else in the file has changed, including its comments.
    let after = std::fs::read_to_string(&file).expect("the file");
    let expected = before.replace("\"0 0 1 1 *\"    # once", "\"* * * * * *\"    # once");
    assert_ne!(after, before);
    assert_eq!(after, expected);

    // Every host reports the configuration digests of all hosts.
    for host in 0..3 {
        let snapshot = sees(&site, host, "the leader's new configuration", |snapshot| {
            let old = alike.node(&leads).map(|node| &node.config_digest);
            snapshot.node(&leads).is_some_and(|node| Some(&node.config_digest) != old)
        });
        let digest = |name: &str| snapshot.node(name).map(|node| node.config_digest.clone());
        for other in site.hosts.iter().map(|host| host.name()).filter(|name| *name != leads) {
            assert_ne!(digest(other), digest(&leads), "{other}, as host {host} sees it");
        }
        let found = attention(&snapshot, &Thresholds::default());
        let differs = found.iter().find(|found| found.subject == Subject::Config);
        let text = &differs.unwrap_or_else(|| panic!("{found:?}")).text;
        assert!(text.contains("run a different configuration from the leader"), "{text}");
        assert!(!text.contains(&leads), "{text}");
    }
    let (_, status) = site.json(&["status"]);
    let problems = status["problems"].to_string();
    assert!(problems.contains("run a different configuration from the leader"), "{status:#}");
    let terminal = Terminal::open(&site, 160, 48);
    terminal.top(&format!("--socket {}", site.socket((leader + 1) % 3).display()));
    terminal.shows("run a different configuration from the leader");
    drop(terminal);

    // With the same file everywhere, the attention list is empty.
    for host in site.hosts.iter().filter(|host| host.name() != leads) {
        let text = std::fs::read_to_string(host.config()).expect("the file");
        let text = text.replace("\"0 0 1 1 *\"    # once", "\"* * * * * *\"    # once");
        std::fs::write(host.config(), text).expect("written");
    }
    sees(&site, leader, "one configuration", |snapshot| {
        let found = attention(snapshot, &Thresholds::default());
        found.iter().all(|found| found.subject != Subject::Config)
    });
    site.balanced();
}

#[test]
fn a_leader_that_resigns_is_succeeded_and_it_is_noted_by_whom_and_why() {
    let mut site = cluster();
    let (leader, term) = (site.leader(), site.term());
    let (code, said) = site.said(&["node", "resign", "--reason", "a new disk"]);
    assert_eq!(code, 0, "{said}");
    wait_for("another leadership", || (site.term() > term).then_some(()));
    let next = site.leader();
    assert_ne!(next, leader, "who has resigned stays out while others are there");
    site.shared_out();

    let (code, asked) = site.json(&["commands", "ls"]);
    assert_eq!(code, 0, "{asked:#}");
    let newest = &asked[0];
    let kept = json!([newest["what"], newest["reason"], newest["result"]]);
    let result = format!("resigned term {term}");
    assert_eq!(kept, json!(["resign the leadership", "a new disk", result]), "{newest:#}");
    let who = format!("uid {}", rustix::process::getuid().as_raw());
    assert!(newest["by"].as_str().is_some_and(|by| by.contains(&who)), "{newest:#}");
    assert_ne!(newest["applied_at"], Value::Null);

    let witness = (next + 1) % 3;
    let snapshot = sees(&site, witness, "the next leader", |snapshot| {
        let leader = snapshot.leadership.leader.as_ref();
        leader.is_some_and(|leader| leader.node == site.hosts[next].name())
    });
    let noted = snapshot.events.iter().find(|event| event.kind == EventKind::Command);
    let noted = noted.expect("it is among the events");
    assert!(noted.text.contains(&result) && noted.text.contains("a new disk"), "{noted:?}");
    assert!(noted.by.as_ref().is_some_and(|by| by.contains(&who)), "{noted:?}");
    site.balanced();
}
