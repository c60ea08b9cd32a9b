//! Reports who else can read the database files on this machine, for `besom check` and for a host at its
//! start. Does not change any mode: the product may access the files through their group.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use besom_config::Config;
use besom_sqlite::place::beside;

/// The fix for database files that others can access.
pub const FIX: &str = "chmod go= the file, its -wal and its -shm; if your product accesses them through the group, \
                       chmod o= them and keep other users out of the group";

/// Returns a warning for each database file that others can read or write: the file itself, its `-wal`
/// and its `-shm`.
pub fn files(config: &Config) -> Vec<String> {
    if config.store.url.is_some() {
        return Vec::new();
    }
    let path = &config.store.path;
    let all = [path.clone(), beside(path, "-wal"), beside(path, "-shm")];
    all.iter().filter_map(|path| exposed(path)).collect()
}

/// The fix for a configuration that others can write.
pub const CONFIGURATION_FIX: &str = "chown it to the user of the host, or to root, and chmod go-w";

/// Returns a warning if anyone except this user and root can write the configuration, which holds the
/// pins and grants.
pub fn configuration(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    let (mode, owner) = (found.mode() & 0o777, found.uid());
    let who = if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        format!("the user {owner}")
    } else if mode & 0o002 != 0 {
        "every user of this machine".to_owned()
    } else if mode & 0o020 != 0 && found.gid() != rustix::process::getegid().as_raw() {
        // Not with this user's own group: it may be private to the user.
        format!("every member of the group {}", found.gid())
    } else {
        return None;
    };
    let path = path.display();
    Some(format!("{who} can write {path} (mode {mode:o}), and so change grants and pins"))
}

fn exposed(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let who = readers(found.mode() & 0o777, found.gid())?;
    let (path, mode) = (path.display(), found.mode() & 0o777);
    Some(format!("{who} can access {path} (mode {mode:o}), which holds the rows of all tenants"))
}

/// Describes who can read or write a file besides its owner; `None` if only the owner can.
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
