//! Yjs documents that need much memory, written byte by byte: no library would write many of them,
//! but any client may send them.

use super::Shape;

/// Every shape.
pub const SHAPES: &[Shape] = &[
    Shape { name: "letters typed", count: 50_000, rows: typed },
    Shape { name: "letters in front, a row each", count: 20_000, rows: in_front },
    Shape { name: "letters in front, one row", count: 50_000, rows: in_front_at_once },
    Shape { name: "letters between letters", count: 20_000, rows: between },
    Shape { name: "types in a list", count: 50_000, rows: types },
    Shape { name: "types in types", count: 20_000, rows: nested },
    Shape { name: "keys", count: 50_000, rows: keys },
    Shape { name: "one key again and again", count: 20_000, rows: one_key },
    Shape { name: "formats", count: 50_000, rows: formats },
    Shape { name: "embeds", count: 50_000, rows: embeds },
    Shape { name: "objects", count: 100_000, rows: objects },
    Shape { name: "JSON texts", count: 50_000, rows: json },
    Shape { name: "every other letter deleted", count: 50_000, rows: holes },
    Shape { name: "letters deleted, a row each", count: 20_000, rows: deletions },
    Shape { name: "collected structs", count: 50_000, rows: collected },
    Shape { name: "clients", count: 1_000, rows: clients },
    Shape { name: "rows backwards", count: 1_000, rows: backwards },
    Shape { name: "long rows backwards", count: 40_000, rows: long_backwards },
    Shape { name: "the same row again", count: 20_000, rows: again },
    Shape { name: "one long text", count: 4_000_000, rows: text },
];

/// The client id, unless there are several: as long as those of Yjs.
const ANN: u64 = 3_000_000_001;
const BOB: u64 = 3_000_000_002;

const DELETED: u8 = 1;
const JSON: u8 = 2;
const STRING: u8 = 4;
const EMBED: u8 = 5;
const FORMAT: u8 = 6;
const TYPE: u8 = 7;
const ANY: u8 = 8;

/// The place of a struct.
enum Place<'a> {
    /// In the root `r`.
    Root,
    /// Behind a unit.
    Behind(u64, usize),
    /// Before a unit.
    Before(u64, usize),
    /// Between two units.
    Between((u64, usize), (u64, usize)),
    /// In the type that a unit holds.
    In(u64, usize),
    /// Under a key of the root `m`.
    Key(&'a str),
}

