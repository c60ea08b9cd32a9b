//! The keys of a table as data: name, type, bounds, default and description in one place.
//!
//! Files, environment variables and flags are read from this list, and the suggestions for misspelt
//! keys, the defaults, the template and the schema are generated from it, so they cannot disagree.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use super::quantity::{SIZE_FIX, SPAN_FIX, bytes, duration, show_bytes, show_duration};
use super::tree::Node;

/// A key of a table that is read into a `T`.
pub struct Key<T: 'static> {
    /// Name of the key.
    pub name: &'static str,
    /// The default as TOML; empty for an optional key without a default.
    pub default: &'static str,
    /// Description of the key, for the template and the schema.
    pub doc: &'static str,
    /// The type of the key, and the field that receives its value.
    pub setter: Setter<T>,
}

/// The type of a key, with its bounds and the field that receives its value.
pub enum Setter<T: 'static> {
    /// A duration with inclusive bounds.
    Duration(fn(&mut T) -> &mut Duration, Duration, Duration),
    /// An integer with inclusive bounds.
    U32(fn(&mut T) -> &mut u32, u32, u32),
    /// An integer with inclusive bounds.
    U64(fn(&mut T) -> &mut u64, u64, u64),
    /// An integer with inclusive bounds, or 0 for no limit.
    U64OrNone(fn(&mut T) -> &mut u64, u64, u64),
    /// An integer from 1 to the bound; without the key there is no limit.
    Limit(fn(&mut T) -> &mut Option<NonZeroU32>, u32),
    /// A number of bytes with inclusive bounds.
    Bytes(fn(&mut T) -> &mut u64, u64, u64),
    /// A boolean.
    Bool(fn(&mut T) -> &mut bool),
    /// A string that is not empty.
    Text(fn(&mut T) -> &mut String),
    /// An optional string.
    OptionalText(fn(&mut T) -> &mut Option<String>),
    /// An array of distinct strings; separated by commas in the environment and in flags.
    Texts(fn(&mut T) -> &mut Vec<String>),
    /// A path; a relative one is resolved against the directory of the configuration.
    Path(fn(&mut T) -> &mut PathBuf),
    /// An optional path.
    OptionalPath(fn(&mut T) -> &mut Option<PathBuf>),
    /// An optional `address:port`.
    OptionalAddress(fn(&mut T) -> &mut Option<SocketAddr>),
    /// A number of rows, or a part such as "5%".
    RowsOrShare(fn(&mut T) -> &mut Option<RowsOrShare>),
    /// One of several words.
    Choice(&'static [&'static str], fn(&mut T, &str)),
}

/// A number of rows, or a part of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsOrShare {
    /// At most this many rows.
    Rows(u64),
    /// A part, in millionths of the whole.
    Share(u32),
}

/// How a number of rows or a part is written.
pub const ROWS_OR_SHARE_FIX: &str =
    "write a number of rows such as 10000, or a part such as \"5%\" or \"0.5%\"";

/// Reads a number of rows, or a part in percent with at most four digits after the point.
fn rows_or_share(text: &str) -> Result<RowsOrShare, Fault> {
    let wrong = || {
        Fault::new(format!("`{text}` is neither a number of rows nor a part"))
            .fix(ROWS_OR_SHARE_FIX)
    };
    let Some(percent) = text.strip_suffix('%') else {
        let rows: u64 = text.parse().map_err(|_| wrong())?;
        return within(rows, 1, 1_000_000_000_000, |n| n.to_string()).map(RowsOrShare::Rows);
    };
    let (whole, part) = percent.trim().split_once('.').unwrap_or((percent.trim(), ""));
    let is_digits = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty()
        || whole.len() > 3
        || part.len() > 4
        || !is_digits(whole)
        || !is_digits(part)
    {
        return Err(wrong());
    }
    let millionths: u32 = format!("{whole}{part:0<4}").parse().map_err(|_| wrong())?;
    let show = |n: u32| format!("{}%", f64::from(n) / 10_000.0);
    within(millionths, 1, 1_000_000, show).map(RowsOrShare::Share)
}

/// What is wrong with a value, and the fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub fix: Option<String>,
}

impl Fault {
    /// Creates a fault without a fix.
    pub fn new(message: impl Into<String>) -> Fault {
        Fault { message: message.into(), fix: None }
    }

    /// Adds a fix.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Fault {
        self.fix = Some(fix.into());
        self
    }
}

