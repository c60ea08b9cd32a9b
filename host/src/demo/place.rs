//! The demo's directory: claimed when it is empty, taken up again when it is a demo, refused
//! when it holds anything else.
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

/// The configuration's name.
const CONFIG: &str = "besom.toml";

/// The database's name.
const DATABASE: &str = "besom.db";

/// The name of the file with the orchestrator's token.
const TOKEN: &str = "orchestrator.token";

/// Stands in the directory until everything is written.
const UNFINISHED: &str = "demo.unfinished";

/// A directory that belongs to a demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    dir: PathBuf,
    unfinished: bool,
}

/// A directory cannot be a demo's.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It holds something else.
    #[error("{}: holds `{found}`, which is no demo's; name an empty directory or a new one", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// What was found first.
        found: String,
    },
    /// Its database is gone.
    #[error("{}: the demo's {DATABASE} is missing; remove the directory and begin anew", dir.display())]
    NoDatabase {
        /// The directory.
        dir: PathBuf,
    },
    /// It cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Place {
    /// Takes a directory, creating it where it is missing.
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

    /// Whether it has to be filled.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Where the configuration is.
    pub fn config(&self) -> PathBuf {
        self.dir.join(CONFIG)
    }

    /// Where the database is.
    pub fn database(&self) -> PathBuf {
        self.dir.join(DATABASE)
    }

    /// Where the orchestrator's token is.
    pub fn token(&self) -> PathBuf {
        self.dir.join(TOKEN)
    }

    /// At which address of this machine the configuration calls an orchestrator.
    pub fn called(&self) -> Option<SocketAddr> {
        config::called(&std::fs::read_to_string(self.config()).ok()?)
    }

    /// Gives the configuration somebody to call. One that has been edited is kept.
    ///
    /// # Errors
    /// What the system says.
    pub fn enliven(&self, orchestrator: &Orchestrator) -> Result<(), Refused> {
        let path = self.config();
        let written = std::fs::read_to_string(&path).map_err(|e| io_error(&path, e))?;
        if written != config::text() {
            return Ok(());
        }
        let lively = config::lively(config::shortened(), orchestrator, Path::new(TOKEN));
        std::fs::write(&path, config::marked(&lively)).map_err(|e| io_error(&path, e))
    }

    /// Writes the configuration: from now on it is a demo. One that is there already, and may
    /// have been edited, is kept.
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
