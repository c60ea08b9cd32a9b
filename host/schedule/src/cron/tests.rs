use std::time::Duration;

use super::*;

pub(super) fn at(text: &str) -> Time {
    Time::from_jiff(text.parse().unwrap_or_else(|e| panic!("{text}: {e}")))
}

pub(super) fn schedule(expression: &str, zone: &str) -> Schedule {
    Schedule::parse(expression, zone).unwrap_or_else(|e| panic!("{expression}: {e}"))
}

fn slots(expression: &str, zone: &str, from: &str, n: usize) -> Vec<String> {
    schedule(expression, zone).upcoming(at(from), n).into_iter().map(|slot| slot.local).collect()
}

#[track_caller]
fn check(expression: &str, zone: &str, from: &str, expected: &[&str]) {
    assert_eq!(slots(expression, zone, from, expected.len()), expected, "{expression} in {zone}");
}

#[test]
fn expressions_mean_what_crontab_says() {
    let from = "2026-01-01T00:00:00Z"; // a Thursday
    let table: &[(&str, &[&str])] = &[
        ("* * * * *", &["2026-01-01T00:01:00+00:00", "2026-01-01T00:02:00+00:00"]),
        ("* * * * * *", &["2026-01-01T00:00:01+00:00", "2026-01-01T00:00:02+00:00"]),
        (
            "*/20 * * * *",
            &[
                "2026-01-01T00:20:00+00:00",
                "2026-01-01T00:40:00+00:00",
                "2026-01-01T01:00:00+00:00",
            ],
        ),
        (
            "10-50/20 3 * * *",
            &[
                "2026-01-01T03:10:00+00:00",
                "2026-01-01T03:30:00+00:00",
                "2026-01-01T03:50:00+00:00",
                "2026-01-02T03:10:00+00:00",
            ],
        ),
        (
            "15,45 30 6 * * *",
            &[
                "2026-01-01T06:30:15+00:00",
                "2026-01-01T06:30:45+00:00",
                "2026-01-02T06:30:15+00:00",
            ],
        ),
        ("0 0 * * 0", &["2026-01-04T00:00:00+00:00", "2026-01-11T00:00:00+00:00"]),
        ("0 0 * * 7", &["2026-01-04T00:00:00+00:00", "2026-01-11T00:00:00+00:00"]),
        ("0 0 * * sun", &["2026-01-04T00:00:00+00:00"]),
        (
            "0 0 * * Fri-Sun",
            &[
                "2026-01-02T00:00:00+00:00",
                "2026-01-03T00:00:00+00:00",
                "2026-01-04T00:00:00+00:00",
                "2026-01-09T00:00:00+00:00",
            ],
        ),
        (
            "0 0 1 FEB,apr *",
            &[
                "2026-02-01T00:00:00+00:00",
                "2026-04-01T00:00:00+00:00",
                "2027-02-01T00:00:00+00:00",
            ],
        ),
        ("0 0 29 2 *", &["2028-02-29T00:00:00+00:00", "2032-02-29T00:00:00+00:00"]),
        (
            "0 0 31 * *",
            &[
                "2026-01-31T00:00:00+00:00",
                "2026-03-31T00:00:00+00:00",
                "2026-05-31T00:00:00+00:00",
            ],
        ),
        (
            "0 0 L * *",
            &[
                "2026-01-31T00:00:00+00:00",
                "2026-02-28T00:00:00+00:00",
                "2026-03-31T00:00:00+00:00",
            ],
        ),
        ("0 0 LW 2 *", &["2026-02-27T00:00:00+00:00", "2027-02-26T00:00:00+00:00"]),
        ("0 0 15W 2,8 *", &["2026-02-16T00:00:00+00:00", "2026-08-14T00:00:00+00:00"]),
        ("0 0 * * 5L", &["2026-01-30T00:00:00+00:00", "2026-02-27T00:00:00+00:00"]),
        ("0 0 * * MON#2", &["2026-01-12T00:00:00+00:00", "2026-02-09T00:00:00+00:00"]),
        ("0 0 ? * *", &["2026-01-02T00:00:00+00:00"]),
        ("@hourly", &["2026-01-01T01:00:00+00:00", "2026-01-01T02:00:00+00:00"]),
        ("@daily", &["2026-01-02T00:00:00+00:00"]),
        ("@midnight", &["2026-01-02T00:00:00+00:00"]),
        ("@weekly", &["2026-01-04T00:00:00+00:00"]),
        ("@monthly", &["2026-02-01T00:00:00+00:00"]),
        ("@yearly", &["2027-01-01T00:00:00+00:00"]),
        ("@every 30s", &["2026-01-01T00:00:30+00:00", "2026-01-01T00:01:00+00:00"]),
        ("@every 1h30m", &["2026-01-01T01:30:00+00:00", "2026-01-01T03:00:00+00:00"]),
        ("@every 1500ms", &["2026-01-01T00:00:01.5+00:00", "2026-01-01T00:00:03+00:00"]),
    ];
    for (expression, expected) in table {
        check(expression, "UTC", from, expected);
    }
}