impl<T> Key<T> {
    /// Reads a value from a file.
    ///
    /// # Errors
    /// A value of another type, or out of bounds.
    pub fn read(&self, target: &mut T, node: &Node) -> Result<(), Fault> {
        match (&self.setter, node) {
            (_, Node::Broken) => Ok(()), // Already reported by the parser.
            (Setter::Duration(at, min, max), Node::Text(text)) => {
                let value = duration(text).map_err(|m| Fault::new(m).fix(SPAN_FIX))?;
                *at(target) = within(value, *min, *max, show_duration)?;
                Ok(())
            }
            (Setter::Duration(..), Node::Integer(0)) => self.read_text(target, "0"),
            (Setter::Duration(..), Node::Integer(n)) => {
                Err(Fault::new(format!("`{}` is a duration and requires a unit", self.name))
                    .fix(format!("write \"{n}s\" for seconds")))
            }
            (
                Setter::U32(..) | Setter::U64(..) | Setter::U64OrNone(..) | Setter::Bytes(..),
                Node::Integer(n),
            ) if *n < 0 => {
                Err(Fault::new(format!("`{}` must not be negative", self.name))
                    .fix("write 0 or more"))
            }
            (
                Setter::U32(..) | Setter::U64(..) | Setter::U64OrNone(..) | Setter::Bytes(..),
                Node::Integer(n),
            ) => self.read_text(target, &n.to_string()),
            (Setter::Limit(..), Node::Integer(n)) if *n < 1 => {
                Err(Fault::new(format!("`{}` must not be below 1", self.name))
                    .fix("write 1 or more, or remove the key: without it there is no limit"))
            }
            (Setter::RowsOrShare(_) | Setter::Limit(..), Node::Integer(n)) => {
                self.read_text(target, &n.to_string())
            }
            // Its author may have left out the percent sign.
            (Setter::RowsOrShare(_), Node::Text(text))
                if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) =>
            {
                Err(Fault::new(format!("\"{text}\" may be a number of rows or a part"))
                    .fix(format!("write {text} for rows, or \"{text}%\" for a part")))
            }
            (Setter::Bytes(..), Node::Text(text)) => self.read_text(target, text),
            (Setter::Texts(at), Node::Array(items)) => {
                let mut texts = Vec::with_capacity(items.len());
                for (_, item) in items {
                    match item {
                        Node::Text(text) => texts.push(text.as_str()),
                        Node::Broken => {}
                        other => {
                            let name = self.name;
                            let noun = other.noun();
                            return Err(Fault::new(format!(
                                "`{name}` must contain strings, not {noun}"
                            ))
                            .fix("put each entry in double quotes"));
                        }
                    }
                }
                *at(target) = each_once(self.name, &texts)?;
                Ok(())
            }
            (Setter::Bool(at), Node::Bool(b)) => {
                *at(target) = *b;
                Ok(())
            }
            (
                Setter::Text(_)
                | Setter::OptionalText(_)
                | Setter::Path(_)
                | Setter::OptionalPath(_)
                | Setter::OptionalAddress(_)
                | Setter::RowsOrShare(_)
                | Setter::Choice(..),
                Node::Text(text),
            ) => self.read_text(target, text),
            (setter, node) => Err(Fault::new(format!(
                "`{}` must be {}, not {}",
                self.name,
                setter.noun(),
                node.noun()
            ))
            .fix(format!("write, for example, {}", self.example()))),
        }
    }

    /// Reads a value from the environment or from a flag.
    ///
    /// # Errors
    /// A text that is not a value of the type, or is out of bounds.
    pub fn read_text(&self, target: &mut T, text: &str) -> Result<(), Fault> {
        match &self.setter {
            Setter::Duration(at, min, max) => {
                let value = duration(text).map_err(|m| Fault::new(m).fix(SPAN_FIX))?;
                *at(target) = within(value, *min, *max, show_duration)?;
            }
            Setter::U32(at, min, max) => {
                *at(target) = within(number(text)?, *min, *max, |n| n.to_string())?;
            }
            Setter::U64(at, min, max) => {
                *at(target) = within(number(text)?, *min, *max, |n| n.to_string())?;
            }
            Setter::U64OrNone(at, min, max) => {
                *at(target) = match number(text)? {
                    0 => 0,
                    value => within(value, *min, *max, |n| n.to_string()).map_err(|fault| {
                        let fix = fault.fix.unwrap_or_default();
                        Fault::new(fault.message).fix(format!("{fix}; 0 means no limit"))
                    })?,
                };
            }
            Setter::Limit(at, max) => {
                *at(target) = NonZeroU32::new(within(number(text)?, 1, *max, |n| n.to_string())?);
            }
            Setter::Bytes(at, min, max) => {
                let value = bytes(text).map_err(|m| Fault::new(m).fix(SIZE_FIX))?;
                *at(target) = within(value, *min, *max, show_bytes)?;
            }
            Setter::Bool(at) => {
                *at(target) = match text {
                    "true" => true,
                    "false" => false,
                    _ => return Err(Fault::new(format!("`{text}` must be true or false"))),
                };
            }
            Setter::Text(at) => *at(target) = given(self.name, text)?.to_owned(),
            Setter::OptionalText(at) => *at(target) = Some(given(self.name, text)?.to_owned()),
            Setter::Texts(at) => {
                let texts: Vec<&str> = text.split(',').map(str::trim).collect();
                *at(target) = each_once(self.name, &texts)?;
            }
            Setter::Path(at) => *at(target) = PathBuf::from(given(self.name, text)?),
            Setter::OptionalPath(at) => *at(target) = Some(PathBuf::from(given(self.name, text)?)),
            Setter::OptionalAddress(at) => {
                *at(target) = Some(text.parse().map_err(|_| {
                    Fault::new(format!("`{text}` is not an address and a port"))
                        .fix("write, for example, \"127.0.0.1:7350\"")
                })?);
            }
            Setter::RowsOrShare(at) => *at(target) = Some(rows_or_share(text)?),
            Setter::Choice(choices, set) => {
                if !choices.contains(&text) {
                    let all = choices.iter().map(|c| format!("\"{c}\"")).collect::<Vec<_>>();
                    let fix = match nearest(text, choices.iter().copied()) {
                        Some(near) => format!("did you mean \"{near}\"?"),
                        None => format!("choose one of {}", all.join(", ")),
                    };
                    return Err(Fault::new(format!(
                        "`{text}` is not a valid value for `{}`",
                        self.name
                    ))
                    .fix(fix));
                }
                set(target, text);
            }
        }
        Ok(())
    }

    /// Sets the key to its default, if it has one.
    ///
    /// # Panics
    /// If the default in the list is not a valid value; a test reads all defaults.
    pub fn set_default(&self, target: &mut T) {
        if !self.default.is_empty() {
            let text = self.default.trim_matches('"');
            if let Err(fault) = self.read_text(target, text) {
                panic!("the default of `{}`: {}", self.name, fault.message);
            }
        }
    }

    fn example(&self) -> String {
        let value = match (&self.setter, self.default) {
            (Setter::OptionalAddress(_), _) => "\"127.0.0.1:7350\"",
            (Setter::Texts(_), _) => "[\"text\"]",
            (Setter::RowsOrShare(_), _) => "\"5%\"",
            (Setter::Choice(choices, _), _) => {
                return format!("{} = \"{}\"", self.name, choices[0]);
            }
            (Setter::Limit(..), _) => "10",
            (_, "") => "\"text\"",
            (_, default) => default,
        };
        format!("{} = {value}", self.name)
    }
}

