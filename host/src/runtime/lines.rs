//! Where in its source a guest was when it trapped: looked up in the DWARF of its component, which
//! takes what time and memory the DWARF makes it take. So it is done in a process of its own, once
//! for each place, up to a bound for each plugin; beyond it a backtrace names functions alone.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::{Duration, Instant};

use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use wasmparser::{Parser, Payload};

use super::plugin::Source;
use crate::child::{self, Limits, Work};

/// The work of a child that looks places up: from their offsets and a component to their symbols.
pub const LOOKING_UP: Work =
    Work { name: "lines", output_bytes_max: ANSWER_BYTES_MAX, function: looked_up };
/// Of one lookup: time of a processor, and bytes of the answer.
const PROCESSOR_MAX: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 256 * 1024;
/// How long a fault waits for its places.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// By the clock, all lookups of one plugin.
const PLUGIN_MAX: Duration = Duration::from_secs(10);
/// Places of one plugin that are kept.
const PLACES_MAX: usize = 1_024;
/// Functions that were inlined at one place.
const INLINED_MAX: usize = 32;
/// Bytes of a name, or of a file's.
const TEXT_BYTES_MAX: usize = 512;

/// A function at a place, as the DWARF calls it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Symbol {
    /// Mangled.
    pub(super) name: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

/// What is at each place, by its offset in the component: inlined functions first.
pub(super) type Symbols = BTreeMap<usize, Vec<Symbol>>;

/// What is known of the places of one plugin.
#[derive(Default)]
pub(super) struct Lines(Mutex<Known>);

#[derive(Default)]
struct Known {
    symbols: HashMap<usize, Vec<Symbol>>,
    spent: Duration,
}

impl Lines {
    /// What is at these places, as far as it can be had in time. `compiler`: whose program looks it
    /// up; none: this process does.
    pub(super) async fn of(
        &self,
        source: &Source,
        compiler: Option<&Limits>,
        places: &[usize],
    ) -> Symbols {
        let found = tokio::time::timeout(WAIT_MAX, self.found(source, compiler, places)).await;
        found.unwrap_or_default()
    }

    async fn found(&self, source: &Source, compiler: Option<&Limits>, places: &[usize]) -> Symbols {
        let mut known = self.0.lock().await;
        let new: Vec<String> = places
            .iter()
            .filter(|place| !known.symbols.contains_key(place))
            .map(usize::to_string)
            .collect();
        if !new.is_empty() && known.spent < PLUGIN_MAX {
            let left = PLUGIN_MAX - known.spent;
            // Whoever gives up waiting has spent it all, until the answer is there.
            known.spent = PLUGIN_MAX;
            let (source, started) = (source.clone(), Instant::now());
            let limits =
                compiler.map(|compiler| Limits { processor: PROCESSOR_MAX, ..compiler.clone() });
            let look = move || {
                let component = source.bytes();
                match limits {
                    Some(limits) => {
                        let args: Vec<&str> = new.iter().map(String::as_str).collect();
                        child::run(&limits, &LOOKING_UP, &args, component)
                            .map_err(|e| e.to_string())
                    }
                    None => looked_up(&new, component.to_vec()),
                }
            };
            let answer = match tokio::task::spawn_blocking(look).await {
                Ok(answer) => answer,
                Err(error) => Err(error.to_string()),
            };
            let symbols = answer.and_then(|answer| {
                serde_json::from_slice::<Symbols>(&answer).map_err(|error| error.to_string())
            });
            match symbols {
                Ok(symbols) => {
                    known.spent = PLUGIN_MAX - left.saturating_sub(started.elapsed());
                    if known.symbols.len() + symbols.len() > PLACES_MAX {
                        known.symbols.clear();
                    }
                    known.symbols.extend(symbols);
                }
                Err(error) => {
                    tracing::warn!(error, "the lines of a plugin's faults cannot be looked up");
                }
            }
        }
        let symbols = |place: &usize| Some((*place, known.symbols.get(place)?.clone()));
        places.iter().filter_map(symbols).collect()
    }
}

