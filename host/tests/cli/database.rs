//! The file of the database.

use std::process::Command;

use crate::site::Site;

/// Besom's files are accessible only to its user, whatever the umask of the shell.
#[test]
fn a_database_of_besoms_is_readable_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = Site::new("");
    site.log("note.log", &[&[1, 1, 5, 0]]);
    let out = Command::new("sh")
        .args(["-c", "umask 000; \"$0\" doc import note.log --tenant a && exec \"$0\" run"])
        .arg(env!("CARGO_BIN_EXE_besom"))
        .current_dir(site.dir())
        .output()
        .expect("the shell runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    for entry in std::fs::read_dir(site.dir()).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("UTF-8");
        if name.starts_with("besom.db") {
            let mode = entry.metadata().expect("there").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{name}");
        }
    }
    for name in ["besom.db", "besom.db-lease"] {
        assert!(site.dir().join(name).exists(), "{name}: {said}");
    }
}

#[test]
fn a_database_that_does_not_exist_is_named_and_not_created() {
    let site = Site::new("");
    let typo = ["--set", "store.path=typo.db"];
    for verb in [
        &["status"][..],
        &["audit"],
        &["check", "--store"],
        &["commands", "ls"],
        &["dead", "ls"],
        &["dead", "retry", "--all"],
        &["doc", "show", "note"],
        &["doc", "left-alone"],
        &["outbox", "ls"],
        &["run", "--dry-run"],
        &["runs", "ls"],
        &["stream", "ls"],
        &["task", "ls"],
        &["task", "trigger", "a"],
    ] {
        let (code, said) = site.fails(&[verb, &typo].concat());
        assert_eq!(code, 69, "{verb:?}: {said}");
        assert!(said.contains("typo.db does not exist"), "{verb:?}: {said}");
        assert!(said.contains("`besom serve`"), "{verb:?}: {said}");
        assert!(!site.dir().join("typo.db").exists(), "{verb:?}");
    }
    // A new file would not have the tables that tasks need either.
    std::fs::write(
        site.dir().join("besom.toml"),
        "[tasks.expire]\nplugin = \"share-expiry\"\nschedule = \"@hourly\"\n",
    )
    .expect("written");
    for verb in ["run", "serve"] {
        let (code, said) = site.fails(&[&[verb], &typo[..]].concat());
        assert_eq!(code, 69, "{verb}: {said}");
        assert!(said.contains("typo.db does not exist: correct store.path"), "{verb}: {said}");
        assert!(!site.dir().join("typo.db").exists(), "{verb}");
    }
    // An import may be the first that happens to a database, and says so.
    site.log("note.log", &[&[1, 1, 5, 0]]);
    let (code, said) =
        site.fails(&[&["doc", "import", "note.log", "--tenant", "a"], &typo[..]].concat());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("created the database") && said.contains("typo.db"), "{said}");
}
