//! Runs the task against the in-memory host, without WebAssembly or a database.

use besom_sdk::Change;
use besom_sdk::Test;
use besom_sdk::testing::Fixture;

use super::*;

const NOW: Time = Time(1_750_000_000_000_000);
const DAY: i64 = 86_400_000_000;

/// Uploads with a state, and the days since they were last used.
fn uploads(rows: &[(i64, Option<&str>, Option<i64>)]) -> Fixture {
    uploads_beyond(7, 0, rows)
}

/// With this age and this number of rows in an item.
fn uploads_beyond(days: i64, chunk: i64, rows: &[(i64, Option<&str>, Option<i64>)]) -> Fixture {
    let columns = [("no", "integer"), ("state", "text"), ("used_at", "timestamp")];
    let fixture = Fixture::new(NOW)
        .table(ROWS, &["no"], &[("by_state", &["state"]), ("by_use", &["used_at"])])
        .described(ROWS, &columns)
        .setting("by", "used_at")
        .setting("chunk", chunk)
        .setting("older_than", days * 86_400_000);
    rows.iter().fold(fixture, |fixture, (no, state, days)| {
        let used = days.map(|days| Time(NOW.0 - days * DAY));
        let row = [("no", (*no).into()), ("state", (*state).into()), ("used_at", used.into())];
        fixture.row(ROWS, "", row)
    })
}

fn planned(fixture: &mut Fixture) -> Vec<String> {
    fixture.scan::<Retention>("").expect("a scan").into_iter().map(|one| one.key).collect()
}

#[test]
fn rows_beyond_the_age_that_are_meant_are_planned() {
    let rows = [
        (1, Some("closed"), Some(8)),
        (2, Some("open"), Some(8)),
        (3, Some("closed"), Some(7)),
        (4, Some("closed"), Some(6)),
        (5, None, Some(9)),
        (6, Some("closed"), None),
    ];
    assert_eq!(planned(&mut uploads(&rows)), ["#5", "#1", "#2", "#3"]);
    let mut closed = uploads(&rows).setting("where", "state = 'closed'");
    assert_eq!(planned(&mut closed), ["#1", "#3"]);
    let mut others = uploads(&rows).setting("where", "state != 'closed'");
    assert_eq!(planned(&mut others), ["#2"], "as in SQL, NULL is not unequal");
    let mut either = uploads(&rows).setting("where", "state is null or state in ('open')");
    assert_eq!(planned(&mut either), ["#5", "#2"]);
}

fn act(fixture: &mut Fixture, keys: &[&str]) -> Vec<Verdict> {
    let items: Vec<_> = keys.iter().map(|key| ("", Candidate::new(*key))).collect();
    fixture.act::<Retention>(&items).expect("verdicts")
}

#[test]
fn a_row_is_deleted_only_as_it_was_read() {
    let rows = [(1, Some("closed"), Some(8)), (2, Some("open"), Some(8)), (3, None, Some(1))];
    let mut fixture = uploads(&rows).setting("where", "state = 'closed' or state is null");
    let verdicts = act(&mut fixture, &["#1", "#2", "#3", "#4"]);
    let Verdict::Propose(proposal) = &verdicts[0] else { panic!("{verdicts:?}") };
    let key = vec![Value::Integer(1)];
    let guard = Guard::row(ROWS, key.clone()).equal("used_at", Time(NOW.0 - 8 * DAY));
    assert_eq!(proposal.guards, [guard.equal("state", "closed").into()]);
    assert!(matches!(&proposal.changes[..], [Change::Delete(row)] if row.key == key));
    let changed = Verdict::skip("changed since it was planned");
    assert_eq!(verdicts[1..], [changed.clone(), changed, Verdict::skip("already deleted")]);
}

