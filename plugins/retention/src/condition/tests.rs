use super::*;

struct Table;

impl Columns for Table {
    fn kind(&self, name: &str) -> Option<Kind> {
        let known = [
            ("ok", Kind::Bool),
            ("n", Kind::Integer),
            ("ratio", Kind::Float),
            ("price", Kind::Decimal),
            ("state", Kind::Text),
            ("raw", Kind::Bytes),
            ("at", Kind::Timestamp),
            ("id", Kind::Uuid),
            ("doc", Kind::Json),
            ("day", Kind::Date),
            ("limit", Kind::Integer),
            ("Last Seen", Kind::Timestamp),
        ];
        known.into_iter().find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }

    fn names(&self) -> Vec<String> {
        vec!["ok".into(), "n".into(), "state".into()]
    }
}

const NOW: Time = Time(1_764_000_000_000_000);

fn read(text: &str) -> Condition {
    Condition::read(text, &Table).unwrap_or_else(|fault| panic!("{text}: {fault:?}"))
}

fn row(column: &str) -> Value {
    match column {
        "ok" => Value::Bool(true),
        "n" => Value::Integer(7),
        "limit" => Value::Integer(8),
        "day" => Value::Date(20_410),
        "ratio" => Value::Float(0.5),
        "price" => Value::Decimal("12.50".into()),
        "state" => Value::Text("it's".into()),
        "at" => Value::Timestamp(NOW.0 - 3_600_000_000),
        "id" => Value::Uuid((0x0123_4567_89ab_cdef, 0x0fed_cba9_8765_4321)),
        _ => Value::Null,
    }
}

fn holds(text: &str) -> Option<bool> {
    read(text).holds(&row, NOW)
}

#[test]
fn a_condition_holds_as_in_sql() {
    for (text, expected) in [
        ("", Some(true)),
        ("  ", Some(true)),
        ("ok = true", Some(true)),
        ("ok != true", Some(false)),
        ("n = 7 AND n <> 8", Some(true)),
        ("n < 7 or n > 6", Some(true)),
        ("n <= 6", Some(false)),
        ("n >= -7", Some(true)),
        ("not n = 7", Some(false)),
        ("not (n = 1 or n = 2)", Some(true)),
        ("ratio = 0.5", Some(true)),
        ("ratio > 1", Some(false)),
        ("price = 12.5", Some(true)),
        ("price > 9", Some(true)),
        ("price < -100.25", Some(false)),
        ("state = 'it''s'", Some(true)),
        ("state in ('a', 'it''s')", Some(true)),
        ("state not in ('a')", Some(true)),
        ("n in (1, 2)", Some(false)),
        ("id = '01234567-89AB-cdef-0fed-cba987654321'", Some(true)),
        ("at < now", Some(true)),
        ("at < now - 30m", Some(true)),
        ("at < now-2h", Some(false)),
        ("at < now + 1d", Some(true)),
        ("at > '2025-11-24'", Some(true)),
        ("at >= '2025-11-24T15:00:00Z'", Some(true)),
        ("at = '2025-11-24 15:00:00.000000'", Some(true)),
        ("day = '2025-11-18'", Some(true)),
        ("day < now - 6d", Some(false)),
        ("day <= now - 6d", Some(true)),
        ("day in ('2025-11-18', '2025-11-19')", Some(true)),
        ("n < limit", Some(true)),
        ("n >= \"limit\"", Some(false)),
        ("at < \"Last Seen\"", None),
        ("\"Last Seen\" != at", None),
        // NULL is neither equal nor unequal to anything.
        ("\"Last Seen\" is null", Some(true)),
        ("\"Last Seen\" IS NOT NULL", Some(false)),
        ("\"Last Seen\" < now", None),
        ("not \"Last Seen\" < now", None),
        ("\"Last Seen\" in ('2025-01-01')", None),
        ("\"Last Seen\" < now or n = 7", Some(true)),
        ("\"Last Seen\" < now and n = 8", Some(false)),
        ("\"Last Seen\" < now and n = 7", None),
        ("doc is null and raw is null", Some(true)),
        // `and` binds closer than `or`.
        ("\"Last Seen\" not in ('2025-01-01')", None),
        ("n = 7 or n = 8 and n = 9", Some(true)),
        ("(n = 7 or n = 8) and n = 9", Some(false)),
    ] {
        assert_eq!(holds(text), expected, "{text}");
    }
}

