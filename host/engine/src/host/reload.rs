//! Notices changes of the configuration file and the plugins.
//!
//! SIGHUP, a change in the directory of the file or of the plugins, and a slow poll (some file
//! systems send no notifications) each trigger a check; the check decides by comparing the files.
//! Editors replace files, so directories are watched instead of files.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use notify::{RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long a check waits after a change, so that a file being written is complete.
const SETTLE: Duration = Duration::from_millis(100);
/// How often the files are checked without a notification.
const POLL: Duration = Duration::from_secs(2);

/// Why a reload is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// Requested (SIGHUP): reload even if nothing seems to have changed.
    Asked,
    /// The files have changed.
    Changed,
}

/// Watches the files of a configuration.
pub struct Reload {
    file: PathBuf,
    plugins: PathBuf,
    /// `None`: nothing was checked yet.
    seen: Option<Marks>,
    signs: mpsc::Receiver<()>,
    hangup: tokio::signal::unix::Signal,
    _watcher: Option<notify::RecommendedWatcher>,
}

/// Distinguishes versions of the files without reading them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Marks(Vec<(PathBuf, Option<Mark>)>);

/// Modification time, length and inode of a file.
type Mark = (SystemTime, u64, u64);

impl Reload {
    /// Starts watching: every change after this call is noticed. The first check is due at once, because
    /// the files can have changed since they were read: compiling plugins takes a while.
    ///
    /// # Errors
    /// SIGHUP cannot be caught.
    pub fn watch(file: &Path, plugins: &Path) -> std::io::Result<Reload> {
        let (signal, signs) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !event.kind.is_access()) {
                // A notification that is already pending covers this one.
                let _ = signal.try_send(());
            }
        });
        let mut watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, "files are polled, not watched"))
            .ok();
        let beside = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        for directory in [beside, plugins] {
            if let Some(watcher) = &mut watcher
                && directory.is_dir()
                && let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive)
            {
                tracing::warn!(
                    %error, directory = %directory.display(),
                    "the directory cannot be watched; polling it"
                );
            }
        }
        Ok(Reload {
            seen: None,
            file: file.to_owned(),
            plugins: plugins.to_owned(),
            signs,
            hangup: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
            _watcher: watcher,
        })
    }

    /// Waits until there is something to load.
    pub async fn changed(&mut self) -> Sign {
        if self.seen.is_none() {
            self.seen = Some(Marks::of(&self.file, &self.plugins));
            return Sign::Changed;
        }
        loop {
            let watched = self._watcher.is_some();
            tokio::select! {
                Some(()) = self.hangup.recv() => {
                    self.seen = Some(Marks::of(&self.file, &self.plugins));
                    return Sign::Asked;
                }
                Some(()) = self.signs.recv(), if watched => self.settle().await,
                () = tokio::time::sleep(POLL) => {}
            }
            let marks = Some(Marks::of(&self.file, &self.plugins));
            if marks != self.seen {
                self.seen = marks;
                return Sign::Changed;
            }
        }
    }

    /// Waits until no further notification has arrived for a while, at most a few times as long.
    async fn settle(&mut self) {
        let end = Instant::now() + SETTLE * 4;
        while Instant::now() < end {
            if tokio::time::timeout(SETTLE, self.signs.recv()).await.is_err() {
                return;
            }
        }
    }
}

impl Marks {
    fn of(file: &Path, plugins: &Path) -> Marks {
        let mut paths = vec![file.to_owned()];
        let entries = std::fs::read_dir(plugins).into_iter().flatten().flatten();
        paths.extend(entries.map(|entry| entry.path()).filter(|path| {
            path.extension().is_some_and(|ending| ending == "wasm" || ending == "minisig")
        }));
        paths.sort();
        Marks(paths.into_iter().map(|path| (mark(&path), path)).map(|(m, p)| (p, m)).collect())
    }
}

fn mark(path: &Path) -> Option<Mark> {
    use std::os::unix::fs::MetadataExt as _;
    let data = std::fs::metadata(path).ok()?;
    Some((data.modified().ok()?, data.len(), data.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_replaced_file_and_a_new_plugin_are_noticed_and_an_unrelated_file_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, plugins) = (dir.path().join("besom.toml"), dir.path().join("plugins.d"));
        std::fs::write(&file, "a = 1").expect("written");
        std::fs::create_dir(&plugins).expect("created");
        let mut reload = Reload::watch(&file, &plugins).expect("watched");
        let bound = Duration::from_secs(30);
        // What may have changed since the files were read.
        let sign = tokio::time::timeout(bound, reload.changed()).await.expect("at once");
        assert_eq!(sign, Sign::Changed);

        std::fs::write(dir.path().join("other"), "x").expect("written");
        let new = dir.path().join("besom.toml.new");
        std::fs::write(&new, "a = 22").expect("written");
        std::fs::rename(&new, &file).expect("replaced");
        let sign = tokio::time::timeout(bound, reload.changed()).await.expect("noticed");
        assert_eq!(sign, Sign::Changed);

        std::fs::write(plugins.join("task.wasm"), "x").expect("written");
        let sign = tokio::time::timeout(bound, reload.changed()).await.expect("noticed");
        assert_eq!(sign, Sign::Changed);

        std::fs::write(dir.path().join("other"), "xx").expect("written");
        let quiet = tokio::time::timeout(POLL * 2, reload.changed()).await;
        assert!(quiet.is_err(), "{quiet:?}");
    }
}
