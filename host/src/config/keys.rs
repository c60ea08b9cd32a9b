//! The keys of a table, as data: name, type, bounds, default and purpose in one place.
//!
//! From this list come the reading of a file, of the environment and of flags, the
//! suggestions for a misspelt key, the defaults, the template and the schema, so that none
//! of them can disagree with another.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::quantity::{SIZE_FIX, SPAN_FIX, bytes, duration, show_bytes, show_duration};
use super::tree::Node;

/// A key of a table that is read into a `T`.
pub struct Key<T: 'static> {
    /// Its name.
    pub name: &'static str,
    /// The default as TOML; empty: none (the key may be left out).
    pub default: &'static str,
    /// What it is for, in one sentence.
    pub doc: &'static str,
    /// Its type, and where its value goes.
    pub slot: Slot<T>,
}

/// The type of a key: its bounds and the field that takes it.
pub enum Slot<T: 'static> {
    /// A span with inclusive bounds.
    Duration(fn(&mut T) -> &mut Duration, Duration, Duration),
    /// A whole number with inclusive bounds.
    U32(fn(&mut T) -> &mut u32, u32, u32),
    /// A whole number with inclusive bounds.
    U64(fn(&mut T) -> &mut u64, u64, u64),
    /// The same, or 0 for no bound.
    U64OrNone(fn(&mut T) -> &mut u64, u64, u64),
    /// A number of bytes with inclusive bounds.
    Bytes(fn(&mut T) -> &mut u64, u64, u64),
    /// True or false.
    Bool(fn(&mut T) -> &mut bool),
    /// Text.
    Text(fn(&mut T) -> &mut String),
    /// Text that may be left out.
    OptionalText(fn(&mut T) -> &mut Option<String>),
    /// Texts, each once; in the environment and in flags they are separated by commas.
    Texts(fn(&mut T) -> &mut Vec<String>),
    /// A file or directory; a relative one is meant from the configuration's directory.
    Path(fn(&mut T) -> &mut PathBuf),
    /// A path that may be left out.
    OptionalPath(fn(&mut T) -> &mut Option<PathBuf>),
    /// `address:port`.
    OptionalAddress(fn(&mut T) -> &mut Option<SocketAddr>),
    /// One of a few words.
    Choice(&'static [&'static str], fn(&mut T, &str)),
}

/// What is wrong with a value, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub fix: Option<String>,
}

impl Fault {
    /// A fault without a way to mend it.
    pub fn new(message: impl Into<String>) -> Fault {
        Fault { message: message.into(), fix: None }
    }

    /// The same with a way to mend it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Fault {
        self.fix = Some(fix.into());
        self
    }
}

impl<T> Key<T> {
    /// Takes a value of a file.
    pub fn read(&self, target: &mut T, node: &Node) -> Result<(), Fault> {
        match (&self.slot, node) {
            (_, Node::Broken) => Ok(()), // Reported where it was read.
            (Slot::Duration(at, min, max), Node::Text(text)) => {
                let value = duration(text).map_err(|m| Fault::new(m).fix(SPAN_FIX))?;
                *at(target) = within(value, *min, *max, show_duration)?;
                Ok(())
            }
            (Slot::Duration(..), Node::Integer(0)) => self.read_text(target, "0"),
            (Slot::Duration(..), Node::Integer(n)) => {
                Err(Fault::new(format!("`{}` is a duration and needs a unit", self.name))
                    .fix(format!("write \"{n}s\" if seconds are meant")))
            }
            (
                Slot::U32(..) | Slot::U64(..) | Slot::U64OrNone(..) | Slot::Bytes(..),
                Node::Integer(n),
            ) if *n < 0 => {
                Err(Fault::new(format!("`{}` cannot be negative", self.name))
                    .fix("write 0 or more"))
            }
            (
                Slot::U32(..) | Slot::U64(..) | Slot::U64OrNone(..) | Slot::Bytes(..),
                Node::Integer(n),
            ) => self.read_text(target, &n.to_string()),
            (Slot::Bytes(..), Node::Text(text)) => self.read_text(target, text),
            (Slot::Texts(at), Node::Array(items)) => {
                let mut texts = Vec::with_capacity(items.len());
                for (_, item) in items {
                    match item {
                        Node::Text(text) => texts.push(text.as_str()),
                        Node::Broken => {}
                        other => {
                            let name = self.name;
                            let noun = other.noun();
                            return Err(Fault::new(format!("`{name}` lists texts, not {noun}"))
                                .fix("write each between double quotes"));
                        }
                    }
                }
                *at(target) = each_once(self.name, &texts)?;
                Ok(())
            }
            (Slot::Bool(at), Node::Bool(b)) => {
                *at(target) = *b;
                Ok(())
            }
            (
                Slot::Text(_)
                | Slot::OptionalText(_)
                | Slot::Path(_)
                | Slot::OptionalPath(_)
                | Slot::OptionalAddress(_)
                | Slot::Choice(..),
                Node::Text(text),
            ) => self.read_text(target, text),
            (slot, node) => {
                Err(Fault::new(format!("`{}` is {}, not {}", self.name, slot.noun(), node.noun()))
                    .fix(format!("write for instance {}", self.example())))
            }
        }
    }

