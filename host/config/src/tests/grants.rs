//! What tasks are granted, under which names, and which plugin files they may use.

use super::*;

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