#[test]
fn a_fault_names_its_bytes() {
    for (text, at, words) in [
        ("colour = 'red'", 0..6, "there is no column `colour`; the columns are ok, n, state"),
        ("state = closed", 8..14, "; a text is written in single quotes: 'closed'"),
        ("n = 'red'", 4..9, "`n` is an integer, and this is a text"),
        ("n = 1.5", 4..7, "no integer of 64 bits"),
        ("n = 99999999999999999999", 4..24, "no integer of 64 bits"),
        ("state = 7", 8..9, "`state` is a text, and this is a number"),
        ("state < 'b'", 0..5, "whose order depends on the database"),
        ("ok > false", 0..2, "is a bool, whose order"),
        ("ok = 'yes'", 5..10, "`ok` is a bool, and this is a text"),
        ("n = true", 4..8, "this is a bool"),
        ("n = null", 4..8, "write `is null`"),
        ("at = '2026-02-30'", 5..17, "a text that is no instant in UTC"),
        ("at = 7", 5..6, "`at` is a timestamp, and this is a number"),
        ("price not in (30d)", 14..17, "`price` is a decimal, and this is a span"),
        ("state = 'a\0'", 8..12, "a text with a NUL"),
        ("n = now", 4..7, "`n` is an integer, and this is an instant"),
        ("at < now - 30", 11..13, "a span such as 30d or 12h is expected here"),
        ("at < now -", 10..10, "and nothing follows"),
        ("doc = '{}'", 6..10, "test it with `is null` or `is not null` only"),
        ("id = 'x'", 5..8, "no uuid"),
        ("n", 1..1, "`=`, `!=`, `<`"),
        ("n =", 3..3, "a value is expected here, and nothing follows"),
        ("n = 1 n = 2", 6..7, "`and`, `or` or the end is expected here, not `n`"),
        ("(n = 1", 6..6, "`)` is expected"),
        ("n in 1", 5..6, "`(` and values"),
        ("n in ()", 6..7, "a value ("),
        ("n is 1", 5..6, "`null` is expected"),
        ("n not = 1", 6..7, "`in` is expected"),
        ("n = 1 and", 9..9, "a column is expected"),
        ("state = 'open", 8..13, "the quote ' is not closed"),
        ("n = 1; drop table t", 5..6, "`;` means nothing here"),
        ("n = 1x", 4..6, "neither a number nor a span"),
        ("n = state", 4..9, "`n` is an integer, and this is `state`, a text"),
        ("n = m", 4..5, "no column `m`"),
        ("day = '2026-02-30'", 6..18, "no day such as"),
        ("ü = 1", 0..2, "no column `ü`"),
        // What people write who know SQL.
        ("statee = 'a'", 0..6, "no column `statee`: did you mean `state`? (the columns are "),
        ("State = 'a'", 0..5, "did you mean `state`?"),
        ("state = \"closed\"", 8..16, "a text is written in single quotes: 'closed'"),
        ("state == 'a'", 5..8, "written with one `=`"),
        ("state like 'a%'", 6..10, "there are no patterns; list the texts"),
        ("state not like 'a%'", 10..14, "there are no patterns"),
        ("state ~ 'a'", 6..7, "there are no patterns"),
        ("n between 1 and 2", 2..9, "write `n >= ... and n <= ...`"),
        ("state is 'a'", 9..12, "compared by `=`"),
        ("ok is not true", 10..14, "compared by `!=`"),
        ("(ok)", 3..4, "write `ok = true`"),
        ("ok = 1", 5..6, "and this is a number: write true or false"),
        ("n = '7'", 4..7, "this is a text: write 7 without quotes"),
        ("state = 7", 8..9, "write '7'"),
        ("at < now() - 30d", 5..9, "`now` is written without parentheses"),
        ("at < current_timestamp", 5..22, "the present is written `now`"),
        (
            "at < date('now', '-30 days')",
            5..9,
            "there are no functions; the present is written `now`",
        ),
        ("lower(state) = 'a'", 0..5, "no column `lower`: there are no functions"),
        ("at < now - interval '30 days'", 11..19, "a span such as 30d"),
        ("at < 'now'", 5..10, "write now without quotes"),
        ("at < 2026-01-31", 5..9, "as '2026-01-31', or as `now - 30d`"),
        ("at < -30d", 5..9, "a time ago is written `now - 30d`"),
        ("at + 30d < now", 3..4, "only the other side is computed"),
        ("at < '31.01.2026'", 5..17, "no instant in UTC such as '2026-01-31'"),
        ("'a' = state", 0..3, "a test begins with its column"),
        ("n = 1 && n = 2", 6..7, "write `and`"),
        ("n = 1 || n = 2", 6..7, "write `or`"),
        ("!ok", 0..1, "write `not`"),
        ("`n` = 1", 0..1, "a name is quoted as \"name\""),
        ("n::text = '1'", 1..2, "there are no casts"),
        ("t.n = 1", 1..2, "a column is named without its table"),
        ("true", 0..4, "to mean every row, remove the setting"),
        ("at < '30d'", 5..10, "a time ago is written `now - 30d`"),
        ("where n = 1", 0..5, "leave the word `where` out"),
        ("exists (select 1)", 0..6, "there are no queries"),
        ("state = \u{2018}a\u{2019}", 8..11, "straight quotes"),
    ] {
        let fault = Condition::read(text, &Table).expect_err(text);
        assert!(fault.range == at && fault.message.contains(words), "{text}: {fault:?}");
    }
    let deep = format!("{}n = 1{}", "(".repeat(100), ")".repeat(100));
    let fault = Condition::read(&deep, &Table).expect_err("too deep");
    assert!(fault.message.contains("nested 32 times"), "{fault:?}");
}

