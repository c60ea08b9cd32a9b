//! The keys of a task.

use super::*;

#[test]
fn a_task_means_what_it_says() {
    let text = "\
[tasks.a]\r\n\
plugin = \"sweep\"\r\n\
schedule = \"@every 30s\"\r\n\
timezone = \"Europe/Berlin\"\r\n\
overlap = \"queue\"\r\n\
catch_up = \"all\"\r\n\
catch_up_max = 3\r\n\
jitter = \"1s\"\r\n\
keep_removed = \"0s\"\r\n\
[tasks.a.settings]\r\n\
min_changes = 5\r\n\
candidates_per_project = 9\r\n\
[tasks.a.limits]\r\n\
wall = \"1m\"\r\n\
[tasks.a.retry]\r\n\
attempts_max = 2\r\n\
[tasks.b]\r\n\
plugin = \"mine.wasm\"\r\n\
lane = \"heavy\"\r\n\
grants = { documents = [\"read\"], changes = [\"delete\", \"read\"], topics = [\"doc-changed\"] }\r\n";
    let config = load(text).expect("valid");
    let a = &config.tasks["a"];
    assert_eq!((a.overlap, a.catch_up), (Overlap::Queue, CatchUp::All(3)));
    assert_eq!((a.jitter, a.keep_removed), (Duration::from_secs(1), Duration::ZERO));
    assert_eq!(a.horizon, Duration::from_secs(61));
    assert_eq!((a.tenants_per_run, a.candidates_per_tenant), (7, 9));
    assert_eq!((a.limits.wall_ms, a.retry.attempts_max, a.retry.deaths_max), (60_000, 2, 3));
    assert_eq!(
        a.settings,
        [
            Field::new("min_changes", Value::Integer(5)),
            Field::new("threshold", Value::Integer(86_400_000)),
        ]
    );
    assert_eq!(a.topics, ["doc-changed"]);
    assert!(a.grants["changes"].delete && !a.grants["documents"].delete);
    let b = &config.tasks["b"];
    assert_eq!((b.schedule.as_deref(), b.timezone.as_str()), (None, "UTC"));
    assert_eq!(b.grants, a.grants);
}

#[test]
fn a_schedule_that_lets_a_whole_limit_pass_is_warned_of() {
    let task = |schedule: &str, limits: &str| {
        format!(
            "[tasks.a]\nplugin = \"timely\"\nschedule = \"{schedule}\"\n[tasks.a.settings]\n{limits}\n"
        )
    };
    check(&task("@hourly", ""), "");
    check(&task("@every 10s", "limit = \"10s\""), "");
    let late = |place: &str, limit: &str, late: &str, write: &str| {
        format!(
            "besom.toml:3:12: warning: up to {place} may pass between two scans, but the shortest limit \
             is {limit}: what begins in between ends up to {late} late\n  3 | schedule = \"@every \
             {place}\"\n    |            {} write schedule = \"@every {write}\"",
            "^".repeat("\"@every \"".len() + place.len())
        )
    };
    check(&task("@every 40s", "limit = \"10s\""), &late("40s", "10s", "30s", "1s"));
    let least = task("@every 1h", "limit_min = \"1m\"");
    check(&least, &late("1h", "1m", "59m", "6s"));
}

#[test]
fn a_call_is_not_allowed_to_outlast_its_snapshot() {
    let text = "\
[host]
act_snapshot_max = \"60s\"
[tasks.a]
plugin = \"sweep\"
[tasks.a.limits]
wall = \"61s\"
";
    let problems = load(text).expect_err("a snapshot that is closed under its call").to_string();
    let said = "a call of `a` may take 61s (limits.wall), but its snapshot is closed after 1m \
                (host.act_snapshot_max)";
    assert!(problems.contains(said), "{problems}");
    assert!(problems.contains("besom.toml:6:8"), "{problems}");
    assert!(problems.contains("write act_snapshot_max = \"61s\" in [host]"), "{problems}");
}

#[test]
fn fuel_is_counted_but_where_nobody_is_suspected_or_a_task_says_no() {
    let grants =
        "changes = [\"read\", \"delete\"]\ndocuments = [\"read\"]\ntopics = [\"doc-changed\"]";
    for (plugin, limits, expected) in [
        ("sweep", "", 200_000_000_000),
        ("sweep", "fuel = 0", 0),
        ("mine.wasm", "", 200_000_000_000),
        ("compaction", "", 0),
        ("compaction", "fuel = 5_000_000", 5_000_000),
    ] {
        let text = format!(
            "[tasks.a]\nplugin = \"{plugin}\"\nlane = \"heavy\"\n[tasks.a.limits]\n{limits}\n[tasks.a.grants]\n{grants}\n"
        );
        let config = load(&text).unwrap_or_else(|problems| panic!("{text}{problems}"));
        let limits = &config.tasks.values().next().expect("the task").limits;
        assert_eq!((limits.fuel, limits.wall_ms), (expected, 120_000), "{plugin}");
    }
}

/// A task with these keys.
fn with_keys(keys: &str) -> String {
    format!("[tasks.one]\nplugin = \"sweep\"\nschedule = \"@hourly\"\n{keys}\n")
}

