//! Columns of types that only PostgreSQL has, and tenants in the order of an ordinary collation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use besom_core::collection::{Collection, Column, Encoding};
use besom_core::ids::Tenant;
use besom_core::proposal::{Change, Comparison, Condition, RowRange, Test};
use besom_core::time::Time;
use besom_core::value::{Kind, Value};
use besom_ports::store::{Error, MappingFault, Outcome, Range};
use besom_tests::adapters::postgres::Postgres;
use besom_tests::conformance::tables::{fields, text};
use besom_tests::conformance::world::{ALL, range, tenant};
use besom_tests::conformance::{World, block_on};
use tokio_postgres::Client;

/// A world whose only collection is this one, over a table of the product's.
async fn world(sql: &str, collection: &Collection) -> (World, Client) {
    let fixture = Postgres::open().await;
    let product = fixture.database().connect().await;
    product.batch_execute(sql).await.unwrap();
    let world = World::new(Box::new(fixture)).await;
    let all = BTreeMap::from([(collection.name.clone(), collection.clone())]);
    world.store().set_collections(Arc::new(all));
    (world, product)
}

fn collection(name: &str, key: &str, columns: &[(&str, Kind)]) -> Collection {
    let column = |kind| Column { kind, encoding: Encoding::Native };
    Collection {
        name: name.to_owned(),
        table: name.to_owned(),
        tenant: Some("tenant".to_owned()),
        key: vec![key.to_owned()],
        columns: columns.iter().map(|&(n, kind)| (n.to_owned(), column(kind))).collect(),
        indexes: Default::default(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    }
}

/// The faults of a mapping over a table of the product's, by place.
async fn faults(sql: &str, collection: &Collection) -> Vec<(String, String)> {
    let (world, _) = world(sql, collection).await;
    let all = BTreeMap::from([(collection.name.clone(), collection.clone())]);
    let faults: Vec<MappingFault> = world.store().check(&all).await.unwrap();
    faults.into_iter().map(|fault| (fault.place, fault.message)).collect()
}

/// Keys, tenants, conditions and values of a type with a length are not truncated to one character.
#[test]
fn a_column_with_a_length_is_compared_and_written_as_a_whole() {
    block_on(async {
        let columns = [
            ("code", Kind::Text),
            ("flags", Kind::Text),
            ("tags", Kind::Text),
            ("reference", Kind::Uuid),
        ];
        let mut codes = collection("codes", "code", &columns);
        codes.indexes.insert("by_flags".into(), vec!["flags".into()]);
        let table = "CREATE TABLE codes (tenant char(4) NOT NULL, code char(8) NOT NULL,
                       flags bit(5), tags char(3)[], reference char(36),
                       PRIMARY KEY (tenant, code));
                     CREATE INDEX ON codes (tenant, flags, code);
                     INSERT INTO codes VALUES ('acme', 'A', B'11111'), ('a', 'AB123456', B'11111');";
        assert_eq!(faults(table, &codes).await, []);
        let (world, product) = world(table, &codes).await;
        let (acme, reference) = (tenant("acme"), Value::Uuid([0xab; 16]));
        let row = fields([
            ("code", text("AB123456")),
            ("flags", text("10101")),
            ("tags", text("{abc,xyz}")),
            ("reference", reference.clone()),
        ]);
        let insert = Change::Insert { collection: "codes".into(), fields: row };
        assert_eq!(world.unqueued(Some(acme.clone()), vec![insert]).await, Outcome::Committed);
        let written = "SELECT flags::text, tags::text, reference::text FROM codes
                       WHERE tenant = 'acme' AND code = 'AB123456'";
        let written = product.query_one(written, &[]).await.unwrap();
        let written: [String; 3] = [written.get(0), written.get(1), written.get(2)];
        assert_eq!(written, ["10101", "{abc,xyz}", "abababab-abab-abab-abab-abababababab"]);

        let view = world.store().snapshot(Duration::from_secs(60)).await.unwrap();
        let names = ["code", "flags", "tags", "reference"].map(str::to_owned);
        let rows = view.get_many(Some(&acme), "codes", &[vec![text("AB123456")]], &names).await;
        let whole = vec![text("AB123456"), text("10101"), text("{abc,xyz}"), reference];
        assert_eq!(rows.unwrap(), [Some(whole)]);
        let mut flagged = range("codes", Some("by_flags"), &["code"]);
        flagged.prefix = vec![text("10101")];
        let page = view.read_range(Some(&acme), &flagged).await.unwrap();
        assert_eq!(page.rows, [vec![text("AB123456")]]);
        flagged.prefix = vec![text("11111")];
        let page = view.read_range(Some(&acme), &flagged).await.unwrap();
        assert_eq!(page.rows, [vec![text("A")]]);
        let tenants = view.tenants(&range("codes", None, &["code"]), None, ALL).await.unwrap();
        assert_eq!(tenants, [tenant("a"), acme.clone()]);

        // The named row is changed and deleted.
        let (name, key) = ("codes".to_owned(), vec![text("AB123456")]);
        let flags = fields([("flags", text("00001"))]);
        let change = Change::Update { collection: name.clone(), key: key.clone(), fields: flags };
        assert_eq!(world.unqueued(Some(acme.clone()), vec![change]).await, Outcome::Committed);
        let all = "SELECT string_agg(rtrim(tenant) || '/' || rtrim(code) || '/' || flags::text, ' '
                     ORDER BY tenant, code) FROM codes";
        let left: String = product.query_one(all, &[]).await.unwrap().get(0);
        assert_eq!(left, "a/AB123456/11111 acme/A/11111 acme/AB123456/00001");
        let gone = Change::Delete { collection: name, key };
        assert_eq!(world.unqueued(Some(acme), vec![gone]).await, Outcome::Committed);
        let left: String = product.query_one(all, &[]).await.unwrap().get(0);
        assert_eq!(left, "a/AB123456/11111 acme/A/11111");
    });
}

