use super::*;

fn at(text: &str) -> Time {
    Time::from_jiff(text.parse().unwrap_or_else(|e| panic!("{text}: {e}")))
}

fn windows(texts: &[&str]) -> Windows {
    let all = texts.iter().map(|text| Window::read(text, "UTC"));
    Windows::new(all.collect::<Result<_, _>>().expect("windows"))
}

/// The first openings from an instant on, as texts.
fn openings(of: &Windows, from: &str, count: usize) -> Vec<String> {
    let text = |time: Time| time.to_jiff().to_string();
    of.openings(at(from)).take(count).map(|(a, b)| format!("{} {}", text(a), text(b))).collect()
}

#[test]
fn a_window_over_midnight_belongs_to_the_day_on_which_it_opens() {
    let nights = windows(&["Mon-Fri 22:00-05:00"]);
    // 2026-11-27 is a Friday.
    for (time, open) in [
        ("2026-11-27T21:59:59Z", false),
        ("2026-11-27T22:00:00Z", true),
        ("2026-11-28T04:59:59Z", true),
        ("2026-11-28T05:00:00Z", false),
        ("2026-11-28T22:30:00Z", false),
        ("2026-11-30T04:00:00Z", false),
        ("2026-11-30T22:00:00Z", true),
    ] {
        assert_eq!(nights.is_open(at(time)), open, "{time}");
    }
    assert_eq!(nights.opens_at(at("2026-11-28T05:00:00Z")), Some(at("2026-11-30T22:00:00Z")));
    assert_eq!(nights.changes_at(at("2026-11-27T22:00:00Z")), Some(at("2026-11-28T05:00:00Z")));
    assert_eq!(nights.opens_at(at("2026-11-27T23:00:00Z")), None, "it is open");
}

#[test]
fn without_a_window_a_task_is_always_open() {
    let none = Windows::default();
    assert!(none.is_open(Time::EPOCH));
    assert_eq!((none.opens_at(Time::EPOCH), none.changes_at(Time::EPOCH)), (None, None));
}

#[test]
fn clocks_that_go_forward_move_an_end_in_the_hour_left_out_to_the_change() {
    // In Berlin, 2026-03-29 02:00 CET is 03:00 CEST: 01:00 UTC.
    let of = windows(&["02:30-04:00 Europe/Berlin"]);
    let found = openings(&of, "2026-03-28T12:00:00Z", 2);
    assert_eq!(found[0], "2026-03-29T01:00:00Z 2026-03-29T02:00:00Z");
    let of = windows(&["22:00-02:30 Europe/Berlin"]);
    let found = openings(&of, "2026-03-28T12:00:00Z", 2);
    assert_eq!(found[0], "2026-03-28T21:00:00Z 2026-03-29T01:00:00Z");
    assert_eq!(found[1], "2026-03-29T20:00:00Z 2026-03-30T00:30:00Z");
    // All of it is left out: it opens on the next day only.
    let of = windows(&["02:10-02:50 Europe/Berlin"]);
    let found = openings(&of, "2026-03-28T12:00:00Z", 1);
    assert_eq!(found, ["2026-03-30T00:10:00Z 2026-03-30T00:50:00Z"]);
}

#[test]
fn the_hour_that_is_repeated_belongs_to_the_window() {
    // In Berlin, 2026-10-25 03:00 CEST is 02:00 CET: 01:00 UTC.
    let of = windows(&["22:00-02:30 Europe/Berlin"]);
    let found = openings(&of, "2026-10-24T12:00:00Z", 1);
    assert_eq!(found, ["2026-10-24T20:00:00Z 2026-10-25T01:30:00Z"]);
    let of = windows(&["02:30-04:00 Europe/Berlin"]);
    let found = openings(&of, "2026-10-24T12:00:00Z", 1);
    assert_eq!(found, ["2026-10-25T00:30:00Z 2026-10-25T03:00:00Z"]);
}

#[test]
fn windows_that_touch_are_one() {
    let weekend = windows(&["Fri 22:00-24:00", "Sat,Sun 00:00-24:00", "Mon 00:00-05:00"]);
    let found = openings(&weekend, "2026-11-27T12:00:00Z", 1);
    assert_eq!(found, ["2026-11-27T22:00:00Z 2026-11-30T05:00:00Z"]);
    assert_eq!(weekend.changes_at(at("2026-11-28T00:00:00Z")), Some(at("2026-11-30T05:00:00Z")));
    let over_sunday = windows(&["Sat-Mon 01:00-02:00"]);
    let found = openings(&over_sunday, "2026-11-27T12:00:00Z", 4);
    let days: Vec<&str> = found.iter().map(|opening| &opening[8..10]).collect();
    assert_eq!(days, ["28", "29", "30", "05"]);
}

