use besom_core::value::Value;

use super::*;

use std::collections::BTreeMap;

/// A table with a key `id`, a unique `name`, and a parent that has to exist.
#[derive(Default)]
struct Table {
    rows: BTreeMap<i64, Vec<Field>>,
    statements: usize,
}

fn row(id: i64, name: &str, parent: Option<i64>) -> Vec<Field> {
    let parent = parent.map_or(Value::Null, Value::Integer);
    vec![
        Field::new("id", Value::Integer(id)),
        Field::new("name", Value::Text(name.into())),
        Field::new("parent", parent),
    ]
}

fn image(row: Vec<Field>, left: Left) -> BeforeImage {
    let key = row.iter().take(1).map(|field| field.value.clone()).collect();
    let (collection, tenant) = ("t".to_owned(), None);
    BeforeImage { collection, tenant, key, row: None, stored: row, left }
}

fn id(image: &BeforeImage) -> i64 {
    match image.key[..] {
        [Value::Integer(id)] => id,
        _ => unreachable!("every key is an integer"),
    }
}

impl Table {
    fn of(rows: &[Vec<Field>]) -> Table {
        let mut table = Table::default();
        rows.iter().for_each(|row| table.put(row));
        table
    }

    fn put(&mut self, row: &[Field]) {
        let Value::Integer(id) = row[0].value else { unreachable!("every key is an integer") };
        self.rows.insert(id, row.to_vec());
    }

    fn refuses(&self, row: &[Field], together: &[&BeforeImage]) -> Option<String> {
        let Value::Integer(parent) = row[2].value else { return None };
        let is_there =
            self.rows.contains_key(&parent) || together.iter().any(|with| id(with) == parent);
        (!is_there).then(|| "FOREIGN KEY constraint failed".to_owned())
    }

    fn take(&mut self, ask: Ask<'_>) -> Answer {
        self.statements += 1;
        match ask {
            Ask::Look { rows, .. } => Answer::Looked(
                rows.iter()
                    .map(|image| {
                        let row = self.rows.get(&id(image))?.clone();
                        let holds = match &image.left {
                            Left::Set(fields) => is_same(fields, &row),
                            _ => false,
                        };
                        Some(Found { row, holds })
                    })
                    .collect(),
            ),
            Ask::Put { rows, exact } => {
                if let Some(said) = rows.iter().find_map(|one| self.refuses(&one.stored, &rows)) {
                    return Answer::Refused(said);
                }
                let mut did = Vec::new();
                for image in &rows {
                    let name = self.rows.values().any(|row| row[1] == image.stored[1]);
                    let taken = name || self.rows.contains_key(&id(image));
                    if taken && exact {
                        return Answer::Refused("the name is taken".to_owned());
                    }
                    did.push(match taken {
                        true => Did::Taken,
                        false => {
                            self.put(&image.stored);
                            Did::Put(image.stored.clone())
                        }
                    });
                }
                Answer::Done(did)
            }
            Ask::Set { rows } => Answer::Done(
                rows.iter()
                    .map(|(image, fields)| {
                        let Some(row) = self.rows.get_mut(&id(image)) else { return Did::Missing };
                        for field in fields {
                            row.iter_mut()
                                .filter(|of| of.name == field.name)
                                .for_each(|of| *of = field.clone());
                        }
                        Did::Set
                    })
                    .collect(),
            ),
            Ask::Remove { rows, .. } => Answer::Done(
                rows.iter()
                    .map(|image| self.rows.remove(&id(image)).map_or(Did::Missing, Did::Removed))
                    .collect(),
            ),
        }
    }
}

fn restore(
    table: &mut Table,
    images: Vec<BeforeImage>,
    forced: &[&str],
) -> (Restored, Vec<Undone>) {
    let forced = forced.iter().map(|name| (*name).to_owned()).collect();
    let mut restoring = Restoring::new(images, Arc::new(forced), &[]);
    while let Some(ask) = restoring.ask() {
        let answer = table.take(ask);
        restoring.answer(answer);
    }
    restoring.end()
}

fn gone(rows: &[Vec<Field>]) -> Vec<BeforeImage> {
    rows.iter().map(|row| image(row.clone(), Left::Gone)).collect()
}

#[test]
fn deleted_rows_come_back_in_one_statement() {
    let rows: Vec<_> = (0..1_000).map(|id| row(id, &id.to_string(), None)).collect();
    let mut table = Table::default();
    let (restored, undone) = restore(&mut table, gone(&rows), &[]);
    assert_eq!((restored.rows, restored.stay.len(), table.statements), (1_000, 0, 1));
    assert_eq!(table.rows.values().cloned().collect::<Vec<_>>(), rows);
    assert!(undone.iter().all(|one| one.before.is_none()));
}

