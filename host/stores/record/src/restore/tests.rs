use besom_core::value::Value;

use super::*;

use std::collections::BTreeMap;

type Rows = BTreeMap<i64, Vec<Field>>;

/// A table with a key `id`, a unique `name`, and a parent that has to exist.
#[derive(Default)]
struct Table {
    rows: Rows,
    /// The rows of another table, into which rows were moved.
    copies: Rows,
    /// Rows, and copies, that cannot be removed.
    fixed: Vec<i64>,
    /// What a trigger sets in each row that is changed.
    trigger: Option<Field>,
    marked: Option<(Rows, Rows)>,
    statements: usize,
}

/// Rows of the table refer to others of it.
fn kin() -> Kin {
    let column = besom_core::collection::Column {
        kind: besom_core::value::Kind::Integer,
        encoding: besom_core::collection::Encoding::Native,
    };
    let of = besom_core::collection::Collection {
        name: "t".into(),
        table: "t".into(),
        tenant: None,
        key: vec!["id".into()],
        columns: [("id".to_owned(), column)].into(),
        indexes: BTreeMap::new(),
        anchors: vec![besom_core::collection::Anchor {
            collection: "t".into(),
            columns: vec!["parent".into()],
        }],
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    };
    Kin::of(std::iter::once(&of))
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
            Ask::Mark => {
                self.marked = Some((self.rows.clone(), self.copies.clone()));
                Answer::Done(Vec::new())
            }
            Ask::Back => {
                (self.rows, self.copies) = self.marked.clone().expect("a mark was set");
                Answer::Done(Vec::new())
            }
            Ask::Keep => {
                self.marked.take().expect("a mark was set");
                Answer::Done(Vec::new())
            }
            Ask::Look { rows, collection } => Answer::Looked(
                rows.iter()
                    .map(|image| {
                        let of = if collection == "t" { &self.rows } else { &self.copies };
                        let row = of.get(&id(image))?.clone();
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
                            Did::Put(None)
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
                        if let Some(field) = &self.trigger {
                            let of = row.iter_mut().find(|of| of.name == field.name);
                            of.into_iter().for_each(|of| *of = field.clone());
                        }
                        Did::Set(Some(row.clone()))
                    })
                    .collect(),
            ),
            Ask::Remove { rows, collection } => {
                if rows.iter().any(|image| self.fixed.contains(&id(image))) {
                    return Answer::Refused("it is fixed".to_owned());
                }
                let of = if collection == "t" { &mut self.rows } else { &mut self.copies };
                let remove =
                    |image: &&BeforeImage| of.remove(&id(image)).map_or(Did::Missing, Did::Removed);
                Answer::Done(rows.iter().map(remove).collect())
            }
        }
    }
}

fn restore(
    table: &mut Table,
    images: Vec<BeforeImage>,
    forced: &[&str],
) -> (Restored, Vec<Undone>) {
    together(table, images, forced, Kin::default())
}

fn together(
    table: &mut Table,
    images: Vec<BeforeImage>,
    forced: &[&str],
    kin: Kin,
) -> (Restored, Vec<Undone>) {
    let forced = forced.iter().map(|name| (*name).to_owned()).collect();
    let restore = Restore { forced: Arc::new(forced), ..Restore::default() };
    asked(table, Restoring::new(images, &restore, Earlier::default(), kin))
}

fn asked(table: &mut Table, mut restoring: Restoring) -> (Restored, Vec<Undone>) {
    while let Some(ask) = restoring.ask() {
        let answer = table.take(ask);
        restoring.answer(answer);
    }
    let ended = restoring.end();
    (ended.restored, ended.undone)
}

fn before(undone: &Undone) -> Option<&Vec<Field>> {
    match undone {
        Undone::Back(_) => None,
        Undone::Changed { before, .. } => before.as_ref(),
    }
}

fn left(undone: &Undone) -> Option<&Left> {
    match undone {
        Undone::Back(_) => None,
        Undone::Changed { left, .. } => Some(left),
    }
}

fn inserted(row: Vec<Field>) -> BeforeImage {
    let left = Left::As(row.clone());
    BeforeImage { stored: Vec::new(), ..image(row, left) }
}

/// Why each row stays, by its key.
fn why(restored: &Restored) -> Vec<(String, &str)> {
    let mut why: Vec<_> =
        restored.stay.iter().map(|stay| (stay.key[0].shown(), &*stay.why)).collect();
    why.sort_unstable();
    why
}

fn gone(rows: &[Vec<Field>]) -> Vec<BeforeImage> {
    rows.iter().map(|row| image(row.clone(), Left::Gone)).collect()
}