/// A value that is too long is refused, not cut.
#[test]
fn a_value_beyond_its_length_is_refused() {
    block_on(async {
        let codes = collection("codes", "code", &[("code", Kind::Text)]);
        let table = "CREATE TABLE codes (tenant text, code char(3), PRIMARY KEY (tenant, code))";
        let (world, _) = world(table, &codes).await;
        let row = fields([("code", text("long"))]);
        let insert = Change::Insert { collection: "codes".into(), fields: row };
        let refused = world.unqueued(Some(tenant("a")), vec![insert]).await;
        assert!(
            matches!(&refused, Outcome::Skipped(said) if said.contains("too long")),
            "{refused:?}"
        );
    });
}

/// A date is the instant at which it begins, and infinity comes back as it was.
#[test]
fn dates_and_infinity_are_read_and_written() {
    block_on(async {
        let columns = [("id", Kind::Integer), ("day", Kind::Timestamp), ("at", Kind::Timestamp)];
        let days = collection("days", "id", &columns);
        let table = "CREATE TABLE days (tenant text, id bigint, day date, at timestamptz,
                       PRIMARY KEY (tenant, id));
                     INSERT INTO days VALUES ('a', 1, '2023-11-14', 'infinity'),
                                             ('a', 2, 'infinity', '-infinity');";
        assert_eq!(faults(table, &days).await, []);
        let (world, product) = world(table, &days).await;
        let of = |day, at| vec![Value::Timestamp(Time(day)), Value::Timestamp(Time(at))];
        let (day, first, last) = (1_699_920_000_000_000, i64::MIN, i64::MAX);
        let page = world.read(&range("days", None, &["day", "at"])).await.unwrap();
        assert_eq!(page.rows, [of(day, last), of(last, first)]);
        let row = [
            ("id", Value::Integer(3)),
            ("day", Value::Timestamp(Time(day))),
            ("at", Value::Timestamp(Time(last))),
        ];
        let insert = Change::Insert { collection: "days".into(), fields: fields(row) };
        assert_eq!(world.unqueued(Some(tenant("a")), vec![insert]).await, Outcome::Committed);
        let same = "SELECT count(*) FROM days a JOIN days b USING (day, at)
                    WHERE a.id = 1 AND b.id = 3";
        assert_eq!(product.query_one(same, &[]).await.unwrap().get::<_, i64>(0), 1);
    });
}