#[test]
fn day_fields_are_alternatives_unless_one_starts_with_a_star() {
    // The 13th, or any Friday.
    check(
        "0 0 13 * FRI",
        "UTC",
        "2026-01-01T00:00:00Z",
        &["2026-01-02T00:00:00+00:00", "2026-01-09T00:00:00+00:00", "2026-01-13T00:00:00+00:00"],
    );
    // Odd days that are Fridays: crontab(5) asks for both as `*/2` starts with a star.
    check(
        "0 0 */2 * FRI",
        "UTC",
        "2026-01-01T00:00:00Z",
        &["2026-01-09T00:00:00+00:00", "2026-01-23T00:00:00+00:00"],
    );
    check(
        "0 0 13 * +FRI",
        "UTC",
        "2026-01-01T00:00:00Z",
        &["2026-02-13T00:00:00+00:00", "2026-03-13T00:00:00+00:00", "2026-11-13T00:00:00+00:00"],
    );
}

#[test]
fn a_skipped_fixed_time_runs_once_at_the_jump() {
    let table: &[(&str, &str, &str, &[&str])] = &[
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            &[
                "2026-03-28T02:30:00+01:00",
                "2026-03-29T03:00:00+02:00",
                "2026-03-30T02:30:00+02:00",
            ],
        ),
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-07T12:00:00Z",
            &["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"],
        ),
        // Half an hour only: 02:00 to 02:30.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            &["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"],
        ),
        // The jump was at midnight.
        (
            "0 0 * * *",
            "America/Sao_Paulo",
            "2018-11-03T12:00:00Z",
            &["2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"],
        ),
        // A list is a set of fixed times: both are skipped, and meet at the jump.
        (
            "0,30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            &[
                "2026-03-29T03:00:00+02:00",
                "2026-03-30T02:00:00+02:00",
                "2026-03-30T02:30:00+02:00",
            ],
        ),
        (
            "0 2,3 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            &["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"],
        ),
        // The jump leads into a day that the schedule does not name.
        (
            "30 23 * * SAT",
            "America/Nuuk",
            "2025-03-29T00:00:00Z",
            &["2025-03-30T00:00:00-01:00", "2025-04-05T23:30:00-01:00"],
        ),
        // A whole day is missing.
        (
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-29T12:00:00Z",
            &[
                "2011-12-29T12:00:00-10:00",
                "2011-12-31T00:00:00+14:00",
                "2011-12-31T12:00:00+14:00",
            ],
        ),
    ];
    for (expression, zone, from, expected) in table {
        check(expression, zone, from, expected);
    }
}

#[test]
fn a_repeated_fixed_time_runs_once() {
    let table: &[(&str, &str, &str, &[&str])] = &[
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            &["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
        ),
        (
            "0,30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            &[
                "2026-10-25T02:00:00+02:00",
                "2026-10-25T02:30:00+02:00",
                "2026-10-26T02:00:00+01:00",
            ],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00:00Z",
            &["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"],
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T00:00:00Z",
            &["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"],
        ),
        // Started within the second pass, the first one is over.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", &["2026-10-26T02:30:00+01:00"]),
    ];
    for (expression, zone, from, expected) in table {
        check(expression, zone, from, expected);
    }
}

