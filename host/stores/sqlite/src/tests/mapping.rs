//! The comparison of the mapping with the database.

use std::sync::Arc;
use std::time::Duration;

use besom_core::collection::{Anchor, Collection, Collections, Column, Encoding, Operations};
use besom_core::proposal::{Change, Comparison, Condition, Guard, Test};
use besom_core::time::Time;
use besom_core::value::{Kind, Value};
use besom_snapshot::Cause;

use super::fixture::{Fixture, apply, text};
use besom_ports::store::{Error, MappingFault, Outcome, Range, Store};
use besom_product::model::default_collections;

#[tokio::test]
async fn the_entity_model_has_no_fault() {
    let f = Fixture::new().await;
    assert_eq!(f.store.check(&default_collections()).await.unwrap(), []);
}

/// A migration of the product changes the unit while a host runs.
#[tokio::test]
async fn instants_in_another_unit_are_refused_when_most_of_them_are() {
    let f = Fixture::new().await;
    let product = rusqlite::Connection::open(f.dir.path().join("besom.db")).unwrap();
    product
        .execute_batch(
            "CREATE TABLE p (id INTEGER PRIMARY KEY, at INTEGER);
             INSERT INTO p VALUES (1, 1700000000000), (2, 1700000000000), (3, 1700000000000),
               (4, 1700000000), (5, 0)",
        )
        .unwrap();
    let column = |kind, encoding| Column { kind, encoding };
    let collection = Collection {
        name: "p".into(),
        table: "p".into(),
        tenant: None,
        key: vec!["id".into()],
        columns: [
            ("id".to_owned(), column(Kind::Integer, Encoding::Native)),
            ("at".to_owned(), column(Kind::Timestamp, Encoding::Millis)),
        ]
        .into(),
        indexes: Default::default(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    };
    f.store.set_collections(Arc::new([("p".to_owned(), collection)].into()));
    let columns = vec!["at".to_owned()];
    let read = async |key: i64| {
        let view = f.store.snapshot(Duration::from_secs(60)).await.unwrap();
        view.get_many(None, "p", &[vec![Value::Integer(key)]], &columns).await
    };
    let first = Value::Timestamp(Time::from_secs(1_700_000_000));
    assert_eq!(read(1).await.unwrap(), [Some(vec![first.clone()])]);
    product.execute_batch("UPDATE p SET at = at / 1000 WHERE id < 4").unwrap();
    let refused = read(1).await.unwrap_err();
    let Error::Refused(Cause::Schema, why) = &refused else { panic!("{refused:?}") };
    assert!(
        why.contains("4 of 5 values looked at are instants of our time only in another unit: write encoding = \"seconds\""),
        "{why}"
    );
    product.execute_batch("UPDATE p SET at = at * 1000 WHERE id < 4").unwrap();
    assert_eq!(read(1).await.unwrap(), [Some(vec![first])]);
    // A few such rows are not the mapping's fault.
    let odd = Value::Timestamp(Time(1_700_000_000_000));
    assert_eq!(read(4).await.unwrap(), [Some(vec![odd])]);
}

#[tokio::test]
async fn what_the_database_does_beside_a_granted_operation_is_named() {
    let f = Fixture::new().await;
    rusqlite::Connection::open(f.dir.path().join("besom.db"))
        .unwrap()
        .execute_batch(
            "CREATE TABLE Notes (id INTEGER PRIMARY KEY, doc TEXT, project TEXT,
               note INTEGER REFERENCES notes ON DELETE CASCADE,
               FOREIGN KEY (project, doc) REFERENCES Documents ON DELETE CASCADE);
             CREATE TABLE likes (note INTEGER REFERENCES notes ON DELETE SET NULL);
             CREATE TABLE kept (note INTEGER REFERENCES notes);
             CREATE TRIGGER told AFTER DELETE ON documents BEGIN SELECT 1; END;",
        )
        .unwrap();
    let beside = async |operations| {
        let granted = [("documents".to_owned(), operations)].into();
        let found = f.store.check_granted(&default_collections(), &granted).await.unwrap();
        let place =
            |fault: &MappingFault| if fault.warning { "table" } else { MappingFault::CASCADES };
        assert!(found.iter().all(|fault| fault.place == place(fault)));
        found.into_iter().map(|fault| fault.message).collect::<Vec<_>>()
    };
    let none = Operations::default();
    assert_eq!(beside(Operations { read: true, ..none }).await, [""; 0]);
    let deletes = beside(Operations { delete: true, ..none }).await;
    let [cascade, changed, keepers, triggers] = deletes.as_slice() else { panic!("{deletes:?}") };
    assert!(cascade.contains("also deletes rows of notes:"), "{cascade}");
    assert!(changed.contains("also changes rows of likes:"), "{changed}");
    assert!(
        keepers.contains("stays if rows of attachments (project_id, doc_id), changes ("),
        "{keepers}"
    );
    assert!(triggers.contains("its triggers run (told):"), "{triggers}");
    let updates = beside(Operations { update: true, ..none }).await;
    assert_eq!(updates, [triggers.as_str()], "SQLite does not say what a trigger is for");
}

