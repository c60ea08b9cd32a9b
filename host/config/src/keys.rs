//! The keys of a table as data: name, type, bounds, default and description in one place.
//!
//! Files, environment variables and flags are read from this list, and the suggestions for misspelt
//! keys, the defaults, the template and the schema are generated from it, so they cannot disagree. [`keys!`]
//! declares a table.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::diagnostic::{Diagnostic, Place};
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
    Duration(fn(&mut T) -> &mut Duration, RangeInclusive<Duration>),
    /// An integer with inclusive bounds.
    U32(fn(&mut T) -> &mut u32, RangeInclusive<u32>),
    /// An integer with inclusive bounds.
    U64(fn(&mut T) -> &mut u64, RangeInclusive<u64>),
    /// An integer with inclusive bounds, or 0 for no limit.
    U64OrNone(fn(&mut T) -> &mut U64OrNone, RangeInclusive<u64>),
    /// An integer from 1 to the bound; without the key there is no limit.
    Limit(fn(&mut T) -> &mut Option<NonZeroU32>, RangeInclusive<u32>),
    /// A number of bytes with inclusive bounds.
    Bytes(fn(&mut T) -> &mut Bytes, RangeInclusive<u64>),
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

/// A number of bytes, written as a number or as a size such as "64MiB".
pub type Bytes = u64;

/// A number of which 0 means no limit.
pub type U64OrNone = u64;

