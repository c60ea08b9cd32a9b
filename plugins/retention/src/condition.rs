//! The conditions of `where` and the assignments of `set`: read from text, compared with the types of the
//! columns, and evaluated on a row.
//!
//! ```text
//! condition = and { "or" and }          and = not { "and" not }         not = [ "not" ] ( "(" condition ")" | test )
//! test      = column ( "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) ( literal | column )
//!           | column "is" [ "not" ] "null"
//!           | column [ "not" ] "in" "(" literal { "," literal } ")"
//! literal   = 'text' | 12 | 1.5 | true | false | now [ ( "+" | "-" ) 30d ]
//! column    = name | "name"
//! set       = column "=" ( literal | null | column ( "+" | "-" ) 12 ) { "," ... }
//! ```
//!
//! As in SQL, a comparison with NULL is neither true nor false, and a row is taken only if the condition is
//! true.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use besom_sdk::{Comparison, Condition as Tested, Day, Test, Time, Value, parse_duration_ms};

use crate::hints;
use crate::token::{Kind as Sort, Token, tokens};

/// Maximum depth of parentheses and `not`.
const DEPTH_MAX: u32 = 32;

/// Something wrong in a text, at these bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The bytes that are wrong; empty at the end of the text.
    pub range: Range<usize>,
    /// What is wrong, and how to correct it.
    pub message: String,
}

impl Fault {
    pub(crate) fn new(range: Range<usize>, message: impl Into<String>) -> Fault {
        Fault { range, message: message.into() }
    }
}

/// The kind of a column, by its name in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `bool`
    Bool,
    /// `integer`
    Integer,
    /// `float`
    Float,
    /// `decimal`
    Decimal,
    /// `text`
    Text,
    /// `bytes`
    Bytes,
    /// `timestamp`
    Timestamp,
    /// `uuid`
    Uuid,
    /// `json`
    Json,
    /// `date`
    Date,
}

impl Kind {
    /// The kind of that name.
    pub fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "bool" => Kind::Bool,
            "integer" => Kind::Integer,
            "float" => Kind::Float,
            "decimal" => Kind::Decimal,
            "text" => Kind::Text,
            "bytes" => Kind::Bytes,
            "timestamp" => Kind::Timestamp,
            "uuid" => Kind::Uuid,
            "json" => Kind::Json,
            "date" => Kind::Date,
            _ => return None,
        })
    }

    /// Whether a value is of this kind, or NULL.
    pub fn has(self, value: &Value) -> bool {
        let of = match value {
            Value::Null => return true,
            Value::Bool(_) => Kind::Bool,
            Value::Integer(_) => Kind::Integer,
            Value::Float(_) => Kind::Float,
            Value::Decimal(_) => Kind::Decimal,
            Value::Text(_) => Kind::Text,
            Value::Bytes(_) => Kind::Bytes,
            Value::Timestamp(_) => Kind::Timestamp,
            Value::Uuid(_) => Kind::Uuid,
            Value::Json(_) => Kind::Json,
            Value::Date(_) => Kind::Date,
        };
        of == self
    }

    fn is_number(self) -> bool {
        matches!(self, Kind::Integer | Kind::Float | Kind::Decimal)
    }

    fn article(self) -> &'static str {
        match self {
            Kind::Bool => "a bool",
            Kind::Integer => "an integer",
            Kind::Float => "a float",
            Kind::Decimal => "a decimal",
            Kind::Text => "a text",
            Kind::Bytes => "bytes",
            Kind::Timestamp => "a timestamp",
            Kind::Uuid => "a uuid",
            Kind::Json => "json",
            Kind::Date => "a date",
        }
    }
}

/// The columns that a text may name, with their kinds.
pub trait Columns {
    /// The kind of a column; none: there is no such column.
    fn kind(&self, name: &str) -> Option<Kind>;

    /// All names, for messages.
    fn names(&self) -> Vec<String>;
}

/// A value that a column is compared with or set to.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// The same at any time.
    Fixed(Value),
    /// The present plus these milliseconds.
    FromNow(i64),
    /// The day in UTC of the present plus these milliseconds.
    DayFromNow(i64),
}

