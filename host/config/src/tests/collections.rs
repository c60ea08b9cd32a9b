//! The mappings of tables.

use super::*;

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