#[test]
fn as_a_whole_every_row_comes_back_or_none() {
    let rows: Vec<_> = (0..3).map(|id| row(id, &id.to_string(), None)).collect();
    let forced = Arc::new(BTreeSet::from(["t (1)".to_owned()]));
    let restore = Restore { whole: true, forced, ..Restore::default() };
    let images = || [gone(&rows[..2]), vec![inserted(rows[2].clone())]].concat();
    let restoring = || Restoring::new(images(), &restore, Earlier::default(), Kin::default());

    let other = row(1, "another", None);
    let mut table = Table::default();
    table.rows.insert(1, other.clone());
    table.rows.insert(2, rows[2].clone());
    let before = table.rows.clone();
    let (restored, undone) = asked(&mut table, restoring());
    let belongs = "it belongs to t (1), which stays as it is";
    let expected = [("0", belongs), ("1", "its key is taken by another row"), ("2", belongs)];
    let expected = expected.map(|(key, why)| (key.to_owned(), why));
    assert_eq!((restored.rows, why(&restored)), (0, expected.to_vec()));
    assert_eq!((undone, table.rows.clone()), (Vec::new(), before));

    table.rows.remove(&1);
    let (restored, undone) = asked(&mut table, restoring());
    assert_eq!((restored.rows, why(&restored).len(), undone.len()), (3, 0, 3));
    assert_eq!(table.rows.into_values().collect::<Vec<_>>(), rows[..2]);
}

#[test]
fn deleted_rows_come_back_in_one_statement() {
    let rows: Vec<_> = (0..1_000).map(|id| row(id, &id.to_string(), None)).collect();
    let mut table = Table::default();
    let (restored, undone) = restore(&mut table, gone(&rows), &[]);
    assert_eq!((restored.rows, restored.stay.len(), table.statements), (1_000, 0, 1));
    assert_eq!(table.rows.values().cloned().collect::<Vec<_>>(), rows);
    let back = |(at, one): (usize, &Undone)| *one == Undone::Back(rows.len() - 1 - at);
    assert!(undone.iter().enumerate().all(back));
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
    assert_eq!(before(&undone[0]), Some(&row(1, "other", None)));
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
    assert_eq!(left(&undone[0]), Some(&Left::As(name("old"))));
    assert_eq!(restored.notes, Vec::<String>::new());
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
    assert_eq!(
        (before(&undone[0]), left(&undone[0])),
        (Some(&row(1, "x", None)), Some(&Left::Gone))
    );
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
    let (mut earlier, kin) = (Earlier::default(), Kin::default());
    // Both were put back, and one was taken back; that was put back again and taken back once more.
    earlier.add(&gone(&rows), 1);
    (0..2).for_each(|_| earlier.add(&gone(&rows[1..]), -1));
    earlier.add(&gone(&rows[1..]), 1);
    let mut restoring = Restoring::new(gone(&rows), &Restore::default(), earlier, kin);
    while let Some(ask) = restoring.ask() {
        let answer = table.take(ask);
        restoring.answer(answer);
    }
    let restored = restoring.end().restored;
    assert_eq!((restored.rows, restored.already), (1, 1));
    assert_eq!(table.rows.keys().collect::<Vec<_>>(), [&2]);
}

/// A stranger has the key of a parent: what belonged to it does not come back under the stranger.
#[test]
fn what_belongs_to_a_row_that_stays_stays_as_well() {
    // Deleted before their parents: 3 belongs to 2, which belongs to 1; 5 belongs to 4.
    let rows = [row(3, "c", Some(2)), row(2, "b", Some(1)), row(5, "e", Some(4))];
    let parents = [row(1, "a", None), row(4, "d", None)];
    let all: Vec<_> = rows.iter().chain(&parents).cloned().collect();
    let mut table = Table::of(&[row(1, "stranger", None)]);
    let (restored, _) = together(&mut table, gone(&all), &[], kin());
    assert_eq!((restored.rows, table.rows.keys().collect::<Vec<_>>()), (2, vec![&1, &4, &5]));
    let expected = [
        ("1".to_owned(), "its key is taken by another row"),
        ("2".to_owned(), "it belongs to t (1), which stays as it is"),
        ("3".to_owned(), "it belongs to t (2), which stays as it is"),
    ];
    assert_eq!(why(&restored), expected);
    // One that is forced comes back nevertheless.
    let (restored, _) = together(&mut table, gone(&all[..4]), &["t (2)"], kin());
    assert_eq!((restored.rows, restored.already, restored.stay.len()), (2, 1, 1));
    assert_eq!(table.rows.len(), 5);
}

/// An undo of an undo removes a family as a whole, or leaves it as a whole.
#[test]
fn rows_that_were_inserted_together_are_removed_together_or_stay() {
    let family =
        |id: i64| [row(id, &format!("p{id}"), None), row(id + 1, &format!("c{id}"), Some(id))];
    let all: Vec<_> = [10, 20, 30, 40].into_iter().flat_map(family).collect();
    let images = || all.iter().cloned().map(inserted).collect::<Vec<_>>();
    // Somebody has changed the parent 10 and the child 21; the parent 30 cannot be removed.
    let mut table = Table::of(&all);
    table.put(&row(10, "changed", None));
    table.put(&row(21, "changed", Some(20)));
    table.fixed = vec![30];
    let (restored, undone) = together(&mut table, images(), &[], kin());
    assert_eq!((restored.rows, undone.len()), (2, 2));
    assert_eq!(table.rows.keys().collect::<Vec<_>>(), [&10, &11, &20, &21, &30, &31]);
    assert_eq!(table.rows[&11], all[1]);
    let expected = [
        ("10".to_owned(), "it was changed since it was inserted"),
        ("11".to_owned(), "it belongs to t (10), which stays as it is"),
        ("20".to_owned(), "it belongs to t (21), which stays as it is"),
        ("21".to_owned(), "it was changed since it was inserted"),
        ("30".to_owned(), "it is fixed"),
        ("31".to_owned(), "it belongs to t (30), which stays as it is"),
    ];
    assert_eq!(why(&restored), expected);
    let changed = restored.stay.iter().find(|stay| stay.key == [Value::Integer(10)]).unwrap();
    assert_eq!(changed.now, Some(row(10, "changed", None)));
    // Without conflicts, all of it goes.
    let mut table = Table::of(&all);
    let (restored, _) = together(&mut table, images(), &[], kin());
    assert_eq!((restored.rows, table.rows.len(), table.marked), (8, 0, None));
}