/// The server does not say where the value is that it cannot convert.
#[test]
fn a_value_beyond_its_kind_is_refused_with_the_collection() {
    block_on(async {
        let sums = collection("sums", "id", &[("id", Kind::Integer), ("sum", Kind::Integer)]);
        let table =
            "CREATE TABLE sums (tenant text, id bigint, sum numeric(20), PRIMARY KEY (tenant, id));
                     INSERT INTO sums VALUES ('a', 1, 99999999999999999999)";
        let (world, _product) = world(table, &sums).await;
        let view = world.store().snapshot(Duration::from_secs(60)).await.unwrap();
        let read = view.read_range(Some(&tenant("a")), &range("sums", None, &["sum"])).await;
        let Err(Error::Invalid(said)) = read else { panic!("{read:?}") };
        assert!(said.starts_with("a read of sums: ") && said.contains("(22003)"), "{said}");
    });
}

/// Whether two keys are equal is up to the column's collation, and a unique index may have another.
#[test]
fn a_key_that_its_index_does_not_keep_unique_is_a_fault() {
    block_on(async {
        let names = collection("names", "id", &[("id", Kind::Text)]);
        let folded = "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
                      CREATE TABLE names (tenant text NOT NULL, id text COLLATE folded NOT NULL)";
        let exact = format!("{folded}; CREATE UNIQUE INDEX ON names (tenant, id COLLATE \"C\")");
        let same = format!("{folded}; CREATE UNIQUE INDEX ON names (tenant, id)");
        let inherited = "CREATE TABLE names (tenant text, id text, PRIMARY KEY (tenant, id));
                         CREATE TABLE more () INHERITS (names)";
        for (sql, faulty) in [(&*exact, Some("key")), (&*same, None), (inherited, Some("table"))] {
            let found = faults(sql, &names).await;
            let places: Vec<&str> = found.iter().map(|(place, _)| place.as_str()).collect();
            assert_eq!(places, faulty.as_slice(), "{sql}: {found:?}");
        }
    });
}

/// The check refuses columns that would be rounded and tables that commit elsewhere.
#[test]
fn a_column_that_would_be_read_wrongly_is_a_fault() {
    block_on(async {
        let sums = |kind| collection("sums", "id", &[("id", Kind::Integer), ("sum", kind)]);
        let table = |ty: &str| {
            format!(
                "CREATE TABLE sums (tenant text, id bigint, sum {ty}, PRIMARY KEY (tenant, id))"
            )
        };
        for (ty, kind, faulty) in [
            ("numeric", Kind::Integer, true),
            ("numeric(12, 2)", Kind::Integer, true),
            ("numeric(12, 2)", Kind::Float, true),
            ("numeric(12, 2)", Kind::Decimal, false),
            ("numeric(12)", Kind::Integer, false),
            ("numeric(18)", Kind::Integer, false),
            ("numeric(19)", Kind::Integer, true),
        ] {
            let found = faults(&table(ty), &sums(kind)).await;
            let places: Vec<&str> = found.iter().map(|(place, _)| place.as_str()).collect();
            let expected: &[&str] = if faulty { &["columns.sum"] } else { &[] };
            assert_eq!(places, expected, "{ty} as {kind:?}: {found:?}");
            assert!(found.iter().all(|(_, said)| said.contains("map it as decimal")), "{found:?}");
        }
        let documented = table("bigint").replace("tenant text", "tenant jsonb");
        let found = faults(&documented, &sums(Kind::Integer)).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "tenant");

        let foreign = "CREATE FOREIGN DATA WRAPPER nothing;
                       CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing;
                       CREATE FOREIGN TABLE sums (tenant text, id bigint, sum bigint)
                         SERVER elsewhere";
        let found = faults(foreign, &sums(Kind::Integer)).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "table");
        assert!(found[0].1.contains("foreign table"), "{found:?}");
    });
}