/// Declares a table of the file: the struct that it is read into, and its keys. A field and its key are one
/// declaration.
///
/// ```ignore
/// keys! {
///     /// The lease of the leader.
///     #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
///     pub struct Lease in [lease] {
///         /// Interval at which the lease is renewed; at most a third of ttl.
///         pub renew: Duration = "5s", within ms(100)..=secs(1_200);
///     }
/// }
/// ```
///
/// declares the key `renew` of the section `[lease]` and the field `Lease::renew` with its value. The
/// documentation of the field is the text about the key that users read in the template and the schema; what
/// only matters to the code stands in a `//` comment below it.
///
/// - `in [lease]` makes the table a section: `Lease::SECTION`, which is read into [`Sections`]. Any other table
///   has no `in`, and is read into the struct itself.
/// - The type of the field decides how the key is written: see `setter!`. An `Option` is `None` without the key.
/// - `= "5s"` is the default as in TOML. Without it, the key is optional.
/// - `within MIN..=MAX` are the bounds of a duration or a number.
/// - `one of WORDS => READ` makes the key a choice: `READ` turns one of the words into the value.
/// - `at PLACE[INDEX]` keeps the value in a part of another field. That and any other field without a key is
///   declared in `with { .. }`, after the keys.
///
/// [`Sections`]: crate::sections::Sections
macro_rules! keys {
    // A section.
    ($(#[$($attribute:tt)+])+ $vis:vis struct $name:ident in [$section:ident] $($body:tt)+) => {
        $crate::keys::keys! {
            @table $crate::sections::Sections, [.$section] $(#[$($attribute)+])+ $vis struct $name $($body)+
        }
        impl $name {
            /// The section of the file.
            pub const SECTION: $crate::sections::Section = $crate::sections::Section {
                name: stringify!($section),
                doc: Self::DOC,
                keys: Self::KEYS,
            };
        }
    };
    // Another table.
    ($(#[$($attribute:tt)+])+ $vis:vis struct $name:ident { $($body:tt)+ }) => {
        $crate::keys::keys! { @table $name, [] $(#[$($attribute)+])+ $vis struct $name { $($body)+ } }
    };
    // A table that is read into `$root`; the struct is at `$path` of it.
    (
        @table $root:ty, $path:tt
        $(#[doc = $about:literal])+
        #[derive($($derive:ident),+)]
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)+)])?
                $field_vis:vis $field:ident: $kind:ident $(<$inner:ident>)?
                $(= $default:literal)?
                $(, within $range:expr)?
                $(, one of $words:expr => $read:expr)?
                $(, at $place:ident[$index:expr])?
                ;
            )+
        } $(with { $($others:tt)+ })?
    ) => {
        $(#[doc = $about])+
        #[derive($($derive),+)]
        #[allow(rustdoc::bare_urls, reason = "the texts are also shown outside of the documentation")]
        $vis struct $name {
            $(
                $(#[doc = $doc])+
                $(#[serde($($serde)+)])?
                // No field for a key that is `at` another one.
                $(#[cfg(any())] #[doc = stringify!($place)])?
                $field_vis $field: $kind $(<$inner>)?,
            )+
            $($($others)+)?
        }

        impl $name {
            /// Description of the table.
            pub const DOC: &'static str = concat!($($about),+).trim_ascii_start();

            /// The keys of the table.
            pub const KEYS: &'static [$crate::keys::Key<$root>] = &[$($crate::keys::Key {
                name: stringify!($field),
                default: concat!($(stringify!($default))?),
                // Each line of a documentation begins with a space.
                doc: concat!($($doc),+).trim_ascii_start(),
                setter: $crate::keys::setter!(
                    |table: &mut $root| $crate::keys::keys!(@field table $path $field $($place[$index])?),
                    $kind $(<$inner>)? $(, within $range)? $(, one of $words => $read)?
                ),
            }),+];
        }
    };
    (@field $table:ident [$($path:tt)*] $field:ident) => { &mut $table $($path)* .$field };
    (@field $table:ident [$($path:tt)*] $field:ident $place:ident[$index:expr]) => {
        &mut $table $($path)* .$place[$index]
    };
}

/// The setter of a key: of a choice if it is `one of` some words, and otherwise by the type of its field.
macro_rules! setter {
    ($at:expr, $type:ty, one of $words:expr => $read:expr) => {
        $crate::keys::Setter::Choice($words, |table, word| {
            let (at, read): (fn(&mut _) -> &mut $type, fn(&str) -> $type) = ($at, $read);
            *at(table) = read(word);
        })
    };
    ($at:expr, Duration, within $range:expr) => {
        $crate::keys::Setter::Duration($at, $range)
    };
    ($at:expr, u32, within $range:expr) => {
        $crate::keys::Setter::U32($at, $range)
    };
    ($at:expr, u64, within $range:expr) => {
        $crate::keys::Setter::U64($at, $range)
    };
    ($at:expr, U64OrNone, within $range:expr) => {
        $crate::keys::Setter::U64OrNone($at, $range)
    };
    ($at:expr, Bytes, within $range:expr) => {
        $crate::keys::Setter::Bytes($at, $range)
    };
    ($at:expr, Option<NonZeroU32>, within $range:expr) => {
        $crate::keys::Setter::Limit($at, $range)
    };
    ($at:expr, bool) => {
        $crate::keys::Setter::Bool($at)
    };
    ($at:expr, String) => {
        $crate::keys::Setter::Text($at)
    };
    ($at:expr, Option<String>) => {
        $crate::keys::Setter::OptionalText($at)
    };
    ($at:expr, Vec<String>) => {
        $crate::keys::Setter::Texts($at)
    };
    ($at:expr, PathBuf) => {
        $crate::keys::Setter::Path($at)
    };
    ($at:expr, Option<PathBuf>) => {
        $crate::keys::Setter::OptionalPath($at)
    };
    ($at:expr, Option<SocketAddr>) => {
        $crate::keys::Setter::OptionalAddress($at)
    };
    ($at:expr, Option<RowsOrShare>) => {
        $crate::keys::Setter::RowsOrShare($at)
    };
}

pub(crate) use {keys, setter};

/// Returns a table whose keys have their defaults.
pub fn defaults<T: Default + 'static>(keys: impl IntoIterator<Item = &'static Key<T>>) -> T {
    let mut table = T::default();
    for key in keys {
        key.set_default(&mut table);
    }
    table
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
        return within(rows, &(1..=1_000_000_000_000), |n| n.to_string()).map(RowsOrShare::Rows);
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
    within(millionths, &(1..=1_000_000), show).map(RowsOrShare::Share)
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

    /// Reports the fault as an error at a place.
    pub fn at(self, place: Place) -> Diagnostic {
        Diagnostic { fix: self.fix, ..Diagnostic::error(place, self.message) }
    }
}