/// Whatever holds for a row, the conditions that the database evaluates hold as well.
#[test]
fn what_the_database_evaluates_is_implied() {
    let implied = |text: &str| read(text).implied(NOW);
    let of = |column: &str, comparison, value: Value| Tested::of(column, comparison, value);
    assert_eq!(
        implied(
            "n < 8 and state = 'a' and (ok = true or ok = false) and not n = 9 and raw is not null"
        ),
        [
            of("n", Comparison::Below, 8i64.into()),
            of("state", Comparison::Equal, "a".into()),
            of("raw", Comparison::NotEqual, Value::Null),
        ]
    );
    assert_eq!(implied("n = 1 or n = 2"), []);
    let test = Test::OneOf(vec![1i64.into()]);
    assert_eq!(implied("n in (1)"), [Tested { column: "n".into(), test }]);
    let hour_ago = Value::Timestamp(NOW.0 - 3_600_000_000);
    assert_eq!(implied("at >= now - 1h"), [of("at", Comparison::AtLeast, hour_ago)]);
}

#[test]
fn assignments_are_read_with_their_types() {
    let set = assignments("state = 'old', at = now, \"Last Seen\" = null", &Table).expect("read");
    let columns: Vec<_> = set.set_at(NOW).collect();
    assert_eq!(columns, [("state", "old".into()), ("at", NOW.into()), ("Last Seen", Value::Null)]);
    for (text, by) in [("n = n + 2", 2), ("n = n - 2", -2), ("n = n -2", -2), ("n=n+2", 2)] {
        let set = assignments(&format!("{text}, state = 'old'"), &Table).expect(text);
        assert_eq!((set.added().collect(), set.set.len()), (vec![("n", by)], 1), "{text}");
    }
    for (text, at, words) in [
        ("", 0..0, "a column is expected"),
        ("state = 7", 8..9, "this is a number"),
        ("n = n", 5..5, "`+` or `-` and a whole number"),
        ("n = n + 1.5", 8..11, "a whole number is expected here, not `1.5`"),
        ("n = n + -1", 8..10, "a whole number"),
        ("n = n + n", 8..9, "a whole number"),
        ("n = n + 99999999999999999999", 8..28, "a whole number"),
        ("n = n + 1, n = 2", 11..12, "`n` is set twice"),
        ("price = price + 1", 8..13, "`price` is a decimal: only an integer is added to"),
        ("n = other + 1", 4..9, "a value"),
        ("n = 1, n = 2", 7..8, "`n` is set twice"),
        ("n = 1 and", 6..9, "`,` or the end"),
        ("n = 1,", 6..6, "a column is expected"),
    ] {
        let fault = assignments(text, &Table).expect_err(text);
        assert!(fault.range == at && fault.message.contains(words), "{text}: {fault:?}");
    }
}

#[test]
fn what_is_no_number_compares_with_none() {
    let nan = |_: &str| Value::Decimal("NaN".into());
    for text in ["price = 5", "price != 5", "price in (5)", "price not in (5)", "not price < 5"] {
        assert_eq!(read(text).holds(&nan, NOW), None, "{text}");
    }
}

#[test]
fn decimals_compare_exactly() {
    for (a, b, expected) in [
        ("0.1", "0.10", Ordering::Equal),
        ("9007199254740993", "9007199254740992.5", Ordering::Greater),
        ("-1", "-2", Ordering::Greater),
        ("-0", "0.0", Ordering::Equal),
        ("-0.5", "0", Ordering::Less),
        ("10", "9.99", Ordering::Greater),
        ("007", "7", Ordering::Equal),
        ("0.09", "0.1", Ordering::Less),
    ] {
        assert_eq!(decimals(a, b), Some(expected), "{a} {b}");
    }
    assert_eq!(decimals("NaN", "1"), None);
}

#[test]
fn what_is_written_out_for_a_column_is_known_with_its_bytes() {
    let told = |all: Vec<Written>| -> Vec<(String, Option<String>, Range<usize>)> {
        all.into_iter().map(|one| (one.column, one.text, one.range)).collect()
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        told(set_to("state = 'it''s', at = null, n = 7", &Table)),
        [("state".into(), some("it's"), 8..15), ("at".into(), None, 22..26)]
    );
    assert_eq!(
        told(compared_with("n = 1 or state in ('a', 'b')", &Table)),
        [("state".into(), some("a"), 19..22), ("state".into(), some("b"), 24..27)]
    );
    assert_eq!(told(compared_with("state = 'a' or", &Table)), []);
}