#[tokio::test]
async fn every_fault_is_named_with_its_place_and_the_fix() {
    let f = Fixture::new().await;
    rusqlite::Connection::open(f.dir.path().join("besom.db"))
        .unwrap()
        .execute_batch(
            "CREATE TABLE loose (project_id TEXT, id TEXT, doc_id TEXT, at TEXT);
             CREATE VIEW seen AS SELECT project_id, doc_id, pending FROM documents;",
        )
        .unwrap();
    let model = default_collections();
    let of = |name: &str, table: &str, change: &dyn Fn(&mut Collection)| {
        let mut collection = model["documents"].clone();
        collection.name = name.into();
        collection.table = table.into();
        change(&mut collection);
        collection
    };
    let keep = |collection: &mut Collection, columns: &[&str]| {
        collection.columns.retain(|name, _| columns.contains(&name.as_str()));
    };
    let rename = |collection: &mut Collection, from: &str, to: &str| {
        let column = collection.columns.remove(from).unwrap();
        collection.columns.insert(to.into(), column);
    };
    let loose = |c: &mut Collection| {
        keep(c, &["doc_id", "created_at"]);
        rename(c, "created_at", "at");
        c.indexes.clear();
        let columns = vec!["doc_id".to_owned()];
        c.indexes.insert("by_doc".into(), columns.clone());
        c.anchors = vec![Anchor { collection: "documents".into(), columns }];
    };
    let view = |c: &mut Collection| keep(c, &["doc_id", "pending"]);
    let misspelt = |c: &mut Collection| rename(c, "server_seq", "sever_seq");
    let mut all: Collections = [
        of("documents", "documents", &|_| {}),
        of("gone", "document", &|_| {}),
        of("loose", "loose", &loose),
        of("misspelt", "documents", &misspelt),
        of("tenantless", "documents", &|c| c.tenant = Some("project".into())),
        of("view", "seen", &view),
    ]
    .into_iter()
    .map(|c| (c.name.clone(), c))
    .collect();
    let faults = f.store.check(&all).await.unwrap();
    let found: Vec<_> =
        faults.iter().map(|f| (f.collection.as_str(), f.place.as_str(), f.warning)).collect();
    assert_eq!(
        found,
        [
            ("gone", "table", false),
            ("loose", "columns.at", true),
            ("loose", "key", false),
            ("loose", "indexes.by_doc", false),
            ("loose", "anchor", true),
            ("misspelt", "columns.sever_seq", false),
            ("tenantless", "tenant", false),
            ("tenantless", "key", false),
            ("tenantless", "indexes.by_pending", false),
        ],
        "{faults:#?}"
    );
    let said =
        |collection: &str| &faults.iter().find(|f| f.collection == collection).unwrap().message;
    assert!(said("gone").contains("did you mean \"documents\"?"));
    assert!(said("misspelt").contains("did you mean \"server_seq\"?"));
    all.retain(|name, _| name == "documents");
    assert_eq!(f.store.check(&all).await.unwrap(), []);
}