#[test]
fn stars_ranges_and_steps_follow_the_wall_clock() {
    let spring: &[(&str, &[&str])] = &[
        ("*/30 * * * *", &["2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00"]),
        ("30 * * * *", &["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"]),
        ("30 1-3 * * *", &["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"]),
        ("*/30 2 * * *", &["2026-03-30T02:00:00+02:00"]),
    ];
    for (expression, expected) in spring {
        check(expression, "Europe/Berlin", "2026-03-29T00:00:00Z", expected);
    }
    let autumn: &[(&str, &[&str])] = &[
        (
            "30 * * * *",
            &[
                "2026-10-25T02:30:00+02:00",
                "2026-10-25T02:30:00+01:00",
                "2026-10-25T03:30:00+01:00",
            ],
        ),
        (
            "*/30 2 * * *",
            &[
                "2026-10-25T02:00:00+02:00",
                "2026-10-25T02:30:00+02:00",
                "2026-10-25T02:00:00+01:00",
                "2026-10-25T02:30:00+01:00",
                "2026-10-26T02:00:00+01:00",
            ],
        ),
    ];
    for (expression, expected) in autumn {
        check(expression, "Europe/Berlin", "2026-10-24T23:45:00Z", expected);
    }
}

#[test]
fn a_repeated_hour_runs_twice_however_far_the_next_day_that_matches_is() {
    check(
        "0-1 1 1 * *",
        "America/New_York",
        "2026-10-31T12:00:00Z",
        &[
            "2026-11-01T01:00:00-04:00",
            "2026-11-01T01:01:00-04:00",
            "2026-11-01T01:00:00-05:00",
            "2026-11-01T01:01:00-05:00",
            "2026-12-01T01:00:00-05:00",
        ],
    );
}

#[test]
fn the_preview_says_what_the_clocks_do() {
    #[track_caller]
    fn note(expression: &str, from: &str, expected: Option<&str>) {
        let slot = &schedule(expression, "Europe/Berlin").upcoming(at(from), 1)[0];
        assert_eq!(slot.note.as_deref(), expected, "{expression}");
    }
    let spring = "2026-03-28T23:00:00Z";
    note("30 2 * * *", spring, Some("02:30 does not exist on 2026-03-29; runs at 03:00 instead"));
    note(
        "0,30 2 * * *",
        spring,
        Some("02:00, 02:30 do not exist on 2026-03-29; runs at 03:00 instead"),
    );
    note("30 2-3 * * *", spring, Some("02:30 does not exist on 2026-03-29"));
    note("*/10 2 * * *", spring, Some("02:00, 02:10, 02:20 and 3 more do not exist on 2026-03-29"));
    note("30 4 * * *", spring, None);
    let autumn = "2026-10-24T22:00:00Z";
    note("30 2 * * *", autumn, Some("02:30 occurs twice on 2026-10-25: runs the first time only"));
    note("30 2-3 * * *", autumn, Some("02:30 occurs twice on 2026-10-25: first time"));
    note(
        "30 2-3 * * *",
        "2026-10-25T00:30:00Z",
        Some("02:30 occurs twice on 2026-10-25: second time"),
    );
    note("30 3 * * *", autumn, None);
}

#[test]
fn a_day_without_a_run_is_found_before_it_comes() {
    let from = at("2026-01-01T00:00:00Z");
    let found = schedule("*/15 2 * * *", "Europe/Berlin").day_without_run(from).unwrap();
    assert_eq!(found.date, "2026-03-29");
    assert_eq!(
        found.warning,
        "no run on 2026-03-29: the clocks change from 02:00 to 03:00, and every scheduled time \
         falls in between"
    );
    for (expression, zone) in [
        ("30 2 * * *", "Europe/Berlin"),
        ("*/15 2-3 * * *", "Europe/Berlin"),
        ("*/15 2 * * *", "UTC"),
        ("@every 1d", "Europe/Berlin"),
    ] {
        assert_eq!(schedule(expression, zone).day_without_run(from), None, "{expression} {zone}");
    }
}

