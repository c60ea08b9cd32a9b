//! From bytes to a plugin that can be called: verified, compiled, type-checked, described.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use super::bindings::TaskPre;
use super::cache::Cache;
use super::contract::{self, CONTRACT, Mismatch};
use super::engine::Metering;
use super::guest::Guest;
use crate::ports::guests::{Error, Manifest};

/// The bytes of a component, while they may have to be compiled once more.
pub(super) type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A plugin, ready for fresh instances.
pub(super) struct Plugin {
    pub(super) manifest: Arc<Manifest>,
    pub(super) bytes: Bytes,
    /// By metering, as it is compiled; the other one when a task asks for it.
    pub(super) compiled: [OnceCell<TaskPre<Guest>>; 2],
}

impl Plugin {
    /// One that is compiled for one metering.
    pub(super) fn new(
        manifest: Arc<Manifest>,
        bytes: Bytes,
        metering: Metering,
        pre: TaskPre<Guest>,
    ) -> Plugin {
        let mut compiled = [OnceCell::new(), OnceCell::new()];
        compiled[metering as usize] = OnceCell::new_with(Some(pre));
        Plugin { manifest, bytes, compiled }
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
    /// It is no plugin for this host.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// It is not valid, or the compiler cannot compile it.
    #[error("cannot be compiled: {0}")]
    Compile(String),
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

/// Reads a component, up to a bound.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, LoadError> {
    let error = |error| LoadError::Read { path: path.to_owned(), error };
    let bytes = std::fs::metadata(path).map_err(error)?.len();
    if bytes > bytes_max {
        return Err(Mismatch::TooLarge { bytes, max: bytes_max }.into());
    }
    std::fs::read(path).map_err(error)
}

/// Everything before the first instance: may take seconds, and blocks.
pub(super) fn prepare(
    engine: &Engine,
    linker: &Linker<Guest>,
    cache: Option<&Cache>,
    digest: &str,
    bytes: &[u8],
) -> Result<TaskPre<Guest>, LoadError> {
    contract::preamble(bytes)?;
    let component = match cache.and_then(|cache| cache.load(engine, digest)) {
        Some(component) => component,
        None => compile(engine, cache, digest, bytes)?,
    };
    contract::names(engine, &component)?;
    let typed = |error: wasmtime::Error| LoadError::Type(format!("{error:#}"));
    TaskPre::new(linker.instantiate_pre(&component).map_err(typed)?).map_err(typed)
}

fn compile(
    engine: &Engine,
    cache: Option<&Cache>,
    digest: &str,
    bytes: &[u8],
) -> Result<Component, LoadError> {
    let component = Component::from_binary(engine, bytes)
        .map_err(|error| LoadError::Compile(format!("{error:#}")))?;
    if let Some(cache) = cache
        && let Err(error) = cache.store(digest, &component)
    {
        tracing::warn!(%digest, %error, "the compiled component cannot be kept");
    }
    Ok(component)
}
