//! Notices changes of the configuration file and the plugins.
//!
//! SIGHUP, an edit by the dashboard and a poll trigger a check, which compares the files. The directories are not
//! watched: the database of a single machine is in the same one, and each page that it writes would be a notification.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// How long a check waits after a change, so that a file being written is complete.
const SETTLE: Duration = Duration::from_millis(100);
/// How often the files are checked.
const POLL: Duration = Duration::from_millis(200);
/// How often a check is repeated while the files keep changing.
const SETTLES_MAX: u32 = 4;

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
    hangup: Signal,
    saved: Arc<Notify>,
}

/// Distinguishes versions of the files without reading them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Marks(Vec<(PathBuf, Option<Mark>)>);

/// Modification time, length and inode of a file.
type Mark = (SystemTime, u64, u64);

impl Reload {
    /// Starts watching: every change after this call is noticed. The first check is due at once, because
    /// the files can have changed since they were read: compiling plugins takes a while. `saved` tells of files that
    /// this host has saved itself.
    ///
    /// # Errors
    /// SIGHUP cannot be caught.
    pub fn watch(file: &Path, plugins: &Path, saved: Arc<Notify>) -> std::io::Result<Reload> {
        let hangup = signal(SignalKind::hangup())?;
        Ok(Reload { file: file.to_owned(), plugins: plugins.to_owned(), seen: None, hangup, saved })
    }

    /// Waits until there is something to load.
    pub async fn changed(&mut self) -> Sign {
        if self.seen.is_none() {
            self.seen = Some(self.marks());
            return Sign::Changed;
        }
        loop {
            tokio::select! {
                Some(()) = self.hangup.recv() => {
                    self.seen = Some(self.marks());
                    return Sign::Asked;
                }
                () = self.saved.notified() => {}
                () = tokio::time::sleep(POLL) => {}
            }
            let marks = self.marks();
            if self.seen.as_ref() != Some(&marks) {
                self.seen = Some(self.settled(marks).await);
                return Sign::Changed;
            }
        }
    }

    /// The files once they do not change any more, or after a few tries.
    async fn settled(&self, mut marks: Marks) -> Marks {
        for _ in 0..SETTLES_MAX {
            tokio::time::sleep(SETTLE).await;
            let before = std::mem::replace(&mut marks, self.marks());
            if before == marks {
                break;
            }
        }
        marks
    }

    fn marks(&self) -> Marks {
        Marks::of(&self.file, &self.plugins)
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
        let mut reload = Reload::watch(&file, &plugins, Arc::default()).expect("watched");
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
        let quiet = tokio::time::timeout(POLL * 10, reload.changed()).await;
        assert!(quiet.is_err(), "{quiet:?}");
    }
}