impl Literal {
    /// The value at that time.
    pub fn at(&self, now: Time) -> Value {
        let from_now = |ms: i64| match ms < 0 {
            true => now.minus_ms(ms.unsigned_abs()),
            false => now.plus_ms(ms.unsigned_abs()),
        };
        match self {
            Literal::Fixed(value) => value.clone(),
            Literal::FromNow(ms) => from_now(*ms).into(),
            Literal::DayFromNow(ms) => Day::of(from_now(*ms)).into(),
        }
    }
}

/// A condition whose columns and types are known.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// One of these is true.
    Any(Vec<Condition>),
    /// All of these are true; none of them: always.
    All(Vec<Condition>),
    /// It is false.
    Not(Box<Condition>),
    /// The column is NULL.
    Null(String),
    /// A comparison with a literal.
    Compare(Compare),
    /// A comparison of two columns of this kind.
    Columns(String, Comparison, String, Kind),
    /// The column equals one of the literals.
    In(String, Vec<Literal>),
}

/// A comparison of a column with a literal.
#[derive(Debug, Clone, PartialEq)]
pub struct Compare {
    column: String,
    comparison: Comparison,
    literal: Literal,
}

impl Condition {
    /// Reads a condition; an empty text is always true.
    ///
    /// # Errors
    /// The first fault, with its place in the text.
    pub fn read(text: &str, columns: &dyn Columns) -> Result<Condition, Fault> {
        if text.trim().is_empty() {
            return Ok(Condition::All(Vec::new()));
        }
        let mut reader = Reader::new(text, columns)?;
        let condition = reader.condition(0)?;
        reader.end("`and`, `or`")?;
        Ok(condition)
    }

    /// Whether it is true for a row; none: it is neither true nor false, because of a NULL.
    pub fn holds(&self, value: &dyn Fn(&str) -> Value, now: Time) -> Option<bool> {
        match self {
            Condition::All(all) => {
                all.iter().try_fold(Some(true), |found, one| match (found, one.holds(value, now)) {
                    (_, Some(false)) => Err(Some(false)),
                    (Some(true), Some(true)) => Ok(Some(true)),
                    _ => Ok(None),
                })
            }
            Condition::Any(all) => all.iter().try_fold(Some(false), |found, one| {
                match (found, one.holds(value, now)) {
                    (_, Some(true)) => Err(Some(true)),
                    (Some(false), Some(false)) => Ok(Some(false)),
                    _ => Ok(None),
                }
            }),
            Condition::Not(one) => return one.holds(value, now).map(|holds| !holds),
            Condition::Null(column) => return Some(value(column) == Value::Null),
            Condition::Compare(Compare { column, comparison, literal }) => {
                let order = compared(&value(column), &literal.at(now))?;
                return Some(decided(*comparison, order));
            }
            Condition::Columns(column, comparison, other, _) => {
                let order = compared(&value(column), &value(other))?;
                return Some(decided(*comparison, order));
            }
            Condition::In(column, literals) => {
                let found = value(column);
                let orders = literals.iter().map(|one| compared(&found, &one.at(now)));
                // None of them compares: NULL, or NaN.
                let orders = orders.collect::<Option<Vec<_>>>()?;
                return Some(orders.contains(&Ordering::Equal));
            }
        }
        .unwrap_or_else(|decided| decided)
    }

    /// Whether it is not true for any row with the values that are known.
    pub fn fails(&self, value: &dyn Fn(&str) -> Option<Value>, now: Time) -> bool {
        !self.possible(value, now).0
    }

    /// Whether it may be true, and whether it may be false; it may be neither in any case.
    fn possible(&self, value: &dyn Fn(&str) -> Option<Value>, now: Time) -> (bool, bool) {
        match self {
            Condition::All(parts) => {
                let each = parts.iter().map(|part| part.possible(value, now));
                each.fold((true, false), |all, one| (all.0 && one.0, all.1 || one.1))
            }
            Condition::Any(parts) => {
                let each = parts.iter().map(|part| part.possible(value, now));
                each.fold((false, true), |all, one| (all.0 || one.0, all.1 && one.1))
            }
            Condition::Not(one) => {
                let (holds, fails) = one.possible(value, now);
                (fails, holds)
            }
            Condition::Columns(column, _, other, _) => match (value(column), value(other)) {
                (Some(a), Some(b)) => {
                    let known = |name: &str| if name == column { a.clone() } else { b.clone() };
                    let holds = self.holds(&known, now);
                    (holds == Some(true), holds == Some(false))
                }
                _ => (true, true),
            },
            Condition::Null(column)
            | Condition::Compare(Compare { column, .. })
            | Condition::In(column, _) => match value(column) {
                None => (true, true),
                Some(known) => {
                    let holds = self.holds(&|_| known.clone(), now);
                    (holds == Some(true), holds == Some(false))
                }
            },
        }
    }