/// The first page is in the order of the index; the next one begins among equal values.
#[tokio::test]
async fn an_index_that_does_not_go_on_with_the_key_is_warned_of() {
    let f = Fixture::new().await;
    let database = rusqlite::Connection::open(f.dir.path().join("besom.db")).unwrap();
    database
        .execute_batch(
            "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, expires_at INTEGER);
             CREATE INDEX by_expiry ON sessions (expires_at);
             CREATE TABLE counted (session_id INTEGER PRIMARY KEY, expires_at INTEGER);
             CREATE INDEX counted_by_expiry ON counted (expires_at);
             INSERT INTO sessions VALUES ('a', 1), ('b', 1), ('c', 1);",
        )
        .unwrap();
    let column = |kind| Column { kind, encoding: Encoding::Native };
    let sessions = Collection {
        name: "sessions".into(),
        table: "sessions".into(),
        tenant: None,
        key: vec!["session_id".into()],
        columns: [
            ("session_id".to_owned(), column(Kind::Text)),
            ("expires_at".to_owned(), column(Kind::Timestamp)),
        ]
        .into(),
        indexes: [("by_expiry".to_owned(), vec!["expires_at".to_owned()])].into(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    };
    // An index of SQLite ends with the rowid, which is this key.
    let mut counted = Collection { table: "counted".into(), ..sessions.clone() };
    counted.name = "counted".into();
    counted.columns.insert("session_id".into(), column(Kind::Integer));
    let all: Collections = [sessions, counted].map(|c| (c.name.clone(), c)).into();
    let faults = f.store.check(&all).await.unwrap();
    let [fault] = faults.as_slice() else { panic!("{faults:#?}") };
    assert_eq!((&*fault.collection, &*fault.place), ("sessions", "indexes.by_expiry"));
    assert!(fault.message.contains("sorts the equal rows") && fault.warning, "{fault:?}");
    let (_, fix) = fault.message.split_once("the key: ").unwrap();
    assert_eq!(fix, "CREATE INDEX sessions_by_expiry_key ON sessions (expires_at, session_id)");

    f.store.set_collections(Arc::new(all.clone()));
    let second_page = async || {
        let mut range = Range {
            collection: "sessions".into(),
            index: Some("by_expiry".into()),
            upper: Some(Value::Timestamp(Time(2))),
            columns: vec!["session_id".into()],
            limit: 2,
            bytes_max: 1 << 20,
            ..Range::default()
        };
        let view = f.store.snapshot(Duration::from_secs(60)).await.unwrap();
        let first = view.read_range(None, &range).await.unwrap();
        range.after = first.next;
        view.read_range(None, &range).await.unwrap().rows
    };
    assert_eq!(second_page().await, [[Value::Text("c".into())]], "the equal rows are sorted");

    // The suggested index is sufficient, with the other index still present.
    database.execute_batch(fix).unwrap();
    assert_eq!(f.store.check(&all).await.unwrap(), []);
    assert_eq!(second_page().await, [[Value::Text("c".into())]]);
}

/// A primary key of SQLite may hold NULL; most tables have no such row.
#[tokio::test]
async fn a_key_that_holds_null_or_may_is_warned_of() {
    for (declared, rows, expected) in [
        ("TEXT PRIMARY KEY", "('a', 1)", None),
        ("TEXT PRIMARY KEY", "('a', 1), (NULL, 1)", Some("is NULL in rows of \"s\"")),
        ("INTEGER PRIMARY KEY", "(1, 1)", None),
        ("INTEGER PRIMARY KEY DESC", "(1, 1), (NULL, 1)", Some("is NULL in rows of \"s\"")),
        ("TEXT UNIQUE", "('a', 1)", Some("may be NULL in rows of \"s\"")),
        ("TEXT NOT NULL UNIQUE", "('a', 1)", None),
    ] {
        let f = Fixture::new().await;
        let database = rusqlite::Connection::open(f.dir.path().join("besom.db")).unwrap();
        let sql =
            format!("CREATE TABLE s (id {declared}, at INTEGER); INSERT INTO s VALUES {rows}");
        database.execute_batch(&sql).unwrap();
        let kind = if declared.contains("INTEGER") { Kind::Integer } else { Kind::Text };
        let column = Column { kind, encoding: Encoding::Native };
        let collection = Collection {
            name: "s".into(),
            table: "s".into(),
            tenant: None,
            key: vec!["id".into()],
            columns: [("id".to_owned(), column)].into(),
            indexes: Default::default(),
            anchors: Vec::new(),
            dependants: Vec::new(),
            not_null: Default::default(),
            accept_cascades: false,
        };
        let faults = f.store.check(&[("s".to_owned(), collection)].into()).await.unwrap();
        let said: Vec<_> = faults.iter().map(|fault| (&*fault.place, fault.warning)).collect();
        assert_eq!(said, expected.map(|_| ("key", true)).as_slice(), "{declared}: {faults:?}");
        let named = |words: &&str| faults[0].message.contains(&format!("\"id\" {words}"));
        assert!(expected.as_ref().is_none_or(named), "{faults:?}");
    }
}

/// Sessions with `rows`, mapped with another kind of key and another encoding if asked for.
async fn sessions(rows: &str, kind: Kind, encoding: Encoding) -> (Fixture, Collections) {
    let f = Fixture::new().await;
    rusqlite::Connection::open(f.dir.path().join("besom.db"))
        .unwrap()
        .execute_batch(&format!(
            "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, expires_at, seen DATETIME);
             CREATE INDEX by_expiry ON sessions (expires_at, session_id);
             {rows}"
        ))
        .unwrap();
    let native = |kind| Column { kind, encoding: Encoding::Native };
    let sessions = Collection {
        name: "sessions".into(),
        table: "sessions".into(),
        tenant: None,
        key: vec!["session_id".into()],
        columns: [
            ("session_id".to_owned(), native(kind)),
            ("expires_at".to_owned(), Column { kind: Kind::Timestamp, encoding }),
            ("seen".to_owned(), Column { kind: Kind::Timestamp, encoding: Encoding::Rfc3339 }),
        ]
        .into(),
        indexes: [("by_expiry".to_owned(), vec!["expires_at".to_owned()])].into(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    };
    let all: Collections = [("sessions".to_owned(), sessions)].into();
    f.store.set_collections(Arc::new(all.clone()));
    (f, all)
}

const INSERT: &str = "INSERT INTO sessions VALUES
    ('a', 1, '2026-01-31T00:00:00Z'), ('b', 2, '2026-01-31T00:00:00Z'), ('c', 3, NULL);";

/// SQLite stores any value in any column: the rows show what a declaration does not.
#[tokio::test]
async fn a_column_that_holds_another_kind_than_its_mapping_is_named_with_both_and_the_fix() {
    let one_text = format!("{INSERT} INSERT INTO sessions VALUES ('d', '2026-01-31', NULL);");
    let no_zone = "INSERT INTO sessions VALUES ('a', 1, '2026-01-31 00:00:00');";
    // None of so many is ever found: a task would do nothing, and say nothing.
    let no_zones: String = (0..10)
        .map(|i| format!("INSERT INTO sessions VALUES ('{i}', 1, '2026-01-31 00:00:0{i}.000000');"))
        .collect();
    for (rows, kind, encoding, expected) in [
        (INSERT, Kind::Text, Encoding::Seconds, None),
        (
            INSERT,
            Kind::Integer,
            Encoding::Seconds,
            Some((
                "columns.session_id",
                false,
                "the column is declared TEXT and mapped as integer (native), but all 3 values looked \
                 at are stored as text: map it as text, or correct the rows",
            )),
        ),
        (
            "",
            Kind::Integer,
            Encoding::Seconds,
            Some((
                "columns.session_id",
                true,
                "the column is declared TEXT but mapped as integer (native): correct the kind or the \
                 encoding",
            )),
        ),
        (
            INSERT,
            Kind::Text,
            Encoding::Rfc3339,
            Some((
                "columns.expires_at",
                true,
                "the column is mapped as timestamp (rfc3339), but all 3 values looked at are stored \
                 as integer: write the encoding of the numbers (\"seconds\", \"millis\" or \
                 \"native\", which is microseconds)",
            )),
        ),
        (
            "INSERT INTO sessions VALUES ('a', 1700000000, NULL), ('b', 1700000001, NULL);",
            Kind::Text,
            Encoding::Native,
            Some((
                "columns.expires_at",
                false,
                "the column is mapped as timestamp (native), but each of the 2 values looked at is an \
                 instant of our time only in another unit: write encoding = \"seconds\"",
            )),
        ),
        (
            "INSERT INTO sessions VALUES ('a', 1700000000, NULL), ('b', 1700000001, NULL), ('c', 0, NULL),
               ('d', -5, NULL), ('e', 1700000002, NULL);",
            Kind::Text,
            Encoding::Millis,
            Some((
                "columns.expires_at",
                false,
                "the column is mapped as timestamp (millis), but 3 of 5 values looked at are instants \
                 of our time only in another unit: write encoding = \"seconds\"",
            )),
        ),
        (
            &one_text,
            Kind::Text,
            Encoding::Seconds,
            Some((
                "columns.expires_at",
                true,
                "the column is mapped as timestamp (seconds), but 1 of 4 values looked at is stored \
                 as text: the encodings of texts are rfc3339 (2026-01-31T08:00:00Z, a fraction without zeros at its end), \
                 rfc3339_millis (2026-01-31T08:00:00.000Z), rfc3339_micros (2026-01-31T08:00:00.000000Z), datetime \
                 (2026-01-31 08:00:00), datetime3 (2026-01-31 08:00:00.000) and datetime6 (2026-01-31 08:00:00.000000), all in UTC: \
                 correct the rows, or map the column as text",
            )),
        ),
        (
            no_zone,
            Kind::Text,
            Encoding::Seconds,
            Some((
                "columns.seen",
                true,
                "the column is declared DATETIME and mapped as timestamp (rfc3339), but the only value \
                 looked at is stored as text: write encoding = \"datetime\" if these are instants in UTC",
            )),
        ),
        (
            "INSERT INTO sessions VALUES ('a', 1, '2026-01-31T00:00:00.000Z');",
            Kind::Text,
            Encoding::Seconds,
            Some((
                "columns.seen",
                true,
                "the column is declared DATETIME and mapped as timestamp (rfc3339), but the only value \
                 looked at is stored as text: write encoding = \"rfc3339_millis\" if these are instants in UTC",
            )),
        ),
        (
            &no_zones,
            Kind::Text,
            Encoding::Seconds,
            Some((
                "columns.seen",
                false,
                "the column is declared DATETIME and mapped as timestamp (rfc3339), but all 10 values \
                 looked at are stored as text: write encoding = \"datetime6\" if these are instants in UTC",
            )),
        ),
    ] {
        let (f, all) = sessions(rows, kind, encoding).await;
        let faults = f.store.check(&all).await.unwrap();
        let found: Vec<_> =
            faults.iter().map(|f| (f.place.as_str(), f.warning, f.message.as_str())).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{rows}");
    }
}

/// Texts are what the mapping expects: it is not told to write what it has already.
#[tokio::test]
async fn a_text_that_is_no_instant_is_not_blamed_on_the_encoding() {
    let rows = "INSERT INTO sessions (session_id, expires_at) VALUES ('a', '2026-01-31 00:00:00'), ('b', ''),
                ('c', '2026-02-01 00:00:00');";
    let (f, all) = sessions(rows, Kind::Text, Encoding::Datetime).await;
    let faults = f.store.check(&all).await.unwrap();
    let [fault] = faults.as_slice() else { panic!("{faults:?}") };
    assert!(fault.warning && fault.place == "columns.expires_at", "{fault:?}");
    let words = "but 1 of 3 values looked at is not spelt as one: correct the rows";
    assert!(fault.message.contains(words) && !fault.message.contains("encoding ="), "{fault:?}");

    let mixed = format!(
        "{rows} INSERT INTO sessions (session_id, expires_at) VALUES ('d', 17), ('e', '2026-02-02 00:00:00');"
    );
    let (f, all) = sessions(&mixed, Kind::Text, Encoding::Datetime).await;
    let faults = f.store.check(&all).await.unwrap();
    let [fault] = faults.as_slice() else { panic!("{faults:?}") };
    let words = "but 2 of 5 values looked at are not stored as one, but as integer and text: correct the rows.";
    assert!(fault.message.contains(words) && !fault.message.contains("encoding ="), "{fault:?}");
}

/// What is known of a table is looked up again when its schema has changed: an index has another name.
#[tokio::test]
async fn an_index_that_was_exchanged_is_found() {
    let f = Fixture::new().await;
    let product = rusqlite::Connection::open(f.dir.path().join("besom.db")).unwrap();
    product
        .execute_batch(
            "CREATE TABLE seats (id INTEGER PRIMARY KEY, room INTEGER); CREATE INDEX i ON seats (room);
             INSERT INTO seats VALUES (1, 7);",
        )
        .unwrap();
    let column =
        |name: &str| (name.to_owned(), Column { kind: Kind::Integer, encoding: Encoding::Native });
    let seats = Collection {
        name: "seats".into(),
        table: "seats".into(),
        tenant: None,
        key: vec!["id".into()],
        columns: ["id", "room"].map(column).into(),
        indexes: [("by_room".to_owned(), vec!["room".to_owned()])].into(),
        not_null: Default::default(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        accept_cascades: false,
    };
    f.store.set_collections(Arc::new([("seats".to_owned(), seats)].into()));
    let range = Range {
        collection: "seats".into(),
        index: Some("by_room".into()),
        columns: vec!["id".into()],
        limit: 9,
        bytes_max: usize::MAX,
        ..Range::default()
    };
    let read = async || {
        let view = f.store.snapshot(Duration::from_secs(60)).await?;
        view.read_range(None, &range).await.map(|page| page.rows.len())
    };
    assert_eq!(read().await.unwrap(), 1);
    product.execute_batch("BEGIN; CREATE INDEX i2 ON seats (room); DROP INDEX i; COMMIT").unwrap();
    // The first read may notice it.
    let first = read().await;
    assert_eq!(read().await.unwrap(), 1, "{first:?}");
}

/// Decimals are ordered by number in a numeric column, and as texts in a column of texts; texts by the collation of
/// their column against a value, and byte by byte against another column.
#[tokio::test]
async fn decimals_and_texts_are_ordered_as_their_columns_are() {
    let f = Fixture::new().await;
    let sql = "CREATE TABLE prices (id INTEGER PRIMARY KEY, price NUMERIC, written TEXT,
                 name TEXT COLLATE NOCASE, other TEXT COLLATE NOCASE);
               INSERT INTO prices VALUES (1, '9.5', '9.5', 'a', 'B'), (2, '12.50', '12.50', 'B', 'a');";
    let path = f.dir.path().join("besom.db");
    rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
    let column =
        |(name, kind): (&str, Kind)| (name.to_owned(), Column { kind, encoding: Encoding::Native });
    let columns = [
        ("id", Kind::Integer),
        ("price", Kind::Decimal),
        ("written", Kind::Decimal),
        ("name", Kind::Text),
        ("other", Kind::Text),
    ];
    let prices = Collection {
        name: "prices".into(),
        table: "prices".into(),
        tenant: None,
        key: vec!["id".into()],
        columns: columns.into_iter().map(column).collect(),
        indexes: Default::default(),
        not_null: Default::default(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        accept_cascades: false,
    };
    f.store.set_collections(Arc::new([("prices".to_owned(), prices)].into()));
    let view = f.store.snapshot(Duration::from_secs(60)).await.unwrap();
    let than = |value: &str| Test::Value(Comparison::Below, Value::Decimal(value.into()));
    for (column, test, expected) in [
        ("price", than("10"), &[1][..]),
        ("price", than("9.50"), &[]),
        ("written", than("10"), &[]),
        ("written", than("9"), &[2]),
        ("name", Test::Value(Comparison::Above, text("a")), &[2]),
        ("name", Test::Column(Comparison::Above, "other".into()), &[1]),
    ] {
        let conditions = vec![Condition { column: column.into(), test }];
        let range = Range {
            collection: "prices".into(),
            columns: vec!["id".into()],
            lower: Some(Value::Integer(0)),
            conditions,
            limit: 9,
            bytes_max: usize::MAX,
            ..Range::default()
        };
        let found = view.read_range(None, &range).await.unwrap().rows;
        let expected: Vec<_> = expected.iter().map(|id| vec![Value::Integer(*id)]).collect();
        assert_eq!(found, expected, "{:?}", range.conditions);
    }
}

/// If every row is of another kind, the task is held with the reason; if a single row is, its item
/// fails alone.
#[tokio::test]
async fn a_wrong_kind_in_the_mapping_is_no_fault_of_an_item() {
    let (f, _) = sessions(INSERT, Kind::Integer, Encoding::Seconds).await;
    let view = f.store.snapshot(Duration::from_secs(60)).await.unwrap();
    let key = vec![text("a")];
    let names = ["session_id".to_owned()];
    let by_key = view.get_many(None, "sessions", std::slice::from_ref(&key), &names).await;
    let range = Range {
        collection: "sessions".into(),
        columns: names.to_vec(),
        limit: 2,
        bytes_max: 1 << 20,
        ..Range::default()
    };
    let by_range = view.read_range(None, &range).await.map(|page| page.rows);
    let waiting = f.plan(&["a"]).await.pop().unwrap();
    let delete = Change::Delete { collection: "sessions".into(), key: key.clone() };
    let batch = f.batch(vec![(waiting, apply(vec![], vec![delete]))]);
    let committed = f.store.commit(&batch).await.map(|_| ());
    for refused in [by_key.map(|_| ()), by_range.map(|_| ()), committed] {
        let Err(Error::Refused(Cause::Schema, why)) = refused else { panic!("{refused:?}") };
        for words in [
            "sessions.session_id: expected integer, found text",
            "all 3 values looked at are stored as text",
            "work continues once they match",
        ] {
            assert!(why.contains(words), "{why}");
        }
    }
    f.balanced().await;

    // One instant of several is a text without a zone.
    let one = format!("{INSERT} INSERT INTO sessions VALUES ('d', 'soon', NULL);");
    let (f, _) = sessions(&one, Kind::Text, Encoding::Seconds).await;
    let view = f.store.snapshot(Duration::from_secs(60)).await.unwrap();
    let range = Range { columns: vec!["expires_at".into()], limit: 9, ..range };
    let rows = view.read_range(None, &range).await.unwrap().rows;
    assert_eq!(rows[3], [text("soon")], "it is the item's problem");
    let waiting = f.plan(&["d"]).await.pop().unwrap();
    let seen = Guard::Columns {
        collection: "sessions".into(),
        key: vec![text("d")],
        conditions: vec![Condition::equal("expires_at", text("soon"))],
    };
    let delete = Change::Delete { collection: "sessions".into(), key: vec![text("d")] };
    let done = f.commit(vec![(waiting, apply(vec![seen], vec![delete]))]).await;
    let [Outcome::Dead(why)] = done.outcomes.as_slice() else { panic!("{done:?}") };
    assert!(why.contains("sessions.expires_at: expected timestamp, found text"), "{why}");
    f.balanced().await;
}