#[test]
fn a_window_that_cannot_be_meant_is_refused_with_the_reason() {
    for (text, why) in [
        ("Mon-Fri", "the hours are missing"),
        ("", "the hours are missing"),
        ("Mon-Fri 22:00", "`22:00` is not a range of hours"),
        ("Mun 22:00-23:00", "`Mun` is not a day"),
        ("22:00-25:00", "`25:00` is not a time"),
        ("22:61-23:00", "`22:61` is not a time"),
        ("24:00-05:00", "opens at 24:00"),
        ("Mon 03:00-03:00", "never opens"),
        ("01:00-02:00 Europe/Berlinn", "`Europe/Berlinn` is not an IANA time zone"),
        ("01:00-02:00 UTC daily", "`daily` is not expected"),
    ] {
        let said = Window::read(text, "UTC").expect_err(text);
        assert!(said.contains(why), "{text}: {said}");
    }
}

#[test]
fn windows_are_kept_as_text_with_their_time_zone() {
    let own = Window::read("Mon 22:00-05:00", "Europe/Berlin").expect("a window");
    let windows = Windows::new(vec![own]);
    let json = serde_json::to_string(&windows).expect("JSON");
    assert_eq!(json, "[\"Mon 22:00-05:00 Europe/Berlin\"]");
    assert_eq!(serde_json::from_str::<Windows>(&json).expect("windows"), windows);
}

#[test]
fn the_next_slot_lies_in_a_window() {
    let of = windows(&["Sat 01:00-02:00"]);
    let slot = |expression: &str, now: &str| {
        let schedule = Schedule::parse(expression, "UTC").expect("a schedule");
        of.next_slot(&schedule, at(now)).map(|slot| slot.to_jiff().to_string())
    };
    assert_eq!(slot("@hourly", "2026-11-25T12:00:00Z"), Some("2026-11-28T01:00:00Z".into()));
    assert_eq!(slot("@hourly", "2026-11-28T01:00:00Z"), Some("2026-12-05T01:00:00Z".into()));
    assert_eq!(slot("30 * * * *", "2026-11-28T01:10:00Z"), Some("2026-11-28T01:30:00Z".into()));
    assert_eq!(slot("0 12 * * *", "2026-11-25T12:00:00Z"), None);
    let schedule = Schedule::parse("*/30 * * * *", "UTC").expect("a schedule");
    let next = of.upcoming(&schedule, at("2026-11-28T01:00:00Z"), 3);
    let next: Vec<String> = next.iter().map(|slot| slot.utc.to_jiff().to_string()).collect();
    assert_eq!(next, ["2026-11-28T01:30:00Z", "2026-12-05T01:00:00Z", "2026-12-05T01:30:00Z"]);
    let opened = |now: &str| of.opened_at(at(now)).map(|opened| opened.to_jiff().to_string());
    assert_eq!(opened("2026-11-28T01:59:00Z"), Some("2026-11-28T01:00:00Z".into()));
    assert_eq!(opened("2026-11-28T02:00:00Z"), None);
}

#[test]
fn slots_are_counted_and_previewed_within_windows() {
    let hour = Duration::from_secs(3_600);
    let schedule = Schedule::parse("*/20 * * * *", "UTC").expect("a schedule");
    let from = at("2026-11-28T00:00:00Z");
    let of = windows(&["Sat 01:10-03:20"]);
    assert_eq!(of.counts(&schedule, from, hour, 5), [0, 2, 3, 1, 0]);
    assert_eq!(of.slots(&schedule, from).count(), 3 * 6, "three Saturdays");
    assert!(of.slots(&schedule, from).all(|slot| of.is_open(slot)));
    let next = of.preview(&schedule, from, 2);
    let next: Vec<_> = next.iter().map(|row| (row.number, row.wait)).collect();
    assert_eq!(next, [(1, Duration::from_secs(80 * 60)), (2, Duration::from_secs(100 * 60))]);
    let always = Windows::default();
    assert_eq!(always.counts(&schedule, from, hour, 2), [3, 3]);
    assert_eq!(always.slots(&schedule, from).take(4).count(), 4);
}