    /// Values of which the column has one, or is NULL if that is among them, in every row for which it is true, without
    /// repetition; none: others are possible, or stores may compare them differently.
    pub fn fixed(&self, column: &str) -> Option<Vec<Value>> {
        let fixed = |literals: &[Literal]| {
            let mut values: Vec<Value> = Vec::new();
            for literal in literals {
                match literal {
                    Literal::Fixed(value) if values.contains(value) => {}
                    Literal::Fixed(value) if is_exact(Comparison::Equal, value) => {
                        values.push(value.clone());
                    }
                    _ => return None,
                }
            }
            Some(values)
        };
        match self {
            Condition::All(parts) => {
                parts.iter().filter_map(|part| part.fixed(column)).min_by_key(Vec::len)
            }
            Condition::Any(parts) => {
                let mut values: Vec<Value> = Vec::new();
                for value in parts.iter().map(|part| part.fixed(column)) {
                    values.extend(
                        value?
                            .into_iter()
                            .filter(|value| !values.contains(value))
                            .collect::<Vec<_>>(),
                    );
                }
                Some(values)
            }
            Condition::Null(name) => (name == column).then(|| vec![Value::Null]),
            Condition::Compare(Compare {
                column: name,
                comparison: Comparison::Equal,
                literal,
            }) => fixed(std::slice::from_ref(literal)).filter(|_| name == column),
            Condition::In(name, literals) => fixed(literals).filter(|_| name == column),
            Condition::Compare(_) | Condition::Columns(..) | Condition::Not(_) => None,
        }
    }

    /// The columns that it names, and whether the value of each matters, not only whether it is NULL.
    pub fn columns(&self) -> BTreeMap<&str, bool> {
        let mut all = BTreeMap::new();
        match self {
            Condition::Any(parts) | Condition::All(parts) => {
                for (column, by_value) in parts.iter().flat_map(Condition::columns) {
                    *all.entry(column).or_default() |= by_value;
                }
            }
            Condition::Not(one) => return one.columns(),
            Condition::Null(column) => {
                all.insert(column.as_str(), false);
            }
            Condition::Compare(Compare { column, .. }) | Condition::In(column, _) => {
                all.insert(column.as_str(), true);
            }
            Condition::Columns(column, _, other, _) => {
                all.extend([(column.as_str(), true), (other.as_str(), true)]);
            }
        }
        all
    }

    /// Conditions that every row fulfils for which it is true; the database finds fewer rows by them. Others
    /// may fulfil them as well.
    pub fn implied(&self, now: Time) -> Vec<Tested> {
        match self {
            Condition::All(all) => all.iter().flat_map(|one| one.implied(now)).collect(),
            Condition::Null(column) => vec![Tested::of(column, Comparison::Equal, Value::Null)],
            Condition::Not(one) => match &**one {
                Condition::Null(column) => {
                    vec![Tested::of(column, Comparison::NotEqual, Value::Null)]
                }
                _ => Vec::new(),
            },
            Condition::Compare(Compare { column, comparison, literal }) => {
                let value = literal.at(now);
                // A store may round a number, so that one just below is equal.
                let comparison = match comparison {
                    Comparison::Below if !is_exact(*comparison, &value) => Comparison::AtMost,
                    Comparison::Above if !is_exact(*comparison, &value) => Comparison::AtLeast,
                    other => *other,
                };
                vec![Tested::of(column, comparison, value)]
            }
            Condition::Columns(column, comparison, other, _) => {
                vec![Tested::between(column, *comparison, other)]
            }
            Condition::In(column, literals) => {
                let values: Vec<Value> = literals.iter().map(|one| one.at(now)).collect();
                let are_exact = values.iter().all(|value| is_exact(Comparison::Equal, value));
                let test = are_exact.then_some(Test::OneOf(values));
                test.map(|test| Tested { column: column.clone(), test }).into_iter().collect()
            }
            Condition::Any(_) => Vec::new(),
        }
    }
}

/// Conditions all of which a row has to fulfil.
pub type All = Vec<Tested>;

