//! Range reads: in the order of an index, bounded, filtered, paged, in both directions.

use besom_core::proposal::{Change, Comparison, Condition};
use besom_core::value::{Row, Value};
use besom_ports::store::{Error, Range};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::conformance::World;
use crate::conformance::tables::{fields, text, thing};
use crate::conformance::world::{candidate, range, skip, tenant};

fn n(n: i64) -> Value {
    Value::Integer(n)
}

fn by_flag() -> Range {
    range("things", Some("by_flag"), &["id"])
}

fn by_n() -> Range {
    range("things", Some("by_n"), &["id"])
}

/// Things whose `n` does not follow their ids: a3 b1 c2 d2 e(null) f5.
async fn write_things(world: &World) {
    let nothing = fields([("id", text("e")), ("title", text("e"))]);
    world
        .write(vec![
            thing("a", 3),
            thing("b", 1),
            thing("c", 2),
            thing("d", 2),
            Change::Insert { collection: "things".into(), fields: nothing },
            thing("f", 5),
        ])
        .await;
    world.write_as(&[(Some(tenant("b")), thing("z", 2))]).await;
}

fn joined(rows: &[Row]) -> String {
    let id = |row: &Row| match &row[0] {
        Value::Text(id) => id.clone(),
        other => panic!("a text: {other:?}"),
    };
    rows.iter().map(id).collect()
}

/// Reads all pages of a range, each of at most `limit` rows.
async fn pages(world: &World, range: &Range, limit: u32) -> Vec<Row> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let page =
            world.read(&Range { limit, after: after.take(), ..range.clone() }).await.unwrap();
        assert!(page.rows.len() <= limit as usize);
        rows.extend(page.rows);
        match page.next {
            Some(next) => after = Some(next),
            None => return rows,
        }
    }
}

/// Prefix, bounds, conditions and direction, in one page and in pages of every size.
pub async fn a_range_is_the_same_in_pages_of_any_size(world: &mut World) {
    write_things(world).await;
    let at_least = |value| Condition::of("n", Comparison::AtLeast, n(value));
    for (range, expected) in [
        (range("things", None, &["id"]), "abcdef"),
        (by_n(), "ebcdaf"),
        (Range { lower: Some(n(2)), ..by_n() }, "cdaf"),
        (Range { upper: Some(n(2)), ..by_n() }, "bcd"),
        (Range { lower: Some(n(2)), upper: Some(n(3)), ..by_n() }, "cda"),
        (Range { lower: Some(n(6)), ..by_n() }, ""),
        (Range { beyond: Some(n(2)), ..by_n() }, "af"),
        (Range { beyond: Some(n(2)), upper: Some(n(3)), ..by_n() }, "a"),
        (Range { beyond: Some(Value::Null), ..by_n() }, "bcdaf"),
        (Range { beyond: Some(n(5)), ..by_n() }, ""),
        (Range { beyond: Some(text("c")), ..range("things", None, &["id"]) }, "def"),
        (Range { prefix: vec![Value::Null], beyond: Some(n(2)), ..by_flag() }, "af"),
        (Range { lower: Some(n(3)), upper: Some(n(2)), ..by_n() }, ""),
        (Range { prefix: vec![n(2)], ..by_n() }, "cd"),
        (Range { prefix: vec![Value::Null], ..by_n() }, "e"),
        // The first column is fixed as NULL: the second one gives the order.
        (Range { prefix: vec![Value::Null], ..by_flag() }, "ebcdaf"),
        (Range { prefix: vec![Value::Null], upper: Some(n(2)), ..by_flag() }, "bcd"),
        (Range { conditions: vec![at_least(3)], ..by_n() }, "af"),
        (Range { conditions: vec![at_least(3)], upper: Some(n(3)), ..by_n() }, "a"),
        (Range { lower: Some(text("c")), ..range("things", None, &["id"]) }, "cdef"),
    ] {
        let descending = Range { descending: true, ..range.clone() };
        let backwards: String = expected.chars().rev().collect();
        for limit in [1, 2, 3, 100] {
            let rows = pages(world, &range, limit).await;
            assert_eq!(joined(&rows), expected, "pages of {limit}: {range:?}");
            let rows = pages(world, &descending, limit).await;
            assert_eq!(joined(&rows), backwards, "descending, pages of {limit}: {range:?}");
        }
    }
}

