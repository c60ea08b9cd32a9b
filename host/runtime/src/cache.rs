//! A persistent cache of compiled components.
//!
//! Loading native code means trusting it. An entry is loaded only with a valid message
//! authentication code over its name and content, under a key stored in the same directory. This
//! rejects entries that this node has not written: a copied or restored directory, an entry under
//! another name, a torn write. It does not protect against a process with this user's rights, which
//! could replace the host itself.
//!
//! The directory belongs to the user and serves all of the user's stores. Of several processes that
//! start at once, one compiles and the others wait for it, for a limited time.
//!
//! The cache is optional: if anything is wrong with it, the component is compiled again.

use std::fs;
use std::hash::Hash;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rand::TryRngCore as _;
use rand::rngs::OsRng;
use ring::hmac;
use wasmtime::Engine;
use wasmtime::component::Component;
use xxhash_rust::xxh3::Xxh3;

use super::engine::Settings;

/// Maximum number of entries; the least recently used ones are removed.
const ENTRIES_MAX: usize = 64;
/// How often the use of an entry is recorded at most.
const USED_EVERY: Duration = Duration::from_secs(24 * 3600);
/// How often a process checks whether another one has finished compiling.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const KEY_FILE: &str = "key";
/// The form of an entry: the code, which is mapped, and then its authentication code.
const LAYOUT: u8 = 2;
const MAC_BYTES: usize = 32;

/// A private directory of compiled components.
pub(super) struct Cache {
    directory: PathBuf,
    key: [u8; 32],
    /// Engines with another value cannot run this engine's code.
    compatibility: String,
}

impl Cache {
    /// Opens the user's directory, or otherwise the configured one. `None` if neither is usable.
    pub(super) fn of(settings: &Settings, engine: &Engine) -> Option<Cache> {
        if let Some(path) = &settings.users_cache {
            match Cache::open_users(path, engine) {
                Ok(cache) => return Some(cache),
                Err(error) => tracing::debug!(path = %path.display(), %error, "no cache here"),
            }
        }
        Cache::open(settings.cache.as_deref()?, engine)
            .inspect_err(|error| tracing::warn!(%error, "plugins are compiled at every start"))
            .ok()
    }

