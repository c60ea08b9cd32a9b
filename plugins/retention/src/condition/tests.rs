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
        vec!["ok".into(), "n".into()]
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
        ("colour = 'red'", 0..6, "there is no column `colour`; the columns are ok, n"),
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