/// An index that contains only the rows without certain NULLs: a read by it returns no others.
pub async fn a_read_by_an_index_of_some_rows_returns_no_others(world: &mut World) {
    for (id, at, most) in [
        ("a", Some(1), Some(3)),
        ("b", None, Some(1)),
        ("c", Some(2), None),
        ("d", Some(9), Some(1)),
        ("e", Some(5), Some(3)),
        ("f", None, None),
    ] {
        let value = |value: Option<i64>| value.map_or(Value::Null, n);
        let named =
            [("id", text(id)), ("title", text(id)), ("n", value(at)), ("most", value(most))];
        let fields = fields(named);
        world.write(vec![Change::Insert { collection: "things".into(), fields }]).await;
    }
    let by_most = || range("things", Some("by_most"), &["id"]);
    for (range, expected) in [
        (by_most(), "dae"),
        (Range { prefix: vec![n(3)], ..by_most() }, "ae"),
        (Range { prefix: vec![Value::Null], ..by_most() }, ""),
        (Range { upper: Some(n(2)), ..by_most() }, "d"),
        (Range { lower: Some(n(2)), ..by_most() }, "ae"),
        (Range { beyond: Some(Value::Null), ..by_most() }, "dae"),
    ] {
        let descending = Range { descending: true, ..range.clone() };
        let backwards: String = expected.chars().rev().collect();
        for limit in [1, 2, 100] {
            assert_eq!(joined(&pages(world, &range, limit).await), expected, "{limit}: {range:?}");
            let rows = pages(world, &descending, limit).await;
            assert_eq!(joined(&rows), backwards, "descending, {limit}: {range:?}");
        }
        let view = world.store().snapshot(std::time::Duration::from_secs(60)).await.unwrap();
        let tenants = view.tenants(&range, None, 9).await.unwrap();
        assert_eq!(tenants.is_empty(), expected.is_empty(), "{range:?}");
    }
}

/// A key of two columns: the first fixed, the second bounded.
pub async fn a_key_of_two_columns_is_read_by_prefix_and_bounds(world: &mut World) {
    use crate::conformance::tables::{child, parent};
    world.write(vec![parent("p"), parent("q")]).await;
    world.write((1..=6).map(|seq| child("p", seq, "x")).collect()).await;
    world.write(vec![child("q", 3, "x")]).await;
    let range = Range {
        prefix: vec![text("p")],
        lower: Some(n(2)),
        upper: Some(n(5)),
        keys: true,
        ..range("children", None, &["seq"])
    };
    for limit in [1, 3, 9] {
        let rows = pages(world, &range, limit).await;
        assert_eq!(rows, [[n(2)], [n(3)], [n(4)], [n(5)]], "pages of {limit}");
    }
    let page = world.read(&range).await.unwrap();
    let keys: Vec<Row> = (2..=5).map(|seq| vec![text("p"), n(seq)]).collect();
    assert_eq!(page.keys, keys);
    let whole = Range { prefix: vec![text("p"), n(4)], lower: None, upper: None, ..range.clone() };
    assert_eq!(world.read(&whole).await.unwrap().rows, [[n(4)]]);
    let without = Range { keys: false, ..range };
    assert!(world.read(&without).await.unwrap().keys.is_empty());
}

/// Instants are bounds like any other value.
pub async fn a_range_over_instants_is_inclusive(world: &mut World) {
    let at = |seconds| Value::Timestamp(besom_core::time::Time::from_secs(seconds));
    let dated = |id: &str, seconds| {
        let fields = fields([("id", text(id)), ("title", text(id)), ("at", at(seconds))]);
        Change::Insert { collection: "things".into(), fields }
    };
    world.write(vec![dated("a", 30), dated("b", 10), dated("c", 20)]).await;
    let range = Range { upper: Some(at(20)), ..range("things", Some("by_at"), &["id"]) };
    assert_eq!(joined(&pages(world, &range, 10).await), "bc");
    assert_eq!(joined(&pages(world, &Range { lower: Some(at(20)), ..range }, 10).await), "c");
}

