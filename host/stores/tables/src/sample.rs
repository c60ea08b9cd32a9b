//! Whether the values of a column are stored as its mapping says, judged by some of them. A column of texts holds
//! anything, and on SQLite every column does.

use std::collections::BTreeMap;

use besom_core::collection::{Column, Encoding};
use besom_core::time::date_of;
use besom_core::value::Kind;

use crate::encoding::{Round, instant_of, instant_text, uuid_parse};
use crate::units::{Units, in_words};

/// The encodings of an instant as text. Of several that fit as many texts, the last is the likeliest.
const TEXTS: [Encoding; 6] = [
    Encoding::Datetime,
    Encoding::Datetime3,
    Encoding::Datetime6,
    Encoding::Rfc3339,
    Encoding::Rfc3339Micros,
    Encoding::Rfc3339Millis,
];
/// Number of values from which on a sample is an error by itself if none of them fits.
const CERTAIN: u64 = 10;

/// How a column of texts becomes one that tells an age.
const CONVERSION: &str = "PostgreSQL: ALTER COLUMN ... TYPE timestamptz USING ...::timestamptz; SQLite: a generated \
     column AS (strftime('%Y-%m-%d %H:%M:%S', ...)) with an index";

/// What is said of a row with a value that is none of its kind.
const NOT_TAKEN: &str = "No task takes such a row by this column";

/// The values of one column in the rows looked at, without NULL.
#[derive(Default)]
pub struct Sample {
    values: u64,
    /// Those that are not stored as the column's encoding says: a guard never equals them.
    odd: u64,
    /// Those that are read as another kind.
    unread: u64,
    /// The storage classes of the odd ones.
    classes: BTreeMap<String, u64>,
    units: Units,
    /// How many texts are instants in each encoding, by its place in [`TEXTS`].
    texts: BTreeMap<usize, u64>,
    /// A text that looks like an instant and is none in any encoding.
    example: Option<String>,
}

/// What is wrong with the mapping of a column.
pub struct Fault {
    /// What is wrong and how to correct it.
    pub message: String,
    /// Whether it is only a warning: the rows do not confirm it, or not all of them do.
    pub warning: bool,
}

impl Sample {
    /// Whether no row that was looked at has a value.
    pub fn is_empty(&self) -> bool {
        self.values == 0
    }

    /// Adds a value of a storage class; whether it is read as the column's kind, and stored as its encoding says.
    pub fn add(&mut self, class: &str, reads: bool, stores: bool) {
        self.values += 1;
        self.unread += u64::from(!reads);
        if !stores {
            self.odd += 1;
            *self.classes.entry(class.to_owned()).or_default() += 1;
        }
    }

    /// Adds a text as it is stored in a column of texts.
    pub fn add_text(&mut self, column: Column, text: &str) {
        let (reads, stores) = match column.kind {
            Kind::Date => (date_of(text).is_some(), date_of(text).is_some()),
            Kind::Uuid => (uuid_parse(text).is_some(), uuid_parse(text).is_some()),
            Kind::Timestamp => {
                self.add_instant(text);
                let reads = instant_of(text, column.encoding).is_some();
                (reads, is_canonical(text, column.encoding))
            }
            _ => (true, true),
        };
        self.add("text", reads, stores);
    }

    /// Notes how a text is spelt that may be an instant.
    pub fn add_instant(&mut self, text: &str) {
        for (at, encoding) in TEXTS.into_iter().enumerate() {
            if is_canonical(text, encoding) {
                *self.texts.entry(at).or_default() += 1;
            }
        }
        if !TEXTS.into_iter().any(|encoding| is_canonical(text, encoding)) && is_like_instant(text)
        {
            self.example.get_or_insert_with(|| text.to_owned());
        }
    }

    /// Notes in which unit a number is an instant.
    pub fn add_number(&mut self, column: Column, number: i64) {
        self.units.add(number, column.encoding);
    }

    /// Whether every value is read as another kind, or most are instants in another unit.
    pub fn is_of_another_kind(&self, column: Column) -> bool {
        self.unread == self.values || self.units.fault(column, self.values).is_some()
    }

    /// The fault of a column's mapping, judged by the values. `declared`: the column's type, and whether that is `unlike`
    /// the mapping.
    pub fn fault(&self, column: Column, declared: &str, unlike: bool) -> Option<Fault> {
        let mapped = in_words(column);
        let Sample { values, odd, .. } = *self;
        if odd == 0 {
            if let Some(message) = self.units.fault(column, values) {
                return Some(Fault { message, warning: false });
            }
            return unlike.then(|| Fault {
                message: format!(
                    "the column is declared {declared} but mapped as {mapped}: correct the kind or the encoding"
                ),
                warning: true,
            });
        }
        let (stored, fix) = (self.classes(), self.fix(column));
        let ty = match (odd == values, declared) {
            (true, ty) if !ty.is_empty() => format!("declared {ty} and "),
            _ => String::new(),
        };
        let found = match (odd, values) {
            (1, 1) => "the only value looked at is".to_owned(),
            (odd, values) if odd == values => format!("all {values} values looked at are"),
            (1, values) => format!("1 of {values} values looked at is"),
            (odd, values) => format!("{odd} of {values} values looked at are"),
        };
        // What the mapping expects is what most of them are.
        let message = match (self.is_most(column.encoding), self.classes.len()) {
            (true, 1) if self.classes.contains_key("text") => format!(
                "the column is mapped as {mapped}, but {found} not spelt as one: correct the rows, or map the \
                 column as text. {NOT_TAKEN}"
            ),
            (true, _) if odd * 2 < values => format!(
                "the column is mapped as {mapped}, but {found} not stored as one, but as {stored}: correct the \
                 rows. {NOT_TAKEN}"
            ),
            _ => format!(
                "the column is {ty}mapped as {mapped}, but {found} stored as {stored}: {fix}"
            ),
        };
        // Comparisons never find such values: the task would do nothing, and say nothing.
        let certain = odd == values && (unlike || values >= CERTAIN);
        Some(Fault { message, warning: !certain })
    }