#[test]
fn columns_are_set_so_that_the_row_does_not_match_again() {
    let rows = [(1, Some("open"), Some(8)), (2, Some("old"), Some(8))];
    let set = |fixture: Fixture, set: &str| {
        fixture.setting("action", "set").setting("set", set).setting("where", "state != 'old'")
    };
    let mut fixture = set(uploads(&rows), "state = 'old'");
    assert_eq!(planned(&mut fixture), ["#1"]);
    let verdicts = act(&mut fixture, &["#1"]);
    let [Verdict::Propose(proposal)] = &verdicts[..] else { panic!("{verdicts:?}") };
    let [Change::Update(change)] = &proposal.changes[..] else { panic!("{proposal:?}") };
    assert_eq!(change.fields, [besom_sdk::Field { name: "state".into(), value: "old".into() }]);
    // `now` has passed at the next run.
    let touched =
        uploads_beyond(0, 0, &rows).setting("action", "set").setting("set", "used_at = now");
    let mut touched = touched.setting("where", "used_at < now");
    let again = act(&mut touched, &["#1"]);
    assert!(matches!(&again[..], [Verdict::Dead(_)]), "{again:?}");
    let again = act(&mut set(uploads(&rows), "state = 'older'"), &["#1"]);
    assert!(matches!(&again[..], [Verdict::Dead(why)] if why.contains("match again")), "{again:?}");
}

