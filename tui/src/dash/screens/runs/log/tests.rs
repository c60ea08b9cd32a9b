//! The questions, the kept lines and the search of a log.

use super::*;
use besom_core::time::Time;
use besom_snapshot::{LOG_PAGE, LogLine, LogPage, Query};

fn line(no: u64, level: &str, text: &str) -> LogLine {
    LogLine { no, level: level.into(), text: text.into(), ..LogLine::default() }
}

fn page(lines: Vec<LogLine>, open: bool) -> LogPage {
    LogPage { lines, open, dropped: 0 }
}

const S: fn(i64) -> Time = Time::from_secs;

fn filled() -> Log {
    let mut log = Log::default();
    let lines = vec![
        line(1, "info", "batch 412"),
        line(2, "warn", "share:9f31 is large"),
        line(3, "debug", "SHARE:9F31 4,000"),
        line(5, "error", "gone"),
    ];
    log.page(page(lines, true), S(0));
    log
}

#[test]
fn it_asks_once_a_second_while_the_run_may_log() {
    let mut log = Log::default();
    assert_eq!(log.ask(7, S(0)), Some(Query::Log { run: 7, after: 0 }));
    assert_eq!(log.ask(7, S(1)), None, "the answer is awaited");
    assert_eq!(log.due(S(1)), Some(S(10)));
    log.page(page(vec![line(3, "info", "a")], true), S(2));
    assert_eq!((log.ask(7, S(2)), log.due(S(2))), (None, Some(S(3))));
    assert_eq!(log.ask(7, S(3)), Some(Query::Log { run: 7, after: 3 }));
    assert_eq!(log.ask(7, S(13)), Some(Query::Log { run: 7, after: 3 }), "it was not answered");
    log.refused("the store is away".into(), S(14));
    assert_eq!((log.ask(7, S(15)), log.refusal()), (None, Some("the store is away")));
    log.reconnected();
    assert!(log.ask(7, S(15)).is_some());
    log.page(page(vec![], false), S(16));
    assert!(log.complete() && log.refusal().is_none());
    assert_eq!((log.ask(7, S(99)), log.due(S(99))), (None, None));
}

#[test]
fn a_full_page_is_followed_by_the_next_at_once_even_of_an_ended_run() {
    let mut log = Log::default();
    let lines = (1..=u64::from(LOG_PAGE)).map(|no| line(no, "info", "x")).collect();
    log.page(page(lines, false), S(5));
    assert_eq!(log.ask(7, S(5)), Some(Query::Log { run: 7, after: u64::from(LOG_PAGE) }));
}

#[test]
fn lines_come_once_and_the_oldest_are_forgotten_aloud() {
    let mut log = Log::default();
    for from in (0..LINES_MAX as u64 + 1_000).step_by(500) {
        let lines: Vec<_> = (from..=from + 500).map(|no| line(no, "info", "x")).collect();
        log.page(LogPage { lines, open: true, dropped: 38 }, S(0));
    }
    assert_eq!(log.lines().count(), LINES_MAX);
    assert_eq!((log.forgotten(), log.lost()), (1_000, 1_038));
    let numbers: Vec<u64> = log.lines().map(|line| line.no).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn a_move_stops_the_following_and_the_end_starts_it_again() {
    let mut log = filled();
    assert!(log.follows());
    log.step(-1);
    assert_eq!((log.current().unwrap().no, log.follows()), (3, false));
    log.page(page(vec![line(6, "info", "new")], true), S(1));
    assert_eq!(log.current().unwrap().no, 3, "what is read does not move");
    log.step(-99);
    assert_eq!(log.current().unwrap().no, 1);
    log.step(3);
    assert_eq!((log.current().unwrap().no, log.follows()), (5, false));
    log.step(99);
    assert!(log.follows());
    log.follow(false);
    assert_eq!((log.current().unwrap().no, log.follows()), (6, false));
    let mut empty = Log::default();
    empty.step(1);
    empty.next_match(true);
    empty.follow(false);
    assert!(empty.current().is_none());
}

#[test]
fn a_level_hides_what_is_less_grave_and_nothing_unknown() {
    let mut log = filled();
    log.page(page(vec![line(9, "fatal", "?")], true), S(0));
    log.level = Level::Warn;
    assert_eq!(log.shown().map(|line| line.no).collect::<Vec<_>>(), [2, 5, 9]);
    log.step(-1);
    assert_eq!(log.current().unwrap().no, 5);
    log.level = Level::Debug.next().next().next().next();
    assert_eq!(log.shown().count(), 5);
}

#[test]
fn a_search_goes_round_and_counts() {
    let mut log = filled();
    log.search("share:9F31");
    assert_eq!(log.matches(), (2, None));
    for (forward, no, place) in
        [(true, 2, Some(1)), (true, 3, Some(2)), (true, 2, Some(1)), (false, 3, Some(2))]
    {
        log.next_match(forward);
        assert_eq!(log.current().unwrap().no, no);
        assert_eq!(log.matches(), (2, place));
    }
    log.search("");
    assert_eq!(log.matches(), (0, None));
}

#[test]
fn lines_of_several_nodes_are_in_the_order_of_time() {
    let mut log = Log::default();
    let of =
        |no, node: &str, at| LogLine { node: node.into(), at: S(at), ..line(no, "info", node) };
    log.page(page(vec![of(1, "a", 5), of(2, "a", 9)], true), S(10));
    assert!(!log.nodes_many());
    log.page(page(vec![of(3, "b", 4), of(4, "b", 7)], true), S(11));
    assert!(log.nodes_many());
    assert_eq!(log.shown().map(|line| line.no).collect::<Vec<_>>(), [3, 1, 4, 2]);
    log.step(-1);
    assert_eq!(log.current().map(|line| line.no), Some(4));
    log.step(-1);
    assert_eq!(log.current().map(|line| line.no), Some(1));
    assert_eq!(log.ask(7, S(12)), Some(Query::Log { run: 7, after: 4 }), "by their numbers");
}
