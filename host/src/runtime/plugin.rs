//! From bytes to a plugin that can be called: verified, compiled, type-checked, described.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use super::bindings::TaskPre;
use super::cache::Cache;
use super::code;
use super::contract::{self, CONTRACT, Mismatch};
use super::engine::Metering;
use super::guest::Guest;
use super::lines::Lines;
use super::shape::Shape;
use crate::built_in::BuiltIn;
use crate::child::{self, Failure, Limits, Work};
use crate::ports::guests::{Error, Manifest};
use crate::secret;

/// Where a component comes from, while it may have to be compiled once more.
#[derive(Clone)]
pub(super) enum Source {
    /// It is part of this program.
    BuiltIn(&'static BuiltIn),
    /// Somebody has brought its bytes.
    Bytes(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl Source {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Source::BuiltIn(built_in) => built_in.component(),
            Source::Bytes(bytes) => (**bytes).as_ref(),
        }
    }

    pub(super) fn digest(&self) -> String {
        match self {
            Source::BuiltIn(built_in) => built_in.digest.to_owned(),
            Source::Bytes(bytes) => digest((**bytes).as_ref()),
        }
    }
}

/// A plugin, ready for fresh instances.
pub(super) struct Plugin {
    pub(super) manifest: Arc<Manifest>,
    pub(super) source: Source,
    pub(super) lines: Lines,
    /// By metering, as it is compiled; the other one when a task asks for it.
    pub(super) compiled: [OnceCell<TaskPre<Guest>>; 2],
}

impl Plugin {
    /// One that is compiled for one metering.
    pub(super) fn new(
        manifest: Arc<Manifest>,
        source: Source,
        metering: Metering,
        pre: TaskPre<Guest>,
    ) -> Plugin {
        let mut compiled = [OnceCell::new(), OnceCell::new()];
        compiled[metering as usize] = OnceCell::new_with(Some(pre));
        Plugin { manifest, source, lines: Lines::default(), compiled }
    }
}

/// What was loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// SHA-256 of the component, in hexadecimal: by this it is called.
    pub digest: String,
    /// What it says of itself.
    pub manifest: Arc<Manifest>,
}

/// Why a plugin was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Others can change the file.
    #[error("{}: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is, or who may write it.
        why: String,
    },
    /// It is no plugin for this host.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// It is not valid, or the compiler cannot compile it.
    #[error("cannot be compiled: {0}")]
    Compile(String),
    /// The process that compiles could not do its work, which says nothing of the plugin.
    #[error("could not be compiled this time, and may be tried again: {0}")]
    Process(String),
    /// A function of it, or one that it imports, has another type than in the contract.
    #[error("does not fit the contract besom:task {CONTRACT}: {0}")]
    Type(String),
    /// `describe` failed.
    #[error("describe: {0}")]
    Describe(Error),
    /// Its manifest makes no sense.
    #[error("its manifest is wrong: {}", .0.join("; "))]
    Manifest(Vec<String>),
}

/// The digest by which a component is known.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether nobody but this user and root can change a file or directory of code. The group of this
/// process is this user's own on most systems.
///
/// # Errors
/// Who else can.
pub fn trusted(found: &std::fs::Metadata) -> Result<(), String> {
    let (uid, mode) = (found.uid(), found.mode() & 0o7777);
    let own = [0, rustix::process::geteuid().as_raw()].contains(&uid);
    let group = mode & 0o020 != 0 && found.gid() != rustix::process::getegid().as_raw();
    match (own, group || mode & 0o002 != 0) {
        (false, _) => Err(format!("it belongs to another user (uid {uid})")),
        (true, true) => Err(format!("others can write it (mode {mode:o})")),
        (true, false) => Ok(()),
    }
}

/// Reads a component from a regular file, up to a bound. Neither a pipe nor a device is opened
/// for longer than it takes to see that it is one.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, LoadError> {
    let error = |error| LoadError::Read { path: path.to_owned(), error };
    let file = secret::open(path).map_err(error)?;
    let found = file.metadata().map_err(error)?;
    if !found.is_file() {
        return Err(error(io::Error::other(secret::NOT_REGULAR)));
    }
    trusted(&found).map_err(|why| LoadError::Foreign { path: path.to_owned(), why })?;
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(error)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Mismatch::TooLarge { max: bytes_max }.into());
    }
    Ok(bytes)
}

/// How a component becomes code.
pub(super) struct Workshop<'a> {
    pub(super) engine: &'a Engine,
    pub(super) metering: Metering,
    pub(super) linker: &'a Linker<Guest>,
    pub(super) cache: Option<&'a Cache>,
    /// How long another process that compiles the same is waited for.
    pub(super) wait_max: Duration,
    /// What a component of somebody else may be like.
    pub(super) shape: &'a Shape,
    /// By whom it is compiled; none: here.
    pub(super) compiler: Option<&'a Limits>,
}

