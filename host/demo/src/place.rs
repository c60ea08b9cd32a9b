//! The directory of a demo: claimed if it is empty, reused if it contains a demo, rejected if it
//! contains anything else.
//!
//! ```text
//! empty ──claim──> unfinished ──finish──> demo ──claim──> demo
//!                   │    ▲
//!                   └────┘ claim: filled again, every row is an upsert
//! ```

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::config::{self, MARKER};
use super::orchestrator::Orchestrator;

/// The name of the configuration file.
const CONFIG: &str = "besom.toml";

/// The name of the database file.
const DATABASE: &str = "besom.db";

/// The name of the file with the orchestrator's token.
const TOKEN: &str = "orchestrator.token";

/// A marker file that exists until everything is written.
const UNFINISHED: &str = "demo.unfinished";

/// The directory of a demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    dir: PathBuf,
    unfinished: bool,
}

/// Why a directory cannot be used for a demo.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It contains something else.
    #[error("{}: contains `{found}`, which no demo wrote; use an empty or a new directory", dir.display())]
    Foreign {
        /// The directory concerned.
        dir: PathBuf,
        /// The first entry that does not belong to a demo.
        found: String,
    },
    /// Its database is missing.
    #[error("{}: the demo's {DATABASE} is missing; remove the directory and start again", dir.display())]
    NoDatabase {
        /// The directory concerned.
        dir: PathBuf,
    },
    /// It cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory concerned.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Place {
    /// Claims a directory, creating it if it is missing.
    pub fn claim(dir: &Path) -> Result<Place, Refused> {
        let place = |unfinished| Place { dir: dir.to_owned(), unfinished };
        std::fs::create_dir_all(dir).map_err(|e| io_error(dir, e))?;
        if dir.join(UNFINISHED).exists() {
            return Ok(place(true));
        }
        if is_demo(&dir.join(CONFIG))? {
            return match dir.join(DATABASE).exists() {
                true => Ok(place(false)),
                false => Err(Refused::NoDatabase { dir: dir.to_owned() }),
            };
        }
        if let Some(found) = std::fs::read_dir(dir).map_err(|e| io_error(dir, e))?.next() {
            let found = found.map_err(|e| io_error(dir, e))?.file_name();
            let found = found.to_string_lossy().into_owned();
            return Err(Refused::Foreign { dir: dir.to_owned(), found });
        }
        let unfinished = dir.join(UNFINISHED);
        std::fs::write(&unfinished, "").map_err(|e| io_error(&unfinished, e))?;
        Ok(place(true))
    }

    /// Whether the directory still has to be filled.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// The path of the configuration.
    pub fn config(&self) -> PathBuf {
        self.dir.join(CONFIG)
    }

    /// The path of the database.
    pub fn database(&self) -> PathBuf {
        self.dir.join(DATABASE)
    }

    /// The path of the orchestrator's token.
    pub fn token(&self) -> PathBuf {
        self.dir.join(TOKEN)
    }

    /// The local address at which the configuration calls an orchestrator.
    pub fn called(&self) -> Option<SocketAddr> {
        config::called(&std::fs::read_to_string(self.config()).ok()?)
    }

    /// Adds the orchestrator to the configuration. An edited configuration is kept.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn enliven(&self, orchestrator: &Orchestrator) -> Result<(), Refused> {
        let path = self.config();
        let written = std::fs::read_to_string(&path).map_err(|e| io_error(&path, e))?;
        if written != config::text() {
            return Ok(());
        }
        let lively = config::lively(config::shortened(), orchestrator, Path::new(TOKEN));
        std::fs::write(&path, config::marked(&lively)).map_err(|e| io_error(&path, e))
    }

    /// Writes the configuration, which makes the directory a demo. An existing configuration, which
    /// may have been edited, is kept.
    pub(super) fn finish(&self, config: &str) -> Result<(), Refused> {
        let (path, unfinished) = (self.config(), self.dir.join(UNFINISHED));
        if !self.unfinished {
            return Ok(());
        }
        std::fs::write(&path, config).map_err(|e| io_error(&path, e))?;
        std::fs::remove_file(&unfinished).map_err(|e| io_error(&unfinished, e))
    }
}

fn is_demo(config: &Path) -> Result<bool, Refused> {
    match std::fs::read(config) {
        Ok(bytes) => Ok(bytes.starts_with(MARKER.as_bytes())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(io_error(config, e)),
    }
}

fn io_error(path: &Path, source: io::Error) -> Refused {
    Refused::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_is_continued_and_an_unfinished_one_is_filled_again() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("a/b");
        let place = Place::claim(&dir).unwrap();
        assert!(place.is_unfinished());
        std::fs::write(place.database(), "").unwrap();
        let again = Place::claim(&dir).unwrap();
        assert!(again.is_unfinished());
        again.finish(&super::super::config::text()).unwrap();
        let done = Place::claim(&dir).unwrap();
        assert!(!done.is_unfinished());

        let edited = format!("{MARKER}# mine\n");
        std::fs::write(done.config(), &edited).unwrap();
        done.finish("other").unwrap();
        assert_eq!(std::fs::read_to_string(done.config()).unwrap(), edited);

        std::fs::remove_file(done.database()).unwrap();
        assert!(matches!(Place::claim(&dir), Err(Refused::NoDatabase { .. })));
    }

    #[test]
    fn a_directory_with_anything_else_is_refused_and_left_as_it_is() {
        for (file, content) in [("notes.txt", "mine"), (CONFIG, "[store]\n"), (DATABASE, "")] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(file), content).unwrap();
            let refused = Place::claim(dir.path()).unwrap_err();
            assert!(refused.to_string().contains(file), "{refused}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
