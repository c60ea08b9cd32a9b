//! Turns bytes into a callable plugin: verified, compiled, type-checked, described.

use std::collections::BTreeSet;
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
use super::bounds;
use super::cache::Cache;
use super::code;
use super::contract::{self, CONTRACT, Mismatch};
use super::engine::Metering;
use super::guest::Guest;
use super::lines::Lines;
use super::shape::Shape;
use super::signature::Unvouched;
use crate::built_in::BuiltIn;
use besom_ports::guests::{Error, Manifest};
use besom_system::child::{self, Failure, Limits, Work};
use besom_system::secret;

/// The source of a component, kept because it may have to be compiled again.
#[derive(Clone)]
pub(super) enum Source {
    /// Embedded in this program.
    BuiltIn(&'static BuiltIn),
    /// Loaded from outside.
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

/// A plugin, ready for instantiation.
pub(super) struct Plugin {
    pub(super) manifest: Arc<Manifest>,
    pub(super) source: Source,
    pub(super) lines: Lines,
    /// The compiled code by metering; the second one is compiled when a task needs it.
    pub(super) compiled: [OnceCell<TaskPre<Guest>>; 2],
}

impl Plugin {
    /// A plugin that is compiled for one metering.
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

/// A loaded plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// SHA-256 of the component, in hexadecimal. Calls refer to the plugin by it.
    pub digest: String,
    /// The plugin's manifest.
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
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// Other users can change the file.
    #[error("{}: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The owner or the mode that allows it.
        why: String,
    },
    /// The caller does not admit this file.
    #[error("the file with the SHA-256 {digest} is not admitted")]
    Refused {
        /// SHA-256 of the file, in hexadecimal.
        digest: String,
    },
    /// No trusted key vouches for the file.
    #[error(transparent)]
    Unvouched(#[from] Unvouched),
    /// The file is not a plugin for this host.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The component is invalid or cannot be compiled.
    #[error("cannot be compiled: {0}")]
    Compile(String),
    /// The compiling process failed, for a reason that is unrelated to the plugin.
    #[error("could not be compiled; the compilation may be tried again: {0}")]
    Process(String),
    /// A function that it exports or imports has another type than in the contract.
    #[error("does not fit the contract besom:task {CONTRACT}: {0}")]
    Type(String),
    /// `describe` failed.
    #[error("describe: {0}")]
    Describe(Error),
    /// The manifest is invalid.
    #[error("its manifest is invalid: {}", .0.join("; "))]
    Manifest(Vec<String>),
}

/// The digest that identifies a component.
pub fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Checks that only this user and root can change a file or directory of code. The group of this
/// process is accepted, because it is the user's own on most systems.
///
/// # Errors
/// Which other users can change it.
pub fn trusted(found: &std::fs::Metadata) -> Result<(), String> {
    let uid = found.uid();
    match [0, rustix::process::geteuid().as_raw()].contains(&uid) {
        true => closed(found),
        false => Err(format!("it belongs to another user (uid {uid})")),
    }
}

/// The same for a file of settings, whose owner may be anybody.
///
/// # Errors
/// As for [`trusted`].
pub fn closed(found: &std::fs::Metadata) -> Result<(), String> {
    let mode = found.mode() & 0o7777;
    let group = mode & 0o020 != 0 && found.gid() != rustix::process::getegid().as_raw();
    match group || mode & 0o002 != 0 {
        true => Err(format!("other users can write to it (mode {mode:o})")),
        false => Ok(()),
    }
}

/// Reads a component from a regular file, up to a maximum size. A pipe or a device is closed again
/// as soon as it is recognized.
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

/// What is needed to compile a component.
pub(super) struct Workshop<'a> {
    pub(super) engine: &'a Engine,
    pub(super) metering: Metering,
    pub(super) linker: &'a Linker<Guest>,
    pub(super) cache: Option<&'a Cache>,
    /// How long to wait for another process that compiles the same component.
    pub(super) wait_max: Duration,
    /// The allowed shape of components from outside.
    pub(super) shape: &'a Shape,
    /// The child process that compiles; `None`: this process compiles.
    pub(super) compiler: Option<&'a Limits>,
}

/// The work of a compiling child process. Input: a component. Output: its code.
pub const COMPILING: Work =
    Work { name: "compile", output_bytes_max: CODE_BYTES_MAX, function: compiled };
/// Maximum size of the code of a component, in bytes: a multiple of its instructions, which
/// [`Shape`] limits.
const CODE_BYTES_MAX: u64 = 256 << 20;
/// The argument that selects code that counts instructions.
const COUNTS: &str = "counts";

/// Compiles, in the child process.
fn compiled(args: &[String], component: Vec<u8>) -> Result<Vec<u8>, String> {
    let config = code::config(args.iter().any(|arg| arg == COUNTS));
    let engine = Engine::new(&config).map_err(|error| format!("{error:#}"))?;
    engine.precompile_component(&component).map_err(|error| format!("{error:#}"))
}

/// Performs everything before the first instance. This may take seconds and blocks. `called` is the
/// name of the plugin in the log.
pub(super) fn prepare(
    workshop: &Workshop<'_>,
    called: &str,
    digest: &str,
    source: &Source,
) -> Result<TaskPre<Guest>, LoadError> {
    let cached = || workshop.cache.and_then(|cache| cache.load(workshop.engine, digest));
    let embedded = || match source {
        Source::BuiltIn(built_in) => {
            embedded(workshop, built_in).map(|component| kept(workshop, digest, component))
        }
        Source::Bytes(_) => None,
    };
    let component = match cached().or_else(embedded) {
        Some(component) => component,
        None => {
            contract::preamble(source.bytes())?;
            compile(workshop, called, digest, source)?
        }
    };
    fit(workshop, &component)
}

/// A component that this node has compiled before, and may not have as a file any more.
pub(super) fn recall(workshop: &Workshop<'_>, digest: &str) -> Option<TaskPre<Guest>> {
    let component = workshop.cache?.load(workshop.engine, digest)?;
    fit(workshop, &component).ok()
}

/// What a component imports: the functions of the contract as `store.get-many`, and other interfaces.
pub(super) fn imports(pre: &TaskPre<Guest>) -> BTreeSet<String> {
    contract::imports(pre.engine(), pre.instance_pre().component())
}

/// The code that was embedded when this program was built, if it fits this machine.
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

/// An error about a component, which may contain names from it.
fn said(error: String) -> String {
    bounds::cut(error, bounds::MESSAGE_BYTES_MAX)
}

/// Checks a component against the contract.
fn fit(workshop: &Workshop<'_>, component: &Component) -> Result<TaskPre<Guest>, LoadError> {
    contract::names(workshop.engine, component)?;
    let typed = |error: wasmtime::Error| LoadError::Type(said(format!("{error:#}")));
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
    tracing::info!(
        plugin = %called, mib = bytes.len() >> 20,
        "compiling a plugin for the first time on this machine"
    );
    let component = match (source, workshop.compiler) {
        (Source::Bytes(_), Some(child)) => by_child(workshop, child, bytes)?,
        (Source::Bytes(_), None) | (Source::BuiltIn(_), _) => {
            Component::from_binary(workshop.engine, bytes)
                .map_err(|error| LoadError::Compile(said(format!("{error:#}"))))?
        }
    };
    tracing::info!(plugin = %called, ms = started.elapsed().as_millis() as u64, "compiled");
    let component = kept(workshop, digest, component);
    drop(turn);
    Ok(component)
}

/// Keeps a component in the cache, and takes it from there, where it takes less memory.
fn kept(workshop: &Workshop<'_>, digest: &str, component: Component) -> Component {
    let Some(cache) = workshop.cache else { return component };
    if let Err(error) = cache.store(digest, &component) {
        tracing::warn!(%digest, %error, "the compiled component cannot be cached");
        return component;
    }
    cache.load(workshop.engine, digest).unwrap_or(component)
}

/// Compiles a component from outside in a child process with limits.
fn by_child(workshop: &Workshop<'_>, child: &Limits, bytes: &[u8]) -> Result<Component, LoadError> {
    workshop.shape.check(bytes).map_err(|why| LoadError::Compile(said(why)))?;
    let args: &[&str] = if workshop.metering.counts() { &[COUNTS] } else { &[] };
    let code = child::run(child, &COMPILING, args, bytes).map_err(|failure| match failure {
        Failure::Refused(_) | Failure::Limit(_) => LoadError::Compile(said(failure.to_string())),
        Failure::Failed(_) => LoadError::Process(said(failure.to_string())),
    })?;
    // SAFETY: the bytes are those that `Engine::precompile_component` has returned in a child that is
    // this same program, handed over by a pipe that nobody else holds. Wasmtime refuses them for
    // another version, configuration or processor.
    let loaded = unsafe { Component::deserialize(workshop.engine, &code) };
    loaded.map_err(|error| LoadError::Compile(said(format!("{error:#}"))))
}