/// Looks places up, in a process of its own.
fn looked_up(places: &[String], component: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut symbols = Symbols::new();
    let modules = modules(&component);
    for module in &modules {
        let within = |place: &usize| module.code.contains(place);
        let own: Vec<usize> = places.iter().filter_map(|p| p.parse().ok()).filter(within).collect();
        if own.is_empty() {
            continue;
        }
        let read = |section: addr2line::gimli::SectionId| {
            let bytes = module.debug.get(section.name()).copied().unwrap_or_default();
            Ok::<_, addr2line::gimli::Error>(EndianSlice::new(bytes, LittleEndian))
        };
        let context = Dwarf::load(read).and_then(Context::from_dwarf);
        let context = context.map_err(|error| error.to_string())?;
        for place in own {
            symbols.insert(place, at(&context, (place - module.code.start) as u64));
        }
    }
    // What has no DWARF has no symbols: that is known as well.
    for place in places.iter().filter_map(|place| place.parse().ok()) {
        symbols.entry(place).or_default();
    }
    serde_json::to_vec(&symbols).map_err(|error| error.to_string())
}

/// A core module with its sections of DWARF.
struct Module<'a> {
    /// The section of its code, from whose begin the DWARF counts.
    code: Range<usize>,
    debug: HashMap<&'a str, &'a [u8]>,
}

fn modules(component: &[u8]) -> Vec<Module<'_>> {
    let mut modules = Vec::new();
    // Modules stand one in another's component, never in another module.
    for payload in Parser::new(0).parse_all(component) {
        match payload {
            Ok(Payload::Version { encoding: wasmparser::Encoding::Module, .. }) => {
                modules.push(Module { code: 0..0, debug: HashMap::new() });
            }
            Ok(Payload::CodeSectionStart { range, .. }) => {
                if let Some(module) = modules.last_mut() {
                    module.code = range.start..range.end;
                }
            }
            Ok(Payload::CustomSection(section)) if section.name().starts_with(".debug_") => {
                if let Some(module) = modules.last_mut() {
                    module.debug.insert(section.name(), section.data());
                }
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    modules
}

fn at(context: &Context<EndianSlice<'_, LittleEndian>>, place: u64) -> Vec<Symbol> {
    let text = |text: &str| text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned();
    let mut symbols = Vec::new();
    let Ok(mut frames) = context.find_frames(place).skip_all_loads() else { return symbols };
    while symbols.len() < INLINED_MAX
        && let Ok(Some(frame)) = frames.next()
    {
        let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
        let location = frame.location.as_ref();
        symbols.push(Symbol {
            name: name.as_ref().map(Cow::as_ref).map(text),
            file: location.and_then(|location| location.file).map(text),
            line: location.and_then(|location| location.line),
        });
    }
    symbols
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Arc;

    use super::*;

    /// A plugin of these bytes, and a program that notes each call and does as told.
    fn program(directory: &std::path::Path, then: &str) -> Limits {
        let program = directory.join("program");
        let text = format!("#!/bin/sh\necho called >>{}/calls\n{then}\n", directory.display());
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let processor = Duration::from_secs(1);
        Limits { program, memory_bytes: 1 << 30, processor }
    }

    #[tokio::test]
    async fn what_cannot_be_looked_up_is_not_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let limits = program(directory.path(), "exit 1");
        let source = Source::Bytes(Arc::new(*b"\0asm\x0d\0\x01\0"));
        let lines = Lines::default();
        for places in [[7_usize], [8]] {
            assert_eq!(lines.of(&source, Some(&limits), &places).await, Symbols::new());
        }
        let calls = fs::read_to_string(directory.path().join("calls")).unwrap();
        assert_eq!(calls.lines().count(), 1);
    }

    #[tokio::test]
    async fn a_place_is_looked_up_once() {
        let directory = tempfile::tempdir().unwrap();
        let answer = r#"{"7":[{"name":"f","file":"a.rs","line":3}]}"#;
        let limits = program(directory.path(), &format!("cat >/dev/null; echo '{answer}'"));
        let source = Source::Bytes(Arc::new(*b"\0asm\x0d\0\x01\0"));
        let lines = Lines::default();
        let file = Some("a.rs".to_owned());
        let symbol = Symbol { name: Some("f".into()), file, line: Some(3) };
        for _ in 0..2 {
            let found = lines.of(&source, Some(&limits), &[7]).await;
            assert_eq!(found, Symbols::from([(7, vec![symbol.clone()])]));
        }
        let calls = fs::read_to_string(directory.path().join("calls")).unwrap();
        assert_eq!(calls.lines().count(), 1);
    }

    #[test]
    fn bytes_that_are_no_component_have_no_symbols() {
        for bytes in [&b""[..], b"\0asm\x0d\0\x01\0\x01\xff\xff", b"\x7fELF"] {
            let answer = looked_up(&["12".into()], bytes.to_vec()).unwrap();
            let symbols: Symbols = serde_json::from_slice(&answer).unwrap();
            assert_eq!(symbols, Symbols::from([(12, vec![])]));
        }
    }
}