#[test]
fn what_is_taken_stays_and_the_rest_comes_back() {
    let rows: Vec<_> = (0..8).map(|id| row(id, &id.to_string(), None)).collect();
    // The key of 1 is taken, the name of 2, and 3 is as it was.
    let mut table = Table::of(&[row(1, "other", None), row(20, "2", None), rows[3].clone()]);
    let (restored, _) = restore(&mut table, gone(&rows), &[]);
    assert_eq!((restored.rows, restored.already), (5, 1));
    let mut why: Vec<_> =
        restored.stay.iter().map(|stay| (stay.key[0].clone(), &*stay.why)).collect();
    why.sort_by_key(|(key, _)| key.shown());
    assert_eq!(
        why,
        [
            (Value::Integer(1), "its key is taken by another row"),
            (Value::Integer(2), "the name is taken")
        ]
    );
    let of_one = restored.stay.iter().find(|stay| stay.key == [Value::Integer(1)]).unwrap();
    assert_eq!((&of_one.kept, &of_one.now), (&rows[1], &Some(row(1, "other", None))));
    let reason = said(&restored).unwrap();
    assert!(reason.starts_with(STAY) && !besom_core::undo::is_whole(Some(&reason)), "{reason}");
    // Forced, the row that has the key gets the values.
    let (restored, undone) = restore(&mut table, gone(&rows[1..2]), &["t (1)"]);
    assert_eq!((restored.rows, table.rows[&1].clone()), (1, rows[1].clone()));
    assert_eq!(undone[0].before, Some(row(1, "other", None)));
}

#[test]
fn a_row_that_the_database_refuses_is_found_and_one_that_waits_for_another_is_tried_again() {
    let mut rows: Vec<_> = (0..64).map(|id| row(id, &id.to_string(), None)).collect();
    rows[40] = row(40, "40", Some(99));
    // In the halves, 10 is tried before its parent 60.
    rows[10] = row(10, "10", Some(60));
    let mut table = Table::default();
    let (restored, _) = restore(&mut table, gone(&rows), &[]);
    assert_eq!((restored.rows, restored.stay.len()), (63, 1));
    assert_eq!(restored.stay[0].key, [Value::Integer(40)]);
    assert!(restored.stay[0].why.contains("FOREIGN KEY"));
    assert!(table.statements < 40, "{}", table.statements);
}

#[test]
fn a_changed_row_gets_its_old_values_if_it_has_those_that_were_set() {
    let name = |name: &str| vec![Field::new("name", Value::Text(name.into()))];
    let was = |id| image(row(id, "old", None), Left::Set(name("new")));
    let mut table =
        Table::of(&[row(1, "new", Some(7)), row(2, "newer", None), row(4, "old", None)]);
    let (restored, undone) = restore(&mut table, (1..=4).map(was).collect(), &[]);
    assert_eq!((restored.rows, restored.already), (1, 1));
    // What else has changed stays.
    assert_eq!(table.rows[&1], row(1, "old", Some(7)));
    let why: Vec<&str> = restored.stay.iter().map(|stay| &*stay.why).collect();
    assert_eq!(why, ["the row is gone", "it was changed since"]);
    assert_eq!(undone[0].left, Left::As(name("old")));
    let three = image(row(3, "three", None), Left::Set(name("new")));
    table.rows.remove(&4);
    table.rows.remove(&1);
    let (restored, _) = restore(&mut table, vec![was(2), three], &["t (2)", "t (3)"]);
    assert_eq!((restored.rows, restored.stay), (2, vec![]));
    assert_eq!((&table.rows[&2], &table.rows[&3]), (&row(2, "old", None), &row(3, "three", None)));
}

#[test]
fn an_inserted_row_is_removed_if_nobody_has_changed_it() {
    let inserted = |id: i64| {
        let key = vec![Value::Integer(id)];
        let left = Left::As(row(id, "x", None));
        BeforeImage { key, stored: Vec::new(), ..image(row(id, "x", None), left) }
    };
    let mut table = Table::of(&[row(1, "x", None), row(2, "y", None)]);
    let (restored, undone) = restore(&mut table, (1..=3).map(inserted).collect(), &[]);
    assert_eq!((restored.rows, restored.already, restored.stay.len()), (1, 1, 1));
    assert_eq!(table.rows.keys().collect::<Vec<_>>(), [&2]);
    assert_eq!((&undone[0].before, &undone[0].left), (&Some(row(1, "x", None)), &Left::Gone));
}

#[test]
fn several_changes_of_one_row_are_taken_back_one_after_the_other() {
    let name = |name: &str| vec![Field::new("name", Value::Text(name.into()))];
    let images = vec![
        image(row(1, "a", None), Left::Set(name("b"))),
        image(row(1, "b", None), Left::Set(name("c"))),
        image(row(1, "c", None), Left::Gone),
    ];
    let mut table = Table::default();
    let (restored, _) = restore(&mut table, images, &[]);
    assert_eq!((restored.rows, restored.stay), (3, vec![]));
    assert_eq!(table.rows[&1], row(1, "a", None));
}

#[test]
fn what_was_not_recorded_is_not_guessed() {
    let images =
        vec![image(row(1, "a", None), Left::Unknown), image(row(2, "b", None), Left::Unknown)];
    let mut table = Table::of(&[row(1, "changed", None)]);
    let (restored, _) = restore(&mut table, images, &[]);
    assert_eq!((restored.rows, restored.stay.len()), (1, 1));
    assert!(restored.stay[0].why.contains("not recorded"), "{}", restored.stay[0].why);
}

#[test]
fn what_an_earlier_attempt_has_put_back_is_not_put_back_again() {
    let rows = [row(1, "a", None), row(2, "b", None)];
    let mut table = Table::default();
    let mut restoring = Restoring::new(gone(&rows), Arc::default(), &gone(&rows[..1]));
    while let Some(ask) = restoring.ask() {
        let answer = table.take(ask);
        restoring.answer(answer);
    }
    let (restored, _) = restoring.end();
    assert_eq!((restored.rows, restored.already), (1, 1));
    assert_eq!(table.rows.keys().collect::<Vec<_>>(), [&2]);
}