    /// Whether most texts that are instants are in this encoding.
    fn is_most(&self, encoding: Encoding) -> bool {
        let own = TEXTS.iter().position(|known| *known == encoding);
        let own = own.and_then(|at| self.texts.get(&at));
        own.is_some() && own == self.texts.values().max()
    }

    /// The encoding in which most texts are instants; none: no text is one.
    pub fn likeliest(&self) -> Option<Encoding> {
        let most = self.texts.iter().max_by_key(|(_, count)| **count);
        most.map(|(at, _)| TEXTS[*at])
    }

    /// What to do about texts that are instants in no encoding.
    fn spellings(&self) -> String {
        const KNOWN: &str = "rfc3339 (2026-01-31T08:00:00Z, a fraction without zeros at its end), rfc3339_millis \
                             (2026-01-31T08:00:00.000Z), rfc3339_micros (2026-01-31T08:00:00.000000Z), datetime \
                             (2026-01-31 08:00:00), datetime3 (2026-01-31 08:00:00.000) and datetime6 (2026-01-31 \
                             08:00:00.000000), all in UTC";
        match &self.example {
            Some(example) => format!(
                "such as {example:?}, which no encoding spells so: an index has such texts in another order than \
                 their instants, or they say no time zone. Convert the column ({CONVERSION}), or rewrite the rows. The \
                 encodings of texts are {KNOWN}"
            ),
            None => format!(
                "the encodings of texts are {KNOWN}: correct the rows, or map the column as text"
            ),
        }
    }

    fn classes(&self) -> String {
        self.classes.keys().cloned().collect::<Vec<_>>().join(" and ")
    }

    fn fix(&self, column: Column) -> String {
        let most = self.classes.iter().max_by_key(|(_, count)| **count);
        let class = most.map_or("", |(class, _)| class.as_str());
        match (column.kind, class) {
            (Kind::Timestamp, "integer") => {
                "write the encoding of the numbers (\"seconds\", \"millis\" or \"native\", which is \
                 microseconds)"
                    .to_owned()
            }
            (Kind::Timestamp, "text") => match self.likeliest() {
                Some(encoding) => {
                    format!("write encoding = \"{}\" if these are instants in UTC", encoding.name())
                }
                None => self.spellings(),
            },
            (Kind::Timestamp, "real") => "numbers with a fraction cannot be mapped as timestamp: map a \
                 column that the database computes of it, AS (CAST(... * 1000000 AS INTEGER)) of \
                 seconds since 1970, as \"timestamp\", with an index"
                .to_owned(),
            (Kind::Uuid, "blob") => "write encoding = \"raw\", or map it as bytes".to_owned(),
            (Kind::Uuid, "text") if column.encoding == Encoding::Raw => {
                "remove encoding = \"raw\", or map it as text".to_owned()
            }
            (_, class) => {
                let kind = match class {
                    "integer" => "integer",
                    "real" => "float",
                    "blob" => "bytes",
                    _ => "text",
                };
                format!("map it as {kind}, or correct the rows")
            }
        }
    }
}

/// How a column of these texts is mapped if each of them is an instant, or each a date; none: they are others, or none.
pub fn column_of(texts: &[String]) -> Option<Column> {
    let mut sample = Sample::default();
    texts.iter().for_each(|text| sample.add_instant(text));
    let is_date = |text: &String| date_of(text).is_some();
    if texts.is_empty() {
        return None;
    }
    if texts.iter().all(is_date) {
        return Some(Column { kind: Kind::Date, encoding: Encoding::Native });
    }
    let encoding = sample.likeliest()?;
    let all = texts.iter().all(|text| is_canonical(text, encoding));
    all.then_some(Column { kind: Kind::Timestamp, encoding })
}

/// Whether a text is spelt as Besom spells its instant: a guard compares the texts.
pub fn is_canonical(text: &str, encoding: Encoding) -> bool {
    instant_of(text, encoding)
        .is_some_and(|at| instant_text(at, encoding, Round::Down).is_ok_and(|own| own == text))
}

/// Whether a text consists of the signs of a date and a time: it may be shown.
fn is_like_instant(text: &str) -> bool {
    let (day, rest) = text.split_at_checked(10).unwrap_or_default();
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let is_day = day.split('-').map(str::len).eq([4, 2, 2]) && day.split('-').all(digits);
    is_day
        && !rest.is_empty()
        && rest.bytes().all(|b| b.is_ascii_digit() || b" T:.,+-Zzt".contains(&b))
}
