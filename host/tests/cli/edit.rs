//! `besom task edit`.

use serde_json::Value;

use crate::site::Site;

const EDITABLE: &str = "\
[tasks.sweep] # mine
plugin = \"share-expiry\"
schedule = \"0 2 * * *\" # at night
";

fn text_of(site: &Site) -> String {
    std::fs::read_to_string(site.dir().join("besom.toml")).expect("the file")
}

#[test]
fn a_task_is_edited_in_its_file_without_a_host_and_without_a_store() {
    let site = Site::new(EDITABLE);
    let berlin = ["task", "edit", "sweep", "--timezone", "Europe/Berlin", "--dry-run"];
    let (code, dry) = site.json(&berlin);
    assert_eq!(
        (code, &dry["saved"], &dry["changed"]),
        (0, &Value::Bool(false), &Value::Bool(true))
    );
    assert_eq!(text_of(&site), EDITABLE);
    let added =
        dry["diff"][0]["lines"].as_array().expect("lines").iter().find(|l| l["fate"] == "added");
    assert_eq!(added.expect("a line")["text"], "timezone = \"Europe/Berlin\"");
    assert_eq!(dry["after"]["upcoming"].as_array().map(Vec::len), Some(5));

    let out =
        site.besom(&["task", "edit", "sweep", "--schedule", "30 3 * * *", "--unset", "jitter"]);
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert_eq!(text_of(&site), EDITABLE.replace("0 2", "30 3"));
    for words in [
        "@@ -1,3 +1,3 @@",
        "-schedule = \"0 2 * * *\" # at night",
        "+schedule = \"30 3 * * *\"",
        "next runs after",
        "\nSaved ",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let (code, same) = site.json(&["task", "edit", "sweep", "--schedule", "30 3 * * *"]);
    assert_eq!(
        (code, &same["changed"], &same["saved"]),
        (0, &Value::Bool(false), &Value::Bool(false))
    );
    // Slots outside the windows do not run, so they are no next runs.
    let hourly = ["task", "edit", "sweep", "--schedule", "@hourly", "--windows", "03:00-04:00"];
    let verb: Vec<_> = hourly.into_iter().chain(["--dry-run"]).collect();
    let (_, dry) = site.json(&verb);
    assert_eq!(dry["after"]["windows"], serde_json::json!(["03:00-04:00 UTC"]), "{dry:#}");
    let next = dry["after"]["upcoming"].as_array().expect("slots");
    let at_three = |slot: &Value| slot["utc"].as_str().is_some_and(|at| at.contains("T03:00"));
    assert!(next.len() == 5 && next.iter().all(at_three), "{dry:#}");
    let out = site.besom(&verb);
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("next runs before\n"), "{said}");
    assert!(said.contains("next runs after, within its windows\n"), "{said}");
    assert!(!site.dir().join("besom.db").exists());
}

/// A task that is to be stopped goes on while the host refuses the file for another reason.
#[test]
fn an_edit_names_the_errors_for_which_a_host_refuses_the_file() {
    let site = Site::new(EDITABLE);
    let edit = ["task", "edit", "sweep", "--mode", "preview", "--dry-run"];
    let (code, dry) = site.json(&edit);
    assert_eq!((code, &dry["errors"]), (0, &serde_json::json!([])), "{dry:#}");
    for (added, words) in [
        ("plugin = \"share-expiri\"\nschedule = \"@daily\"", "did you mean `share-expiry`?"),
        ("plugin = \"share-expiry\"\nschedule = \"0 0 99 * *\"", "`99` is out of bounds"),
        ("plugin = \"share-expiry\"\nsettings = { colour = 1 }", "unknown key `colour`"),
        ("plugin = \"share-expiry\"\ngrants.nowhere = [\"read\"]", "nowhere"),
        ("plugin = \"share-expiry\"\n[bogus]\na = 1", "unknown key `bogus`"),
    ] {
        let faulty = format!("{EDITABLE}\n[tasks.bad]\n{added}\n");
        std::fs::write(site.dir().join("besom.toml"), &faulty).expect("written");
        let (code, json) = site.json(&edit);
        let errors = json["errors"].as_array().cloned().unwrap_or_default();
        assert_eq!(code, 0, "{json:#}");
        let named = errors.iter().filter_map(Value::as_str).any(|error| error.contains(words));
        assert!(named, "{words}: {errors:#?}");
        let out = site.besom(&edit[..5]);
        let text = [&out.stdout[..], &out.stderr].map(String::from_utf8_lossy);
        assert_eq!(out.status.code(), Some(0), "{text:?}");
        assert!(text[1].contains(words), "{words}: {}", text[1]);
        assert!(text[0].contains("A running host refuses it, and goes on with what it runs"));
        assert!(!text[0].contains("reloads it"), "{}", text[0]);
    }
}

#[test]
fn an_edit_that_cannot_be_leaves_the_file_and_says_where_and_why() {
    let site = Site::new(EDITABLE);
    let (code, said) = site.fails(&["task", "edit", "sweep", "--schedule", "0 22-2 * * *"]);
    assert_eq!(code, 78, "{said}");
    let out = site.besom(&["task", "edit", "sweep", "--schedule", "0 22-2 * * *"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "", "the error only");
    let (code, json) = site.json(&["task", "edit", "sweep", "--schedule", "0 22-2 * * *"]);
    assert_eq!((code, &json["saved"]), (78, &Value::Bool(false)), "{json:#}");
    let caret = "  3 | schedule = \"0 22-2 * * *\" # at night\n    |               ^^^^ write `22-23,0-2` to wrap around";
    assert!(said.contains("besom.toml:3:15") && said.contains(caret), "{said}");
    for (args, exit, words) in [
        (&["sweep"][..], 2, "no changes given"),
        (&["swep", "--jitter", "1s"], 2, "did you mean `sweep`?"),
        (&["sweep", "--jitter", "1s", "--unset", "jitter"], 2, "do only one of them"),
        (&["sweep", "--unset", "plugin"], 2, "choose one of schedule"),
        (
            &["sweep", "--unset", "max_delete_floor"],
            2,
            "remove any other key from the file by hand",
        ),
        (&["sweep", "--overlap", "skpi"], 78, "did you mean \"skip\"?"),
        (&["sweep", "--wall", "9h"], 78, "besom.toml:4:15"),
    ] {
        let (code, said) = site.fails(&[&["task", "edit"], args].concat());
        assert_eq!(code, exit, "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
    assert_eq!(text_of(&site), EDITABLE);

    // A file without a write bit is not replaced by root either.
    use std::os::unix::fs::PermissionsExt as _;
    let file = site.dir().join("besom.toml");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).expect("set");
    let (code, said) = site.fails(&["task", "edit", "sweep", "--jitter", "1s"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("read-only"), "{said}");
    std::fs::remove_file(&file).expect("removed");
    let (code, said) = site.fails(&["task", "edit", "sweep", "--jitter", "1s"]);
    assert_eq!(code, 78, "{said}");
    assert!(!file.exists());
}