fn var(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn text_of(out: &mut Vec<u8>, text: &str) {
    var(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// A struct of that kind with that content, as it is written.
fn item(place: &Place<'_>, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut id = |info: u8, ids: &[(u64, usize)]| {
        out.push(kind | info);
        for (client, clock) in ids {
            var(&mut out, *client);
            var(&mut out, *clock as u64);
        }
    };
    match *place {
        Place::Root => {
            id(0, &[]);
            out.push(1);
            text_of(&mut out, "r");
        }
        Place::Behind(client, clock) => id(0x80, &[(client, clock)]),
        Place::Before(client, clock) => id(0x40, &[(client, clock)]),
        Place::Between(left, right) => id(0xc0, &[left, right]),
        Place::In(client, clock) => {
            out.extend([kind, 0]);
            var(&mut out, client);
            var(&mut out, clock as u64);
        }
        Place::Key(key) => {
            id(0x20, &[]);
            out.push(1);
            text_of(&mut out, "m");
            text_of(&mut out, key);
        }
    }
    out.extend_from_slice(content);
    out
}

/// An update of one client's structs, from that clock on.
fn row(client: u64, clock: usize, items: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![1];
    var(&mut out, items.len() as u64);
    var(&mut out, client);
    var(&mut out, clock as u64);
    items.iter().for_each(|item| out.extend_from_slice(item));
    out.push(0);
    out
}

/// An update that deletes single units of one client.
fn deletion(client: u64, clocks: &[usize]) -> Vec<u8> {
    let mut out = vec![0, 1];
    var(&mut out, client);
    var(&mut out, clocks.len() as u64);
    for clock in clocks {
        var(&mut out, *clock as u64);
        out.push(1);
    }
    out
}

/// A row for each struct of one unit, in the order of clocks.
fn row_each(items: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let row = |(clock, item): (usize, &Vec<u8>)| row(ANN, clock, std::slice::from_ref(item));
    items.iter().enumerate().map(row).collect()
}

/// Structs of one unit each, every one behind the one before.
fn in_a_row(count: usize, kind: u8, content: &[u8]) -> Vec<Vec<u8>> {
    let place = |clock| if clock == 0 { Place::Root } else { Place::Behind(ANN, clock - 1) };
    (0..count).map(|clock| item(&place(clock), kind, content)).collect()
}

/// Letters, every one before the one before.
fn before_each_other(count: usize) -> Vec<Vec<u8>> {
    let place = |clock| if clock == 0 { Place::Root } else { Place::Before(ANN, clock - 1) };
    (0..count).map(|clock| item(&place(clock), STRING, &[1, b'x'])).collect()
}

fn typed(count: usize) -> Vec<Vec<u8>> {
    row_each(&in_a_row(count, STRING, &[1, b'x']))
}

fn in_front(count: usize) -> Vec<Vec<u8>> {
    row_each(&before_each_other(count))
}

fn in_front_at_once(count: usize) -> Vec<Vec<u8>> {
    vec![row(ANN, 0, &before_each_other(count))]
}

fn letters(count: usize) -> Vec<u8> {
    let mut content = Vec::new();
    text_of(&mut content, &"x".repeat(count));
    row(ANN, 0, &[item(&Place::Root, STRING, &content)])
}

fn between(count: usize) -> Vec<Vec<u8>> {
    let own = |clock| {
        let place = Place::Between((ANN, clock), (ANN, clock + 1));
        row(BOB, clock, &[item(&place, STRING, &[1, b'y'])])
    };
    std::iter::once(letters(count + 1)).chain((0..count).map(own)).collect()
}

fn types(count: usize) -> Vec<Vec<u8>> {
    vec![row(ANN, 0, &in_a_row(count, TYPE, &[1]))]
}

fn nested(count: usize) -> Vec<Vec<u8>> {
    let place = |clock| if clock == 0 { Place::Root } else { Place::In(ANN, clock - 1) };
    let items: Vec<_> = (0..count).map(|clock| item(&place(clock), TYPE, &[0])).collect();
    vec![row(ANN, 0, &items)]
}

fn keys(count: usize) -> Vec<Vec<u8>> {
    let entry = |nth: usize| item(&Place::Key(&nth.to_string()), ANY, &[1, 126]);
    vec![row(ANN, 0, &(0..count).map(entry).collect::<Vec<_>>())]
}

fn one_key(count: usize) -> Vec<Vec<u8>> {
    let place = |clock| if clock == 0 { Place::Key("k") } else { Place::Behind(ANN, clock - 1) };
    let items: Vec<_> = (0..count).map(|clock| item(&place(clock), ANY, &[1, 120])).collect();
    row_each(&items)
        .into_iter()
        .enumerate()
        .map(|(clock, mut row)| {
            // Each deletes the one before, as Yjs does.
            row.pop();
            match clock {
                0 => row.push(0),
                _ => row.extend_from_slice(&deletion(ANN, &[clock - 1])[1..]),
            }
            row
        })
        .collect()
}

fn formats(count: usize) -> Vec<Vec<u8>> {
    vec![row(ANN, 0, &in_a_row(count, FORMAT, b"\x01b\x041234"))]
}

fn embeds(count: usize) -> Vec<Vec<u8>> {
    vec![row(ANN, 0, &in_a_row(count, EMBED, b"\x08{\"a\":{}}"))]
}

fn objects(count: usize) -> Vec<Vec<u8>> {
    let mut content = Vec::new();
    var(&mut content, count as u64);
    // {"": null}
    (0..count).for_each(|_| content.extend([118, 1, 0, 126]));
    vec![row(ANN, 0, &[item(&Place::Root, ANY, &content)])]
}

fn json(count: usize) -> Vec<Vec<u8>> {
    vec![row(ANN, 0, &in_a_row(count, JSON, b"\x01\x0212"))]
}

fn holes(count: usize) -> Vec<Vec<u8>> {
    let clocks: Vec<usize> = (0..count).map(|nth| 2 * nth).collect();
    vec![letters(2 * count), deletion(ANN, &clocks)]
}

fn deletions(count: usize) -> Vec<Vec<u8>> {
    // Far from each other, in no order.
    let scattered = (0..count).map(|nth| deletion(ANN, &[2 * (nth * 7_919 % count)]));
    std::iter::once(letters(2 * count)).chain(scattered).collect()
}

fn collected(count: usize) -> Vec<Vec<u8>> {
    let deleted = item(&Place::Root, DELETED, &[1]);
    let items: Vec<Vec<u8>> =
        (0..count).map(|nth| if nth % 2 == 0 { vec![0, 1] } else { deleted.clone() }).collect();
    vec![row(ANN, 0, &items)]
}

fn clients(count: usize) -> Vec<Vec<u8>> {
    let own = |nth| row(ANN + nth as u64, 0, &[item(&Place::Root, STRING, &[1, b'x'])]);
    (0..count).map(own).collect()
}

fn backwards(count: usize) -> Vec<Vec<u8>> {
    let mut rows = in_front(count);
    rows.reverse();
    rows
}

fn long_backwards(count: usize) -> Vec<Vec<u8>> {
    let items = before_each_other(count);
    let rows = items.chunks(count.div_ceil(8)).scan(0, |clock, items| {
        let row = row(ANN, *clock, items);
        *clock += items.len();
        Some(row)
    });
    let mut rows: Vec<_> = rows.collect();
    rows.reverse();
    rows
}

fn again(count: usize) -> Vec<Vec<u8>> {
    vec![row(ANN, 0, &before_each_other(count)); 8]
}

fn text(count: usize) -> Vec<Vec<u8>> {
    vec![letters(count)]
}