/// A page is bounded by bytes, and still makes progress.
pub async fn a_page_is_bounded_by_bytes(world: &mut World) {
    write_things(world).await;
    let tight = Range { bytes_max: 1, ..by_n() };
    let first = world.read(&tight).await.unwrap();
    assert_eq!(joined(&first.rows), "e");
    assert_eq!(joined(&pages(world, &tight, 100).await), "ebcdaf");
}

/// Paging continues at its place although rows are inserted and deleted in between.
pub async fn paging_tolerates_rows_that_come_and_go(world: &mut World) {
    write_things(world).await;
    let first = world.read(&Range { limit: 3, ..by_n() }).await.unwrap();
    assert_eq!(joined(&first.rows), "ebc");
    let gone = Change::Delete { collection: "things".into(), key: vec![text("c")] };
    world.write(vec![gone, thing("b2", 1), thing("g", 4)]).await;
    let rest = world.read(&Range { after: first.next, ..by_n() }).await.unwrap();
    assert_eq!(joined(&rest.rows), "dagf");
}

/// A page reports how many rows were examined.
pub async fn a_range_counts_at_least_what_it_returns(world: &mut World) {
    write_things(world).await;
    let all = world.read(&by_n()).await.unwrap();
    assert!(all.scanned >= 6, "{all:?}");
    let page = world.read(&Range { limit: 2, ..by_n() }).await.unwrap();
    assert!((2..6).contains(&page.scanned), "a page does not look at the whole range: {page:?}");
}

/// Guests can change cursors: a changed one is rejected, or returns rows of its own tenant only.
pub async fn a_cursor_of_any_bytes_is_invalid_or_stays_with_its_tenant(world: &mut World) {
    write_things(world).await;
    let theirs = [thing("SECRET", 2), thing("SECRET-TOO", 9)];
    let theirs: Vec<_> = theirs.into_iter().map(|change| (Some(tenant("b")), change)).collect();
    world.write_as(&theirs).await;
    let first = world.read(&Range { limit: 2, ..by_n() }).await.unwrap();
    let cursor = first.next.expect("there is more");
    let (mut read, mut refused) = (0, 0);
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bent = cursor.clone();
        for _ in 0..random.random_range(1..5) {
            let at = random.random_range(0..=bent.len());
            match random.random_range(0..3) {
                0 if at < bent.len() => bent[at] = random.random(),
                1 => bent.truncate(at),
                _ => bent.insert(at, random.random()),
            }
        }
        match world.read(&Range { after: Some(bent.clone()), ..by_n() }).await {
            Ok(page) => {
                read += 1;
                assert!(!joined(&page.rows).contains("SECRET"), "seed {seed}: {bent:?}");
            }
            Err(Error::Invalid(_)) => refused += 1,
            Err(error) => panic!("seed {seed}: {bent:?}: {error}"),
        }
    }
    assert!(read > 0 && refused > 0, "{read} read, {refused} refused");
    world.settle(candidate("k"), skip("the store continues")).await;
}

/// A read without a suitable index is refused.
pub async fn a_range_beyond_its_index_is_invalid(world: &mut World) {
    for range in [
        Range { prefix: vec![n(1), n(2)], ..by_n() },
        Range { prefix: vec![n(1)], lower: Some(n(2)), ..by_n() },
        Range { prefix: vec![text("one")], ..by_n() },
        Range { lower: Some(text("one")), ..by_n() },
        Range { after: Some(vec![0xff; 3]), ..by_n() },
    ] {
        let read = world.read(&range).await;
        assert!(matches!(read, Err(Error::Invalid(_))), "{range:?}: {read:?}");
    }
    world.settle(candidate("k"), skip("the store continues")).await;
}
