use besom_core::value::Kind;
use besom_ports::shape::{Found, Reference};

use super::*;

fn found(name: &str, declared: &str, column: Option<(Kind, Encoding)>, remark: &str) -> Found {
    Found {
        name: name.into(),
        declared: declared.into(),
        column: column.map(|(kind, encoding)| Column { kind, encoding }),
        remark: (!remark.is_empty()).then(|| remark.into()),
        ..Found::default()
    }
}

fn shape() -> Shape {
    let native = |kind| Some((kind, Encoding::Native));
    let texts = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    Shape {
        table: "django_session".into(),
        columns: vec![
            found("session_key", "varchar(40)", native(Kind::Text), ""),
            found(
                "expire date",
                "datetime",
                Some((Kind::Timestamp, Encoding::Datetime)),
                "read as UTC",
            ),
            found("team_id", "", native(Kind::Integer), ""),
            found("place", "geometry\n[x]", None, ""),
        ],
        key: texts(&["session_key"]),
        indexes: vec![texts(&["session_key"]), texts(&["expire date"])],
        not_null: vec![(texts(&["expire date", "team_id"]), texts(&["team_id"]))],
        references: vec![Reference {
            columns: texts(&["team_id"]),
            table: "team".into(),
            theirs: texts(&["id"]),
            clears: false,
        }],
        partial: texts(&["recent"]),
        is_view: false,
    }
}

const SECTION: &str = "\
[collections.sessions]
table = \"django_session\"
# If team_id names the tenant of a row: --tenant team_id
key = [\"session_key\"]
# foreign key: team_id refers to team (id)
# the index recent covers only some of the rows, and is not used

[collections.sessions.columns]
session_key = \"text\"  # varchar(40)
\"expire date\" = { type = \"timestamp\", encoding = \"datetime\" }  # datetime; read as UTC
team_id = \"integer\"  # no declared type
# place is not mapped: geometry\\n[x]

[collections.sessions.indexes]
\"expire date\" = [\"expire date\"]
\"expire date_team_id\" = { columns = [\"expire date\", \"team_id\"], not_null = [\"team_id\"] }
";

fn add(text: &str, name: &str, section: &str) -> Result<String, Refusal> {
    added(text, Path::new("besom.toml"), &Overrides::default(), name, None, section)
}

#[test]
fn a_section_says_what_was_found_and_is_read_as_the_collection() {
    let collection = shape().collection("sessions", None).expect("a collection");
    let section = section(&shape(), &collection);
    assert_eq!(section, SECTION);
    let parsed = RawConfig::parse(&section, Path::new("besom.toml"), &Overrides::default());
    let resolved = parsed.outline(&Default::default());
    let problems = resolved.problems();
    assert!(!problems.iter().any(Diagnostic::is_error), "{problems:?}");
    assert_eq!(resolved.partial().collections.get("sessions"), Some(&collection));
}

#[test]
fn a_foreign_key_to_a_mapped_table_is_an_anchor() {
    let team =
        "[collections.teams]\ntable = \"team\"\nkey = [\"id\"]\ncolumns = { id = \"integer\" }\n";
    let mapped = |text: &str| {
        RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default())
            .outline(&Default::default())
            .partial()
            .collections
            .clone()
    };
    let mut collection = shape().collection("sessions", None).expect("a collection");
    collection.anchors = anchors(&shape(), &collection, &mapped(team));
    let columns = vec!["team_id".to_owned()];
    assert_eq!(collection.anchors, [Anchor { collection: "teams".into(), columns }]);
    let section = section(&shape(), &collection);
    assert!(
        section.contains("\nanchor = { collection = \"teams\", columns = [\"team_id\"] }\n"),
        "{section}"
    );
    assert_eq!(mapped(&format!("{team}{section}"))["sessions"], collection);
    // Also in a table that refers to itself.
    let mut tree = shape();
    tree.references[0].table.clone_from(&tree.table);
    tree.references[0].theirs = collection.key.clone();
    let columns = vec!["team_id".to_owned()];
    let own = Anchor { collection: "sessions".into(), columns };
    assert_eq!(anchors(&tree, &collection, &mapped(team)), [own]);
    // Not by another column than the key, and not from a column that is not mapped.
    let other =
        team.replace("id = \"integer\"", "no = \"integer\"").replace("[\"id\"]", "[\"no\"]");
    assert_eq!(anchors(&shape(), &collection, &mapped(&other)), []);
    collection.columns.remove("team_id");
    assert_eq!(anchors(&shape(), &collection, &mapped(team)), []);
}

#[test]
fn a_tenant_is_written_and_no_longer_a_column() {
    let collection = shape().collection("s", Some("team_id")).expect("a collection");
    let section = section(&shape(), &collection);
    assert!(section.contains("\ntenant = \"team_id\"\nkey = "), "{section}");
    assert!(!section.contains("team_id = "), "{section}");
    assert!(!section.contains(".indexes]"), "no index begins with the tenant: {section}");
}

#[test]
fn a_section_is_added_behind_everything_that_is_there() {
    for (text, before) in [
        ("", ""),
        ("# mine\n[store]\npath = 'x'  # here\n", "# mine\n[store]\npath = 'x'  # here\n\n"),
        ("[store]\npath = 'x'", "[store]\npath = 'x'\n\n"),
        ("[store]\r\npath = 'x'\r\n", "[store]\r\npath = 'x'\r\n\r\n"),
    ] {
        let end = if text.contains('\r') { "\r\n" } else { "\n" };
        let new = add(text, "sessions", SECTION).expect("added");
        assert_eq!(new, format!("{before}{}", SECTION.replace('\n', end)), "{text:?}");
    }
}

#[test]
fn a_file_that_would_not_be_valid_is_left_as_it_is() {
    let twice = add(SECTION, "sessions", SECTION).expect_err("refused").to_string();
    assert!(twice.contains("has [collections.sessions] already"), "{twice}");
    let inline = add("collections = { a = 1 }", "sessions", SECTION).expect_err("refused");
    assert!(matches!(inline, Refusal::Invalid(_)), "{inline}");
    let broken = add("[store\n", "sessions", SECTION).expect_err("refused");
    assert!(matches!(broken, Refusal::Syntax(_)), "{broken}");
    // Errors that were there before do not matter.
    add("[store]\npth = 'x'\n", "sessions", SECTION).expect("added");
}