impl<T> Key<T> {
    /// Reads a value from a file.
    ///
    /// # Errors
    /// A value of another type, or out of bounds.
    pub fn read(&self, target: &mut T, node: &Node) -> Result<(), Fault> {
        use Setter as S;
        let fault = match (&self.setter, node) {
            (_, Node::Broken) => return Ok(()), // Already reported by the parser.
            (S::Bool(at), Node::Bool(b)) => {
                *at(target) = *b;
                return Ok(());
            }
            (S::Texts(at), Node::Array(items)) => {
                let mut texts = Vec::with_capacity(items.len());
                for (_, item) in items {
                    match item {
                        Node::Text(text) => texts.push(text.as_str()),
                        Node::Broken => {}
                        other => {
                            let (name, noun) = (self.name, other.noun());
                            return Err(Fault::new(format!(
                                "`{name}` must contain strings, not {noun}"
                            ))
                            .fix("put each entry in double quotes"));
                        }
                    }
                }
                *at(target) = each_once(self.name, &texts)?;
                return Ok(());
            }
            (S::Duration(..), Node::Integer(n)) if *n != 0 => {
                Fault::new(format!("`{}` is a duration and requires a unit", self.name))
                    .fix(format!("write \"{n}s\" for seconds"))
            }
            (S::U32(..) | S::U64(..) | S::U64OrNone(..) | S::Bytes(..), Node::Integer(..0)) => {
                Fault::new(format!("`{}` must not be negative", self.name)).fix("write 0 or more")
            }
            (S::Limit(..), Node::Integer(..1)) => {
                Fault::new(format!("`{}` must not be below 1", self.name))
                    .fix("write 1 or more, or remove the key: without it there is no limit")
            }
            // Its author may have left out the percent sign.
            (S::RowsOrShare(_), Node::Text(text))
                if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) =>
            {
                Fault::new(format!("\"{text}\" may be a number of rows or a part"))
                    .fix(format!("write {text} for rows, or \"{text}%\" for a part"))
            }
            (
                S::Duration(..)
                | S::U32(..)
                | S::U64(..)
                | S::U64OrNone(..)
                | S::Bytes(..)
                | S::Limit(..)
                | S::RowsOrShare(_),
                Node::Integer(n),
            ) => return self.read_text(target, &n.to_string()),
            (
                S::Duration(..)
                | S::Bytes(..)
                | S::Text(_)
                | S::OptionalText(_)
                | S::Path(_)
                | S::OptionalPath(_)
                | S::OptionalAddress(_)
                | S::RowsOrShare(_)
                | S::Choice(..),
                Node::Text(text),
            ) => return self.read_text(target, text),
            (setter, node) => {
                let (name, noun, given) = (self.name, setter.noun(), node.noun());
                Fault::new(format!("`{name}` must be {noun}, not {given}"))
                    .fix(format!("write, for example, {}", self.example()))
            }
        };
        Err(fault)
    }

    /// Reads a value from the environment or from a flag.
    ///
    /// # Errors
    /// A text that is not a value of the type, or is out of bounds.
    pub fn read_text(&self, target: &mut T, text: &str) -> Result<(), Fault> {
        match &self.setter {
            Setter::Duration(at, range) => {
                let value = duration(text).map_err(|m| Fault::new(m).fix(SPAN_FIX))?;
                *at(target) = within(value, range, show_duration)?;
            }
            Setter::U32(at, range) => *at(target) = number_within(text, range)?,
            Setter::U64(at, range) => *at(target) = number_within(text, range)?,
            Setter::U64OrNone(at, range) => {
                *at(target) = match number(text)? {
                    0 => 0,
                    value => within(value, range, |n| n.to_string()).map_err(|fault| {
                        let fix = fault.fix.unwrap_or_default();
                        Fault::new(fault.message).fix(format!("{fix}; 0 means no limit"))
                    })?,
                };
            }
            Setter::Limit(at, range) => *at(target) = NonZeroU32::new(number_within(text, range)?),
            Setter::Bytes(at, range) => {
                let value = bytes(text).map_err(|m| Fault::new(m).fix(SIZE_FIX))?;
                *at(target) = within(value, range, show_bytes)?;
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

    /// Resolves the path that the key has set, if it is one, against `dir`.
    pub fn settle_path(&self, target: &mut T, dir: &Path) {
        let path = match &self.setter {
            Setter::Path(at) => Some(at(target)),
            Setter::OptionalPath(at) => at(target).as_mut(),
            _ => None,
        };
        if let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) {
            *path = dir.join(&path);
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

fn number_within<N>(text: &str, range: &RangeInclusive<N>) -> Result<N, Fault>
where
    N: std::str::FromStr + PartialOrd + Copy + ToString,
{
    within(number(text)?, range, |n| n.to_string())
}

fn within<N: PartialOrd + Copy>(
    value: N,
    range: &RangeInclusive<N>,
    show: impl Fn(N) -> String,
) -> Result<N, Fault> {
    if value < *range.start() {
        return Err(Fault::new(format!("{} is below the minimum", show(value)))
            .fix(format!("the minimum is {}", show(*range.start()))));
    }
    if value > *range.end() {
        return Err(Fault::new(format!("{} exceeds the maximum", show(value)))
            .fix(format!("the maximum is {}", show(*range.end()))));
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