impl<T> Setter<T> {
    /// Describes a value of this type, with its article, for messages.
    pub fn noun(&self) -> &'static str {
        match self {
            Setter::Duration(..) => "a duration such as \"30s\"",
            Setter::U32(..) | Setter::U64(..) | Setter::U64OrNone(..) | Setter::Limit(..) => {
                "an integer"
            }
            Setter::Bytes(..) => "a size such as \"64MiB\"",
            Setter::Bool(_) => "true or false",
            Setter::Text(_) | Setter::OptionalText(_) => "a string",
            Setter::Texts(_) => "an array of strings",
            Setter::Path(_) | Setter::OptionalPath(_) => "a path",
            Setter::OptionalAddress(_) => "an address and a port",
            Setter::RowsOrShare(_) => "a number of rows, or a part such as \"5%\"",
            Setter::Choice(..) => "a string",
        }
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, Fault> {
    text.parse()
        .map_err(|_| Fault::new(format!("`{text}` is not an integer in the supported range")))
}

fn each_once(name: &str, texts: &[&str]) -> Result<Vec<String>, Fault> {
    let mut kept: Vec<String> = Vec::with_capacity(texts.len());
    for text in texts {
        let text = given(&format!("an entry of {name}"), text)?;
        if kept.iter().any(|other| other == text) {
            return Err(Fault::new(format!("`{text}` is listed twice in `{name}`"))
                .fix("remove one of them"));
        }
        kept.push(text.to_owned());
    }
    Ok(kept)
}

fn given<'a>(name: &str, text: &'a str) -> Result<&'a str, Fault> {
    if text.is_empty() {
        return Err(Fault::new(format!("`{name}` is empty")).fix("set a value or remove the key"));
    }
    if text.contains('\0') {
        return Err(Fault::new(format!("`{name}` contains a NUL character")));
    }
    Ok(text)
}

fn within<N: PartialOrd + Copy>(
    value: N,
    min: N,
    max: N,
    show: impl Fn(N) -> String,
) -> Result<N, Fault> {
    if value < min {
        return Err(Fault::new(format!("{} is below the minimum", show(value)))
            .fix(format!("the minimum is {}", show(min))));
    }
    if value > max {
        return Err(Fault::new(format!("{} exceeds the maximum", show(value)))
            .fix(format!("the maximum is {}", show(max))));
    }
    Ok(value)
}

/// Returns the most similar name, if one is similar enough to be meant.
pub fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(text, name), name))
        .filter(|(distance, name)| *distance <= name.chars().count().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns a name as it is written as a key in TOML: quoted unless it is a bare key.
pub fn written(name: &str) -> Cow<'_, str> {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !name.is_empty() && name.chars().all(is_bare) {
        true => name.into(),
        false => quoted(name).into(),
    }
}

/// A text in quotes. The escapes of JSON are valid in TOML.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns a fix for an unknown name: the most similar name, or all available names.
pub fn suggestion<'a>(text: &str, names: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(text, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let all: Vec<_> = names.into_iter().map(|n| format!("`{n}`")).collect();
            match all.len() {
                0 => "remove it".to_owned(),
                _ => format!("available: {}", all.join(", ")),
            }
        }
    }
}