#[test]
fn parts_of_the_index_are_planned_and_the_commit_judges_their_rows() {
    let rows = [
        (1, Some("closed"), Some(8)),
        (2, Some("open"), Some(8)),
        (3, Some("closed"), Some(7)),
        (4, Some("closed"), Some(6)),
        (5, None, Some(9)),
        (6, Some("closed"), None),
    ];
    let fixture = uploads_beyond(7, 2, &rows);
    let mut fixture = fixture.setting("where", "state = 'closed' or state is null");
    let parts = fixture.scan::<Retention>("").expect("a scan");
    let versions: Vec<&str> = parts.iter().map(|part| &*part.version).collect();
    assert_eq!(versions, ["2", "1"], "the rows of each part: 5 and 1, then 3");
    let items: Vec<_> = parts.into_iter().map(|part| ("", part)).collect();
    let verdicts = fixture.act::<Retention>(&items).expect("verdicts");
    let ranges = |verdict: &Verdict| -> Vec<besom_sdk::RowRange> {
        let Verdict::Propose(proposal) = verdict else { panic!("{verdict:?}") };
        assert!(proposal.guards.is_empty());
        let rows = if verdict == &verdicts[0] { 2_i64 } else { 1 };
        assert_eq!(
            proposal.notes,
            [besom_sdk::Field { name: "planned_rows".into(), value: rows.into() }]
        );
        let range = |change: &Change| match change {
            Change::DeleteRange(range) => range.clone(),
            other => panic!("{other:?}"),
        };
        proposal.changes.iter().map(range).collect()
    };
    let (first, second) = (ranges(&verdicts[0]), ranges(&verdicts[1]));
    for range in first.iter().chain(&second) {
        assert_eq!(range.index.as_deref(), Some("by_use"));
        assert_eq!(range.upper, Some(Time(NOW.0 - 7 * DAY).into()));
    }
    let states = [Value::from("closed"), Value::Null];
    for ranges in [&first, &second] {
        let tested = ranges.iter().map(|range| match &range.conditions[..] {
            [besom_sdk::Condition { column, test: Test::Value(test) }] if column == "state" => {
                assert_eq!(test.comparison, Comparison::Equal);
                test.value.clone()
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(tested.collect::<Vec<_>>(), states);
    }
    assert_eq!((first[0].rows, &first[0].after), (2, &None));
    assert!(first[0].until.is_some());
    assert_eq!((second[0].rows, &second[0].after), (1, &first[0].until));
    assert_eq!(second[0].until, None);
}

/// Invoices with the day on which they were issued. `NOW` is in the afternoon of 2025-06-15, UTC.
fn invoices(chunk: i64, rows: &[(i64, Option<&str>)]) -> Fixture {
    let fixture = Fixture::new(NOW)
        .table(ROWS, &["no"], &[("by_day", &["issued"])])
        .described(ROWS, &[("no", "integer"), ("issued", "date")])
        .setting("by", "issued")
        .setting("chunk", chunk)
        .setting("older_than", 7 * 86_400_000_i64);
    rows.iter().fold(fixture, |fixture, (no, day)| {
        let day = day.map(|day| Day::parse(day).expect("a day"));
        fixture.row(ROWS, "", [("no", (*no).into()), ("issued", day.into())])
    })
}

/// A day is as old as its beginning in UTC: the afternoon of the day seven days before is not over when it is taken.
#[test]
fn rows_are_taken_by_a_date() {
    let rows = [
        (1, Some("2025-06-08")),
        (2, Some("2025-06-09")),
        (3, Some("1999-12-31")),
        (4, None),
        (5, Some("2025-06-08")),
    ];
    let mut single = invoices(0, &rows);
    let found = single.scan::<Retention>("").expect("a scan");
    let found: Vec<_> = found.iter().map(|one| (one.key.as_str(), one.version.as_str())).collect();
    let (old, last) = ("1999-12-31", "2025-06-08");
    let version = |text| Day::parse(text).expect("a day").0.to_string();
    let versions = [("#3", &*version(old)), ("#1", &*version(last)), ("#5", &*version(last))];
    assert_eq!(found, versions, "the days since 1970");
    let verdicts = act(&mut single, &["#5", "#2", "#4"]);
    let Verdict::Propose(proposal) = &verdicts[0] else { panic!("{verdicts:?}") };
    let day = |text: &str| Day::parse(text).expect("a day");
    let guard = Guard::row(ROWS, vec![Value::Integer(5)]).equal("issued", day(last));
    assert_eq!(proposal.guards, [guard.into()]);
    let changed = Verdict::skip("changed since it was planned");
    assert_eq!(verdicts[1..], [changed.clone(), changed]);

    // The same days together, in parts whose border is among equal ones.
    let mut parts = invoices(2, &rows);
    let found = parts.scan::<Retention>("").expect("a scan");
    let items: Vec<_> = found.into_iter().map(|part| ("", part)).collect();
    let verdicts = parts.act::<Retention>(&items).expect("verdicts");
    let ranges = verdicts.iter().map(|verdict| match verdict {
        Verdict::Propose(proposal) => match &proposal.changes[..] {
            [Change::DeleteRange(range)] => range.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    });
    let ranges: Vec<besom_sdk::RowRange> = ranges.collect();
    assert_eq!(ranges.iter().map(|range| range.rows).collect::<Vec<_>>(), [2, 1]);
    for range in &ranges {
        assert_eq!(range.index.as_deref(), Some("by_day"));
        assert_eq!(range.upper, Some(day(last).into()), "of the same kind as the column");
    }
    assert_eq!(ranges[1].after, ranges[0].until);
}

/// Jobs by state and end, of which some are alike in both; `chunk` of 0: each is an item.
fn jobs(chunk: i64, rows: &[(i64, &str, Option<i64>)]) -> Fixture {
    let by_end: &[(&str, &[&str])] = &[("by_end", &["at"]), ("by_state", &["state", "at"])];
    let fixture = Fixture::new(NOW)
        .table(ROWS, &["no"], by_end)
        .described(ROWS, &[("no", "integer"), ("state", "text"), ("at", "timestamp")])
        .setting("by", "at")
        .setting("chunk", chunk)
        .setting("older_than", 7 * 86_400_000_i64);
    rows.iter().fold(fixture, |fixture, (no, state, days)| {
        let at = days.map(|days| Time(NOW.0 - days * DAY));
        fixture.row(ROWS, "", [("no", (*no).into()), ("state", (*state).into()), ("at", at.into())])
    })
}

/// The parts of an index are read one after the other, and no item has rows of two of them.
#[test]
fn rows_are_read_by_the_states_of_an_index_one_after_the_other() {
    let rows = [
        (1, "done", Some(9)),
        (2, "failed", Some(9)),
        (3, "done", Some(8)),
        (4, "waiting", Some(9)),
        (5, "done", Some(8)),
        (6, "failed", Some(1)),
        (7, "done", None),
    ];
    let both = "state in ('failed', 'gone', 'done', 'failed')";
    let found = planned(&mut jobs(0, &rows).setting("where", both));
    assert_eq!(found, ["#2", "#1", "#3", "#5"]);
    for chunk in 1..=4 {
        let mut fixture = jobs(chunk, &rows).setting("where", both);
        let found = fixture.scan::<Retention>("").expect("a scan");
        let items: Vec<_> = found.into_iter().map(|part| ("", part)).collect();
        let mut planned = Vec::new();
        for verdict in fixture.act::<Retention>(&items).expect("verdicts") {
            let Verdict::Propose(proposal) = &verdict else { panic!("{verdict:?}") };
            let [Change::DeleteRange(range)] = &proposal.changes[..] else { panic!("{verdict:?}") };
            assert_eq!(range.index.as_deref(), Some("by_state"));
            let [Value::Text(state)] = &range.prefix[..] else { panic!("{range:?}") };
            planned.push((state.clone(), range.rows, range.after.is_some(), range.until.is_some()));
        }
        let mut expected = vec![("failed".to_owned(), 1, false, false)];
        let parts: &[u32] = [&[1, 1, 1][..], &[2, 1], &[3], &[3]][chunk as usize - 1];
        for (at, rows) in parts.iter().enumerate() {
            let is_last = at + 1 == parts.len();
            expected.push(("done".to_owned(), *rows, at > 0, !is_last));
        }
        assert_eq!(planned, expected, "chunk = {chunk}");
    }
    // A tenant is scanned for any of the parts.
    let tenants = |condition: &str| {
        jobs(1, &rows).setting("where", condition).tenants::<Retention>().expect("tenants")
    };
    assert_eq!(tenants("state in ('gone', 'done')"), [""]);
    assert_eq!(tenants("state in ('gone', 'lost')"), [""; 0]);
    assert_eq!(tenants("state in ('waiting', 'gone') and no > 4"), [""; 0]);
    // A part that the settings do not have any more.
    let mut fixture = jobs(10, &rows).setting("where", both);
    let found = fixture.scan::<Retention>("").expect("a scan");
    let mut fewer = fixture.setting("where", "state = 'done'");
    let verdicts = fewer.act::<Retention>(&[("", found[1].clone())]).expect("verdicts");
    assert_eq!(verdicts, [Verdict::skip("planned by other settings")]);
}

#[test]
fn the_index_with_the_most_fixed_columns_is_read() {
    let owned = |columns: &[&str]| columns.iter().map(|&c| c.to_owned()).collect::<Vec<_>>();
    let rows = Described {
        collection: ROWS.into(),
        key: owned(&["day", "no"]),
        columns: [
            ("no", "integer"),
            ("day", "date"),
            ("state", "text"),
            ("kind", "text"),
            ("at", "timestamp"),
            ("seen", "timestamp"),
            ("rate", "float"),
        ]
        .map(|(name, ty)| (name.into(), ty.into()))
        .to_vec(),
        indexes: [
            ("a", &["at", "no"][..]),
            ("b", &["state", "at"]),
            ("c", &["state", "kind", "at"]),
            ("d", &["seen", "at"]),
            ("e", &["rate", "at"]),
        ]
        .map(|(name, columns)| (name.into(), owned(columns)))
        .to_vec(),
        partial: [
            ("p", &["at"][..], &["at"][..]),
            ("q", &["at"], &["seen"]),
            ("r", &["kind", "at"], &["kind", "at"]),
        ]
        .map(|(name, columns, not_null)| PartialIndex {
            name: name.into(),
            columns: owned(columns),
            not_null: owned(not_null),
        })
        .to_vec(),
    };
    let many: Vec<String> = (0..33).map(|n| format!("'{n}'")).collect();
    let too_many = format!("state in ({})", many.join(", "));
    let either = "(state = 'x' and no > 3) or (state in ('y', 'x') and kind = 'k')";
    let rules = |condition: &str, index: &str| Rules {
        by: "at".into(),
        index: index.into(),
        condition: condition.into(),
        action: "delete".into(),
        ..Rules::default()
    };
    let prefixes = |all: &[&[&str]]| -> Vec<Vec<Value>> {
        let value = |text: &&str| match *text {
            "" => Value::Null,
            text => text.into(),
        };
        all.iter().map(|prefix| prefix.iter().map(value).collect()).collect()
    };
    for (condition, index, read) in [
        ("", "p", &[&[][..]][..]),
        ("state = 'x'", "b", &[&["x"]]),
        ("state in ('x', 'y') and no = 1", "b", &[&["x"], &["y"]]),
        ("state is null and kind in ('k', 'l')", "c", &[&["", "k"], &["", "l"]]),
        ("state in ('x', 'y', 'z') and (state = 'x' or state is null)", "b", &[&["x"], &[""]]),
        ("kind = 'k'", "r", &[&["k"]]),
        ("kind is null", "p", &[&[]]),
        ("seen is not null", "p", &[&[]]),
        ("not state = 'x'", "p", &[&[]]),
        ("state = 'x' or kind = 'k'", "p", &[&[]]),
        (either, "b", &[&["x"], &["y"]]),
        // Stores do not compare these alike.
        ("seen = now", "p", &[&[]]),
        ("rate = 1.5", "p", &[&[]]),
        (&too_many, "p", &[&[]]),
    ] {
        let plan = plan(&rows, None, &rules(condition, "")).expect("a plan");
        assert_eq!(plan.index(), Some(index), "{condition}");
        assert_eq!(plan.way.prefixes, prefixes(read), "{condition}");
    }
    let of_key = Rules { by: "day".into(), ..rules("", "") };
    assert_eq!(plan(&rows, None, &of_key).expect("a plan").index(), None, "the key");
    let named = plan(&rows, None, &rules("state = 'x' and seen > now", "q")).expect("a plan");
    assert_eq!(named.index(), Some("q"));
    for (condition, index, words) in [
        ("", "q", "has no rows whose `seen` is null: add `seen is not null` to `where`"),
        ("kind = 'k'", "b", "`b` (state, at) does not begin with `at`, and `where` does not fix"),
        (&too_many, "b", "to at most 32 values"),
        ("", "z", "the indexes are a, b, c, d, e, p, q, r"),
    ] {
        let wrong = plan(&rows, None, &rules(condition, index)).expect_err("refused");
        assert!(wrong.setting == "index" && wrong.message.contains(words), "{wrong:?}");
    }
}

#[test]
fn rows_are_set_together_only_if_none_can_match_again() {
    let rows = [(1, Some("open"), Some(8)), (2, Some("old"), Some(8))];
    let set = |set: &str| {
        let fixture = uploads_beyond(7, 100, &rows).setting("action", "set");
        fixture.setting("set", set).setting("where", "state != 'old'")
    };
    let planned = |mut fixture: Fixture| {
        let planned = fixture.scan::<Retention>("").expect("a scan");
        let [one] = &planned[..] else { panic!("{planned:?}") };
        let verdicts = fixture.act::<Retention>(&[("", one.clone())]).expect("verdicts");
        let Verdict::Propose(proposal) = &verdicts[0] else { return Vec::new() };
        proposal.changes.clone()
    };
    assert!(matches!(&planned(set("state = 'old'"))[..], [Change::UpdateRange(_)]));
    assert!(planned(set("state = 'older'")).is_empty(), "each row is judged by the task");
}

#[test]
fn rows_are_moved_as_parts_or_alone_under_a_guard() {
    let rows = [(1, Some("closed"), Some(8)), (2, Some("closed"), Some(9))];
    let columns = [("no", "integer"), ("state", "text"), ("used_at", "timestamp")];
    let archive = |chunk| {
        let fixture = uploads_beyond(7, chunk, &rows).table(INTO, &["no"], &[]);
        fixture.described(INTO, &columns).setting("action", "archive")
    };
    let changes = |mut fixture: Fixture| {
        let planned = fixture.scan::<Retention>("").expect("a scan");
        let items: Vec<_> = planned.into_iter().map(|one| ("", one)).collect();
        let verdicts = fixture.act::<Retention>(&items).expect("verdicts");
        let of = |verdict: Verdict| match verdict {
            Verdict::Propose(proposal) => (proposal.guards.len(), proposal.changes),
            other => panic!("{other:?}"),
        };
        verdicts.into_iter().map(of).collect::<Vec<_>>()
    };
    let [(0, together)] = &changes(archive(10))[..] else { panic!("one item") };
    let [Change::MoveRange(both)] = &together[..] else { panic!("{together:?}") };
    assert_eq!((both.into.as_str(), both.range.rows), (INTO, 2));
    let [(1, first), (1, _)] = &changes(archive(0))[..] else { panic!("two items") };
    let [Change::MoveRange(alone)] = &first[..] else { panic!("{first:?}") };
    assert_eq!((alone.range.rows, &alone.range.prefix[..]), (1, &[Value::Integer(2)][..]));
    assert_eq!(alone.range.index, None);
}

#[test]
fn settings_that_cannot_work_are_refused_with_their_place() {
    let rows = Described {
        collection: ROWS.into(),
        key: vec!["no".into()],
        columns: [
            ("no", "integer"),
            ("state", "text"),
            ("used_at", "timestamp"),
            ("at", "timestamp"),
        ]
        .map(|(name, ty)| (name.into(), ty.into()))
        .to_vec(),
        indexes: vec![
            ("by_state".into(), vec!["state".into(), "used_at".into()]),
            ("by_use_and_no".into(), vec!["used_at".into(), "no".into()]),
            ("by_use".into(), vec!["used_at".into()]),
        ],
        partial: Vec::new(),
    };
    let rules = |by: &str| Rules { by: by.into(), action: "delete".into(), ..Rules::default() };
    let good = plan(&rows, None, &rules("used_at")).expect("a plan");
    assert_eq!(good.index(), Some("by_use"), "the shortest");
    let refused = |rules: Rules| {
        let Wrong { setting, range, message } = plan(&rows, None, &rules).expect_err("refused");
        (setting, range, message)
    };
    let set = |text: &str| Rules { action: "set".into(), set: text.into(), ..rules("used_at") };
    for (rules, setting, range, words) in [
        (rules("state"), "by", None, "is mapped as text, which tells no age"),
        (rules("used_att"), "by", None, "did you mean `used_at`?"),
        (rules("gone"), "by", None, "the columns are no, state, used_at, at"),
        (rules("at"), "by", None, "no mapped index begins with `at`"),
        (Rules { index: "x".into(), ..rules("used_at") }, "index", None, "there is no index `x`"),
        (
            Rules { index: "by_state".into(), ..rules("used_at") },
            "index",
            None,
            "does not begin with `used_at`",
        ),
        (
            Rules { condition: "state = 7".into(), ..rules("used_at") },
            "where",
            Some(8..9),
            "`state` is a text",
        ),
        (Rules { set: "state = 'a'".into(), ..rules("used_at") }, "set", None, "no effect"),
        (set(""), "set", Some(0..0), "a column is expected"),
        (rules("no"), "by", None, "encoding = \"seconds\""),
        (set("no = 1"), "set", None, "belongs to the key"),
        (set("state = 'a'"), "set", None, "would match again at the next run"),
    ] {
        let (found, at, message) = refused(rules);
        assert!(
            found == setting && at == range && message.contains(words),
            "{found} {at:?} {message}"
        );
    }
    assert!(plan(&rows, None, &set("used_at = now")).is_ok(), "the age itself is set");
    let several = Rules { by: "state".into(), condition: "stat = 7".into(), ..set("state = 7") };
    let told = |rules: &Rules| -> Vec<&str> {
        faults(&rows, None, rules).into_iter().map(|wrong| wrong.setting).collect()
    };
    assert_eq!(told(&several), ["by", "where", "set"]);
    assert_eq!(told(&Rules { by: String::new(), ..several }), ["where", "set"]);
    let archive = Rules { action: "archive".into(), ..rules("used_at") };
    let into = |columns: &[(&str, &str)]| Described {
        collection: INTO.into(),
        columns: columns.iter().map(|(name, ty)| ((*name).into(), (*ty).into())).collect(),
        ..rows.clone()
    };
    let whole = into(&[
        ("no", "integer"),
        ("state", "text"),
        ("used_at", "timestamp"),
        ("at", "timestamp"),
        ("moved_at", "timestamp"),
    ]);
    assert_eq!(plan(&rows, Some(&whole), &archive).map(|plan| plan.action), Ok(Action::Archive));
    for (into, rules, words) in [
        (None, &archive, "collections.into = \"NAME\""),
        (Some(into(&[("no", "integer"), ("state", "text")])), &archive, "a column `used_at`"),
        (Some(into(&[("no", "text")])), &archive, "`no` is mapped as integer, and as text in"),
        (Some(whole), &rules("used_at"), "no effect without action = \"archive\""),
    ] {
        let wrong = plan(&rows, into.as_ref(), rules).expect_err("refused");
        assert!(wrong.setting == "action" && wrong.message.contains(words), "{wrong:?}");
    }
    let mut priced = rows.clone();
    priced.columns.push(("price".into(), "decimal".into()));
    let rounded = Rules { condition: "price != 1.005".into(), ..set("price = 1.005") };
    let wrong = plan(&priced, None, &rounded).expect_err("refused");
    assert!(wrong.message.contains("match again"), "{wrong:?}");
}

/// Versions of documents: number, document, and the days since they were made.
fn versions(rows: &[(i64, Option<&str>, Option<i64>)]) -> Fixture {
    let columns = [("no", "integer"), ("document", "text"), ("made_at", "timestamp")];
    let indexes: [(&str, &[&str]); 2] =
        [("by_document", &["document", "made_at"]), ("by_time", &["made_at"])];
    let fixture = Fixture::new(NOW)
        .table(ROWS, &["no"], &indexes)
        .described(ROWS, &columns)
        .setting("by", "made_at");
    rows.iter().fold(fixture, |fixture, (no, document, days)| {
        let made = days.map(|days| Time(NOW.0 - days * DAY));
        let row =
            [("no", (*no).into()), ("document", (*document).into()), ("made_at", made.into())];
        fixture.row(ROWS, "", row)
    })
}

/// The groups of the items with their number of rows, and the last instants that stay, in days before now.
fn beyond(fixture: &mut Fixture) -> Vec<(String, u32, i64)> {
    let parts = fixture.scan::<Retention>("").expect("a scan");
    let items: Vec<_> = parts.iter().map(|part| ("", part.clone())).collect();
    let verdicts = fixture.act::<Retention>(&items).expect("verdicts");
    let group = |(part, verdict): (Candidate, Verdict)| {
        let part = sets::Part::unpack(&part.payload).expect("a part");
        let Verdict::Propose(proposal) = verdict else { panic!("{verdict:?}") };
        let [Guard::AtLeast(newer)] = &proposal.guards[..] else { panic!("{proposal:?}") };
        let [Change::DeleteRange(range)] = &proposal.changes[..] else { panic!("{proposal:?}") };
        let bound = |conditions: &[Tested], wanted: Comparison| {
            let mut of_time = conditions.iter().filter(|one| one.column == "made_at");
            let of = of_time.find_map(|one| match &one.test {
                Test::Value(test) if test.comparison == wanted => Some(test.value.clone()),
                _ => None,
            });
            let Some(Value::Timestamp(at)) = of else { panic!("{conditions:?}") };
            (NOW.0 - at) / DAY
        };
        let kept = bound(&newer.filter.conditions, Comparison::AtLeast);
        assert_eq!(kept, bound(&range.conditions, Comparison::Below), "the same instant");
        (part.group.expect("a group"), part.rows, kept)
    };
    parts.into_iter().zip(verdicts).map(group).collect()
}

#[test]
fn the_newest_rows_of_each_group_stay_with_those_of_the_same_instant() {
    let rows = [
        (1, Some("a"), Some(1)),
        (2, Some("a"), Some(2)),
        (3, Some("a"), Some(2)),
        (4, Some("a"), Some(3)),
        (5, Some("a"), Some(4)),
        (6, Some("b"), Some(1)),
        (7, Some("b"), Some(9)),
        (8, None, Some(9)),
        (9, None, Some(8)),
        (10, None, Some(7)),
        (11, Some("c"), Some(1)),
        (12, Some("c"), None),
        (13, Some("c"), None),
    ];
    let keeping = |keep: i64| versions(&rows).setting("keep", keep).setting("per", "document");
    let one = [("=a".into(), 4, 1), ("=b".into(), 1, 1)];
    assert_eq!(beyond(&mut keeping(1)), one);
    assert_eq!(beyond(&mut keeping(2)), [("=a".into(), 2, 2)]);
    assert_eq!(beyond(&mut keeping(4)), [("=a".into(), 1, 3)]);
    assert_eq!(beyond(&mut keeping(5)), []);
    let mut old = keeping(1).setting("older_than", 3 * 86_400_000_i64);
    assert_eq!(beyond(&mut old), [("=a".into(), 2, 1), ("=b".into(), 1, 1)], "also old enough");
    let mut chunks = keeping(1).setting("chunk", 3_i64);
    let parts = [("=a".into(), 3, 1), ("=a".into(), 1, 1), ("=b".into(), 1, 1)];
    assert_eq!(beyond(&mut chunks), parts);
    let mut all = versions(&rows).setting("keep", 3_i64);
    assert_eq!(beyond(&mut all), [(String::new(), 8, 1)], "three have the newest instant");
    let mut some = keeping(1).setting("where", "no >= 3");
    assert_eq!(
        beyond(&mut some),
        [("=a".into(), 2, 2), ("=b".into(), 1, 1)],
        "others do not count"
    );
}

#[test]
fn an_item_of_other_settings_changes_nothing() {
    let rows: Vec<_> = (0..4).map(|no| (no, Some("a"), Some(no))).collect();
    let (mut by_age, mut by_number) =
        (versions(&rows), versions(&rows).setting("keep", 1_i64).setting("per", "document"));
    let items = |fixture: &mut Fixture| -> Vec<(&'static str, Candidate)> {
        let parts = fixture.scan::<Retention>("").expect("a scan");
        parts.into_iter().map(|part| ("", part)).collect()
    };
    let (aged, numbered) = (items(&mut by_age), items(&mut by_number));
    let mut alone = versions(&rows).setting("keep", 1_i64);
    let mut fewer = versions(&rows).setting("keep", 4_i64).setting("per", "document");
    let skip = |verdicts: Result<Vec<Verdict>>, why: &str| {
        assert_eq!(verdicts.expect("verdicts"), [Verdict::skip(why)]);
    };
    skip(by_age.act::<Retention>(&numbered), sets::OTHERS);
    skip(by_number.act::<Retention>(&aged), sets::OTHERS);
    skip(alone.act::<Retention>(&numbered), sets::OTHERS);
    skip(fewer.act::<Retention>(&numbered), "its group has no more rows than stay");
    skip(by_number.act::<Retention>(&[("", Candidate::new("#0"))]), sets::OTHERS);
}

#[test]
fn settings_that_do_not_go_with_the_newest_rows_are_told() {
    let rows = Described {
        collection: ROWS.into(),
        key: vec!["no".into()],
        columns: [
            ("no", "integer"),
            ("document", "text"),
            ("made_at", "timestamp"),
            ("size", "float"),
        ]
        .map(|(name, ty)| (name.to_owned(), ty.to_owned()))
        .to_vec(),
        indexes: vec![
            ("by_document".into(), vec!["document".into(), "made_at".into()]),
            ("by_no".into(), vec!["no".into(), "document".into(), "made_at".into()]),
        ],
        partial: Vec::new(),
    };
    let good = Rules {
        by: "made_at".into(),
        action: "delete".into(),
        keep: 2,
        per: "document".into(),
        chunk: 500,
        ..Rules::default()
    };
    assert_eq!(plan(&rows, None, &good).expect("a plan").index(), Some("by_document"));
    let one = Rules { condition: "no = 7".into(), ..good.clone() };
    assert_eq!(plan(&rows, None, &one).expect("a plan").index(), Some("by_no"));
    for (rules, setting, words) in [
        (Rules { keep: 0, ..good.clone() }, "per", "no effect without `keep`"),
        (Rules { per: "documents".into(), ..good.clone() }, "per", "did you mean `document`?"),
        (Rules { per: "size".into(), ..good.clone() }, "per", "do not name groups"),
        (
            Rules { per: "no".into(), ..good.clone() },
            "by",
            "no mapped index begins with `no` and `made_at`",
        ),
        (Rules { per: String::new(), ..good.clone() }, "by", "fixes to one value before it"),
        (
            Rules { index: "by_no".into(), ..good.clone() },
            "index",
            "does not begin with `document` and `made_at`",
        ),
        (Rules { chunk: 0, ..good.clone() }, "chunk", "at least 1"),
        (
            Rules { condition: "no = 1 or size > 1".into(), ..good.clone() },
            "where",
            "joined by `and`",
        ),
        (
            Rules { action: "set".into(), set: "made_at = now".into(), ..good.clone() },
            "set",
            "make `where` false",
        ),
    ] {
        let all = faults(&rows, None, &rules);
        assert!(
            matches!(&all[..], [one] if one.setting == setting && one.message.contains(words)),
            "{rules:?}: {all:?}"
        );
    }
}