    /// Takes a value of the environment or of a flag, where everything is text.
    pub fn read_text(&self, target: &mut T, text: &str) -> Result<(), Fault> {
        match &self.slot {
            Slot::Duration(at, min, max) => {
                let value = duration(text).map_err(|m| Fault::new(m).fix(SPAN_FIX))?;
                *at(target) = within(value, *min, *max, show_duration)?;
            }
            Slot::U32(at, min, max) => {
                *at(target) = within(number(text)?, *min, *max, |n| n.to_string())?;
            }
            Slot::U64(at, min, max) => {
                *at(target) = within(number(text)?, *min, *max, |n| n.to_string())?;
            }
            Slot::U64OrNone(at, min, max) => {
                *at(target) = match number(text)? {
                    0 => 0,
                    value => within(value, *min, *max, |n| n.to_string()).map_err(|fault| {
                        let fix = fault.fix.unwrap_or_default();
                        Fault::new(fault.message).fix(format!("{fix}; 0 is no limit"))
                    })?,
                };
            }
            Slot::Bytes(at, min, max) => {
                let value = bytes(text).map_err(|m| Fault::new(m).fix(SIZE_FIX))?;
                *at(target) = within(value, *min, *max, show_bytes)?;
            }
            Slot::Bool(at) => {
                *at(target) = match text {
                    "true" => true,
                    "false" => false,
                    _ => return Err(Fault::new(format!("`{text}` is neither true nor false"))),
                };
            }
            Slot::Text(at) => *at(target) = given(self.name, text)?.to_owned(),
            Slot::OptionalText(at) => *at(target) = Some(given(self.name, text)?.to_owned()),
            Slot::Texts(at) => {
                let texts: Vec<&str> = text.split(',').map(str::trim).collect();
                *at(target) = each_once(self.name, &texts)?;
            }
            Slot::Path(at) => *at(target) = PathBuf::from(given(self.name, text)?),
            Slot::OptionalPath(at) => *at(target) = Some(PathBuf::from(given(self.name, text)?)),
            Slot::OptionalAddress(at) => {
                *at(target) = Some(text.parse().map_err(|_| {
                    Fault::new(format!("`{text}` is not an address and a port"))
                        .fix("write for instance \"127.0.0.1:7350\"")
                })?);
            }
            Slot::Choice(choices, set) => {
                if !choices.contains(&text) {
                    let all = choices.iter().map(|c| format!("\"{c}\"")).collect::<Vec<_>>();
                    let fix = match nearest(text, choices.iter().copied()) {
                        Some(near) => format!("did you mean \"{near}\"?"),
                        None => format!("choose one of {}", all.join(", ")),
                    };
                    return Err(
                        Fault::new(format!("`{text}` is no value of `{}`", self.name)).fix(fix)
                    );
                }
                set(target, text);
            }
        }
        Ok(())
    }

    /// Sets the default.
    ///
    /// # Panics
    /// When the default of the list is not a value of its own type: a test reads all.
    pub fn set_default(&self, target: &mut T) {
        if !self.default.is_empty() {
            let text = self.default.trim_matches('"');
            if let Err(fault) = self.read_text(target, text) {
                panic!("the default of `{}`: {}", self.name, fault.message);
            }
        }
    }

    fn example(&self) -> String {
        let value = match (&self.slot, self.default) {
            (Slot::OptionalAddress(_), _) => "\"127.0.0.1:7350\"",
            (Slot::Texts(_), _) => "[\"text\"]",
            (Slot::Choice(choices, _), _) => return format!("{} = \"{}\"", self.name, choices[0]),
            (_, "") => "\"text\"",
            (_, default) => default,
        };
        format!("{} = {value}", self.name)
    }
}

impl<T> Slot<T> {
    /// What a value of it is, with its article.
    pub fn noun(&self) -> &'static str {
        match self {
            Slot::Duration(..) => "a duration such as \"30s\"",
            Slot::U32(..) | Slot::U64(..) | Slot::U64OrNone(..) => "a whole number",
            Slot::Bytes(..) => "a size such as \"64MiB\"",
            Slot::Bool(_) => "true or false",
            Slot::Text(_) | Slot::OptionalText(_) => "text",
            Slot::Texts(_) => "a list of texts",
            Slot::Path(_) | Slot::OptionalPath(_) => "a path",
            Slot::OptionalAddress(_) => "an address and a port",
            Slot::Choice(..) => "a word",
        }
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, Fault> {
    text.parse().map_err(|_| Fault::new(format!("`{text}` is not a whole number that fits here")))
}

fn each_once(name: &str, texts: &[&str]) -> Result<Vec<String>, Fault> {
    let mut kept: Vec<String> = Vec::with_capacity(texts.len());
    for text in texts {
        let text = given(&format!("an entry of {name}"), text)?;
        if kept.iter().any(|other| other == text) {
            return Err(Fault::new(format!("`{text}` stands in `{name}` twice")).fix("remove one"));
        }
        kept.push(text.to_owned());
    }
    Ok(kept)
}

fn given<'a>(name: &str, text: &'a str) -> Result<&'a str, Fault> {
    if text.is_empty() {
        return Err(Fault::new(format!("`{name}` is empty")).fix("give it a value or leave it out"));
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
        return Err(Fault::new(format!("{} is too little", show(value)))
            .fix(format!("the least is {}", show(min))));
    }
    if value > max {
        return Err(Fault::new(format!("{} is too much", show(value)))
            .fix(format!("the most is {}", show(max))));
    }
    Ok(value)
}

/// The name that was probably meant, if one is near enough.
pub fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(text, name), name))
        .filter(|(distance, name)| *distance <= name.chars().count().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// "did you mean", or the list of what there is.
pub fn suggestion<'a>(text: &str, names: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(text, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let all: Vec<_> = names.into_iter().map(|n| format!("`{n}`")).collect();
            match all.len() {
                0 => "remove it".to_owned(),
                _ => format!("there is {}", all.join(", ")),
            }
        }
    }
}