    /// Opens a directory that was not configured, if no other user could have created it.
    fn open_users(directory: &Path, engine: &Engine) -> io::Result<Cache> {
        // The first existing ancestor: directories created below it belong to this user.
        let found = directory.ancestors().find_map(|path| path.canonicalize().ok());
        for path in found.as_deref().into_iter().flat_map(Path::ancestors) {
            let found = fs::metadata(path)?;
            let own = found.uid() == rustix::process::geteuid().as_raw();
            // In a sticky directory such as /tmp, every user may create files but not replace those
            // of others.
            let closed = found.mode() & 0o022 == 0 || found.mode() & 0o1000 != 0;
            if !closed || !(own || found.uid() == 0) {
                let said = format!("other users can change {}", path.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, said));
            }
        }
        Cache::open(directory, engine)
    }

    /// Opens the directory, creating it if it is missing.
    pub(super) fn open(directory: &Path, engine: &Engine) -> io::Result<Cache> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let found = fs::metadata(directory)?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{} must be accessible to this user only: run chmod 700 on it, or use another \
                     directory",
                    directory.display()
                ),
            ));
        }
        let mut hasher = Xxh3::new();
        (LAYOUT, engine.precompile_compatibility_hash()).hash(&mut hasher);
        Ok(Cache {
            key: key(directory)?,
            directory: directory.to_owned(),
            compatibility: format!("{:016x}", hasher.digest()),
        })
    }

    /// The compiled form of the component with that digest, if this node has written it.
    pub(super) fn load(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let name = self.name(digest);
        let path = self.directory.join(&name);
        let bytes = fs::read(&path).ok()?;
        let (code, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
        if hmac::verify(&self.key_of(&name), code, mac).is_err() {
            tracing::warn!(
                entry = %name,
                "the cached plugin was not written by this node; compiling it again"
            );
            return None;
        }
        drop(bytes);
        self.used(&name);
        // SAFETY: the code is that which `Component::serialize` has returned to this node,
        // for an engine of the same compatibility hash: `store` alone computes a code that
        // matches. The file is mapped, so that only what runs takes memory. Entries are replaced and removed
        // but never changed, and the directory belongs to this user alone.
        let loaded = unsafe { Component::deserialize_file(engine, path) };
        loaded.inspect_err(|error| tracing::warn!(entry = %name, %error, "cannot be loaded")).ok()
    }

    /// The lock for compiling the component with that digest, for which other processes wait;
    /// `None` after `wait_max`, or if files cannot be locked.
    pub(super) fn turn(&self, digest: &str, wait_max: Duration) -> Option<fs::File> {
        let path = self.directory.join(format!("{digest}-{}.lock", self.compatibility));
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .ok()?;
        let until = Instant::now() + wait_max;
        let mut said = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Some(file),
                Err(fs::TryLockError::WouldBlock) if Instant::now() < until => {
                    if !std::mem::replace(&mut said, true) {
                        tracing::info!(
                            %digest,
                            "another process is compiling this plugin; waiting for it"
                        );
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
                Err(_) => return None,
            }
        }
    }

    /// Records that an entry is in use, so that others are removed first.
    fn used(&self, name: &str) {
        let path = self.directory.join(name);
        let old = fs::metadata(&path)
            .and_then(|found| found.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > USED_EVERY));
        if old && let Ok(file) = fs::OpenOptions::new().append(true).open(&path) {
            // If this fails, the entry is removed earlier and compiled again.
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Stores the compiled form.
    pub(super) fn store(&self, digest: &str, component: &Component) -> io::Result<()> {
        let name = self.name(digest);
        let mut entry =
            component.serialize().map_err(|error| io::Error::other(error.to_string()))?;
        let mac = hmac::sign(&self.key_of(&name), &entry);
        entry.extend_from_slice(mac.as_ref());
        publish(&self.directory, &name, &entry, |from, to| fs::rename(from, to))?;
        self.evict()
    }

    fn name(&self, digest: &str) -> String {
        format!("{digest}-{}.cwasm", self.compatibility)
    }

    /// The key of an entry: the key of the directory, bound to the name of the entry.
    fn key_of(&self, name: &str) -> hmac::Key {
        let all = hmac::Key::new(hmac::HMAC_SHA256, &self.key);
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&all, name.as_bytes()).as_ref())
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
        for (_, path) in entries.drain(..over) {
            // Another process may have removed it, or may be waiting for the lock.
            let _ = fs::remove_file(path.with_extension("lock"));
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// The key of the directory. A missing or incomplete key is replaced.
fn key(directory: &Path) -> io::Result<[u8; 32]> {
    for _ in 0..2 {
        if let Ok(bytes) = fs::read(directory.join(KEY_FILE))
            && let Ok(key) = bytes.try_into()
        {
            return Ok(key);
        }
        // If several processes start at once, all use the key of the first one; an incomplete key
        // is replaced.
        let put: fn(&Path, &Path) -> io::Result<()> = match directory.join(KEY_FILE).exists() {
            true => |from, to| fs::rename(from, to),
            false => |from, to| fs::hard_link(from, to).and_then(|()| fs::remove_file(from)),
        };
        match publish(directory, KEY_FILE, &random::<32>()?, put) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Err(io::Error::other("the key of the cache cannot be read"))
}

/// From the system's generator, because a key is a secret.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    OsRng.try_fill_bytes(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Writes a file that only this user can access and that appears atomically.
fn publish(
    directory: &Path,
    name: &str,
    bytes: &[u8],
    put: fn(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
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
        .and_then(|()| put(&temporary, &directory.join(name)));
    if written.is_err() {
        // It may never have been created; the earlier error is the relevant one.
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest component: an empty one.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    fn entry(directory: &Path) -> PathBuf {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let mut entries = entries.filter(|p| p.extension().is_some_and(|e| e == "cwasm"));
        entries.next().unwrap()
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
        let cases: [(&str, Tamper); 5] = [
            ("a changed byte of the code", |_, entry| {
                let mut bytes = fs::read(entry).unwrap();
                bytes[99] ^= 1;
                fs::write(entry, bytes).unwrap();
            }),
            ("a changed byte of the end", |_, entry| {
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
    fn a_directory_that_others_could_exchange_is_refused_and_the_next_one_taken() {
        use std::os::unix::fs::PermissionsExt as _;
        let (engine, directory) = (Engine::default(), tempfile::tempdir().unwrap());
        let open = directory.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let (users, beside) = (open.join("cache/besom"), directory.path().join("beside"));
        let settings = Settings {
            users_cache: Some(users.clone()),
            cache: Some(beside.clone()),
            ..Settings::default()
        };
        assert_eq!(Cache::of(&settings, &engine).unwrap().directory, beside);
        assert!(!users.exists());
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(Cache::of(&settings, &engine).unwrap().directory, users);
        assert!(Cache::of(&Settings::default(), &engine).is_none());
    }

    #[test]
    fn one_process_compiles_while_the_others_wait_within_a_bound() {
        let (engine, directory) = (Engine::default(), tempfile::tempdir().unwrap());
        let directory = directory.path().join("cache");
        let cache = Cache::open(&directory, &engine).unwrap();
        let turn = cache.turn("d", Duration::ZERO).unwrap();
        // A lock belongs to the opened file: another open file represents another process.
        let other = Cache::open(&directory, &engine).unwrap();
        assert!(other.turn("d", Duration::ZERO).is_none());
        assert!(other.turn("e", Duration::ZERO).is_some());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| other.turn("d", Duration::from_secs(60)).is_some());
            cache.store("d", &Component::new(&engine, EMPTY).unwrap()).unwrap();
            drop(turn);
            assert!(waits.join().unwrap());
        });
        assert!(other.load(&engine, "d").is_some());
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
