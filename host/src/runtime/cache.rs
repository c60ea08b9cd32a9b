//! Compiled components, kept from one start to the next.
//!
//! Loading native code is trusting it. An entry is loaded only with a message
//! authentication code over its name and content, under a key that lies beside it. This
//! keeps out what this node did not write itself: a copied or restored directory, an entry
//! under another's name, a torn write. It does not keep out somebody with the rights of
//! this user, who might replace the host itself.
//!
//! Nothing here is needed: whatever is wrong with the cache, the component is compiled anew.

use std::fs;
use std::hash::Hash;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rand::TryRngCore as _;
use rand::rngs::OsRng;
use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;
use xxhash_rust::xxh3::Xxh3;

/// Entries kept; the oldest go.
const ENTRIES_MAX: usize = 64;
const KEY_FILE: &str = "key";
const MAC_BYTES: usize = 32;

/// A private directory of compiled components.
pub(super) struct Cache {
    directory: PathBuf,
    key: [u8; 32],
    /// Engines with another value cannot run this one's code.
    compatibility: String,
}

impl Cache {
    /// Opens the directory, or makes it.
    pub(super) fn open(directory: &Path, engine: &Engine) -> io::Result<Cache> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let found = fs::metadata(directory)?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{} must belong to this user alone: chmod 700 it, or name another directory",
                    directory.display()
                ),
            ));
        }
        let mut hasher = Xxh3::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Cache {
            key: key(directory)?,
            directory: directory.to_owned(),
            compatibility: format!("{:016x}", hasher.digest()),
        })
    }

    /// The compiled form of the component with that digest, if this node has written it.
    pub(super) fn load(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let name = self.name(digest);
        let bytes = fs::read(self.directory.join(&name)).ok()?;
        let (mac, code) = bytes.split_at_checked(MAC_BYTES)?;
        if !equal(mac, &self.mac(&name, code)) {
            tracing::warn!(entry = %name, "not written by this node: compiled anew");
            return None;
        }
        // SAFETY: the bytes are those that `Component::serialize` has returned to this node,
        // for an engine of the same compatibility hash: `store` alone computes a code that
        // matches. They are in memory, so nobody changes them after the comparison.
        let loaded = unsafe { Component::deserialize(engine, code) };
        loaded.inspect_err(|error| tracing::warn!(entry = %name, %error, "cannot be loaded")).ok()
    }

    /// Keeps the compiled form.
    pub(super) fn store(&self, digest: &str, component: &Component) -> io::Result<()> {
        let name = self.name(digest);
        let code = component.serialize().map_err(|error| io::Error::other(error.to_string()))?;
        let mut entry = Vec::with_capacity(MAC_BYTES + code.len());
        entry.extend_from_slice(&self.mac(&name, &code));
        entry.extend_from_slice(&code);
        publish(&self.directory, &name, &entry)?;
        self.evict()
    }

    fn name(&self, digest: &str) -> String {
        format!("{digest}-{}.cwasm", self.compatibility)
    }

    /// HMAC-SHA-256 (RFC 2104) over the name and the content, parted by a NUL.
    fn mac(&self, name: &str, code: &[u8]) -> [u8; MAC_BYTES] {
        hmac(&self.key, &[name.as_bytes(), b"\0", code])
    }

    fn evict(&self) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|extension| extension == "cwasm") {
                entries.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        entries.sort_unstable();
        let over = entries.len().saturating_sub(ENTRIES_MAX);
        entries.drain(..over).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; MAC_BYTES] {
    let padded = |with: u8| {
        let mut block = [with; 64];
        for (byte, key) in block.iter_mut().zip(key) {
            *byte ^= key;
        }
        Sha256::new().chain_update(block)
    };
    let inner = parts.iter().fold(padded(0x36), |hash, part| hash.chain_update(part));
    padded(0x5c).chain_update(inner.finalize()).finalize().into()
}

/// In the same time wherever they differ.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}

/// The directory's key; a new one where there is none, or none that is whole.
fn key(directory: &Path) -> io::Result<[u8; 32]> {
    for _ in 0..2 {
        if let Ok(bytes) = fs::read(directory.join(KEY_FILE))
            && let Ok(key) = bytes.try_into()
        {
            return Ok(key);
        }
        publish(directory, KEY_FILE, &random::<32>()?)?;
    }
    Err(io::Error::other("the key of the cache cannot be read back"))
}

/// From the system, because a key is a secret.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    OsRng.try_fill_bytes(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Writes a file of this user alone, which appears whole or not at all.
fn publish(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let unique = u64::from_le_bytes(random()?);
    let temporary = directory.join(format!(".{name}.{unique:016x}"));
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, directory.join(name)));
    if written.is_err() {
        // It may never have been created; what matters is the error before.
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest component: nothing.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    fn entry(directory: &Path) -> PathBuf {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let mut entries = entries.filter(|p| p.extension().is_some_and(|e| e == "cwasm"));
        entries.next().unwrap()
    }

    #[test]
    fn the_code_is_hmac_sha_256() {
        // RFC 4231 has no key of 32 bytes; test case 1 pads its 20 bytes with zeros, as the
        // construction itself does.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let mac = hmac(&key, &[b"Hi ", b"There"]);
        let hex: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }

    #[test]
    fn an_entry_is_loaded_by_a_later_start() {
        let (engine, directory) = (Engine::default(), tempfile::tempdir().unwrap());
        let directory = directory.path().join("cache");
        let cache = Cache::open(&directory, &engine).unwrap();
        assert!(cache.load(&engine, "d").is_none());
        cache.store("d", &Component::new(&engine, EMPTY).unwrap()).unwrap();
        let later = Cache::open(&directory, &engine).unwrap();
        assert!(later.load(&engine, "d").is_some());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join(KEY_FILE))), (0o700, 0o600));
    }

    #[test]
    fn what_this_node_did_not_write_is_not_loaded() {
        let engine = Engine::default();
        type Tamper = fn(&Path, &Path);
        let cases: [(&str, Tamper); 4] = [
            ("a changed byte", |_, entry| {
                let mut bytes = fs::read(entry).unwrap();
                *bytes.last_mut().unwrap() ^= 1;
                fs::write(entry, bytes).unwrap();
            }),
            ("a torn write", |_, entry| {
                let bytes = fs::read(entry).unwrap();
                fs::write(entry, &bytes[..bytes.len() / 2]).unwrap();
            }),
            ("another node's key", |directory, _| {
                fs::write(directory.join(KEY_FILE), [7; 32]).unwrap();
            }),
            ("another entry's content", |_, entry| {
                let name = entry.file_name().unwrap().to_str().unwrap();
                fs::rename(entry, entry.with_file_name(name.replacen('d', "e", 1))).unwrap();
            }),
        ];
        for (what, tamper) in cases {
            let directory = tempfile::tempdir().unwrap();
            let directory = directory.path().join("cache");
            let cache = Cache::open(&directory, &engine).unwrap();
            cache.store("d", &Component::new(&engine, EMPTY).unwrap()).unwrap();
            tamper(&directory, &entry(&directory));
            let later = Cache::open(&directory, &engine).unwrap();
            assert!(later.load(&engine, "d").is_none(), "{what}");
            assert!(later.load(&engine, "e").is_none(), "{what}");
        }
    }

    #[test]
    fn a_directory_open_to_others_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = Cache::open(directory.path(), &Engine::default()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
