//! What is wrong is named at its place, all at once.

use super::*;

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    check(
        "\
[stor]
path = \"x.db\"

[lease]
ttl = 15
renw = \"5s\"

[tasks.one]
plugin = \"sweap\"
schedule = \"0 0 30 2 *\"
overlap = \"skipp\"

[tasks.two]
plugin = \"mine.wasm\"
timezone = \"Europe/Berlim\"
settings = { min_change = 3, threshold = \"1s\" }
grants = { documents = [\"raed\"], chnges = [\"read\"] }
",
        r#"
besom.toml:1:2: error: unknown key `stor`
  1 | [stor]
    |  ^^^^ did you mean `store`?
besom.toml:5:7: error: `ttl` is a duration and requires a unit
  5 | ttl = 15
    |       ^^ write "15s" for seconds
besom.toml:6:1: error: unknown key `renw` in [lease]
  6 | renw = "**"
    | ^^^^ did you mean `renew`?
besom.toml:9:10: error: there is no plugin `sweap`
  9 | plugin = "sweap"
    |          ^^^^^^^ did you mean `sweep`?
besom.toml:10:17: error: this never runs: no date has day 30 in month 2
  10 | schedule = "0 0 30 2 *"
     |                 ^^^^^^ use `L` for the last day of a month, or a day that the month has
besom.toml:11:11: error: `skipp` is not a valid value for `overlap`
  11 | overlap = "skipp"
     |           ^^^^^^^ did you mean "skip"?
besom.toml:14:10: error: the plugin `mine.wasm` requests to read, delete `changes`, which is not granted
  14 | plugin = "mine.wasm"
     |          ^^^^^^^^^^^ write changes = ["read", "delete"] in [tasks.two.grants]
besom.toml:14:10: error: the plugin `mine.wasm` emits to `doc-changed`, which is not granted
  14 | plugin = "mine.wasm"
     |          ^^^^^^^^^^^ add it to topics in [tasks.two.grants]
besom.toml:14:10: error: the plugin `mine.wasm` requests the lane `heavy`, which is not granted
  14 | plugin = "mine.wasm"
     |          ^^^^^^^^^^^ write lane = "heavy" in [tasks.two]
besom.toml:15:13: error: unknown time zone `Europe/Berlim`
  15 | timezone = "Europe/Berlim"
     |             ^^^^^^^^^^^^^ write an IANA name such as `Europe/Berlin`, or `UTC`
besom.toml:16:14: error: unknown key `min_change` in [tasks.two.settings]
  16 | settings = { min_change = *, threshold = "1s" }
     |              ^^^^^^^^^^ did you mean `min_changes`?
besom.toml:16:42: error: 1s is below the minimum of `threshold`
  16 | settings = { min_change = 3, threshold = "1s" }
     |                                          ^^^^ the minimum is 1m
besom.toml:17:25: error: `raed` is not an operation
  17 | grants = { documents = ["raed"], chnges = ["read"] }
     |                         ^^^^^^ did you mean `read`?
besom.toml:17:34: error: the grant is for the collection `chnges`, which is not mapped
  17 | grants = { documents = ["raed"], chnges = ["read"] }
     |                                  ^^^^^^ did you mean `changes`?
"#,
    );
}

#[test]
fn syntax_errors_are_all_named_and_their_lines_are_not_judged_twice() {
    check(
        "[store\npath = \"a\"\n[lease]\nttl = 15s\nrenew = \"5s\"\n",
        r#"
besom.toml:1:7: error: unclosed table, expected `]`
  1 | [store
    |       ^ close it on the same line
besom.toml:4:7: error: string values must be quoted, expected literal string
  4 | ttl = 15s
    |       ^^^ put the string in double quotes
"#,
    );
    check(
        "[lease]\nttl = \"15s\"\nttl = \"16s\"\n",
        r#"
besom.toml:3:1: error: duplicate key
  3 | ttl = "16s"
    | ^^^ remove one of them
"#,
    );
    check(
        "[lease]\nttl = \"15s\"\nrenew = \"5s\"\n[lease]\nttl = \"16s\"\nrenew = \"5s\"\n[host]\n\
         batch_items = 1\nbatch_items = 2\n",
        r#"
besom.toml:4:2: error: duplicate key
  4 | [lease]
    |  ^^^^^ remove one of them
besom.toml:9:1: error: duplicate key
  9 | batch_items = 2
    | ^^^^^^^^^^^ remove one of them
"#,
    );
}

#[test]
fn wrong_types_and_bounds_are_named_with_what_would_be_right() {
    check(
        "store = \"x.db\"\n[host]\nbatch_items = 0\nbatch_bytes = \"16MB\"\nguest_threads = \"two\"\ntimers_ahead = -1\n[node]\nname = 7\n",
        r#"
besom.toml:1:9: error: `store` must be a table, not a string
  1 | store = "x.db"
    |         ^^^^^^ write [store]
besom.toml:3:15: error: 0 is below the minimum
  3 | batch_items = 0
    |               ^ the minimum is 1
besom.toml:4:15: error: `16MB` is not a size
  4 | batch_bytes = "16MB"
    |               ^^^^^^ write a number of bytes, or an integer and a unit, such as "64KiB", "16MiB" or "1GiB"
besom.toml:5:17: error: `guest_threads` must be an integer, not a string
  5 | guest_threads = "two"
    |                 ^^^^^ write, for example, guest_threads = 0
besom.toml:6:16: error: `timers_ahead` must not be negative
  6 | timers_ahead = -1
    |                ^^ write 0 or more
besom.toml:8:8: error: `name` must be a string, not an integer
  8 | name = 7
    |        ^ write, for example, name = "text"
"#,
    );
    check(
        "[activity]\ntcp = \"localhost\"\nidle_timeout = 300\n[lease]\nttl = 2024-01-01\n",
        r#"
besom.toml:2:7: error: `localhost` is not an address and a port
  2 | tcp = "localhost"
    |       ^^^^^^^^^^^ write, for example, "127.0.0.1:7350"
besom.toml:3:16: error: `idle_timeout` is a duration and requires a unit
  3 | idle_timeout = 300
    |                ^^^ write "300s" for seconds
besom.toml:5:7: error: `ttl` must be a duration such as "30s", not a date or time
  5 | ttl = 2024-01-01
    |       ^^^^^^^^^^ write, for example, ttl = "15s"
"#,
    );
    check(
        "[lease]\nttl = \"10s\"\n",
        r#"
besom.toml:2:7: error: lease.renew is 5s, which is more than a third of lease.ttl (10s)
  2 | ttl = "10s"
    |       ^^^^^ set lease.renew to at most 3333ms
"#,
    );
    check(
        "[lease]\nttl = 99999999999999999999\n",
        r#"
besom.toml:2:7: error: the number does not fit into 64 bits
  2 | ttl = 99999999999999999999
    |       ^^^^^^^^^^^^^^^^^^^^ write a smaller number
"#,
    );
}

#[test]
fn a_setting_that_is_a_choice_is_one_of_its_words() {
    let task = |mode: &str| {
        format!("[tasks.a]\nplugin = \"choosy\"\n[tasks.a.settings]\nmode = \"{mode}\"\n")
    };
    check(
        &task("trim"),
        r#"
besom.toml:4:8: error: "trim" is not a valid value for `mode`
  4 | mode = "trim"
    |        ^^^^^^ write "merge" or "reset"
"#,
    );
    let chosen = load(&task("reset")).unwrap();
    let setting = chosen.tasks["a"].settings.iter().find(|field| field.name == "mode");
    assert_eq!(setting.unwrap().value, Value::Text("reset".into()));
}

#[test]
fn a_list_of_texts_is_an_array_of_strings() {
    let task = |settings: &str| {
        format!("[tasks.a]\nplugin = \"choosy\"\n[tasks.a.settings]\n{settings}\n")
    };
    check(
        &task("key = \"id\"\norders = [\"asc\", \"down\"]"),
        r#"
besom.toml:4:7: error: `key` must be an array of strings, not a string
  4 | key = "id"
    |       ^^^^ write, for example, key = ["text", "text"]
besom.toml:5:18: error: "down" is not a valid value for `orders`
  5 | orders = ["asc", "down"]
    |                  ^^^^^^ write "asc" or "desc"
"#,
    );
    check(
        &task("key = [\"id\", 7]"),
        r#"
besom.toml:4:14: error: an entry of `key` must be a string, not an integer
  4 | key = ["id", 7]
    |              ^ write, for example, key = ["text", "text"]
"#,
    );
    let read = load(&task("key = [\"a\", \"b\\\"\"]\norders = []")).unwrap();
    let value = |name: &str| {
        let field = read.tasks["a"].settings.iter().find(|field| field.name == name);
        field.unwrap().value.clone()
    };
    assert_eq!(value("key"), Value::Json(r#"["a","b\""]"#.into()));
    assert_eq!(value("orders"), Value::Json("[]".into()));
    let default = load("[tasks.a]\nplugin = \"choosy\"\n").unwrap();
    assert!(default.tasks["a"].settings.contains(&Field::new("key", Value::Json("[]".into()))));
}

#[test]
fn a_schedule_is_judged_at_the_character() {
    check(
        "[tasks.a]\nplugin = \"sweep\"\nschedule = \"0 24 * * *\"\n",
        r#"
besom.toml:3:15: error: `24` is out of bounds
  3 | schedule = "0 24 * * *"
    |               ^^ the hour is 0 to 23
"#,
    );
    check(
        "[tasks.a]\nplugin = \"sweep\"\nschedule = '0 0 1--100000000 * *'\n",
        r#"
besom.toml:3:17: error: `1--100000000` is not a range
  3 | schedule = '0 0 1--100000000 * *'
    |                 ^^^^^^^^^^^^ write it as `1-31`
"#,
    );
    check(
        "[tasks.a]\nplugin = \"sweep\"\nschedule = \"* * * * * * *\"\n",
        r#"
besom.toml:3:25: error: a seventh field (a year) is not supported
  3 | schedule = "* * * * * * *"
    |                         ^ use five fields (minute to weekday), or six with the seconds first
"#,
    );
    check(
        "[tasks.a]\nplugin = \"sweep\"\nschedule = \"0 3 * * *\"\nhorizon = \"1h\"\n",
        r#"
besom.toml:4:11: error: due items are planned 1h ahead, but 1d may pass between two slots
  4 | horizon = "1h"
    |           ^^^^ use a longer horizon, or a schedule that runs more often
"#,
    );
}

#[test]
fn a_task_without_a_plugin_or_a_setting_it_needs_is_refused() {
    check(
        "[tasks.a]\nschedule = \"@hourly\"\n",
        r#"
besom.toml:1:8: error: the task `a` names no plugin
  1 | [tasks.a]
    |        ^ add, for example, plugin = "compaction"
"#,
    );
    check(
        "[tasks.\"a b\"]\nplugin = \"needy\"\n",
        r#"
besom.toml:1:8: error: `a b` is not a valid name for a task
  1 | [tasks."a b"]
    |        ^^^^^ use letters, digits, `-`, `_` and `.`, at most 64
besom.toml:1:8: error: the plugin `sweep` requires the setting `bucket`: a doc
  1 | [tasks."a b"]
    |        ^^^^^ add bucket = "text" to [tasks."a b".settings]
"#,
    );
    check(
        "[tasks.\"a.b\"]\nplugin = \"needy\"\n",
        r#"
besom.toml:1:8: error: the plugin `sweep` requires the setting `bucket`: a doc
  1 | [tasks."a.b"]
    |        ^^^^^ add bucket = "text" to [tasks."a.b".settings]
"#,
    );
    check(
        "[tasks.a]\nplugin = \"mine.wasm\"\nlane = \"heavy\"\n",
        r#"
besom.toml:2:10: error: the plugin `mine.wasm` requests grants, but the task has none
  2 | plugin = "mine.wasm"
    |          ^^^^^^^^^^^ add [tasks.a.grants] with changes = ["read", "delete"], documents = ["read"], topics = ["doc-changed"]
"#,
    );
    check(
        "[tasks.a]\nplugin = \"sweep\"\ncatch_up_max = 3\n[tasks.a.retry]\nbackoff = \"1h\"\n[tasks.a.limits]\nfuel = 1\n",
        r#"
besom.toml:3:16: warning: `catch_up_max` has no effect with catch_up = "coalesce"
  3 | catch_up_max = 3
    |                ^ write catch_up = "all" or remove it
besom.toml:5:11: error: `backoff` is longer than `backoff_max`
  5 | backoff = "1h"
    |           ^^^^ raise backoff_max
besom.toml:7:8: error: 1 is below the minimum
  7 | fuel = 1
    |        ^ the minimum is 10000; 0 means no limit
"#,
    );
}

#[test]
fn a_file_that_is_no_text_is_named_as_a_whole_or_at_the_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("besom.toml");
    let said = |bytes: Option<&[u8]>| {
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).expect("written");
        }
        let problems = read(&path, &Overrides::default()).expect_err("refused").to_string();
        problems.replace(&path.display().to_string(), "besom.toml")
    };
    assert_eq!(
        said(None),
        "besom.toml: error: the file does not exist\n  fix: create it with `besom config init`, or name another file with --config FILE"
    );
    assert_eq!(
        said(Some(b"# fine\nname = \"caf\xe9\"\n")),
        "besom.toml:2:12: error: byte 0xe9 is not UTF-8\n  2 | name = \"caf\u{fffd}\"\n    |            ^ save the file as UTF-8"
    );
    let huge = vec![b'#'; usize::try_from(FILE_BYTES_MAX).expect("small") + 1];
    assert_eq!(
        said(Some(&huge)),
        "besom.toml: error: the file is larger than 1048576 bytes\n  fix: check that --config names a configuration"
    );
    assert!(said(Some(b"\xff")).starts_with("besom.toml:1:1: error: byte 0xff"));
    for (bytes, words) in [
        (&b"\xff\xfe[\0"[..], "the file is UTF-16\n  fix: save the file as UTF-8"),
        (b"SQLite format 3\0", "the file is no text: it contains NUL bytes"),
    ] {
        assert!(said(Some(bytes)).contains(words), "{}", said(Some(bytes)));
    }
    let directory = read(dir.path(), &Overrides::default()).expect_err("refused").to_string();
    assert!(directory.contains("this is a directory\n  fix: name a regular file"), "{directory}");
}

/// A valid file with lines removed, doubled, changed and joined: there is no panic, and every
/// diagnostic has text of the file. `BESOM_FUZZ_SEEDS` sets the number of seeds.
#[test]
fn any_file_is_taken_or_its_faults_are_named() {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    const TASKS: &str = "\
[tasks.sweep]
plugin = \"sweep\"
schedule = \"@every 5m\"
timezone = \"Europe/Berlin\"
limits = { wall = \"1s\", memory_bytes = \"64MiB\" }
[tasks.sweep.settings]
min_changes = 7
threshold = \"2d\"
[tasks.sweep.grants]
documents = [\"read\"]
changes = { ops = [\"read\", \"delete\"], columns = [\"doc_id\"] }
topics = [\"doc-changed\"]
[collections.notes]
table = \"app.notes\"
tenant = \"org\"
key = [\"id\"]
columns = { id = \"text\", at = { type = \"timestamp\", encoding = \"millis\" } }
indexes = { by_at = [\"at\"] }
anchor = { collection = \"documents\", columns = [\"id\"] }
";
    let whole = template(&template::Template::default().with_built_in()) + TASKS;
    let lines: Vec<&str> = whole.lines().collect();
    let seeds = std::env::var("BESOM_FUZZ_SEEDS").map_or(300, |n| n.parse().expect("a number"));
    for seed in 0..seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bent: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        for _ in 0..random.random_range(1..10) {
            let at = random.random_range(0..bent.len());
            match random.random_range(0..6) {
                0 => drop(bent.remove(at)),
                1 => bent.insert(at, bent[at].clone()),
                2 => bent[at] = bent[at].trim_start_matches(['#', ' ']).to_owned(),
                3 => {
                    let to = random.random_range(0..bent.len());
                    bent.swap(at, to);
                }
                4 => {
                    let line = bent[at].clone();
                    let cut = line.floor_char_boundary(random.random_range(0..=line.len()));
                    bent[at] = format!(
                        "{}{}",
                        &line[..cut],
                        ["=", "\"", "[", "\u{0}", "é", "9e9"][seed as usize % 6]
                    );
                }
                _ => {
                    let line = bent[at].clone();
                    let value =
                        ["-1", "\"\"", "[]", "{}", "true", "1979-05-27", "\"99999999d\"", "nan"];
                    let (name, _) = line.split_once('=').unwrap_or((&line, ""));
                    bent[at] = format!("{name} = {}", value[random.random_range(0..value.len())]);
                }
            }
        }
        if let Err(problems) = load(&bent.join("\n")) {
            assert!(!problems.0.is_empty(), "seed {seed}");
            let named = |problem: &Diagnostic| problem.to_string().starts_with("besom.toml");
            assert!(problems.0.iter().all(named), "seed {seed}: {problems}");
        }
    }
}

#[test]
fn a_key_of_a_task_in_the_table_of_retention_is_sent_to_its_task() {
    let parsed = RawConfig::parse(
        "[retention]\nkeep_removed = \"1d\"\n",
        Path::new("besom.toml"),
        &Overrides::default(),
    );
    let said: Vec<String> = parsed.problems().iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("unknown key `keep_removed` in [retention]"), "{said:?}");
    assert!(said[0].contains("set for each task: write it in [tasks.NAME]"), "{said:?}");
}

/// What follows from a syntax error in its line is no error of its own.
#[test]
fn a_quote_that_ends_a_text_too_early_is_one_error() {
    check(
        "[tasks.a]\nplugin = \"choosy\"\nsettings = { mode = \"state = \"x\"\" }\n",
        r#"
besom.toml:3:31: error: missing comma between key-value pairs, expected `,`
  3 | settings = { mode = "state = "x"" }
    |                               ^ write a comma; if this belongs to the text before it, that text ended at its second quote: within "...", write 'single quotes', as in where = "state = 'closed'"
"#,
    );
    check(
        "[tasks]\nplugin = \"choosy\"\nschedule = \"@daily\"\n",
        r#"
besom.toml:1:2: error: a task has a name, as in [tasks.old-sessions]
  1 | [tasks]
    |  ^^^^^ write [tasks.NAME]
"#,
    );
}

#[test]
fn a_key_in_another_table_than_its_own_is_sent_there() {
    let task = |text: &str| format!("[tasks.a]\nplugin = \"needy\"\n{text}");
    let bucket = "settings = { bucket = \"b\" }\n";
    for (text, fix) in [
        ("path = \"a.db\"\n".to_owned(), "write it in [store]"),
        ("[store]\nskew_max = \"5s\"\n".into(), "write it in [clock]"),
        ("[host]\nsocket = \"s\"\n".into(), "the section that is meant: [activity], [api]"),
        ("schedule = \"@daily\"\n".into(), "for each task: write it in [tasks.NAME]"),
        ("[retry]\nbackoff = \"5s\"\n".into(), "for each task: write [tasks.NAME.retry]"),
        (task(&format!("wall = \"5s\"\n{bucket}")), "write it in [tasks.a.limits]"),
        (task(&format!("{bucket}limits = {{ backoff = \"5s\" }}")), "write it in [tasks.a.retry]"),
        (task("settings = { bucket = \"b\", schedule = \"@daily\" }"), "write it in [tasks.a]"),
        // The setting is required, and there.
        (task("bucket = \"b\"\n"), "write it in [tasks.a.settings]"),
        (task(&format!("min_changes = 3\n{bucket}")), "write it in [tasks.a.settings]"),
    ] {
        let problems = load(&text).expect_err("refused").0;
        let fixes: Vec<_> = problems.iter().filter_map(|one| one.fix.as_deref()).collect();
        assert!(fixes.len() == 1 && fixes[0].contains(fix), "{text}: {fixes:?}");
    }
}

#[test]
fn a_key_of_an_earlier_version_is_called_by_its_new_name() {
    let text = "[tasks.a]\nplugin = \"sweep\"\nundo_retention = \"1d\"\n";
    let parsed = RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default());
    let said: Vec<String> = parsed.problems().iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("unknown key `undo_retention`"), "{said:?}");
    assert!(said[0].contains("it is called `keep_removed` now"), "{said:?}");
}