impl Condition {
    /// Lists of conditions of which exactly those rows fulfil one for which this is true; none: it needs
    /// more than comparisons that every store makes alike, or more than `max` lists.
    pub fn exact(&self, now: Time, max: usize) -> Option<Vec<All>> {
        self.lists(false, now, max)
    }

    /// Of the condition or, if `negated`, of its opposite.
    fn lists(&self, negated: bool, now: Time, max: usize) -> Option<Vec<All>> {
        match (self, negated) {
            (Condition::Not(one), _) => one.lists(!negated, now, max),
            (Condition::Any(parts), false) | (Condition::All(parts), true) => {
                let parts = parts.iter().map(|part| part.lists(negated, now, max));
                let all: Vec<All> = parts.collect::<Option<Vec<_>>>()?.concat();
                (all.len() <= max).then_some(all)
            }
            (Condition::All(parts), false) | (Condition::Any(parts), true) => {
                let mut all: Vec<All> = vec![Vec::new()];
                for part in parts {
                    let part = part.lists(negated, now, max)?;
                    let with = |list: &All| {
                        let list = list.clone();
                        part.iter().map(move |more| [&list[..], &more[..]].concat())
                    };
                    all = all.iter().flat_map(with).collect();
                    if all.len() > max {
                        return None;
                    }
                }
                Some(all)
            }
            (Condition::Null(column), negated) => {
                let comparison = if negated { Comparison::NotEqual } else { Comparison::Equal };
                Some(vec![vec![Tested::of(column, comparison, Value::Null)]])
            }
            (Condition::Compare(Compare { column, comparison, literal }), negated) => {
                let comparison = if negated { opposite(*comparison) } else { *comparison };
                let value = literal.at(now);
                let all = with_values(&[column], Tested::of(column, comparison, value.clone()));
                is_exact(comparison, &value).then_some(vec![all])
            }
            (Condition::Columns(column, comparison, other, kind), negated) => {
                let comparison = if negated { opposite(*comparison) } else { *comparison };
                let all = with_values(&[column, other], Tested::between(column, comparison, other));
                let is_exact = !matches!(kind, Kind::Float | Kind::Decimal);
                is_exact.then_some(vec![all])
            }
            (Condition::In(column, literals), negated) => {
                let values: Vec<Value> = literals.iter().map(|one| one.at(now)).collect();
                if !values.iter().all(|value| is_exact(Comparison::Equal, value)) {
                    return None;
                }
                let test = if negated { Test::NoneOf(values) } else { Test::OneOf(values) };
                Some(vec![with_values(&[column], Tested { column: column.clone(), test })])
            }
        }
    }
}

/// A condition, after those that the columns have values, unless it implies them: as in SQL, NULL equals
/// nothing and differs from nothing.
fn with_values(columns: &[&String], condition: Tested) -> All {
    let implies = match &condition.test {
        Test::Value(test) => test.comparison != Comparison::NotEqual,
        Test::Column(test) => !matches!(test.comparison, Comparison::Equal | Comparison::NotEqual),
        Test::OneOf(_) | Test::StartsWith(_) => true,
        Test::NoneOf(_) => false,
    };
    let known = |column: &&String| Tested::of(column, Comparison::NotEqual, Value::Null);
    columns.iter().filter(|_| !implies).map(known).chain([condition]).collect()
}

fn decided(comparison: Comparison, order: Ordering) -> bool {
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Below => order.is_lt(),
        Comparison::AtMost => order.is_le(),
        Comparison::AtLeast => order.is_ge(),
        Comparison::Above => order.is_gt(),
    }
}

fn opposite(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Equal => Comparison::NotEqual,
        Comparison::NotEqual => Comparison::Equal,
        Comparison::Below => Comparison::AtLeast,
        Comparison::AtMost => Comparison::Above,
        Comparison::AtLeast => Comparison::Below,
        Comparison::Above => Comparison::AtMost,
    }
}

/// Whether stores make the comparison alike. A store may keep an instant in whole seconds or days, and a
/// float or a decimal may be rounded, or no number.
fn is_exact(comparison: Comparison, value: &Value) -> bool {
    let for_equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    match value {
        Value::Integer(_) | Value::Date(_) => true,
        Value::Bool(_) | Value::Text(_) | Value::Uuid(_) => for_equality,
        Value::Timestamp(_) => !for_equality,
        _ => false,
    }
}

