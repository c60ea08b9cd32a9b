//! Guards on absence, under an anchor.

use besom_core::proposal::{Change, Comparison, Condition, Filter, Guard};
use besom_core::value::Value;
use besom_ports::store::Outcome;

use crate::conformance::World;
use crate::conformance::tables::{child, parent, text};
use crate::conformance::world::{apply, candidate};

fn nobody_attached(parent: &str) -> Guard {
    let conditions =
        vec![Condition::equal("parent", text(parent)), Condition::equal("state", text("attached"))];
    Guard::Absent(Filter { collection: "children".into(), conditions })
}

fn delete_parent(id: &str) -> Change {
    Change::Delete { collection: "parents".into(), key: vec![text(id)] }
}

/// Absent means that no row matches the filter in the item's tenant.
pub async fn an_absence_guard_holds_while_no_row_matches(world: &mut World) {
    world.write(vec![parent("p"), parent("q"), child("q", 1, "attached")]).await;
    world.write(vec![child("p", 1, "detached")]).await;
    for (id, expected) in [("p", Outcome::Committed), ("q", Outcome::Skipped("guard".into()))] {
        let decision = apply(vec![nobody_attached(id)], vec![]);
        let committed = world.settle(candidate(id), decision).await;
        assert_eq!(committed.outcomes, [expected], "{id}");
    }
}

/// A row that is inserted between the read and the commit is detected.
pub async fn a_row_inserted_before_the_commit_fails_the_absence_guard(world: &mut World) {
    world.write(vec![parent("p")]).await;
    world.planned("task", vec![candidate("p")]).await;
    let item = world.only("task").await;
    let decision = apply(vec![nobody_attached("p")], vec![delete_parent("p")]);
    world.write(vec![child("p", 1, "attached")]).await;
    let committed = world.commit(vec![(&item, decision)]).await;
    assert_eq!(committed.outcomes, [Outcome::Skipped("guard".into())]);
    assert_eq!(world.rows("parents", &["id"]).await, [[text("p")]]);
}

/// A guard on absence is a violation if its filter does not fix an anchor's key.
pub async fn an_absence_guard_that_fixes_no_anchor_is_a_violation(world: &mut World) {
    world.write(vec![parent("p")]).await;
    let state = |comparison| Condition::of("parent", comparison, text("p"));
    let filters = [
        Filter { collection: "children".into(), conditions: vec![state(Comparison::AtLeast)] },
        Filter { collection: "children".into(), conditions: vec![] },
        Filter {
            collection: "things".into(),
            conditions: vec![Condition::equal("n", Value::Integer(1))],
        },
    ];
    for filter in filters {
        let decision = apply(vec![Guard::Absent(filter.clone())], vec![delete_parent("p")]);
        let committed = world.settle(candidate(&format!("{filter:?}")), decision).await;
        assert!(matches!(&committed.outcomes[0], Outcome::Dead(_)), "{filter:?}: {committed:?}");
    }
    assert_eq!(world.rows("parents", &["id"]).await.len(), 1);
}

/// Without its anchor's row nothing keeps others from inserting, so the guard fails.
pub async fn an_absence_guard_without_the_row_of_its_anchor_fails(world: &mut World) {
    world.write(vec![parent("q")]).await;
    for (id, expected) in [("p", Outcome::Skipped("guard".into())), ("q", Outcome::Committed)] {
        let decision = apply(vec![nobody_attached(id)], vec![]);
        let committed = world.settle(candidate(id), decision).await;
        assert_eq!(committed.outcomes, [expected], "{id}");
    }
}

/// At most so many rows, with the anchor that an absence needs.
pub async fn at_most_so_many_rows_match_under_an_anchor(world: &mut World) {
    let few = |parent: &str, rows| {
        let conditions = vec![
            Condition::equal("parent", text(parent)),
            Condition::equal("state", text("attached")),
        ];
        Guard::AtMost(Filter { collection: "children".into(), conditions }, rows)
    };
    let seen = |seq| child("p", seq, "attached");
    world.write(vec![parent("p"), parent("q"), seen(1), seen(2), seen(3)]).await;
    world.write(vec![child("p", 4, "detached")]).await;
    let failed = || Outcome::Skipped("guard".into());
    for (of, rows, expected) in [
        ("p", 0, failed()),
        ("p", 2, failed()),
        ("p", 3, Outcome::Committed),
        ("p", 1_000, Outcome::Committed),
        ("q", 0, Outcome::Committed),
        ("nobody", 5, failed()),
    ] {
        let key = format!("{of} {rows}");
        let committed = world.settle(candidate(&key), apply(vec![few(of, rows)], vec![])).await;
        assert_eq!(committed.outcomes, [expected], "{key}");
    }
    let free = Guard::AtMost(Filter { collection: "children".into(), conditions: vec![] }, 9);
    let free = world.settle(candidate("free"), apply(vec![free], vec![])).await;
    assert!(matches!(&free.outcomes[..], [Outcome::Dead(_)]), "{free:?}");
    // The items before it in the batch count.
    world.planned("task", ["one less", "two"].map(candidate).to_vec()).await;
    let waiting = world.log("task").await;
    let key = vec![text("p"), Value::Integer(1)];
    let less = Change::Delete { collection: "children".into(), key };
    let decisions = [apply(vec![], vec![less]), apply(vec![few("p", 2)], vec![seen(9)])];
    let committed = world.commit(waiting.iter().zip(decisions).collect()).await;
    assert_eq!(committed.outcomes, [Outcome::Committed, Outcome::Committed]);
    world.balanced().await;
}

/// Several conditions on one column apply together: each excludes a row, and any other row counts.
pub async fn an_absence_guard_leaves_out_every_row_that_it_names(world: &mut World) {
    let condition =
        |column: &str, comparison, value: Value| Condition::of(column, comparison, value);
    let nobody_but = |seqs: &[i64]| {
        let but = |seq: &i64| condition("seq", Comparison::NotEqual, Value::Integer(*seq));
        let mut conditions = vec![Condition::equal("parent", text("p"))];
        conditions.push(condition("state", Comparison::NotEqual, text("detached")));
        conditions.extend(seqs.iter().map(but));
        Guard::Absent(Filter { collection: "children".into(), conditions })
    };
    world.write(vec![parent("p"), child("p", 1, "attached"), child("p", 2, "attaching")]).await;
    world.write(vec![child("p", 3, "detached")]).await;
    let crowd: Vec<i64> = (1..=256).collect();
    let failed = || Outcome::Skipped("guard".into());
    for (key, seqs, expected) in [
        ("both", &[1, 2][..], Outcome::Committed),
        ("more than there are", &crowd, Outcome::Committed),
        ("one of two", &[1], failed()),
        ("the other", &[2], failed()),
        ("none", &[], failed()),
        ("one that is not there", &[1, 4], failed()),
    ] {
        let decision = apply(vec![nobody_but(seqs)], vec![]);
        let committed = world.settle(candidate(key), decision).await;
        assert_eq!(committed.outcomes, [expected], "{key}");
    }
}