#[test]
fn schedules_that_mean_the_same_are_spelt_alike() {
    for (left, right) in [
        ("0 0 * * MON", "0  0 0 * * 1"),
        ("@daily", "0 0 * * *"),
        ("@every 90m", "@every 1h30m"),
        ("0 0 ? jan *", "0 0 * 1 *"),
    ] {
        assert_eq!(schedule(left, "UTC").canonical(), schedule(right, "UTC").canonical());
    }
    assert_eq!(schedule("@daily", "europe/berlin").canonical(), "0 0 0 * * * Europe/Berlin");
    assert_eq!(schedule("@every 30s", "Europe/Berlin").canonical(), "@every 30s");
    assert_ne!(schedule("@daily", "UTC").canonical(), schedule("@daily", "Asia/Tokyo").canonical());
}

#[test]
fn the_longest_gap_counts_the_change_of_the_clocks() {
    let from = at("2026-01-01T00:00:00Z");
    let hours = |h: u64| Duration::from_secs(h * 3_600);
    for (expression, zone, expected) in [
        ("0 3 * * *", "UTC", hours(24)),
        ("0 3 * * *", "Europe/Berlin", hours(25)),
        ("0 0,12 * * *", "Europe/Berlin", hours(13)),
        ("0 * * * *", "Europe/Berlin", hours(1)),
        ("*/15 2 * * *", "Europe/Berlin", hours(46) + Duration::from_secs(15 * 60)),
        ("* 9-17 * * MON-FRI", "UTC", hours(63) + Duration::from_secs(60)),
        ("* * * * * *", "UTC", Duration::from_secs(1)),
        ("* * */7 * * *", "America/New_York", hours(7) + Duration::from_secs(1)),
        ("* 0 1 */3 * *", "America/New_York", hours(72) - Duration::from_secs(59)),
        ("@every 36h", "UTC", hours(36)),
        ("0 0 29 2 *", "UTC", hours(24 * 1_461)),
    ] {
        assert_eq!(schedule(expression, zone).longest_gap(from), expected, "{expression} {zone}");
    }
}

#[test]
fn a_year_of_seconds_is_counted_without_walking() {
    let (from, to) = (at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
    let count = |expression, zone| schedule(expression, zone).count(from, to);
    assert_eq!(count("* * * * * *", "Europe/Berlin"), 365 * 86_400);
    assert_eq!(count("@every 1s", "UTC"), 365 * 86_400);
    assert_eq!(count("30 2 * * *", "Europe/Berlin"), 365);
    assert_eq!(count("30 2-2 * * *", "Europe/Berlin"), 365); // none in spring, two in autumn
    assert_eq!(count("0 2,3 * * *", "Europe/Berlin"), 2 * 365 - 1);
    assert_eq!(
        schedule("* * * * * *", "UTC").latest(from, to, 2),
        [to - Duration::from_secs(1), to]
    );
}

#[test]
fn the_search_ends_where_the_calendar_ends() {
    assert_eq!(schedule("* * * * *", "Europe/Berlin").next_after(Time::MAX), None);
    assert_eq!(schedule("@every 1s", "UTC").next_after(Time::MAX), None);
    assert!(
        schedule("0 0 29 2 *", "UTC").next_after(at("2096-03-01T00:00:00Z"))
            == Some(at("2104-02-29T00:00:00Z"))
    );
}

#[test]
fn a_preview_tells_the_wall_clock_with_its_zone_and_how_long_it_is_until_then() {
    let now = at("2026-10-25T00:54:48Z");
    let rows = schedule("*/2 0-23 * * *", "Europe/Berlin").preview(now, 4);
    let shown: Vec<_> =
        rows.iter().map(|row| (row.number, row.local.as_str(), row.wait.as_secs())).collect();
    assert_eq!(
        shown,
        [
            (1, "2026-10-25 02:56:00 CEST", 72),
            (2, "2026-10-25 02:58:00 CEST", 192),
            (3, "2026-10-25 02:00:00 CET", 312),
            (4, "2026-10-25 02:02:00 CET", 432),
        ]
    );
    assert_eq!(rows[2].utc, at("2026-10-25T01:00:00Z"));
    assert!(rows[2].note.as_ref().is_some_and(|note| note.contains("second time")), "{rows:?}");
    let rows = schedule("@every 90s", "UTC").preview(now, 1);
    assert_eq!((rows[0].local.as_str(), rows[0].wait.as_secs()), ("2026-10-25 00:55:30 UTC", 42));
}
