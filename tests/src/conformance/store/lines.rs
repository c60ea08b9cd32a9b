//! The log lines of guests: numbered, bounded, counted, and removed with their run.

use std::time::Duration;

use besom_core::ids::RunId;
use besom_ports::store::{Retention, RunLine, RunLines};
use besom_snapshot::LogLine;

use crate::conformance::World;
use crate::conformance::world::{candidate, skip};

const DAY: Duration = Duration::from_secs(86_400);

fn line(world: &World, run: RunId, text: &str, dropped: u64) -> RunLine {
    let (at, node) = (world.now, "node".to_owned());
    RunLine { run, at, node, level: "info", text: text.to_owned(), dropped }
}

async fn texts(world: &World, run: RunId) -> Vec<(u64, String)> {
    let found = world.store().lines(run, 0, 100).await.unwrap();
    found.lines.into_iter().map(|line| (line.no, line.text)).collect()
}

/// A line has its time, node, level and text; the numbers of a run start at 1.
pub async fn lines_are_numbered_within_their_run(world: &mut World) {
    let (one, two) = (world.run("one").await, world.run("two").await);
    let odd = "\u{0}\u{1}\u{1b}[31m \u{e9}\n";
    let new = [line(world, one, odd, 3), line(world, two, "of two", 0), line(world, one, "b", 0)];
    world.store().write_lines(&new, &[], 10).await.unwrap();
    world.reopen().await;
    world.store().write_lines(&[line(world, one, "c", 0)], &[], 10).await.unwrap();
    let found = world.store().lines(one, 0, 1).await.unwrap();
    let (at, node, level) = (world.now, "node".to_owned(), "info".to_owned());
    let first = LogLine { no: 1, at, node, level, text: odd.to_owned(), dropped: 3 };
    assert_eq!(found, RunLines { lines: vec![first], lost: 3 });
    let rest = world.store().lines(one, 1, 100).await.unwrap();
    let rest: Vec<_> = rest.lines.iter().map(|l| (l.no, l.text.as_str())).collect();
    assert_eq!(rest, [(2, "b"), (3, "c")]);
    assert_eq!(texts(world, two).await, [(1, "of two".to_owned())]);
}

/// A reader continues after its last line; lost lines are reported even for a run without lines.
pub async fn nothing_after_the_last_line_is_nothing(world: &mut World) {
    let run = world.run("task").await;
    assert_eq!(world.store().lines(run, 0, 10).await.unwrap(), RunLines::default());
    world.store().write_lines(&[], &[(run, 4)], 10).await.unwrap();
    world.store().write_lines(&[line(world, run, "a", 0)], &[], 10).await.unwrap();
    let none = RunLines { lines: Vec::new(), lost: 4 };
    for after in [1, u64::MAX] {
        assert_eq!(world.store().lines(run, after, 10).await.unwrap(), none);
    }
}

/// The newest lines are kept and removed ones are counted, in one write as over several.
pub async fn a_run_keeps_its_newest_lines(world: &mut World) {
    let run = world.run("task").await;
    let store = world.store();
    let all = |from: u64, to: u64| -> Vec<RunLine> {
        (from..=to).map(|n| line(world, run, &n.to_string(), 0)).collect()
    };
    for (from, to, lost) in [(1, 2, 0), (3, 4, 1), (5, 20, 17), (21, 21, 18)] {
        store.write_lines(&all(from, to), &[], 3).await.unwrap();
        let found = store.lines(run, 0, 100).await.unwrap();
        let kept: Vec<u64> = found.lines.iter().map(|line| line.no).collect();
        assert_eq!(kept, (to.saturating_sub(2).max(1)..=to).collect::<Vec<_>>());
        assert!(found.lines.iter().all(|line| line.no.to_string() == line.text), "{found:?}");
        assert_eq!(found.lost, lost);
    }
    store.write_lines(&[], &[(run, 5)], 3).await.unwrap();
    assert_eq!(store.lines(run, 0, 100).await.unwrap().lost, 23);
    // A smaller bound takes effect with the next line.
    store.write_lines(&all(22, 22), &[], 1).await.unwrap();
    assert_eq!(texts(world, run).await, [(22, "22".to_owned())]);
}

/// A late line of a run that no longer exists is ignored.
pub async fn lines_of_an_unknown_run_are_left_out(world: &mut World) {
    let (known, unknown) = (world.run("task").await, RunId(999));
    let new = [line(world, unknown, "lost", 1), line(world, known, "kept", 0)];
    world.store().write_lines(&new, &[(unknown, 2)], 10).await.unwrap();
    assert_eq!(texts(world, known).await.len(), 1);
    assert_eq!(world.store().lines(unknown, 0, 10).await.unwrap(), RunLines::default());
}

/// The lines of a run are removed with it, a bounded number at a time.
pub async fn lines_go_with_their_run(world: &mut World) {
    world.settle(candidate("old"), skip("no")).await;
    let old = world.history().await[0].run;
    let young = world.run("task").await;
    let new: Vec<_> =
        (0..5).flat_map(|_| [line(world, old, "o", 1), line(world, young, "y", 0)]).collect();
    world.store().write_lines(&new, &[], 10).await.unwrap();
    world.advance(DAY * 2);
    let keep = Retention { history: DAY, undo: &[], nodes: DAY, routed: None };
    let mut left = Vec::new();
    for _ in 0..4 {
        world.store().prune(&world.fence, keep, 2).await.unwrap();
        left.push(world.store().lines(old, 0, 10).await.unwrap().lines.len());
    }
    assert_eq!(left.last(), Some(&0), "{left:?}");
    assert!(left.windows(2).all(|pair| pair[0] - pair[1] <= 2), "{left:?}");
    assert_eq!(world.store().lines(old, 0, 10).await.unwrap(), RunLines::default());
    assert_eq!(texts(world, young).await.len(), 5);
}