/// What `set` does to the columns of a row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Assignments {
    /// The columns that get a value.
    pub set: Vec<(String, Literal)>,
    /// The integer columns that are added to.
    pub add: Vec<(String, i64)>,
}

impl Assignments {
    /// The columns that get a value, at that time.
    pub fn set_at(&self, now: Time) -> impl Iterator<Item = (&str, Value)> {
        self.set.iter().map(move |(column, literal)| (column.as_str(), literal.at(now)))
    }

    /// The columns that are added to.
    pub fn added(&self) -> impl Iterator<Item = (&str, i64)> {
        self.add.iter().map(|(column, by)| (column.as_str(), *by))
    }

    /// The names of all columns that change.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        let set = self.set.iter().map(|(column, _)| column.as_str());
        set.chain(self.added().map(|(column, _)| column))
    }
}

/// Reads `set`.
///
/// # Errors
/// The first fault, with its place in the text.
pub fn assignments(text: &str, columns: &dyn Columns) -> Result<Assignments, Fault> {
    assigned(&mut Reader::new(text, columns)?)
}

fn assigned(reader: &mut Reader<'_>) -> Result<Assignments, Fault> {
    let mut all = Assignments::default();
    loop {
        let (column, kind, range) = reader.column()?;
        if all.columns().any(|known| known == column) {
            return Err(Fault::new(range, format!("`{column}` is set twice")));
        }
        reader.symbol("=", "`=` and a value")?;
        if kind.is_number() && reader.is_column(&column) {
            let by = reader.sum(&column, kind)?;
            all.add.push((column, by));
        } else {
            let range = reader.place();
            let literal = match reader.word("null") {
                true => {
                    reader.written.push(Written { column: column.clone(), text: None, range });
                    Literal::Fixed(Value::Null)
                }
                false => reader.literal(&column, kind)?,
            };
            all.set.push((column, literal));
        }
        if !reader.takes(",") {
            reader.end("`,`")?;
            return Ok(all);
        }
    }
}

/// A text or NULL that is written out for a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The column that is compared with it, or set to it.
    pub column: String,
    /// The text; none: NULL.
    pub text: Option<String>,
    /// Its bytes.
    pub range: Range<usize>,
}

/// The texts in a condition; none if it has a fault.
pub fn compared_with(text: &str, columns: &dyn Columns) -> Vec<Written> {
    let read = |reader: &mut Reader<'_>| reader.condition(0).is_ok();
    written(text, columns, read)
}

/// The texts in `set`, and NULL; none if it has a fault.
pub fn set_to(text: &str, columns: &dyn Columns) -> Vec<Written> {
    written(text, columns, |reader| assigned(reader).is_ok())
}

