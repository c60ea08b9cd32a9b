//! Resolves the source lines of a trap from the DWARF data of a component.
//!
//! DWARF can make a resolver use excessive time and memory. Therefore it runs in a separate
//! process, once per place, up to a limit per plugin; beyond it, a backtrace contains only function
//! names.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian};
use serde::{Deserialize, Serialize};
use wasmparser::{Parser, Payload};

use super::plugin::Source;
use besom_system::child::{self, Failure, Limits, Work};

/// The work of a resolving child process. Input: offsets and a component. Output: their symbols.
pub const LOOKING_UP: Work =
    Work { name: "lines", output_bytes_max: ANSWER_BYTES_MAX, function: looked_up };
/// The limits of one lookup: processor time, address space, and size of the result.
const PROCESSOR_MAX: Duration = Duration::from_secs(5);
const MEMORY_BYTES_MAX: u64 = 1 << 30;
const ANSWER_BYTES_MAX: u64 = 256 * 1024;
/// How long a fault waits for its source lines.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The total duration of all lookups for one plugin.
const PLUGIN_MAX: Duration = Duration::from_secs(10);
/// Maximum number of places stored per plugin.
const PLACES_MAX: usize = 1_024;
/// Maximum number of functions inlined at one place.
const INLINED_MAX: usize = 32;
/// Maximum length of a function name or file name, in bytes.
const TEXT_BYTES_MAX: usize = 512;

/// A function at a place, according to the DWARF data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Symbol {
    /// The mangled name.
    pub(super) name: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

/// The symbols at each place, by its offset in the component; inlined functions first.
pub(super) type Symbols = BTreeMap<usize, Vec<Symbol>>;

/// The known places of one plugin.
#[derive(Default)]
pub(super) struct Lines(Arc<Shared>);

/// Shared by failed calls and by the lookup, which continues if they stop waiting.
#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    /// Held by the lookup under way, so that there is only one.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Known {
    /// An entry without symbols means that none are available.
    symbols: HashMap<usize, Vec<Symbol>>,
    spent: Duration,
}

impl Lines {
    /// The symbols at these places, as far as they are available in time. `compiler`: the program
    /// that resolves them; `None`: this process does.
    pub(super) async fn of(
        &self,
        source: &Source,
        compiler: Option<&Limits>,
        places: &[usize],
    ) -> Symbols {
        if !self.0.known().unknown(places).is_empty() {
            // A call that stops waiting gets no lines; the next one will.
            let looking = self.look_up(source, compiler, places);
            let _ = tokio::time::timeout(WAIT_MAX, looking).await;
        }
        self.0.known().of(places)
    }

    /// Resolves what has not been resolved in the meantime. Dropping the future does not end the
    /// lookup.
    async fn look_up(&self, source: &Source, compiler: Option<&Limits>, places: &[usize]) {
        let turn = Arc::clone(&self.0.turn).lock_owned().await;
        let new = self.0.known().unknown(places);
        if new.is_empty() {
            return;
        }
        let (shared, source) = (Arc::clone(&self.0), source.clone());
        let limits = compiler.map(|compiler| Limits {
            processor: PROCESSOR_MAX,
            memory_bytes: compiler.memory_bytes.min(MEMORY_BYTES_MAX),
            ..compiler.clone()
        });
        let looking = tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let found = found(limits.as_ref(), &new, source.bytes());
            shared.known().note(&new, found, started.elapsed());
            drop(turn);
        });
        if let Err(error) = looking.await {
            tracing::warn!(%error, "{UNKNOWN}");
        }
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log message for a failed lookup.
const UNKNOWN: &str = "the source lines of a plugin's faults cannot be resolved";

impl Known {
    /// Which of these places still have to be resolved, if time is left.
    fn unknown(&self, places: &[usize]) -> Vec<usize> {
        let is_new = |place: &&usize| !self.symbols.contains_key(place);
        match self.spent < PLUGIN_MAX {
            true => places.iter().filter(is_new).copied().collect(),
            false => Vec::new(),
        }
    }

    fn of(&self, places: &[usize]) -> Symbols {
        let symbols = |place: &usize| Some((*place, self.symbols.get(place)?.clone()));
        places.iter().filter_map(symbols).filter(|(_, symbols)| !symbols.is_empty()).collect()
    }

    /// Records the result of a lookup and its duration.
    fn note(&mut self, places: &[usize], found: Result<Symbols, Failure>, took: Duration) {
        self.spent += took;
        let symbols = found.unwrap_or_else(|failure| {
            tracing::warn!(error = %failure, "{UNKNOWN}");
            match failure {
                // The failure says nothing about the plugin: the next fault at these places tries
                // again.
                Failure::Failed(_) => Symbols::new(),
                // Another lookup would fail in the same way.
                Failure::Refused(_) | Failure::Limit(_) => {
                    places.iter().map(|place| (*place, Vec::new())).collect()
                }
            }
        });
        if self.symbols.len() + symbols.len() > PLACES_MAX {
            self.symbols.clear();
        }
        self.symbols.extend(symbols);
    }
}

