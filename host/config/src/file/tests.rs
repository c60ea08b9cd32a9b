//! Files on a real disk: after a refusal the file is unchanged, and no other file is left.

use std::fs::{self, Permissions};
use std::os::unix::fs::symlink;

use super::*;

struct Site {
    dir: tempfile::TempDir,
    file: PathBuf,
}

impl Site {
    fn new(text: &str) -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("besom.toml");
        fs::write(&file, text).expect("written");
        Site { dir, file }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).expect("read")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).expect("a directory");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> =
            entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn mode(&self, mode: u32) {
        fs::set_permissions(&self.file, Permissions::from_mode(mode)).expect("set");
    }
}

#[test]
fn a_file_is_replaced_as_a_whole_and_keeps_its_owner_and_mode() {
    let site = Site::new("a = 1\r\n");
    site.mode(0o640);
    let before = fs::metadata(&site.file).expect("data");
    let version = read(&site.file).expect("read");
    assert_eq!((version.text.as_str(), &version.read_only), ("a = 1\r\n", &None));
    let digest = replace(&site.file, &version.digest, "a = 2\n").expect("replaced");
    let after = read(&site.file).expect("read");
    assert_eq!((after.text.as_str(), &after.digest), ("a = 2\n", &digest));
    let data = fs::metadata(&site.file).expect("data");
    assert_eq!(data.permissions().mode() & 0o7777, 0o640);
    assert_eq!((data.uid(), data.gid()), (before.uid(), before.gid()));
    assert_ne!(data.ino(), before.ino(), "renamed over, not written into");
    assert_eq!(site.names(), ["besom.toml"]);
}

#[test]
fn the_digest_is_the_sha_256_of_the_bytes() {
    let site = Site::new("abc");
    let digest = read(&site.file).expect("read").digest;
    let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!((digest.as_str(), digest.short()), (known, "ba7816bf8f01"));
}

#[test]
fn a_file_that_somebody_has_changed_meanwhile_is_not_overwritten() {
    let site = Site::new("a = 1\n");
    let base = read(&site.file).expect("read").digest;
    fs::write(&site.file, "a = 3\n").expect("written");
    let error = replace(&site.file, &base, "a = 2\n").expect_err("refused");
    let found = FileDigest::of(b"a = 3\n");
    let said = error.to_string();
    assert!(
        matches!(&error, Error::Changed { expected, found: f, .. } if (expected, f) == (&base, &found))
    );
    assert!(said.contains(base.short()) && said.contains(found.short()), "{said}");
    assert_eq!((site.text().as_str(), site.names()), ("a = 3\n", vec!["besom.toml".to_owned()]));
}

#[test]
fn a_file_that_is_gone_is_not_made_anew() {
    let site = Site::new("a = 1\n");
    let base = read(&site.file).expect("read").digest;
    fs::remove_file(&site.file).expect("removed");
    let error = replace(&site.file, &base, "a = 2\n").expect_err("refused");
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    assert!(matches!(read(&site.file), Err(Error::Missing { .. })));
    assert!(site.names().is_empty());
}

#[test]
fn a_directory_and_bytes_that_are_no_text_are_refused() {
    let site = Site::new("");
    let base = FileDigest::of(b"");
    let directory = site.dir.path();
    assert!(matches!(read(directory), Err(Error::NotAFile { .. })));
    assert!(matches!(replace(directory, &base, ""), Err(Error::NotAFile { .. })));
    fs::write(&site.file, b"ab\xff").expect("written");
    assert!(matches!(read(&site.file), Err(Error::NotText { at: 2, .. })));
    let large = "#".repeat(usize::try_from(FILE_BYTES_MAX).expect("small") + 1);
    fs::write(&site.file, &large).expect("written");
    assert!(matches!(read(&site.file), Err(Error::TooLarge { .. })));
    assert!(matches!(replace(&site.file, &base, &large), Err(Error::TooLarge { .. })));
}

#[test]
fn a_read_only_file_says_so_when_it_is_read_and_is_not_replaced() {
    let site = Site::new("a = 1\n");
    site.mode(0o444);
    let version = read(&site.file).expect("read");
    assert!(version.read_only.is_some_and(|why| why.contains("chmod u+w")));
    let error = replace(&site.file, &version.digest, "a = 2\n").expect_err("refused");
    assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    assert_eq!(site.text(), "a = 1\n");
}

#[test]
fn a_link_stays_and_what_it_points_to_is_replaced() {
    let site = Site::new("a = 1\n");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let (middle, link) = (elsewhere.path().join("middle"), elsewhere.path().join("link.toml"));
    symlink(&site.file, &middle).expect("linked");
    symlink("middle", &link).expect("linked");
    let version = read(&link).expect("read");
    assert_eq!(version.path, fs::canonicalize(&site.file).expect("there"));
    replace(&link, &version.digest, "a = 2\n").expect("replaced");
    assert!(fs::symlink_metadata(&link).expect("data").is_symlink());
    assert_eq!(site.text(), "a = 2\n");
    assert_eq!(site.names(), ["besom.toml"]);
}

#[test]
fn of_two_changes_at_once_one_is_refused_and_none_is_lost() {
    let site = Site::new("0");
    let rounds = 40;
    let add = || {
        let (mut done, mut refused) = (0, 0);
        while done < rounds {
            let version = read(&site.file).expect("read");
            let next = version.text.parse::<u32>().expect("a number") + 1;
            match replace(&site.file, &version.digest, &next.to_string()) {
                Ok(_) => done += 1,
                Err(Error::Changed { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        refused
    };
    let refused: u32 = std::thread::scope(|scope| {
        let threads = [0; 4].map(|_| scope.spawn(add));
        threads.map(|thread| thread.join().expect("no panic")).into_iter().sum()
    });
    assert_eq!(site.text(), (4 * rounds).to_string(), "{refused} refused");
    assert_eq!(site.names(), ["besom.toml"]);
}

#[test]
fn a_directory_that_somebody_holds_is_waited_for() {
    let site = Site::new("a = 1\n");
    let base = read(&site.file).expect("read").digest;
    let held = lock(&site.file, site.dir.path()).expect("locked");
    std::thread::scope(|scope| {
        let (began, waits) = std::sync::mpsc::channel();
        let file = &site.file;
        let waiting = scope.spawn(move || {
            began.send(()).expect("sent");
            replace(file, &base, "a = 2\n")
        });
        waits.recv().expect("it has begun");
        assert_eq!(site.text(), "a = 1\n");
        // A change by the holder of the lock is detected.
        fs::write(&site.file, "a = 3\n").expect("written");
        drop(held);
        let error = waiting.join().expect("no panic").expect_err("refused");
        assert!(matches!(error, Error::Changed { .. }), "{error}");
    });
}