fn written(
    text: &str,
    columns: &dyn Columns,
    read: impl Fn(&mut Reader<'_>) -> bool,
) -> Vec<Written> {
    let Ok(mut reader) = Reader::new(text, columns) else { return Vec::new() };
    if read(&mut reader) { reader.written } else { Vec::new() }
}

/// Reads tokens in their order.
struct Reader<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    columns: &'a dyn Columns,
    written: Vec<Written>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, columns: &'a dyn Columns) -> Result<Reader<'a>, Fault> {
        Ok(Reader { text, tokens: tokens(text)?, at: 0, columns, written: Vec::new() })
    }

    fn next(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.at)
    }

    /// Where the next token is; after the last, the end of the text.
    fn place(&self) -> Range<usize> {
        self.next().map_or(self.text.len()..self.text.len(), |token| token.range.clone())
    }

    fn expected(&self, what: &str) -> Fault {
        let found = match self.next() {
            Some(token) => format!("not `{}`", &self.text[token.range.clone()]),
            None => "and nothing follows".to_owned(),
        };
        Fault::new(self.place(), format!("{what} is expected here, {found}"))
    }

    fn takes(&mut self, symbol: &str) -> bool {
        let found = self.next().is_some_and(|t| t.sort == Sort::Symbol && t.text == symbol);
        self.at += usize::from(found);
        found
    }

    fn symbol(&mut self, symbol: &str, what: &str) -> Result<(), Fault> {
        if self.takes(symbol) { Ok(()) } else { Err(self.expected(what)) }
    }

    /// Takes a word of the language, in small or capital letters.
    fn word(&mut self, word: &str) -> bool {
        let found =
            self.next().is_some_and(|t| t.sort == Sort::Name && t.text.eq_ignore_ascii_case(word));
        self.at += usize::from(found);
        found
    }

    fn end(&self, what: &str) -> Result<(), Fault> {
        match self.next() {
            None => Ok(()),
            Some(_) => Err(self.expected(&format!("{what} or the end"))),
        }
    }

    fn condition(&mut self, depth: u32) -> Result<Condition, Fault> {
        let first = self.all(depth)?;
        let mut any = vec![first];
        while self.word("or") {
            any.push(self.all(depth)?);
        }
        Ok(if any.len() == 1 { any.remove(0) } else { Condition::Any(any) })
    }

    fn all(&mut self, depth: u32) -> Result<Condition, Fault> {
        let mut all = vec![self.one(depth)?];
        while self.word("and") {
            all.push(self.one(depth)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Condition::All(all) })
    }

    fn one(&mut self, depth: u32) -> Result<Condition, Fault> {
        if depth > DEPTH_MAX {
            let message = format!("conditions may be nested {DEPTH_MAX} times");
            return Err(Fault::new(self.place(), message));
        }
        if self.word("not") {
            return Ok(Condition::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.takes("(") {
            let condition = self.condition(depth + 1)?;
            self.symbol(")", "`)`")?;
            return Ok(condition);
        }
        self.test()
    }

    fn test(&mut self) -> Result<Condition, Fault> {
        let (column, kind, range) = self.column()?;
        if self.word("is") {
            let negated = self.word("not");
            if !self.word("null") {
                let mut fault = self.expected("`null`");
                let sign = if negated { "!=" } else { "=" };
                fault.message.push_str(&format!(": other values are compared by `{sign}`"));
                return Err(fault);
            }
            let null = Condition::Null(column);
            return Ok(if negated { Condition::Not(Box::new(null)) } else { null });
        }
        let negated = self.word("not");
        if self.word("in") {
            self.symbol("(", "`(` and values")?;
            let mut literals = Vec::new();
            loop {
                literals.push(self.literal(&column, kind)?);
                if !self.takes(",") {
                    self.symbol(")", "`,` or `)`")?;
                    break;
                }
            }
            let found = Condition::In(column, literals);
            return Ok(if negated { Condition::Not(Box::new(found)) } else { found });
        }
        if negated {
            let mut fault = self.expected("`in`");
            fault.message.push_str(&hints::operator(self.next(), &column));
            return Err(fault);
        }
        const OPERATORS: [(&str, Comparison); 7] = [
            ("=", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<>", Comparison::NotEqual),
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Below),
            (">", Comparison::Above),
        ];
        let found = OPERATORS.into_iter().find(|(symbol, _)| self.takes(symbol));
        let Some((symbol, comparison)) = found else {
            let mut fault =
                self.expected("`=`, `!=`, `<`, `<=`, `>`, `>=`, `is`, `in` or `not in`");
            fault.message.push_str(&hints::operator(self.next(), &column));
            return Err(fault);
        };
        if symbol == "=" && self.takes("=") {
            let both = range.end..self.tokens[self.at - 1].range.end;
            return Err(Fault::new(both, "equality is written with one `=`"));
        }
        let ordered = !matches!(comparison, Comparison::Equal | Comparison::NotEqual);
        if ordered && matches!(kind, Kind::Bool | Kind::Text | Kind::Uuid) {
            let message = format!(
                "`{column}` is {}, whose order depends on the database: use `=`, `!=` or `in` instead of \
                 `{symbol}`",
                kind.article()
            );
            return Err(Fault::new(range, message));
        }
        if let Some(other) = self.other_column(&column, kind)? {
            return Ok(Condition::Columns(column, comparison, other, kind));
        }
        let literal = self.literal(&column, kind)?;
        Ok(Condition::Compare(Compare { column, comparison, literal }))
    }

    /// A column that is compared with the one before; `None`: something else follows.
    fn other_column(&mut self, column: &str, kind: Kind) -> Result<Option<String>, Fault> {
        let Some(token) = self.next().cloned() else { return Ok(None) };
        let is_word = |word: &&str| token.text.eq_ignore_ascii_case(word);
        match token.sort {
            Sort::Name if ["now", "true", "false", "null"].iter().any(is_word) => {
                return Ok(None);
            }
            Sort::Name | Sort::Quoted => {}
            _ => return Ok(None),
        }
        let (other, of_other, range) = self.column().map_err(|mut fault| {
            let called = self.tokens.get(self.at + 1).is_some_and(|next| next.text == "(");
            if kind == Kind::Text && !called {
                let hint = format!(
                    "there is no column `{}`; a text is written in single quotes: '{}'",
                    token.text,
                    token.text.replace('\'', "''")
                );
                fault.message = hint;
            }
            fault
        })?;
        if of_other == kind && !matches!(kind, Kind::Bytes | Kind::Json) {
            return Ok(Some(other));
        }
        let found = format!("`{other}`, {}", of_other.article());
        Err(unlike(range, column, kind, &found))
    }

    fn column(&mut self) -> Result<(String, Kind, Range<usize>), Fault> {
        let Some(token) = self.next().cloned() else { return Err(self.expected("a column")) };
        if !matches!(token.sort, Sort::Name | Sort::Quoted) {
            let mut fault = self.expected("a column");
            if matches!(token.sort, Sort::Text | Sort::Number) {
                fault.message.push_str(": a test begins with its column, as in `state = 'closed'`");
            }
            return Err(fault);
        }
        let name = token.text.into_owned();
        let Some(kind) = self.columns.kind(&name) else {
            let is_call = |next: &Token<'_>| next.sort == Sort::Symbol && next.text == "(";
            let called =
                token.sort == Sort::Name && self.tokens.get(self.at + 1).is_some_and(is_call);
            let hint = hints::column(&name, &self.columns.names(), called);
            let message = format!("there is no column `{name}`{hint}");
            return Err(Fault::new(token.range, message));
        };
        self.at += 1;
        Ok((name, kind, token.range))
    }

    fn is_column(&self, name: &str) -> bool {
        let is_name = |token: &Token<'_>| matches!(token.sort, Sort::Name | Sort::Quoted);
        self.next().is_some_and(|token| is_name(token) && token.text == name)
    }

    /// What is added to the column that is next.
    fn sum(&mut self, column: &str, kind: Kind) -> Result<i64, Fault> {
        if kind != Kind::Integer {
            let message = format!("`{column}` is {}: only an integer is added to", kind.article());
            return Err(Fault::new(self.place(), message));
        }
        self.at += 1;
        let is_less = self.takes("-");
        let is_signed = is_less || self.takes("+");
        let number = self.next().filter(|token| token.sort == Sort::Number);
        let by = number.and_then(|token| token.text.parse::<i64>().ok());
        match by.filter(|by| is_signed != (*by < 0)) {
            Some(by) => {
                self.at += 1;
                Ok(if is_less { -by } else { by })
            }
            None => Err(self.expected("`+` or `-` and a whole number")),
        }
    }

    /// A value that fits a column.
    fn literal(&mut self, column: &str, kind: Kind) -> Result<Literal, Fault> {
        let range = self.place();
        let Some(token) = self.next().cloned() else { return Err(self.expected("a value")) };
        let word = token.text.to_ascii_lowercase();
        if token.sort == Sort::Name && word == "null" {
            let message = "a comparison with null is never true: write `is null` or `is not null`";
            return Err(Fault::new(range, message));
        }
        self.at += 1;
        if token.sort == Sort::Name && word == "now" {
            if self.takes("(") {
                let called = range.start..self.tokens[self.at - 1].range.end;
                return Err(Fault::new(
                    called,
                    "`now` is written without parentheses: `now - 30d`",
                ));
            }
            let span = self.span()?;
            match kind {
                Kind::Timestamp => return Ok(Literal::FromNow(span)),
                Kind::Date => return Ok(Literal::DayFromNow(span)),
                _ => {}
            }
            return Err(unlike(range, column, kind, "an instant"));
        }
        let hint = hints::value(kind, &token);
        let written = (token.sort == Sort::Text).then(|| token.text.to_string());
        let (value, found) = match (token.sort, kind) {
            (Sort::Name, Kind::Bool) if word == "true" => (Some(Value::Bool(true)), ""),
            (Sort::Name, Kind::Bool) if word == "false" => (Some(Value::Bool(false)), ""),
            (Sort::Name, _) if matches!(&*word, "true" | "false") => (None, "a bool"),
            (Sort::Number, Kind::Integer) => (
                token.text.parse().ok().map(Value::Integer),
                "a number that is no integer of 64 bits",
            ),
            (Sort::Number, Kind::Float) => (token.text.parse().ok().map(Value::Float), "a number"),
            (Sort::Number, Kind::Decimal) => {
                (Decimal::of(&token.text).map(|_| Value::Decimal(token.text.to_string())), "a span")
            }
            (Sort::Number, _) => (None, "a number"),
            (Sort::Text, _) if token.text.contains('\0') => (None, "a text with a NUL"),
            (Sort::Text, Kind::Text) => (Some(Value::Text(token.text.into_owned())), ""),
            (Sort::Text, Kind::Uuid) => (uuid(&token.text), "a text that is no uuid"),
            (Sort::Text, Kind::Date) => (
                Day::parse(&token.text).map(Into::into),
                "a text that is no day such as '2026-01-31'",
            ),
            (Sort::Text, Kind::Timestamp) => (
                Time::parse(&token.text).map(Into::into),
                "a text that is no instant in UTC such as '2026-01-31' or '2026-01-31T08:00:00Z'",
            ),
            (Sort::Text, _) => (None, "a text"),
            (Sort::Name | Sort::Quoted | Sort::Symbol, _) => {
                self.at -= 1;
                return Err(self.expected(
                    "a value ('text', a number, true, false, or now such as `now - 30d`)",
                ));
            }
        };
        match value {
            Some(value) => {
                if let Some(text) = written {
                    self.written.push(Written {
                        column: column.to_owned(),
                        text: Some(text),
                        range,
                    });
                }
                Ok(Literal::Fixed(value))
            }
            None => Err(unlike(range, column, kind, &format!("{found}{hint}"))),
        }
    }

    /// What follows `now`: a span in milliseconds.
    fn span(&mut self) -> Result<i64, Fault> {
        let sign = match (self.takes("-"), self.takes("+")) {
            (true, _) => -1,
            (_, true) => 1,
            (false, false) => return Ok(0),
        };
        let span = self.next().filter(|token| token.sort == Sort::Number);
        let ms = span.and_then(|token| i64::try_from(parse_duration_ms(&token.text)?).ok());
        let Some(ms) = ms else { return Err(self.expected("a span such as 30d or 12h")) };
        self.at += 1;
        Ok(sign * ms)
    }
}

fn unlike(range: Range<usize>, column: &str, kind: Kind, found: &str) -> Fault {
    let only = match kind {
        Kind::Bytes | Kind::Json => ": test it with `is null` or `is not null` only",
        _ => "",
    };
    Fault::new(range, format!("`{column}` is {}, and this is {found}{only}", kind.article()))
}

/// How two values of a kind compare; none: one of them is NULL, or they are of different kinds.
fn compared(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Integer(a), Value::Integer(b)) | (Value::Timestamp(a), Value::Timestamp(b)) => {
            Some(a.cmp(b))
        }
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Decimal(a), Value::Decimal(b)) => decimals(a, b),
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Uuid(a), Value::Uuid(b)) => Some(a.cmp(b)),
        (Value::Date(a), Value::Date(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// How two decimal numbers compare, exactly; none: one of them is no number, such as `NaN`.
fn decimals(a: &str, b: &str) -> Option<Ordering> {
    let (a, b) = (Decimal::of(a)?, Decimal::of(b)?);
    let order = a.whole.len().cmp(&b.whole.len()).then_with(|| a.whole.cmp(b.whole));
    let order = order.then_with(|| a.fraction.cmp(b.fraction));
    Some(match (a.negative, b.negative) {
        (false, false) => order,
        (true, true) => order.reverse(),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    })
}

/// A decimal number without the zeros that mean nothing.
struct Decimal<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

impl Decimal<'_> {
    fn of(text: &str) -> Option<Decimal<'_>> {
        let digits = text.trim_start_matches(['-', '+']);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !all(whole) || !all(fraction) {
            return None;
        }
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let is_zero = whole.is_empty() && fraction.is_empty();
        Some(Decimal { negative: text.starts_with('-') && !is_zero, whole, fraction })
    }
}

fn uuid(text: &str) -> Option<Value> {
    let groups: Vec<&str> = text.split('-').collect();
    if groups.iter().map(|group| group.len()).ne([8, 4, 4, 4, 12]) {
        return None;
    }
    let hex = groups.concat();
    let half = |at: usize| u64::from_str_radix(hex.get(at..at + 16)?, 16).ok();
    hex.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
    Some(Value::Uuid((half(0)?, half(16)?)))
}

#[cfg(test)]
mod tests;
