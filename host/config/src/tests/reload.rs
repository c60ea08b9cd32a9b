//! What a changed file changes in a running host.

use super::*;

#[test]
fn a_reload_knows_what_changes() {
    let old =
        load("[tasks.a]\nplugin = \"sweep\"\n[tasks.b]\nplugin = \"sweep\"\n").expect("valid");
    let new = load(
        "[lease]\nttl = \"30s\"\n[plugins]\nrequire_pin = true\n[tasks.b]\nplugin = \"sweep\"\nschedule = \"@hourly\"\n[tasks.c]\nplugin = \"sweep\"\n",
    )
    .expect("valid");
    let changes = old.diff(&new);
    assert_eq!(changes.added, [TaskName::from("c")]);
    assert_eq!(changes.changed, [TaskName::from("b")]);
    assert_eq!(changes.removed, [TaskName::from("a")]);
    assert_eq!(changes.needs_restart, ["lease.ttl"]);
    assert_eq!(changes.require_pin, Some(true));
    assert!(!changes.collections);
    assert!(old.diff(&old.clone()).is_empty());
    assert_ne!(old.digest(), new.digest());
    assert_eq!(old.digest().len(), 64);
}

#[test]
fn a_changed_key_of_any_section_needs_a_restart() {
    let old = load("").expect("valid");
    for (text, key) in [
        ("[clock]\nread_every = \"5s\"\n", "clock.read_every"),
        ("[clock]\nskew_warn = \"2s\"\n", "clock.skew_warn"),
        ("[clock]\nskew_max = \"20s\"\n", "clock.skew_max"),
        ("[runtime]\ncache = \"elsewhere\"\n", "runtime.cache"),
    ] {
        assert_eq!(old.diff(&load(text).expect("valid")).needs_restart, [key]);
    }
    let compared = serde_json::to_value(&old.sections).expect("it can be written");
    for section in sections::SECTIONS {
        assert!(compared[section.name].is_object(), "{}", section.name);
    }
}

#[test]
fn a_reload_of_a_truncated_file_is_refused_with_the_fix() {
    let task = "[tasks.a]\nplugin = \"sweep\"\n";
    let is_blank = |text: &str| {
        RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default()).is_blank()
    };
    let refused = |old: &str, new: &str| {
        let old = load(old).expect("valid");
        let blank = is_blank(new);
        let new = load(new).expect("valid");
        let refused = old.refuse_truncated(&new, Path::new("besom.toml"), blank);
        refused.err().map(|problems| problems.to_string())
    };
    for (new, said) in [
        ("", "the file is empty, which would remove 1 task of this host"),
        ("\u{feff} \n\t# [tasks.a]\n", "the file is empty, which would remove 1 task"),
        ("[lease]\nttl = \"30s\"\n", "the file names no task, which would remove 1 task"),
    ] {
        let said_too = refused(task, new).unwrap_or_else(|| panic!("`{new}` was accepted"));
        assert!(said_too.contains(said) && said_too.contains("fix: restore"), "{said_too}");
    }
    let said = refused("[lease]\nttl = \"30s\"\n", "#").expect("refused");
    assert!(said.contains("every setting of this host"), "{said}");
    // A host that was started so keeps what it has.
    assert_eq!(refused("", "# nothing\n"), None);
    assert_eq!(refused("", task), None);
    assert_eq!(refused(task, "[tasks.b]\nplugin = \"sweep\"\n"), None);
    assert!(!is_blank("[lease]"));
}
