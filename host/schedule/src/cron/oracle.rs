//! Compares the search with the `cron` crate, with croner itself, and with a walk over the minutes.

use proptest::prelude::*;

use super::tests::{at, schedule};
use super::*;

/// A field of `min..=max` in one of the forms that croner, `cron` and this module interpret alike.
fn field(min: u32, max: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_owned()),
        3 => (min..=max).prop_map(|n| n.to_string()),
        1 => (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (2..=(max - min).min(20)).prop_map(|n| format!("*/{n}")),
        1 => proptest::collection::btree_set(min..=max, 2..4)
            .prop_map(|set| set.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    let days =
        prop_oneof![(field(1, 28), Just("*".to_owned())), (Just("*".to_owned()), field(0, 6)),];
    (field(0, 59), field(0, 59), field(0, 23), days, field(1, 12))
        .prop_map(|(s, m, h, (dom, dow), month)| format!("{s} {m} {h} {dom} {month} {dow}"))
}

const ZONES: [&str; 6] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Kolkata",
];

/// Instants from 2000 to 2040, many of them around clock changes.
fn instant() -> impl Strategy<Value = Time> {
    let near = proptest::sample::select(vec![
        "2026-03-29T01:00:00Z",
        "2026-10-25T01:00:00Z",
        "2026-03-08T07:00:00Z",
        "2026-11-01T06:00:00Z",
        "2026-10-03T15:30:00Z",
        "2026-04-04T15:00:00Z",
        "2018-11-04T03:00:00Z",
    ]);
    prop_oneof![
        (946_684_800i64..2_208_988_800).prop_map(Time::from_secs),
        (near, -10_000i64..10_000).prop_map(|(t, d)| Time(at(t).micros() + d * SECOND_US)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_cron_crate_in_utc(expression in expression(), from in instant()) {
        // That crate numbers Sunday as 1 and counts `*/n` of weekdays from there.
        let mut fields: Vec<String> = expression.split(' ').map(str::to_owned).collect();
        prop_assume!(!fields[5].contains('/'));
        fields[5] = fields[5].split_inclusive([',', '-']).map(|part| {
            let digits = part.trim_end_matches([',', '-']);
            match digits.parse::<u32>() {
                Ok(n) => format!("{}{}", n + 1, &part[digits.len()..]),
                Err(_) => part.to_owned(),
            }
        }).collect();
        let oracle: ::cron::Schedule = fields.join(" ").parse().unwrap();
        let start = chrono_at(from);
        let expected: Vec<i64> = oracle.after(&start).take(5).map(|t| t.timestamp()).collect();
        let found: Vec<i64> = schedule(&expression, "UTC").upcoming(from, 5).iter()
            .map(|slot| slot.utc.micros() / SECOND_US).collect();
        prop_assert_eq!(found, expected, "{}", expression);
    }

    #[test]
    fn agrees_with_croner_where_croner_knows(expression in expression(), zone in proptest::sample::select(&ZONES[..]), from in instant()) {
        // croner treats a list of fixed times as a step.
        let times: Vec<&str> = expression.split(' ').take(3).collect();
        prop_assume!(!times.iter().all(|f| !f.contains(['*', '-', '/'])) || !times.iter().any(|f| f.contains(',')));
        let cron = croner::parser::CronParser::builder().seconds(croner::parser::Seconds::Required).build()
            .parse(&expression).unwrap();
        // croner loses a jump across midnight into another day.
        let start = jiff::Timestamp::from_second(from.micros().div_euclid(SECOND_US)).unwrap().in_tz(zone).unwrap();
        let expected = cron.find_next_occurrence(&start, false).ok().map(|z| Time::from_jiff(z.timestamp()));
        prop_assert_eq!(schedule(&expression, zone).next_after(from), expected, "{} {}", expression, zone);
    }

    #[test]
    fn agrees_with_a_walk_over_the_minutes(expression in expression(), from in instant()) {
        let minutes = expression.split_once(' ').unwrap().1;
        let schedule = schedule(minutes, "UTC");
        let matches = |minute: i64| {
            let wall = jiff::tz::Offset::UTC.to_datetime(zone::timestamp(minute * 60));
            let values = [wall.minute(), wall.hour(), wall.day(), wall.month(), wall.weekday().to_sunday_zero_offset()];
            minutes.split(' ').zip(values).enumerate().all(|(index, (field, value))| {
                let (value, base) = (i64::from(value), i64::from(index == 2 || index == 3));
                field.split(',').any(|part| match (part, part.split_once('-')) {
                    ("*", _) => true,
                    (_, Some((a, b))) => (a.parse::<i64>().unwrap()..=b.parse().unwrap()).contains(&value),
                    (part, None) => match part.strip_prefix("*/") {
                        Some(step) => (value - base) % step.parse::<i64>().unwrap() == 0,
                        None => part.parse::<i64>().unwrap() == value,
                    },
                })
            })
        };
        let first = from.micros().div_euclid(60 * SECOND_US);
        let walked: Vec<Time> = (first + 1..=first + 3_000).filter(|m| matches(*m)).map(|m| Time::from_secs(m * 60)).collect();
        let until = Time::from_secs((first + 3_000) * 60);
        prop_assert_eq!(&schedule.latest(from, until, u32::MAX), &walked, "{}", minutes);
    }

    #[test]
    fn slots_grow_and_are_counted(expression in expression(), zone in proptest::sample::select(&ZONES[..]), from in instant()) {
        let schedule = schedule(&expression, zone);
        let slots: Vec<Time> = schedule.upcoming(from, 40).iter().map(|slot| slot.utc).collect();
        prop_assert!(from < slots[0] && slots.is_sorted_by(|a, b| a < b));
        for (index, slot) in slots.iter().enumerate() {
            prop_assert_eq!(schedule.count(from, *slot), index as u64 + 1, "{} {}", expression, zone);
            prop_assert!(schedule.is_slot(*slot));
        }
        let last = slots[slots.len() - 1];
        prop_assert_eq!(schedule.latest(from, last, 7), &slots[slots.len() - 7..]);
    }

    #[test]
    fn a_list_of_fixed_times_is_a_set_of_them(
        minutes in proptest::collection::btree_set(0u32..60, 1..4),
        hours in proptest::collection::btree_set(prop_oneof![3 => 0u32..4, 1 => 0u32..24], 1..4),
        zone in proptest::sample::select(&ZONES[..]),
        from in instant(),
    ) {
        let list = |set: &std::collections::BTreeSet<u32>| {
            set.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
        };
        let together = schedule(&format!("{} {} * * *", list(&minutes), list(&hours)), zone);
        let each: Vec<Schedule> = minutes
            .iter()
            .flat_map(|minute| hours.iter().map(move |hour| format!("{minute} {hour} * * *")))
            .map(|single| schedule(&single, zone))
            .collect();
        let mut last = from;
        for _ in 0..10 {
            let next = together.next_after(last);
            prop_assert_eq!(next, each.iter().filter_map(|single| single.next_after(last)).min());
            last = next.unwrap();
        }
    }

    #[test]
    fn no_wait_within_a_year_is_longer_than_the_longest_gap(
        expression in expression(),
        zone in proptest::sample::select(&ZONES[..]),
        from in instant(),
    ) {
        let schedule = schedule(&expression, zone);
        let longest = schedule.longest_gap(from);
        let end = from + Duration::from_secs(365 * 86_400);
        let mut last = schedule.next_after(from).unwrap();
        let (mut seen, mut steps) = (Duration::ZERO, 0);
        while last < end && steps < 5_000 {
            let next = schedule.next_after(last).unwrap();
            seen = seen.max(next.since(last));
            (last, steps) = (next, steps + 1);
        }
        prop_assert!(seen <= longest, "{} in {}: {:?} is longer than {:?}", expression, zone, seen, longest);
    }

    #[test]
    fn nonsense_is_refused_and_never_panics(text in "\\PC{0,24}", digits in "[0-9*/,LW#@a-z -]{0,24}") {
        for text in [text, digits] {
            if let Err(error) = Schedule::parse(&text, "UTC") {
                prop_assert!(text.get(error.range.clone()).is_some(), "{} {:?}", text, error);
            }
        }
    }
}

fn chrono_at(time: Time) -> chrono::DateTime<chrono::Utc> {
    chrono::DateTime::from_timestamp_micros(time.micros()).unwrap()
}