/// What is wrong with a task with these keys: the first message.
#[track_caller]
fn fault_of(keys: &str) -> String {
    let problems = load(&with_keys(keys)).expect_err(keys).to_string();
    problems.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn brakes_are_numbers_or_parts() {
    use besom_core::brake::{Brakes, DeletesMax};
    let brakes = |keys: &str| {
        let config = load(&with_keys(keys)).unwrap_or_else(|problems| panic!("{keys}: {problems}"));
        config.tasks["one"].brakes
    };
    assert_eq!(brakes(""), Brakes::default());
    assert_eq!(brakes("max_delete = 10000").deletes, Some(DeletesMax::Rows(10_000)));
    let share = |millionths, floor| Some(DeletesMax::Share { millionths, floor });
    assert_eq!(brakes("max_delete = \"5%\"").deletes, share(50_000, 100));
    assert_eq!(brakes("max_delete = \"100%\"").deletes, share(1_000_000, 100));
    let keys = "max_delete = \"0.0125 %\"\nmax_delete_floor = 0";
    assert_eq!(brakes(keys).deletes, share(125, 0));
    let both = brakes("max_dead_letters = 7\nmax_failed_runs = 3");
    assert_eq!(both.letters.map(u32::from), Some(7));
    assert_eq!(both.failures.map(u32::from), Some(3));
    for (keys, why) in [
        ("max_delete = 0", "error: 0 is below the minimum"),
        ("max_delete = -3", "error: `-3` is neither a number of rows nor a part"),
        ("max_delete = \"0%\"", "error: 0% is below the minimum"),
        ("max_delete = \"101%\"", "error: 101% exceeds the maximum"),
        ("max_delete = \"5.00001%\"", "error: `5.00001%` is neither a number of rows nor a part"),
        ("max_delete = \"%\"", "error: `%` is neither a number of rows nor a part"),
        ("max_delete = \"five\"", "error: `five` is neither a number of rows nor a part"),
        ("max_delete = \"5\"", "error: \"5\" may be a number of rows or a part"),
        ("max_delete = true", "error: `max_delete` must be a number of rows, or a part"),
    ] {
        let said = fault_of(keys);
        assert!(said.starts_with(&format!("besom.toml:4:14: {why}")), "{keys}: {said}");
    }
    let whole = |keys: &str| load(&with_keys(keys)).expect_err(keys).to_string();
    let said = whole("max_delete = \"5\"");
    assert!(said.contains("write 5 for rows, or \"5%\" for a part"), "{said}");
    for key in ["max_dead_letters", "max_failed_runs"] {
        for value in ["0", "-1"] {
            let said = whole(&format!("{key} = {value}"));
            assert!(said.contains(&format!("error: `{key}` must not be below 1")), "{said}");
            assert!(said.contains("besom.toml:4:") && said.contains("or remove the key"), "{said}");
        }
        let said = whole(&format!("{key} = 2000000000"));
        assert!(said.contains("2000000000 exceeds the maximum"), "{said}");
        let said = whole(&format!("{key} = \"3\""));
        assert!(said.contains(&format!("write, for example, {key} = 10")), "{said}");
    }
    let config = load(&with_keys("max_delete = 5\nmax_delete_floor = 7")).expect("a warning only");
    let said = Problems(config.warnings).to_string();
    assert!(said.contains("`max_delete_floor` has no effect without a part"), "{said}");
}

#[test]
fn windows_follow_the_time_zone_of_the_task_and_have_to_open() {
    let config = load(&with_keys(
        "timezone = \"Europe/Berlin\"\nwindows = [\"Mon-Fri 22:00-05:00\", \"12:00-13:00 UTC\"]",
    ));
    let config = config.expect("valid");
    let windows = &config.tasks["one"].windows;
    assert_eq!(windows.to_string(), "Mon-Fri 22:00-05:00 Europe/Berlin, 12:00-13:00 UTC");
    for (windows, why) in [
        ("[]", "`windows` names no window, so the task never works"),
        ("[\"Mon 03:00-03:00\"]", "the window `Mon 03:00-03:00`: `03:00-03:00` never opens"),
        ("[\"01:00-02:00\", \"Mo 1-2\"]", "the window `Mo 1-2`: `Mo` is not a day"),
        ("[\"12:10-12:50\"]", "no slot of the schedule lies in a window (12:10-12:50 UTC)"),
        ("[\"a\", \"a\"]", "`a` is listed twice in `windows`"),
    ] {
        let said = fault_of(&format!("windows = {windows}"));
        assert!(said.starts_with(&format!("besom.toml:4:11: error: {why}")), "{said}");
    }
    // One day a year is enough.
    let rare = "[tasks.one]\nplugin = \"sweep\"\nschedule = \"30 12 24 12 *\"\nwindows = [\"12:10-12:50\"]\n";
    load(rare).expect("it runs once a year");
}

#[test]
fn a_task_yields_if_it_says_so() {
    let load_with = |keys: &str| {
        let text = format!("[tasks.a]\nplugin = \"sweep\"\n{keys}\n");
        load(&text).expect("valid").tasks["a"].yields
    };
    assert_eq!(load_with(""), None);
    let yields = load_with("yield = {}").expect("the defaults");
    assert_eq!((yields.latency, yields.lag), (Duration::from_millis(20), Duration::from_secs(10)));
    assert_eq!(yields.floor.get(), 500);
    let yields = load_with("rows_per_second = 100\nyield = { latency = \"5ms\" }");
    assert_eq!(yields.map(|yields| yields.latency), Some(Duration::from_millis(5)));
    check(
        "[tasks.a]\nplugin = \"sweep\"\nrows_per_second = 100\nyield = { floor = 200 }\n",
        r#"
besom.toml:4:19: error: `floor` is above rows_per_second = 100
  4 | yield = { floor = 200 }
    |                   ^^^ lower it, or raise rows_per_second
"#,
    );
}