/// Tenants are read in the database's order, page by page, although it is not that of their bytes
/// and the table has no statistics. For few pages the planner would choose a hash join.
#[test]
fn tenants_come_in_the_order_of_their_column() {
    block_on(async {
        for (tenants, rows) in [(40, 50), (300, 20)] {
            let table = format!(
                "CREATE TABLE docs (tenant text COLLATE \"en-US-x-icu\" NOT NULL,
                   id bigint NOT NULL, PRIMARY KEY (tenant, id)) WITH (autovacuum_enabled = false);
                 INSERT INTO docs
                   SELECT (ARRAY['team', 'Team-', 'TEAM_', 'é'])[n % 4 + 1] || n, m
                   FROM generate_series(1, {tenants}) n, generate_series(1, {rows}) m;"
            );
            in_order(&table).await;
        }
    });
}

async fn in_order(table: &str) {
    let docs = collection("docs", "id", &[("id", Kind::Integer)]);
    let (world, product) = world(table, &docs).await;
    let ordered = "SELECT DISTINCT tenant FROM docs ORDER BY tenant";
    let ordered = product.query(ordered, &[]).await.unwrap();
    let ordered: Vec<Tenant> = ordered.iter().map(|row| tenant(row.get(0))).collect();
    assert!(!ordered.is_sorted(), "the order is another than that of the bytes");

    let view = world.store().snapshot(Duration::from_secs(60)).await.unwrap();
    let all = range("docs", None, &["id"]);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = view.tenants(&all, after.as_ref(), 256).await.unwrap();
        after = page.last().cloned();
        let last = page.len() < 256;
        found.extend(page);
        if last {
            break;
        }
    }
    assert_eq!(found, ordered);
}

/// Decimals are ordered by number in a numeric column, and as texts in a column of texts; texts by the collation of
/// their column against a value, and byte by byte against another column.
#[test]
fn decimals_and_texts_are_ordered_as_their_columns_are() {
    let sql =
        "CREATE TABLE prices (id bigint PRIMARY KEY, price numeric, written text COLLATE \"C\",
                 name text COLLATE \"en-x-icu\", other text COLLATE \"en-x-icu\");
               INSERT INTO prices VALUES (1, 9.5, '9.5', 'a', 'B'), (2, 12.50, '12.50', 'B', 'a')";
    let columns = [
        ("id", Kind::Integer),
        ("price", Kind::Decimal),
        ("written", Kind::Decimal),
        ("name", Kind::Text),
        ("other", Kind::Text),
    ];
    block_on(async {
        let prices = Collection { tenant: None, ..collection("prices", "id", &columns) };
        let (world, _) = world(sql, &prices).await;
        let view = world.store().snapshot(Duration::from_secs(60)).await.unwrap();
        let than = |value: &str| Test::Value(Comparison::Below, Value::Decimal(value.into()));
        for (column, test, expected) in [
            ("price", than("10"), &[1][..]),
            ("price", than("9.50"), &[]),
            ("written", than("10"), &[]),
            ("written", than("9"), &[2]),
            ("name", Test::Value(Comparison::Above, text("a")), &[2]),
            ("name", Test::Column(Comparison::Above, "other".into()), &[1]),
        ] {
            let condition = Condition { column: column.into(), test };
            let read =
                Range { conditions: vec![condition.clone()], ..range("prices", None, &["id"]) };
            let found = view.read_range(None, &read).await.unwrap().rows;
            let expected: Vec<_> = expected.iter().map(|id| vec![Value::Integer(*id)]).collect();
            assert_eq!(found, expected, "{condition:?}");
        }
    });
}