/// A moved row is moved back as a whole, or stays where it is.
#[test]
fn a_row_whose_copy_cannot_be_removed_stays_moved() {
    let rows: Vec<_> = (1..=4).map(|id| row(id, &id.to_string(), None)).collect();
    let moved = |row: &Vec<Field>| image(row.clone(), Left::Moved("archived".into()));
    let mut table = Table { fixed: vec![2], ..Table::default() };
    table.copies = rows.iter().zip(1..).map(|(row, id)| (id, row.clone())).collect();
    let images = || rows.iter().map(moved).collect::<Vec<_>>();
    let (restored, undone) = restore(&mut table, images(), &[]);
    assert_eq!((restored.rows, restored.notes.len()), (3, 0));
    assert_eq!(table.rows.keys().collect::<Vec<_>>(), [&1, &3, &4]);
    assert_eq!(table.copies.keys().collect::<Vec<_>>(), [&2]);
    let why_two = "its row in \"archived\" could not be removed: it is fixed";
    assert_eq!(why(&restored), [("2".to_owned(), why_two)]);
    // Three were inserted, and three copies removed.
    assert_eq!(undone.len(), 6);
    // A trigger prevents it without a word: the row is not there twice.
    table.fixed.clear();
    table.rows.clear();
    table.copies = [(1, rows[0].clone())].into();
    let mut restoring = Restoring::new(
        vec![moved(&rows[0])],
        &Restore::default(),
        Earlier::default(),
        Kin::default(),
    );
    while let Some(ask) = restoring.ask() {
        let answer = match ask {
            Ask::Remove { .. } => Answer::Done(vec![Did::Missing]),
            ask => table.take(ask),
        };
        restoring.answer(answer);
    }
    let restored = restoring.end().restored;
    assert_eq!((restored.rows, table.rows.len(), table.copies.len()), (0, 0, 1));
    assert!(restored.stay[0].why.contains("a trigger or a rule prevents it"));
}

/// A row that is forced over a stranger's leaves the archive, and so does one that is in its table again already.
#[test]
fn a_row_that_is_forced_is_not_left_in_the_archive() {
    let rows = [row(1, "a", None), row(2, "b", None)];
    let mut table = Table::of(&[row(1, "stranger", None), rows[1].clone()]);
    for one in &rows {
        let Value::Integer(id) = one[0].value else { unreachable!("every key is an integer") };
        table.copies.insert(id, one.clone());
    }
    let moved = |row: &Vec<Field>| image(row.clone(), Left::Moved("archived".into()));
    let images = || rows.iter().map(moved).collect::<Vec<_>>();
    let (restored, _) = restore(&mut table, images(), &[]);
    assert_eq!((restored.rows, restored.already, restored.stay.len()), (0, 1, 1));
    assert_eq!((table.copies.len(), &table.rows[&2]), (1, &rows[1]));
    let (restored, _) = restore(&mut table, images()[..1].to_vec(), &["t (1)"]);
    assert_eq!((restored.rows, restored.stay.len(), table.copies.len()), (1, 0, 0));
    assert_eq!(table.rows[&1], rows[0]);
}

/// What a trigger sets beside the columns that get their old values is told, with the rows.
#[test]
fn what_a_trigger_has_set_is_told_after_a_change() {
    let name = |name: &str| vec![Field::new("name", Value::Text(name.into()))];
    let was = |id| image(row(id, "old", Some(1)), Left::Set(name("new")));
    let table = || Table::of(&[row(1, "new", Some(1)), row(2, "new", Some(1))]);
    let trigger = |parent| Some(Field::new("parent", Value::Integer(parent)));
    let mut touched = Table { trigger: trigger(9), ..table() };
    let (restored, _) = restore(&mut touched, vec![was(1), was(2)], &[]);
    let [note] = &restored.notes[..] else { panic!("{:?}", restored.notes) };
    assert!(
        note.starts_with("2 rows came back with other values in parent (of t (2) and t (1)):"),
        "{note}"
    );
    // A column that has the value that it had is as expected.
    let mut computed = Table { trigger: trigger(1), ..table() };
    let (restored, _) = restore(&mut computed, vec![was(1), was(2)], &[]);
    assert_eq!((restored.rows, restored.notes), (2, Vec::new()));
}
