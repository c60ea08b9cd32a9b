//! Errors are reported at their places, all at once; valid values have their documented meaning.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use besom_core::collection::{Encoding, Operations, all_dependants};
use besom_core::value::{Field, Kind, Value};

use super::*;
use besom_ports::guests::{CollectionRequest, Lane, Setting, SettingKind};
use besom_ports::store::MappingFault;
use besom_ports::task::{CatchUp, Overlap};
use besom_product::model::default_collections;

mod activity;
mod cluster;
mod defaults;
mod delivery;

fn setting(name: &str, kind: SettingKind, default: Option<Value>) -> Setting {
    let (minimum, maximum, choices) = (None, None, vec![]);
    Setting { name: name.into(), kind, default, minimum, maximum, choices, doc: "a doc".into() }
}

fn manifest() -> Manifest {
    let request = |collection: &str, read, delete, columns: &[&str]| CollectionRequest {
        collection: collection.into(),
        operations: Operations { read, delete, ..Operations::default() },
        columns: columns.iter().map(|c| (*c).to_owned()).collect(),
        ..CollectionRequest::default()
    };
    Manifest {
        name: "sweep".into(),
        version: "1.0.0".into(),
        doc: String::new(),
        settings: vec![
            Setting {
                minimum: Some(Value::Integer(1)),
                maximum: Some(Value::Integer(1000)),
                ..setting("min_changes", SettingKind::Integer, Some(Value::Integer(100)))
            },
            Setting {
                minimum: Some(Value::Integer(60_000)),
                ..setting("threshold", SettingKind::Duration, Some(Value::Integer(86_400_000)))
            },
        ],
        collections: vec![
            request("documents", true, false, &["doc_id"]),
            request("changes", true, true, &[]),
        ],
        topics: vec!["doc-changed".into()],
        activity: false,
        per_tenant: true,
        lane: Lane::Heavy,
        extra: vec![Field::new("projects_per_run", Value::Integer(7))],
    }
}

fn plugin(name: &str) -> Result<Plugin, PluginFault> {
    let found = |manifest, built_in| {
        Ok(Plugin { manifest: Arc::new(manifest), digest: format!("digest of {name}"), built_in })
    };
    match name {
        "sweep" | "compaction" => found(manifest(), true),
        "mine.wasm" => found(manifest(), false),
        "greedy.wasm" => found(greedy(), false),
        "pinned.wasm" => {
            Ok(Plugin { manifest: Arc::new(manifest()), digest: "ab".repeat(32), built_in: false })
        }
        "choosy" => {
            let mut manifest = manifest();
            let merge = Some(Value::Text("merge".into()));
            manifest.settings.push(setting("mode", SettingKind::Text, merge));
            let mode = manifest.settings.last_mut().expect("it was added");
            mode.choices = vec!["merge".into(), "reset".into()];
            let none = Some(Value::Json("[]".into()));
            manifest.settings.push(setting("key", SettingKind::Texts, none.clone()));
            manifest.settings.push(Setting {
                choices: vec!["asc".into(), "desc".into()],
                ..setting("orders", SettingKind::Texts, none)
            });
            found(manifest, true)
        }
        "timely" => {
            let mut manifest = manifest();
            manifest.lane = Lane::Due;
            let limit = |name, ms| setting(name, SettingKind::Duration, Some(Value::Integer(ms)));
            manifest.settings.push(limit("limit", 604_800_000));
            manifest.settings.push(limit("limit_min", 0));
            found(manifest, true)
        }
        "needy" => {
            let mut manifest = manifest();
            manifest.settings.push(setting("bucket", SettingKind::Text, None));
            found(manifest, true)
        }
        "refused.wasm" => {
            Err(PluginFault { refused: Some("ab".repeat(32)), ..PluginFault::new("", "") })
        }
        "unsigned.wasm" => {
            Err(PluginFault { untrusted: true, ..PluginFault::new("it is not signed", "sign it") })
        }
        _ => Err(PluginFault::new(format!("there is no plugin `{name}`"), "did you mean `sweep`?")),
    }
}

fn load_with(text: &str, overrides: &Overrides) -> Result<Config, Problems> {
    RawConfig::parse(text, Path::new("besom.toml"), overrides)
        .resolve(&plugin, &default_collections())
        .finish()
}

fn load(text: &str) -> Result<Config, Problems> {
    load_with(text, &Overrides::default())
}

/// Every diagnostic, as it is printed.
#[track_caller]
fn check(text: &str, expected: &str) {
    let problems = match load(text) {
        Ok(config) => Problems(config.warnings),
        Err(problems) => problems,
    };
    same(&problems.to_string(), expected);
}

