//! A lock on a file beside the database. The operating system releases it when its holder dies for
//! any reason. It only hints at whether the holder is alive; the row of the lease and the fence
//! decide.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The file, and the lock if this process holds it.
pub(super) struct LeaseFile {
    path: Option<PathBuf>,
    held: Option<File>,
}

impl LeaseFile {
    /// The file beside this database; `None`: there is no file, and nothing is ever locked.
    pub(super) fn beside(database: Option<&Path>) -> LeaseFile {
        let path = database.map(|database| {
            // Behind a link, as the store's other files: hosts may name the database differently.
            let database = database.canonicalize().unwrap_or_else(|_| database.to_owned());
            let mut name = database.into_os_string();
            name.push("-lease");
            PathBuf::from(name)
        });
        LeaseFile { path, held: None }
    }

    /// Whether this process holds the lock.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Takes the lock if it is free, and returns whether it is held now.
    pub(super) fn try_hold(&mut self) -> bool {
        if self.held.is_none() {
            self.held = self.free();
        }
        self.held.is_some()
    }

    /// Whether no process holds the lock. The check takes it for a moment.
    pub(super) fn is_free(&self) -> bool {
        self.held.is_none() && self.free().is_some()
    }

    /// Releases the lock.
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    fn free(&self) -> Option<File> {
        let path = self.path.as_ref()?;
        // Who can write the directory of the database must not have another file created or locked.
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false).custom_flags(no_link);
        let file = options.open(path).ok()?;
        file.try_lock().ok().map(|()| file)
    }
}