fn found(limits: Option<&Limits>, places: &[usize], component: &[u8]) -> Result<Symbols, Failure> {
    let places: Vec<String> = places.iter().map(usize::to_string).collect();
    let answer = match limits {
        Some(limits) => {
            let places: Vec<&str> = places.iter().map(String::as_str).collect();
            child::run(limits, &LOOKING_UP, &places, component)?
        }
        None => looked_up(&places, component.to_vec()).map_err(Failure::Refused)?,
    };
    serde_json::from_slice(&answer).map_err(|error| Failure::Failed(error.to_string()))
}

/// Resolves places, in the child process.
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
    // Recorded even without DWARF data, so that it is known that there are no symbols.
    for place in places.iter().filter_map(|place| place.parse().ok()) {
        symbols.entry(place).or_default();
    }
    serde_json::to_vec(&symbols).map_err(|error| error.to_string())
}

/// A core module with its DWARF sections.
struct Module<'a> {
    /// The range of its code section, from whose start the DWARF offsets count.
    code: Range<usize>,
    debug: HashMap<&'a str, &'a [u8]>,
}

fn modules(component: &[u8]) -> Vec<Module<'_>> {
    let mut modules = Vec::new();
    // Modules are nested in components, never in other modules.
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
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use besom_doubles::script;

    /// A program that records each call and behaves as configured, in its directory.
    fn program(directory: &Path, then: &str) -> Limits {
        let text = format!("cd {}; echo called >>calls\n{then}", directory.display());
        let processor = Duration::from_secs(1);
        Limits { program: script(directory, &text), memory_bytes: 1 << 30, processor }
    }

    fn calls(directory: &Path) -> usize {
        fs::read_to_string(directory.join("calls")).unwrap().lines().count()
    }

    fn source() -> Source {
        Source::Bytes(Arc::new(*b"\0asm\x0d\0\x01\0"))
    }

    const ANSWER: &str = r#"{"7":[{"name":"f","file":"a.rs","line":3}]}"#;

    fn answered() -> Symbols {
        let file = Some("a.rs".to_owned());
        Symbols::from([(7, vec![Symbol { name: Some("f".into()), file, line: Some(3) }])])
    }

    #[tokio::test]
    async fn what_cannot_be_looked_up_is_not_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let limits = program(directory.path(), "exit 1");
        let lines = Lines::default();
        for (places, tries) in [([7_usize], 1), ([7], 1), ([8], 2), ([7], 2)] {
            assert_eq!(lines.of(&source(), Some(&limits), &places).await, Symbols::new());
            assert_eq!(calls(directory.path()), tries);
        }
        lines.0.known().spent = PLUGIN_MAX;
        assert_eq!(lines.of(&source(), Some(&limits), &[9]).await, Symbols::new());
        assert_eq!(calls(directory.path()), 2);
    }

    #[tokio::test]
    async fn a_process_that_cannot_be_had_once_ends_no_lines() {
        let directory = tempfile::tempdir().unwrap();
        let answers = format!("cat >/dev/null; echo '{ANSWER}'");
        let lines = Lines::default();
        let nowhere = Limits {
            program: directory.path().join("nowhere"),
            ..program(directory.path(), &answers)
        };
        assert_eq!(lines.of(&source(), Some(&nowhere), &[7]).await, Symbols::new());
        // The kernel has ended the second process; the third behaves normally.
        let killed = "[ -e killed ] || { touch killed; kill -KILL $$; }";
        let limits = program(directory.path(), &format!("{killed}\n{answers}"));
        assert_eq!(lines.of(&source(), Some(&limits), &[7]).await, Symbols::new());
        assert_eq!(lines.of(&source(), Some(&limits), &[7]).await, answered());
        assert!(lines.0.known().spent < PLUGIN_MAX);
    }

    #[tokio::test]
    async fn whoever_is_aborted_leaves_the_lookup_to_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = |name: &str| {
            let path = directory.path().join(name);
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            path
        };
        let (begun, go) = (fifo("begun"), fifo("go"));
        let slow = format!("cat >/dev/null; echo >begun; read line <go; echo '{ANSWER}'");
        let limits = program(directory.path(), &slow);
        let lines = Arc::new(Lines::default());
        let first = tokio::spawn({
            let (lines, limits) = (Arc::clone(&lines), limits.clone());
            async move { lines.of(&source(), Some(&limits), &[7]).await }
        });
        tokio::task::spawn_blocking(move || fs::read(begun).unwrap()).await.unwrap();
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let answer = tokio::task::spawn_blocking(move || fs::write(go, "go\n").unwrap());
        assert_eq!(lines.of(&source(), Some(&limits), &[7]).await, answered());
        answer.await.unwrap();
        assert_eq!(calls(directory.path()), 1);
    }

    #[tokio::test]
    async fn a_place_is_looked_up_once() {
        let directory = tempfile::tempdir().unwrap();
        let limits = program(directory.path(), &format!("cat >/dev/null; echo '{ANSWER}'"));
        let lines = Lines::default();
        for _ in 0..2 {
            assert_eq!(lines.of(&source(), Some(&limits), &[7]).await, answered());
        }
        assert_eq!(calls(directory.path()), 1);
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