#[track_caller]
fn same(actual: &str, expected: &str) {
    assert_eq!(actual, expected.trim_matches('\n'));
}

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
fn the_column_of_the_tenant_is_nobodys_to_write() {
    check(
        "\
[collections.notes]
tenant = \"org\"
key = [\"id\"]
columns = { id = \"text\", org = \"text\" }
",
        r#"
besom.toml:4:32: error: `org` is the tenant column: a plugin could move rows to another tenant by writing it
  4 | columns = { id = "text", org = "text" }
    |                                ^^^^^^ remove it from the columns: items and rows already carry their tenant
"#,
    );
}

#[test]
fn a_mapping_is_judged_by_its_own_names() {
    check(
        "\
[collections.notes]
key = [\"id\"]
columns = { note_id = \"text\", at = { type = \"timestamp\", encoding = \"raw\" }, n = \"int\" }
indexes = { by_at = [\"att\"] }
anchor = { collection = \"document\", columns = [\"note_id\"] }
[collections.topics]
",
        r#"
besom.toml:2:8: error: the key names the column `id`, which is not mapped
  2 | key = ["id"]
    |        ^^^^ available: `at`, `note_id`
besom.toml:3:69: error: `raw` is not an encoding of this type
  3 | columns = { note_id = "text", at = { type = "timestamp", encoding = "raw" }, n = "int" }
    |                                                                     ^^^^^ available: `native`, `seconds`, `millis`, `rfc3339`, `rfc3339_millis`, `rfc3339_micros`, `datetime`, `datetime3`, `datetime6`
besom.toml:3:82: error: `int` is not a column type
  3 | columns = { note_id = "text", at = { type = "timestamp", encoding = "raw" }, n = "int" }
    |                                                                                  ^^^^^ available: `bool`, `integer`, `float`, `decimal`, `text`, `bytes`, `timestamp`, `date`, `uuid`, `json`
besom.toml:4:22: error: the index names the column `att`, which is not mapped
  4 | indexes = { by_at = ["att"] }
    |                      ^^^^^ did you mean `at`?
besom.toml:5:10: error: the anchor's collection `document` is not mapped
  5 | anchor = { collection = "document", columns = ["note_id"] }
    |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ did you mean `documents`?
besom.toml:6:14: error: `topics` is a reserved name
  6 | [collections.topics]
    |              ^^^^^^ choose another name for the collection: `topics` has a special meaning in grants
besom.toml:6:14: error: the collection `topics` has no columns
  6 | [collections.topics]
    |              ^^^^^^ add columns = { NAME = "type" }
besom.toml:6:14: error: the collection `topics` has no key
  6 | [collections.topics]
    |              ^^^^^^ add key = ["column"]
"#,
    );
    check(
        "[collections.documents]\nkey = [\"id\"]\ncolumns = { id = \"text\" }\n[tasks.a]\nplugin = \"sweep\"\n",
        r#"
besom.toml:5:10: error: the plugin `sweep` requests the column `documents.doc_id`, which is not mapped
  5 | plugin = "sweep"
    |          ^^^^^^^ add it to [collections.documents.columns]
"#,
    );
}

#[test]
fn a_url_is_no_path_and_its_password_is_not_shown() {
    check(
        "[store]\npath = \"postgres://u:pw@h/d\"\n",
        r#"
besom.toml:2:8: error: store.path is a URL, not a file
  2 | path = "postgres://u:**@h/d"
    |        ^^^^^^^^^^^^^^^^^^^^^ set store.url to it instead
"#,
    );
}

#[test]
fn the_environment_and_flags_are_judged_like_the_file() {
    let overrides = Overrides {
        variables: vec![
            ("BESOM_LEASE_TTLL".into(), "15s".into()),
            ("BESOM_LEASE_RENEW".into(), "five".into()),
            ("BESOM_SHARED_DATA".into(), "../data".into()),
        ],
        flags: vec![
            "lease.ttl=1ms".into(),
            "store.pth=x".into(),
            "nothing".into(),
            "tasks.a.lane=due".into(),
        ],
    };
    let problems = load_with("", &overrides).err().map(|p| p.to_string());
    same(
        &problems.unwrap_or_default(),
        r#"
environment: error: unknown variable `BESOM_LEASE_TTLL`
  BESOM_LEASE_TTLL=15s
  fix: did you mean `BESOM_LEASE_TTL`?
environment: error: `five` is not a duration
  BESOM_LEASE_RENEW=five
  fix: write an integer and a unit, such as "250ms", "30s", "15m", "24h" or "7d"
flags: error: 1ms is below the minimum
  --set lease.ttl=1ms
  fix: the minimum is 1s
flags: error: unknown key `store.pth`
  --set store.pth=x
  fix: did you mean `store.path`?
flags: error: the value is missing
  --set nothing
  fix: write SECTION.KEY=VALUE
flags: error: `tasks.a.lane` is not a key of a section
  --set tasks.a.lane=due
  fix: set a key of the sections store, node, clock, lease, activity, api, host, retention, runtime, plugins, coordination, ring, delivery; all others, such as tasks, are set in the file
"#,
    );
}

/// A line of the file that they override is not at fault.
#[test]
fn a_value_above_the_file_is_judged_at_its_own_place() {
    let text = "[store]\nurl = \"postgres://u@h/d\"\n[lease]\nttl = \"15s\"\nrenew = \"5s\"\n";
    let overrides = Overrides {
        variables: vec![("BESOM_LEASE_RENEW".into(), "14s".into())],
        flags: vec!["store.url=postgres://u:pw@h/d".into(), "store.path=a.db".into()],
    };
    let problems = load_with(text, &overrides).err().map(|p| p.to_string());
    same(
        &problems.unwrap_or_default(),
        r#"
environment: error: lease.renew is 14s, which is more than a third of lease.ttl (15s)
  BESOM_LEASE_RENEW=14s
  fix: set lease.renew to at most 5s
flags: error: store.path and store.url are both set, but a store is one database
  --set store.url=postgres://u:**@h/d
  fix: remove store.path, or this
flags: error: store.url contains a password
  --set store.url=postgres://u:**@h/d
  fix: put the password into a file (mode 0600) and set store.password_file to it; write an `@` after the host as %40
"#,
    );
}

#[test]
fn flags_are_above_the_environment_which_is_above_the_file() {
    let overrides = |flags: &[&str]| Overrides {
        variables: vec![("BESOM_STORE_PATH".into(), "env.db".into())],
        flags: flags.iter().map(|f| (*f).to_owned()).collect(),
    };
    let path = |overrides| {
        let config = load_with("[store]\npath = \"file.db\"\n", &overrides).expect("valid");
        config.store.path.clone()
    };
    assert_eq!(path(Overrides::default()), Path::new("file.db"));
    assert_eq!(path(overrides(&[])), Path::new("env.db"));
    assert_eq!(path(overrides(&["store.path=flag.db"])), Path::new("flag.db"));
}

/// A store is one database: its two keys are one value.
#[test]
fn a_store_of_one_kind_replaces_one_of_the_other_that_is_below_it() {
    fn store(text: &str, variables: &[(&str, &str)], flags: &[&str]) -> Result<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let overrides = Overrides {
            variables: variables.iter().map(owned).collect(),
            flags: flags.iter().map(|f| (*f).to_owned()).collect(),
        };
        let config = load_with(text, &overrides).map_err(|problems| problems.to_string())?;
        let path = config.store.path.display().to_string();
        Ok(config.store.url.clone().unwrap_or(path))
    }
    let (file, server) = ("[store]\npath = \"file.db\"\n", "[store]\nurl = \"postgres://u@h/d\"\n");
    let url = "postgres://u@h/other";
    let (by_flag, by_variable) = (format!("store.url={url}"), [("BESOM_STORE_URL", url)]);
    assert_eq!(store(file, &[], &[&by_flag]).as_deref(), Ok(url));
    assert_eq!(store(file, &by_variable, &[]).as_deref(), Ok(url));
    assert_eq!(store(server, &[], &["store.path=a.db"]).as_deref(), Ok("a.db"));
    assert_eq!(store(file, &by_variable, &["store.path=a.db"]).as_deref(), Ok("a.db"));
    assert_eq!(store(file, &[("BESOM_STORE_PATH", "a.db")], &[&by_flag]).as_deref(), Ok(url));
    for (text, flags) in [
        (format!("{file}url = \"{url}\"\n"), vec![]),
        (String::new(), vec![by_flag.as_str(), "store.path=a.db"]),
    ] {
        let said = store(&text, &[], &flags).expect_err("two databases");
        assert!(said.contains("store.path and store.url are both set"), "{said}");
    }
}

#[test]
fn an_empty_file_is_the_defaults_and_runs_nothing() {
    for text in ["", "\u{feff}", "\r\n", "# nothing\n"] {
        let config = load(text).expect("valid");
        assert!(config.tasks.is_empty());
        assert_eq!(config.store.path, Path::new("besom.db"));
        assert_eq!(config.activity.socket, Path::new("besom-activity.sock"));
        assert_eq!(config.lease.ttl, Duration::from_secs(15));
        let activity = besom_core::activity::Timeouts {
            idle: config.activity.idle_timeout,
            heartbeat: config.activity.heartbeat_timeout,
        };
        assert_eq!(activity, besom_core::activity::Timeouts::default());
        assert_eq!(config.retention.history, Duration::from_secs(30 * 86_400));
        assert_eq!(*config.collections, default_collections());
    }
}

#[test]
fn paths_are_meant_from_the_directory_of_the_file() {
    let parsed = RawConfig::parse(
        "[store]\npath = \"data/b.db\"\n[api]\nsocket = \"/run/b.sock\"\n",
        Path::new("/etc/besom/besom.toml"),
        &Overrides::default(),
    );
    let config = parsed.outline(&default_collections()).finish().expect("valid");
    assert_eq!(config.store.path, Path::new("/etc/besom/data/b.db"));
    assert_eq!(config.activity.socket, Path::new("/etc/besom/data/besom-activity.sock"));
    assert_eq!(config.api.socket, Path::new("/run/b.sock"));
    assert_eq!(config.plugins.dir, Path::new("/etc/besom/plugins.d"));
}

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

const LETTERS: &str = "\
[collections.letters]
key = [\"id\"]
columns = { id = \"integer\" }
";

#[test]
fn a_plugin_serves_another_table_under_its_own_name_for_it() {
    let text = format!(
        "{LETTERS}
[tasks.a]
plugin = \"sweep\"
[tasks.b]
plugin = \"mine.wasm\"
lane = \"heavy\"
collections.changes = \"letters\"
grants = {{ documents = [\"read\"], letters = [\"read\", \"delete\"], topics = [\"doc-changed\"] }}
"
    );
    let config = load(&text).expect("valid");
    let (a, b) = (&config.tasks["a"], &config.tasks["b"]);
    assert!(a.aliases.is_empty() && a.grants.contains_key("changes"));
    assert_eq!(b.aliases["changes"], "letters");
    assert!(b.grants["letters"].delete && !b.grants.contains_key("changes"));
}

#[test]
fn a_name_that_stands_for_no_collection_of_its_own_is_refused_at_its_place() {
    check(
        &format!(
            "{LETTERS}[tasks.a]\nplugin = \"sweep\"\n[tasks.a.collections]\nchange = \"letters\"\n"
        ),
        r#"
besom.toml:7:1: error: the plugin `sweep` does not request a collection `change`
  7 | change = "letters"
    | ^^^^^^ did you mean `changes`?
"#,
    );
    check(
        "[tasks.a]\nplugin = \"sweep\"\n[tasks.a.collections]\nchanges = \"leters\"\n",
        r#"
besom.toml:4:11: error: the collection `leters` is not mapped
  4 | changes = "leters"
    |           ^^^^^^^^ add [collections.leters]
"#,
    );
    check(
        "[tasks.a]\nplugin = \"sweep\"\n[tasks.a.collections]\nchanges = \"documents\"\n",
        r#"
besom.toml:4:11: error: `documents` and `changes` both refer to the collection `documents`
  4 | changes = "documents"
    |           ^^^^^^^^^^^ use a different collection for each name
"#,
    );
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

/// A third party's plugin that requests everything.
fn greedy() -> Manifest {
    Manifest { activity: true, per_tenant: false, ..manifest() }
}

/// With the grant alone, the task would work on another table than the one that is meant.
#[test]
fn a_forgotten_name_of_a_collection_is_offered_before_another_grant() {
    let text = "[collections.logs]\nkey = [\"id\"]\n\
                columns = { id = \"integer\", state = \"text\" }\n\
                [tasks.a]\nplugin = \"greedy.wasm\"\nlane = \"heavy\"\n\
                [tasks.a.grants]\ndocuments = [\"read\"]\nlogs = [\"read\", \"delete\"]\n";
    let said = load(text).expect_err("refused").to_string();
    let alias = "if the plugin's `changes` is your collection `logs`, write \
                 collections = { changes = \"logs\" } in [tasks.a]; otherwise";
    assert!(said.contains(&format!("{alias} write changes = [\"read\", \"delete\"]")), "{said}");
    assert!(said.contains(&format!("{alias} remove the grant")), "{said}");
}

#[test]
fn all_that_a_plugin_of_somebody_else_asks_for_is_granted_by_its_name() {
    let tenants = "[collections.changes]\ntenant = \"t\"\nkey = [\"id\"]\n\
                   columns = { id = \"integer\", state = \"text\" }\n";
    let task = |lane: &str, grants: &str| {
        format!(
            "{tenants}[tasks.a]\nplugin = \"greedy.wasm\"\n{lane}[tasks.a.grants]\n\
             documents = [\"read\"]\ntopics = [\"doc-changed\"]\n{grants}\n"
        )
    };
    let (lane, changes) = ("lane = \"heavy\"\n", "changes = [\"read\", \"delete\"]\n");
    let all = format!("{changes}activity = true\nall_tenants = true");
    let config = load(&task(lane, &all)).unwrap_or_else(|problems| panic!("{problems}"));
    let a = &config.tasks["a"];
    assert!(a.activity && a.all_tenants && a.columns.is_empty());
    let some = all.replace(changes, "changes = { ops = [\"read\", \"delete\"], columns = [] }\n");
    let config = load(&task(lane, &some)).unwrap_or_else(|problems| panic!("{problems}"));
    let columns = &config.tasks["a"].columns;
    assert_eq!(columns["changes"], ["id"], "the key is known to whoever may name the row");
    for (lane, grants, words) in [
        ("", all.clone(), "requests the lane `heavy`, which is not granted"),
        ("lane = \"due\"\n", all.clone(), "works in the lane `heavy`"),
        (lane, all.replace("activity = true", ""), "reads activity, which is not granted"),
        (lane, all.replace("all_tenants = true", ""), "scan all tenants at once, which is not"),
        (lane, all.replace("activity = true", "activity = 1"), "`activity` must be true or false"),
        (lane, some.replace("[]", "[\"stat\"]"), "`stat` is not a column of `changes`"),
        (lane, some.replace("ops = [\"read\", \"delete\"], ", ""), "names no operations"),
        (lane, some.replace("ops", "opps"), "unknown key `opps`"),
    ] {
        let said = load(&task(lane, &grants)).expect_err(words).to_string();
        assert!(said.contains(words), "{said}");
    }
    let said = load("[collections.activity]\nkey = [\"a\"]\ncolumns = { a = \"text\" }\n");
    assert!(
        said.expect_err("a reserved word").to_string().contains("`activity` is a reserved name")
    );
}

#[test]
fn another_file_than_the_pinned_one_is_refused() {
    let digest = "ab".repeat(32);
    let task = |pin: &str| {
        format!(
            "[tasks.a]\nplugin = \"pinned.wasm\"\nlane = \"heavy\"\n{pin}[tasks.a.grants]\n\
             documents = [\"read\"]\nchanges = [\"read\", \"delete\"]\ntopics = [\"doc-changed\"]\n"
        )
    };
    let pin = |text: &str| format!("sha256 = \"{text}\"\n");
    let required = "[plugins]\nrequire_pin = true\n";
    for fine in [task(""), task(&pin(&digest)), task(&pin(&digest.to_uppercase()))] {
        load(&fine).unwrap_or_else(|problems| panic!("{problems}"));
    }
    load(&format!("{required}{}", task(&pin(&digest)))).expect("it is pinned");
    load(&format!("{required}[tasks.b]\nplugin = \"sweep\"\n")).expect("it is part of the program");
    for (text, words) in [
        (task(&pin(&"cd".repeat(32))), "is not the pinned file: its SHA-256 is abab"),
        (task(&pin("abab")), "a pin must be a SHA-256 with 64 hexadecimal digits"),
        (format!("{required}{}", task("")), "is not pinned, but plugins.require_pin is set"),
    ] {
        let said = load(&text).expect_err(words).to_string();
        assert!(said.contains(words) && said.contains("besom task pin a"), "{said}");
    }
    // A plugin that was not loaded has the same diagnostic.
    let refused = task(&pin(&"cd".repeat(32))).replace("pinned.wasm", "refused.wasm");
    let said = load(&refused).expect_err("another file").to_string();
    assert!(said.contains("`refused.wasm` is not the pinned file: its SHA-256 is abab"), "{said}");
    let parse = |text: &str| RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default());
    for (text, admitted) in [
        (task(""), None),
        (task(&pin(&digest.to_uppercase())), Some(vec![digest.clone()])),
        (format!("{required}{}", task("")), Some(vec![])),
        (format!("{}[tasks.b]\nplugin = \"pinned.wasm\"\n", task(&pin(&digest))), None),
    ] {
        assert_eq!(parse(&text).admitted("pinned.wasm"), admitted, "{text}");
    }
    // The requests of an unreviewed file are not suggested as grants: there is no other diagnostic.
    let narrow = format!(
        "[tasks.a]\nplugin = \"pinned.wasm\"\n{}[tasks.a.grants]\ndocuments = []\n",
        pin(&"cd".repeat(32))
    );
    let Problems(said) = load(&narrow).expect_err("another file");
    let errors: Vec<String> =
        said.iter().filter(|d| d.is_error()).map(ToString::to_string).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("is not the pinned file"), "{errors:?}");
}

#[test]
fn a_refused_file_leaves_out_its_task_alone() {
    let pinned = |name: &str, plugin: &str, pin: &str| {
        format!(
            "[tasks.{name}]\nplugin = \"{plugin}\"\nlane = \"heavy\"\nsha256 = \"{pin}\"\n[tasks.{name}.grants]\n\
             documents = [\"read\"]\nchanges = [\"read\", \"delete\"]\ntopics = [\"doc-changed\"]\n"
        )
    };
    let (same, other) = ("ab".repeat(32), "cd".repeat(32));
    let text = [
        pinned("another", "pinned.wasm", &other),
        pinned("unloaded", "refused.wasm", &other),
        "[tasks.unsigned]\nplugin = \"unsigned.wasm\"\n".to_owned(),
        pinned("fine", "pinned.wasm", &same),
        "[tasks.built-in]\nplugin = \"sweep\"\n".to_owned(),
    ]
    .concat();
    let resolve = |text: &str| {
        let parsed = RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default());
        parsed.resolve(&plugin, &default_collections())
    };
    let mut resolved = resolve(&text);
    resolved.leave_out_refused(|_| true);
    let config = resolved.finish().unwrap_or_else(|problems| panic!("{problems}"));
    let names = |names: Vec<&TaskName>| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!(names(config.tasks.keys().collect()), ["built-in", "fine"]);
    assert_eq!(names(config.refused.keys().collect()), ["another", "unloaded", "unsigned"]);
    let said = config.refused["another"].to_string();
    assert!(said.contains("besom task pin another") && said.contains("besom.toml:4"), "{said}");
    assert!(config.refused["unsigned"].to_string().contains("it is not signed"));
    // One that runs is not left out: its host keeps its code.
    let mut resolved = resolve(&text);
    resolved.leave_out_refused(|task| task.as_str() != "another");
    let Problems(said) = resolved.finish().expect_err("it may not be left out");
    let errors: Vec<_> = said.iter().filter(|d| d.is_error()).collect();
    assert!(errors.len() == 1 && errors[0].message.contains("`pinned.wasm`"), "{errors:?}");
    // What is wrong with the configuration itself stays an error.
    for text in [pinned("a", "pinned.wasm", "abab"), "[tasks.a]\nplugin = \"gone.wasm\"\n".into()] {
        let mut resolved = resolve(&text);
        resolved.leave_out_refused(|_| true);
        resolved.finish().expect_err(&text);
    }
}

#[test]
fn keys_of_signatures_are_judged() {
    let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    let fine = format!("[plugins]\ntrusted_keys = [\"{key}\"]\nrequire_signature = true\n");
    let config = load(&fine).unwrap_or_else(|problems| panic!("{problems}"));
    let signing = config.plugins.signing();
    assert_eq!((signing.keys.len(), signing.required), (1, true));
    for (text, words) in [
        ("[plugins]\nrequire_signature = true\n", "plugins.trusted_keys names no key"),
        ("[plugins]\ntrusted_keys = [\"RW\"]\n", "`RW` is not a public key of minisign"),
    ] {
        let said = load(text).expect_err(words).to_string();
        assert!(said.contains(words) && said.contains("besom.toml:2"), "{said}");
    }
    // A change takes effect at once.
    let without = load("[plugins]\n").expect("it is valid");
    let changes = without.diff(&config);
    assert_eq!((changes.signing, changes.needs_restart.len()), (Some((true, 1)), 0));
    assert_eq!(without.diff(&without).signing, None);
}

#[test]
fn a_url_with_a_password_is_refused_and_not_shown() {
    for url in [
        "postgres://u:S3cr3t@h/d",
        "postgres://h/d?user=u&password=S3cr3t",
        "postgres://h/d?user=u&pass%77ord=S3cr3t",
        "postgres://u:x'S3cr3t@h/d",
        "postgres://u:x`S3cr3t@h/d",
        "postgres://u:x<S3cr3t@h/d",
        "postgres://u:x S3cr3t@h/d",
        "postgres://u:x?S3cr3t@h/d",
        "host=h user=u password = S3cr3t",
        "host=h user=u password='x S3cr3t'",
        // The driver does not know the parameter.
        "postgres://u:S3cr3t@h/d?unknown=1",
    ] {
        let said = load(&format!("[store]\nurl = \"{url}\"\n")).expect_err("refused").to_string();
        assert!(said.contains("store.url contains a password") && said.contains("password_file"));
        assert!(!said.contains("S3cr3t"), "{said}");
    }
    for url in [
        "postgres://u@h/d",
        "postgres://db:5432/app?user=svc%40corp",
        "host=h user=u application_name='no password here'",
    ] {
        load(&format!("[store]\nurl = \"{url}\"\n")).expect("none is in it");
    }
    let url = "postgres://u:S3cr3t@h/d";
    let variables = vec![("BESOM_STORE_URL".to_owned(), url.to_owned())];
    let by_variable = Overrides { variables, ..Overrides::default() };
    let by_flag = Overrides { flags: vec![format!("store.url={url}")], ..Overrides::default() };
    for overrides in [by_variable, by_flag] {
        let said = load_with("", &overrides).expect_err("refused").to_string();
        assert!(
            said.contains("store.url contains a password") && !said.contains("S3cr3t"),
            "{said}"
        );
    }
    // The driver takes the text before an `@` as user and password, wherever it is.
    let said = load("[store]\nurl = \"postgres://db:5432/app?user=svc@corp\"\n");
    let said = said.expect_err("refused").to_string();
    assert!(said.contains("write an `@` after the host as %40"), "{said}");
    // A serialised configuration contains no password, in whatever form it was written.
    let store = super::sections::Store {
        url: Some("postgres://u:S3cr3t@h/d".into()),
        ..super::sections::Store::default()
    };
    let json = serde_json::to_string(&store).unwrap();
    assert!(json.contains("postgres://u:******@h/d"), "{json}");
}

#[test]
fn a_tcp_address_beyond_this_machine_needs_tls() {
    let api = |more: &str| {
        format!("[api]\ntoken_file = \"t\"\n{more}\n[activity]\ntoken_file = \"t\"\n{more}\n")
    };
    load(&api("tcp = \"127.0.0.1:7350\"")).expect("it is of this machine");
    load(&api("tcp = \"0.0.0.0:7350\"\ntls_cert = \"c\"\ntls_key = \"k\"")).expect("it has TLS");
    let said = load(&api("tcp = \"0.0.0.0:7350\"")).expect_err("refused");
    assert_eq!(said.0.len(), 2, "{said}");
    assert!(said.to_string().contains("tokens would be sent without encryption"), "{said}");
    let half = load(&api("tcp = \"[::1]:7350\"\ntls_key = \"k\"")).expect_err("half of it");
    assert!(half.to_string().contains("api.tls_key requires api.tls_cert"), "{half}");
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

#[test]
fn an_index_may_contain_only_the_rows_without_certain_nulls() {
    let text = "[collections.posts]\nkey = [\"id\"]\ncolumns = { id = \"text\", at = \"timestamp\" }\n\
                indexes.whole = [\"at\"]\nindexes.all = { columns = [\"at\"] }\n\
                indexes.some = { columns = [\"at\", \"id\"], not_null = [\"at\"] }\n";
    let config = load(text).expect("valid");
    let posts = &config.collections["posts"];
    assert_eq!(posts.indexes.len(), 3);
    assert_eq!(posts.indexes["some"], ["at", "id"]);
    assert_eq!(posts.not_null, [("some".to_owned(), vec!["at".to_owned()])].into());
    check(
        "\
[collections.posts]
key = [\"id\"]
columns = { id = \"text\", at = \"timestamp\" }
[collections.posts.indexes]
a = { columns = [\"at\"], not_null = [\"att\"] }
b = { not_null = [\"at\"], where = \"at is not null\" }
",
        r#"
besom.toml:5:37: error: the index names the column `att`, which is not mapped
  5 | a = { columns = ["at"], not_null = ["att"] }
    |                                     ^^^^^ did you mean `at`?
besom.toml:6:5: error: the index `b` names no columns
  6 | b = { not_null = ["at"], where = "at is not null" }
    |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ add columns = ["column"]
besom.toml:6:26: error: unknown key `where` in [collections.posts.indexes.b]
  6 | b = { not_null = ["at"], where = "** ** *** ****" }
    |                          ^^^^^ available: `columns`, `not_null`
"#,
    );
}

#[test]
fn dependants_refer_to_their_collection_and_can_be_found() {
    let section = |name: &str, more: &str| {
        format!(
            "[collections.{name}]\nkey = [\"id\"]\ncolumns = {{ id = \"text\", a = \"text\" }}\n{more}\n"
        )
    };
    let anchor = |to: &str| format!("anchor = {{ collection = \"{to}\", columns = [\"a\"] }}");
    let index = "indexes = { by_a = [\"a\"] }";
    let text = section("orders", "dependants = [\"lines\", \"notes\"]")
        + &section("lines", &format!("{}\n{index}\ndependants = [\"parts\"]", anchor("orders")))
        + &section("parts", &format!("{}\n{index}", anchor("lines")))
        + &section("notes", &format!("{}\n{index}", anchor("orders")));
    let config = load(&text).expect("valid");
    let all = all_dependants(&config.collections, "orders");
    let mut names: Vec<&str> = all.iter().map(|found| found.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["lines", "notes", "parts"]);

    for (text, expected) in [
        (section("orders", "dependants = [\"line\"]"), "the dependant `line` is not mapped"),
        (
            section("orders", "dependants = [\"lines\"]") + &section("lines", index),
            "`lines` does not say how its rows refer to `orders`",
        ),
        (
            section("orders", "dependants = [\"lines\"]") + &section("lines", &anchor("orders")),
            "no mapped index of `lines` begins with a: the whole table would be read for each row of \
             `orders`",
        ),
        (
            section("orders", "tenant = \"org\"\ndependants = [\"lines\"]")
                + &section("lines", &format!("{}\n{index}", anchor("orders"))),
            "only one of `orders` and `lines` has a tenant column",
        ),
        (
            section("orders", &format!("{}\n{index}\ndependants = [\"orders\"]", anchor("orders"))),
            "`orders` depends on itself through `orders`",
        ),
        (
            section("orders", &format!("{}\n{index}\ndependants = [\"lines\"]", anchor("lines")))
                + &section(
                    "lines",
                    &format!("{}\n{index}\ndependants = [\"orders\"]", anchor("orders")),
                ),
            "`orders` depends on itself through `lines`",
        ),
    ] {
        let Err(problems) = load(&text) else { panic!("accepted:\n{text}") };
        let said = format!("{problems:?}");
        assert!(said.contains(expected), "{expected}\n{said}");
    }
}

#[test]
fn a_collection_replaces_the_default_of_its_name_as_a_whole() {
    let text = "\
[collections.shares]
table = \"links\"
key = [\"id\"]
columns = { id = \"uuid\", start = { type = \"timestamp\", encoding = \"millis\" }, doc = \"text\" }
indexes = { by_start = [\"start\"] }
anchor = { collection = \"documents\", columns = [\"doc\"] }
";
    let config = load(text).expect("valid");
    let shares = &config.collections["shares"];
    assert_eq!((shares.table.as_str(), shares.tenant.as_deref()), ("links", None));
    assert_eq!(shares.columns["start"].encoding, Encoding::Millis);
    assert_eq!(shares.columns["id"].kind, Kind::Uuid);
    assert_eq!(shares.anchors[0].columns, ["doc"]);
    assert_eq!(config.collections["documents"], default_collections()["documents"]);
}

#[test]
fn a_missing_table_of_a_built_in_mapping_names_the_tasks_that_need_it() {
    let text = "[tasks.expire]\nplugin = \"sweep\"\n[tasks.expire.grants]\nshares = [\"read\"]\n";
    let parsed = RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default());
    let mut resolved = parsed.resolve(&plugin, &default_collections());
    resolved.mapping_faults(&[MappingFault {
        collection: "shares".into(),
        place: "table".into(),
        message: "there is no such table".into(),
        warning: true,
    }]);
    let said: String = resolved.problems().iter().map(ToString::to_string).collect();
    let fix =
        "map your own table in [collections.shares], or remove the task `expire`, which uses it";
    assert!(said.contains(fix), "{said}");
}

#[test]
fn what_the_store_says_of_a_mapping_stands_at_its_place() {
    let text = "[collections.notes]\nkey = [\"id\"]\ncolumns = { id = \"text\" }\n";
    let parsed = RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default());
    let mut resolved = parsed.resolve(&plugin, &default_collections());
    let fault = |collection: &str, place: &str, warning| MappingFault {
        collection: collection.into(),
        place: place.into(),
        message: "there is no such thing".into(),
        warning,
    };
    resolved.mapping_faults(&[
        fault("notes", "columns.id", false),
        fault("notes", "table", false),
        fault("shares", "table", true),
    ]);
    let problems = resolved.finish().err().map(|p| p.to_string());
    same(
        &problems.unwrap_or_default(),
        r#"
besom.toml: warning: collection `shares`, table: there is no such thing
  fix: this is the built-in mapping: map your own table in [collections.shares]
besom.toml:1:14: error: collection `notes`, table: there is no such thing
  1 | [collections.notes]
    |              ^^^^^
besom.toml:3:18: error: collection `notes`, columns.id: there is no such thing
  3 | columns = { id = "text" }
    |                  ^^^^^^
"#,
    );
}

#[test]
fn a_reload_knows_what_changes() {
    let old =
        load("[tasks.a]\nplugin = \"sweep\"\n[tasks.b]\nplugin = \"sweep\"\n").expect("valid");
    let new = load(
        "[lease]\nttl = \"30s\"\n[plugins]\nrequire_pin = true\n[tasks.b]\nplugin = \"sweep\"\nschedule = \"@hourly\"\n[tasks.c]\nplugin = \"sweep\"\n",
    )
    .expect("valid");
    let changes = old.diff(&new);
    assert_eq!(changes.added, [TaskName::from("c")]);
    assert_eq!(changes.changed, [TaskName::from("b")]);
    assert_eq!(changes.removed, [TaskName::from("a")]);
    assert_eq!(changes.needs_restart, ["lease.ttl"]);
    assert_eq!(changes.require_pin, Some(true));
    assert!(!changes.collections);
    assert!(old.diff(&old.clone()).is_empty());
    assert_ne!(old.digest(), new.digest());
    assert_eq!(old.digest().len(), 64);
}

#[test]
fn a_changed_key_of_any_section_needs_a_restart() {
    let old = load("").expect("valid");
    for (text, key) in [
        ("[clock]\nread_every = \"5s\"\n", "clock.read_every"),
        ("[clock]\nskew_warn = \"2s\"\n", "clock.skew_warn"),
        ("[clock]\nskew_max = \"20s\"\n", "clock.skew_max"),
        ("[runtime]\ncache = \"elsewhere\"\n", "runtime.cache"),
    ] {
        assert_eq!(old.diff(&load(text).expect("valid")).needs_restart, [key]);
    }
    let compared = serde_json::to_value(&old.sections).expect("it can be written");
    for section in sections::SECTIONS {
        assert!(compared[section.name].is_object(), "{}", section.name);
    }
}

#[test]
fn a_reload_of_a_truncated_file_is_refused_with_the_fix() {
    let task = "[tasks.a]\nplugin = \"sweep\"\n";
    let is_blank = |text: &str| {
        RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default()).is_blank()
    };
    let refused = |old: &str, new: &str| {
        let old = load(old).expect("valid");
        let blank = is_blank(new);
        let new = load(new).expect("valid");
        let refused = old.refuse_truncated(&new, Path::new("besom.toml"), blank);
        refused.err().map(|problems| problems.to_string())
    };
    for (new, said) in [
        ("", "the file is empty, which would remove 1 task of this host"),
        ("\u{feff} \n\t# [tasks.a]\n", "the file is empty, which would remove 1 task"),
        ("[lease]\nttl = \"30s\"\n", "the file names no task, which would remove 1 task"),
    ] {
        let said_too = refused(task, new).unwrap_or_else(|| panic!("`{new}` was accepted"));
        assert!(said_too.contains(said) && said_too.contains("fix: restore"), "{said_too}");
    }
    let said = refused("[lease]\nttl = \"30s\"\n", "#").expect("refused");
    assert!(said.contains("every setting of this host"), "{said}");
    // A host that was started so keeps what it has.
    assert_eq!(refused("", "# nothing\n"), None);
    assert_eq!(refused("", task), None);
    assert_eq!(refused(task, "[tasks.b]\nplugin = \"sweep\"\n"), None);
    assert!(!is_blank("[lease]"));
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

#[test]
fn a_key_that_no_item_can_have_is_refused_with_the_fix() {
    for (kind, is_fine) in [
        ("integer", true),
        ("text", true),
        ("uuid", true),
        ("bytes", true),
        ("timestamp", true),
        ("date", true),
        ("decimal", false),
        ("float", false),
        ("bool", false),
        ("json", false),
    ] {
        let text =
            format!("[collections.notes]\nkey = [\"id\"]\ncolumns = {{ id = \"{kind}\" }}\n");
        match load(&text) {
            Ok(_) => assert!(is_fine, "{kind}"),
            Err(problems) => {
                let said = problems.to_string();
                assert!(!is_fine && said.contains("besom.toml:3:18: error"), "{said}");
                assert!(
                    said.contains(&format!("mapped as {kind}, which a key cannot be")),
                    "{said}"
                );
                let fix = "map a column of type integer, text, uuid, bytes, timestamp or date, for example \
                           in a view that casts it";
                assert!(said.contains(fix), "{said}");
            }
        }
    }
}

#[test]
fn a_schema_name_that_the_server_would_cut_is_refused() {
    let of = |bytes: usize| load(&format!("[store]\nschema = \"{}\"\n", "s".repeat(bytes)));
    assert!(of(63).is_ok());
    let said = of(64).unwrap_err().to_string();
    assert!(said.contains("besom.toml:2:") && said.contains("at most 63 bytes"), "{said}");
}

#[test]
fn the_template_is_a_valid_configuration() {
    let read = |text: &str| RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default());
    let running = read(&template(&template::Template::default().with_built_in()));
    assert_eq!(running.problems(), []);
    assert_eq!(
        running.plugins(),
        ["client-deactivation", "compaction", "share-expiry", "ttl-transitions"]
    );
    let text = template(&template::Template::default());
    let parsed = read(&text);
    assert_eq!(parsed.problems(), []);
    assert_eq!(parsed.plugins(), Vec::<String>::new());
    // Every key that is commented out shows its default, if it has one.
    let shown: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") && !rest.contains('…') && !rest.contains("  ") => {
                rest
            }
            _ => line,
        })
        .take_while(|line| !line.starts_with("# Topics:"))
        .map(|line| format!("{line}\n"))
        .filter(|line| !line.contains("relative path") && !line.contains("plugin = \"NAME"))
        .collect();
    assert_eq!(read(&shown).sections(), read("").sections());
}

#[test]
fn the_schema_knows_every_key_and_its_default() {
    let schema = schema();
    let ttl = &schema["properties"]["lease"]["properties"]["ttl"];
    assert_eq!(ttl["default"], "15s");
    for section in sections::SECTIONS {
        for key in section.keys {
            let property = &schema["properties"][section.name]["properties"][key.name];
            assert!(property["description"].is_string(), "{}.{}", section.name, key.name);
            assert_ne!(property.get("default"), Some(&serde_json::Value::Null), "{}", key.name);
        }
    }
    let task = &schema["properties"]["tasks"]["additionalProperties"];
    assert_eq!(task["properties"]["overlap"]["enum"][1], "queue");
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