/// A text column holds anything, and many texts are before the text of an instant without being an earlier one. No
/// range takes their rows.
#[test]
fn a_text_that_is_none_of_its_kind_is_taken_by_no_range() {
    let odd = [
        "",
        "-",
        "0",
        " ",
        "never",
        "1796000000",
        " 2020-01-01 00:00:00",
        "2020-13-01 00:00:00",
        "2019-02-29 00:00:00",
        "1900-02-29",
        "0000-00-00 00:00:00",
        "2020-01-01 24:00:00",
        "1 Dec 2099",
        "2020-01-01T00:00:00-10:00",
        "2020-01-01T00:00:00+00:00",
        "2020-01-01 00:00:00.5",
        "2020-01-01 00:00:00.000000 ",
        "2020-01-01 00:00:00\n",
        "2020-01-01T00:00:00.1234567Z",
    ];
    let later = ["2099-01-01T00:00:00Z", "2099-01-01 00:00:00", "2099-01-01"];
    let cases: [(Kind, Encoding, &[&str]); 6] = [
        (
            Kind::Timestamp,
            Encoding::Rfc3339,
            &["2020-01-01T00:00:00Z", "2020-02-29T23:59:59.5Z", "2000-02-29T00:00:00.000001Z"],
        ),
        (
            Kind::Timestamp,
            Encoding::Datetime,
            &["2020-01-01 00:00:00", "2020-01-01 00:00:00.500000", "2020-12-31 23:59:59"],
        ),
        (
            Kind::Timestamp,
            Encoding::Datetime6,
            &["2020-01-01 00:00:00.000000", "2020-01-01 00:00:00.500000"],
        ),
        (
            Kind::Timestamp,
            Encoding::Datetime3,
            &["2020-01-01 00:00:00.000", "2020-02-29 23:59:59.500"],
        ),
        (
            Kind::Timestamp,
            Encoding::Rfc3339Millis,
            &["2020-01-01T00:00:00.000Z", "2020-02-29T23:59:59.500Z"],
        ),
        (Kind::Date, Encoding::Native, &["2020-01-01", "2020-02-29", "2020-04-30"]),
    ];
    block_on(async {
        let all: BTreeSet<&str> =
            odd.iter().chain(&later).chain(cases.iter().flat_map(|case| case.2)).copied().collect();
        for (kind, encoding, due) in cases {
            let mut times = collection("times", "id", &[("id", Kind::Integer)]);
            times.tenant = None;
            times.columns.insert("at".into(), Column { kind, encoding });
            times.indexes.insert("by_at".into(), vec!["at".into()]);
            let table = "CREATE TABLE times (id int PRIMARY KEY, at text COLLATE \"C\");
                         CREATE INDEX ON times (at, id)";
            let (world, product) = world(table, &times).await;
            for (id, text) in all.iter().enumerate() {
                let insert = "INSERT INTO times VALUES ($1, $2)";
                let id = i32::try_from(id).expect("few");
                product.execute(insert, &[&id, text]).await.unwrap();
            }
            let upper = match kind {
                Kind::Date => Value::Date(20_000),
                _ => Value::Timestamp(Time::from_secs(1_700_000_000)),
            };
            let range = RowRange {
                collection: "times".into(),
                index: Some("by_at".into()),
                upper: Some(upper),
                rows: 1_000,
                ..RowRange::default()
            };
            let gone = vec![Change::DeleteRange(Arc::new(range))];
            assert_eq!(world.unqueued(None, gone).await, Outcome::Committed);
            let left = product.query("SELECT at FROM times", &[]).await.unwrap();
            let left: BTreeSet<String> = left.iter().map(|row| row.get(0)).collect();
            let taken: BTreeSet<&str> =
                all.iter().copied().filter(|text| !left.contains(*text)).collect();
            assert_eq!(taken, due.iter().copied().collect(), "{kind:?} {encoding:?}");
        }
    });
}