/// The work of a child that compiles: from a component to its code.
pub const COMPILING: Work =
    Work { name: "compile", output_bytes_max: CODE_BYTES_MAX, function: compiled };
/// The code of a component, in bytes: some times its instructions, of which [`Shape`] has a bound.
const CODE_BYTES_MAX: u64 = 256 << 20;
/// The argument that says whether the code counts instructions.
const COUNTS: &str = "counts";

/// Compiles, in a process of its own.
fn compiled(args: &[String], component: Vec<u8>) -> Result<Vec<u8>, String> {
    let config = code::config(args.iter().any(|arg| arg == COUNTS));
    let engine = Engine::new(&config).map_err(|error| format!("{error:#}"))?;
    engine.precompile_component(&component).map_err(|error| format!("{error:#}"))
}

/// Everything before the first instance: may take seconds, and blocks. `called` is what the log
/// calls the plugin.
pub(super) fn prepare(
    workshop: &Workshop<'_>,
    called: &str,
    digest: &str,
    source: &Source,
) -> Result<TaskPre<Guest>, LoadError> {
    let embedded = match source {
        Source::BuiltIn(built_in) => embedded(workshop, built_in),
        Source::Bytes(_) => None,
    };
    let cached = || workshop.cache.and_then(|cache| cache.load(workshop.engine, digest));
    let component = match embedded.or_else(cached) {
        Some(component) => component,
        None => {
            contract::preamble(source.bytes())?;
            compile(workshop, called, digest, source)?
        }
    };
    fit(workshop, &component)
}

/// The code that was compiled when this program was built, if this machine can run it.
fn embedded(workshop: &Workshop<'_>, built_in: &BuiltIn) -> Option<Component> {
    let code = built_in.code(workshop.metering.counts())?;
    // SAFETY: the bytes are those that `Engine::precompile_component` has returned to the build script
    // of this program: nothing else makes a `BuiltIn`. Wasmtime refuses them for another version,
    // configuration or processor.
    let loaded = unsafe { Component::deserialize(workshop.engine, &code) };
    loaded
        .inspect_err(|error| {
            let error = format!("{error:#}");
            tracing::info!(plugin = built_in.name, error, "compiled for another machine");
        })
        .ok()
}

/// Holds a component against the contract.
fn fit(workshop: &Workshop<'_>, component: &Component) -> Result<TaskPre<Guest>, LoadError> {
    contract::names(workshop.engine, component)?;
    let typed = |error: wasmtime::Error| LoadError::Type(format!("{error:#}"));
    TaskPre::new(workshop.linker.instantiate_pre(component).map_err(typed)?).map_err(typed)
}

fn compile(
    workshop: &Workshop<'_>,
    called: &str,
    digest: &str,
    source: &Source,
) -> Result<Component, LoadError> {
    let bytes = source.bytes();
    let turn = workshop.cache.and_then(|cache| cache.turn(digest, workshop.wait_max));
    if turn.is_some()
        && let Some(component) = workshop.cache.and_then(|c| c.load(workshop.engine, digest))
    {
        return Ok(component);
    }
    let started = Instant::now();
    tracing::info!(plugin = %called, mib = bytes.len() >> 20, "compiling, first time on this machine");
    let component = match (source, workshop.compiler) {
        (Source::Bytes(_), Some(child)) => by_child(workshop, child, bytes)?,
        (Source::Bytes(_), None) | (Source::BuiltIn(_), _) => {
            Component::from_binary(workshop.engine, bytes)
                .map_err(|error| LoadError::Compile(format!("{error:#}")))?
        }
    };
    tracing::info!(plugin = %called, ms = started.elapsed().as_millis() as u64, "compiled");
    if let Some(cache) = workshop.cache
        && let Err(error) = cache.store(digest, &component)
    {
        tracing::warn!(%digest, %error, "the compiled component cannot be kept");
    }
    drop(turn);
    Ok(component)
}

/// Has a component of somebody else compiled, under limits of its own.
fn by_child(workshop: &Workshop<'_>, child: &Limits, bytes: &[u8]) -> Result<Component, LoadError> {
    workshop.shape.check(bytes).map_err(LoadError::Compile)?;
    let args: &[&str] = if workshop.metering.counts() { &[COUNTS] } else { &[] };
    let code = child::run(child, &COMPILING, args, bytes).map_err(|failure| match failure {
        Failure::Refused(_) | Failure::Limit(_) => LoadError::Compile(failure.to_string()),
        Failure::Failed(_) => LoadError::Process(failure.to_string()),
    })?;
    // SAFETY: the bytes are those that `Engine::precompile_component` has returned in a child that is
    // this same program, handed over by a pipe that nobody else holds. Wasmtime refuses them for
    // another version, configuration or processor.
    let loaded = unsafe { Component::deserialize(workshop.engine, &code) };
    loaded.map_err(|error| LoadError::Compile(format!("{error:#}")))
}
