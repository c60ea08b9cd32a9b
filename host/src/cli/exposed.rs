//! Who else can read the files of a database on this machine: said by `besom check`, and by a host at its
//! start. Nothing is changed: the product may be another user of the file, by its group.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::config::Config;
use crate::store::sqlite::place::beside;

/// What to do about it.
pub const FIX: &str = "chmod go= the file, its -wal and its -shm; if your product reads it by that group, \
                       chmod o= them, and let nobody else into the group";

/// The files of the database that others can read or write, in words: the file itself, and what SQLite
/// keeps beside it.
pub fn files(config: &Config) -> Vec<String> {
    if config.store.url.is_some() {
        return Vec::new();
    }
    let path = &config.store.path;
    let all = [path.clone(), beside(path, "-wal"), beside(path, "-shm")];
    all.iter().filter_map(|path| exposed(path)).collect()
}

/// What to do where others can write the configuration.
pub const CONFIGURATION_FIX: &str = "chown it to the user of the host, or to root, and chmod go-w";

/// Who beside this user and root can write the configuration, which holds pins and grants, in words.
pub fn configuration(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    let (mode, owner) = (found.mode() & 0o777, found.uid());
    let who = if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        format!("the user {owner}")
    } else if mode & 0o002 != 0 {
        "every user of this machine".to_owned()
    } else if mode & 0o020 != 0 && found.gid() != rustix::process::getegid().as_raw() {
        // Where each user has a group of its own, files are writable by it.
        format!("every member of the group {}", found.gid())
    } else {
        return None;
    };
    let path = path.display();
    Some(format!(
        "{who} can write {path} (mode {mode:o}), and so decide what is granted and pinned"
    ))
}

fn exposed(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let who = readers(found.mode() & 0o777, found.gid())?;
    let (path, mode) = (path.display(), found.mode() & 0o777);
    Some(format!("{who} can read {path} (mode {mode:o}), with all tenants' rows"))
}

/// Who can read or write a file beside its owner; none: nobody.
fn readers(mode: u32, gid: u32) -> Option<String> {
    match (mode & 0o060 != 0, mode & 0o006 != 0) {
        (_, true) => Some("every user of this machine".to_owned()),
        (true, false) => Some(format!("every member of the group {gid}")),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_others_can_write_is_named() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, who) in [
            (0o600, None),
            (0o644, None),
            (0o664, None),
            (0o666, Some("every user of this machine can write")),
        ] {
            let mode_of = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), mode_of).unwrap();
            let said = configuration(file.path());
            assert_eq!(said.is_some(), who.is_some(), "{mode:o}: {said:?}");
            assert!(said.unwrap_or_default().starts_with(who.unwrap_or_default()), "{mode:o}");
        }
    }

    #[test]
    fn whoever_can_read_a_file_beside_its_owner_is_named() {
        let everybody = Some("every user of this machine");
        for (mode, who) in [
            (0o600, None),
            (0o711, None),
            (0o640, Some("every member of the group 7")),
            (0o620, Some("every member of the group 7")),
            (0o644, everybody),
            (0o604, everybody),
            (0o662, everybody),
        ] {
            assert_eq!(readers(mode, 7).as_deref(), who, "{mode:o}");
        }
    }
}
