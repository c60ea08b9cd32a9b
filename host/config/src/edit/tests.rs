//! Edits of texts as people write them. Everything else stays, byte for byte.

use proptest::prelude::*;

use super::super::hunk::Fate;
use super::*;
use besom_product::model::collections_for;

fn base<'a>(text: &'a str, overrides: &'a Overrides) -> Base<'a> {
    let now = "2026-01-01T00:00:00Z".parse().map(Time::from_jiff).expect("an instant");
    Base { text, origin: Path::new("besom.toml"), overrides, collections: collections_for, now }
}

fn set(field: Field, value: &str) -> Change {
    Change { field, value: Some(value.to_owned()) }
}

fn unset(field: Field) -> Change {
    Change { field, value: None }
}

fn try_edit(text: &str, changes: &[Change]) -> Result<Edited, Refusal> {
    edit(&base(text, &Overrides::default()), &TaskName::from("sweep"), changes)
}

#[track_caller]
fn edited(text: &str, changes: &[Change]) -> Edited {
    try_edit(text, changes).unwrap_or_else(|refusal| panic!("{refusal}\n{text}"))
}

/// The new text, which must be valid.
#[track_caller]
fn check(text: &str, changes: &[Change], expected: &str) {
    let edited = edited(text, changes);
    assert_eq!(edited.text, expected);
    assert_eq!(edited.in_the_way(), [], "{expected}");
    assert!(edited.faults.is_empty(), "{:?}", edited.faults);
}

#[test]
fn a_value_is_replaced_and_the_comment_behind_it_stays() {
    check(
        "# mine\n[tasks.sweep] # the broom\nplugin = \"compaction\"\nschedule  =  \"* * * * *\"   # every minute, see INC-300\n\n[store]\npath = \"x.db\"\n",
        &[set(Field::Schedule, "*/2 0-23 * * *")],
        "# mine\n[tasks.sweep] # the broom\nplugin = \"compaction\"\nschedule  =  \"*/2 0-23 * * *\"   # every minute, see INC-300\n\n[store]\npath = \"x.db\"\n",
    );
}

#[test]
fn quotes_stay_where_the_new_value_fits_into_them() {
    let text =
        |value: &str| format!("[tasks.sweep]\nplugin = \"compaction\"\nschedule = {value}\n");
    check(&text("'@hourly'"), &[set(Field::Schedule, "@daily")], &text("'@daily'"));
    check(&text("\"\"\"@hourly\"\"\""), &[set(Field::Schedule, "@daily")], &text("\"@daily\""));
    let edited = edited(&text("'@hourly'"), &[set(Field::Schedule, "it's\n\"\\\u{1b}")]);
    assert_eq!(edited.text, text("\"it's\\n\\\"\\\\\\u001B\""));
}

#[test]
fn a_new_key_stands_where_it_would_be_written_and_as_its_neighbour_is() {
    let plugin = "plugin = \"compaction\"\n";
    check(
        &format!("[tasks.sweep]\n{plugin}schedule = \"@hourly\" # often\nkeep_removed = \"1d\"\n"),
        &[
            set(Field::Jitter, "5s"),
            set(Field::Timezone, "Europe/Berlin"),
            set(Field::Overlap, "queue"),
        ],
        &format!(
            "[tasks.sweep]\n{plugin}schedule = \"@hourly\" # often\ntimezone = \"Europe/Berlin\"\noverlap = \"queue\"\njitter = \"5s\"\nkeep_removed = \"1d\"\n"
        ),
    );
    // Without a schedule: after the plugin, with its indentation and alignment of `=`.
    check(
        "[tasks.sweep]\n\tplugin   = \"compaction\"\n\tat_start = true\n",
        &[set(Field::Schedule, "@daily"), set(Field::Jitter, "1m")],
        "[tasks.sweep]\n\tplugin   = \"compaction\"\n\tschedule = \"@daily\"\n\tjitter   = \"1m\"\n\tat_start = true\n",
    );
    // In a file without a final line end.
    check(
        "[tasks.sweep]\nplugin = \"compaction\"",
        &[set(Field::Schedule, "@daily")],
        "[tasks.sweep]\nplugin = \"compaction\"\nschedule = \"@daily\"",
    );
}

#[test]
fn dotted_keys_and_inline_tables_stay_what_they_are() {
    let change = [set(Field::Schedule, "@daily"), set(Field::Timezone, "Asia/Tokyo")];
    check(
        "[tasks]\nsweep.plugin = \"compaction\"\nsweep.schedule = \"@hourly\"\n[store]\n",
        &change,
        "[tasks]\nsweep.plugin = \"compaction\"\nsweep.schedule = \"@daily\"\nsweep.timezone = \"Asia/Tokyo\"\n[store]\n",
    );
    check(
        "tasks.\"sweep\".plugin = \"compaction\"\n",
        &change,
        "tasks.\"sweep\".plugin = \"compaction\"\ntasks.\"sweep\".schedule = \"@daily\"\ntasks.\"sweep\".timezone = \"Asia/Tokyo\"\n",
    );
    check(
        "[tasks]\nsweep = { plugin = \"compaction\", schedule = \"@hourly\", jitter = \"1s\" } # one line\n",
        &change,
        "[tasks]\nsweep = { plugin = \"compaction\", schedule = \"@daily\", timezone = \"Asia/Tokyo\", jitter = \"1s\" } # one line\n",
    );
    check(
        "tasks = { sweep.plugin = \"compaction\" }\n",
        &change,
        "tasks = { sweep.plugin = \"compaction\", sweep.schedule = \"@daily\", sweep.timezone = \"Asia/Tokyo\" }\n",
    );
}

#[test]
fn the_limit_of_time_finds_its_table_or_a_dotted_key() {
    let task = "[tasks.sweep]\nplugin = \"compaction\"\nschedule = \"@hourly\"\n";
    let change = [set(Field::Wall, "20s")];
    check(task, &change, &format!("{task}limits.wall = \"20s\"\n"));
    check(
        &format!("{task}\n[tasks.sweep.limits] # bounds\nbatch_items = 5\n"),
        &change,
        &format!("{task}\n[tasks.sweep.limits] # bounds\nwall = \"20s\"\nbatch_items = 5\n"),
    );
    check(
        &format!("{task}[tasks.sweep.limits]\nfuel = 100000\nbatch_items = 5\n"),
        &change,
        &format!("{task}[tasks.sweep.limits]\nfuel = 100000\nwall = \"20s\"\nbatch_items = 5\n"),
    );
    check(
        &format!("{task}limits = {{}}\n"),
        &change,
        &format!("{task}limits = {{ wall = \"20s\" }}\n"),
    );
    check(
        &format!("{task}limits.batch_items = 5\n"),
        &change,
        &format!("{task}limits.wall = \"20s\"\nlimits.batch_items = 5\n"),
    );
    check(
        &format!("{task}limits.wall = \"20s\" # long\n"),
        &[unset(Field::Wall)],
        &format!("{task}# long\n"),
    );
}

#[test]
fn a_removed_key_takes_its_line_with_it_but_no_comment() {
    check(
        "[tasks.sweep]\nplugin = \"compaction\"\n# why\nschedule = \"@hourly\"\n  jitter = \"5s\" # see INC-300  \noverlap = \"skip\"",
        &[
            unset(Field::Schedule),
            unset(Field::Jitter),
            unset(Field::Overlap),
            unset(Field::Timezone),
        ],
        "[tasks.sweep]\nplugin = \"compaction\"\n# why\n  # see INC-300  \n",
    );
    let inline = |keys: &str| format!("[tasks]\nsweep = {{ {keys} }}\n");
    let plugin = "plugin = \"compaction\"";
    check(
        &inline(&format!("{plugin}, schedule = \"@daily\"")),
        &[unset(Field::Schedule)],
        &inline(plugin),
    );
    check(
        &inline(&format!("schedule = \"@daily\",  {plugin}")),
        &[unset(Field::Schedule)],
        &inline(plugin),
    );
    check(
        &inline(&format!("{plugin}, jitter = \"1s\", limits.wall = \"2s\"")),
        &[unset(Field::Wall), set(Field::Overlap, "allow")],
        &inline(&format!("{plugin}, overlap = \"allow\", jitter = \"1s\"")),
    );
}

#[test]
fn line_ends_and_the_byte_order_mark_stay() {
    check(
        "\u{feff}tasks.sweep.plugin = \"compaction\"\r\n# a\r\ntasks.sweep.schedule = \"@hourly\" # b\r\n",
        &[set(Field::Schedule, "@daily"), set(Field::Jitter, "1s")],
        "\u{feff}tasks.sweep.plugin = \"compaction\"\r\n# a\r\ntasks.sweep.schedule = \"@daily\" # b\r\ntasks.sweep.jitter = \"1s\"\r\n",
    );
    check(
        "\u{feff}tasks.sweep.plugin = \"compaction\"\r\n",
        &[set(Field::Schedule, "@daily")],
        "\u{feff}tasks.sweep.plugin = \"compaction\"\r\ntasks.sweep.schedule = \"@daily\"\r\n",
    );
    check(
        "\u{feff}[tasks.sweep]\r\nplugin = \"compaction\"",
        &[set(Field::Schedule, "@daily")],
        "\u{feff}[tasks.sweep]\r\nplugin = \"compaction\"\r\nschedule = \"@daily\"",
    );
}

#[test]
fn a_number_is_not_quoted_and_what_is_none_is_refused() {
    let text = "[tasks.sweep]\nplugin = \"compaction\"\ncatch_up = \"skip\"\n";
    let changes = |max: &str| [set(Field::CatchUp, "all"), set(Field::CatchUpMax, max)];
    check(
        text,
        &changes(" 07 "),
        "[tasks.sweep]\nplugin = \"compaction\"\ncatch_up = \"all\"\ncatch_up_max = 7\n",
    );
    for wrong in ["many", "0", "1001", "-1", "1.5", ""] {
        let edited = edited(text, &changes(wrong));
        assert_eq!(edited.in_the_way().len(), 1, "{wrong}: {:?}", edited.findings);
        assert_eq!(edited.faults.len(), 1, "{wrong}: {:?}", edited.faults);
    }
}

#[test]
fn an_error_stands_under_its_characters_in_the_file_and_in_the_value() {
    let text = "[tasks.sweep]\nplugin = \"compaction\"\nschedule = \"* * * * *\"\n";
    for (value, bytes, column, chars) in [
        ("0 22-2 * * *", 2..6, 15, 4),
        ("* * * * * * *", 12..13, 25, 1),
        ("ä 0 * * *", 0..2, 13, 1),
        ("0 0 30 2 *", 4..10, 17, 6),
    ] {
        let edited = edited(text, &[set(Field::Schedule, value)]);
        let [fault] = &edited.faults[..] else { panic!("{:?}", edited.faults) };
        assert_eq!((fault.field, &fault.range), (Field::Schedule, &bytes), "{value}");
        let [finding] = &edited.findings[..] else { panic!("{:?}", edited.findings) };
        assert!(finding.is_in_the_way() && finding.of_task && finding.new, "{finding:?}");
        assert_eq!(finding.diagnostic.message, fault.message);
        let Place::Line { line, column: at, chars: width, .. } = finding.diagnostic.place else {
            panic!("{finding:?}")
        };
        assert_eq!((line, at, width), (3, column, chars), "{value}");
    }
}

#[test]
fn a_day_on_which_it_would_not_run_is_told_and_hinders_nothing() {
    let text = "[tasks.sweep]\nplugin = \"compaction\"\nschedule = \"*/10 2 * * *\"\n";
    let edited = edited(text, &[set(Field::Timezone, "Europe/Berlin")]);
    let [finding] = &edited.findings[..] else { panic!("{:?}", edited.findings) };
    assert!(finding.new && finding.of_task && !finding.is_in_the_way(), "{finding:?}");
    assert!(finding.diagnostic.message.starts_with("no run on 2026-03-29"), "{finding:?}");
    let same = super::tests::edited(&edited.text, &[set(Field::Jitter, "1s")]);
    assert!(same.findings.iter().all(|finding| !finding.new), "{:?}", same.findings);
}

#[test]
fn each_wrong_value_is_told_of_its_own_key() {
    let text = "[tasks.sweep]\nplugin = \"compaction\"\nschedule = \"@daily\"\n";
    for (field, value, words) in [
        (Field::Timezone, "Berlin", "unknown time zone"),
        (Field::Overlap, "skpi", "skpi"),
        (Field::CatchUp, "some", "some"),
        (Field::Jitter, "5", "not a duration"),
        (Field::Jitter, "2d", "2d"),
        (Field::Wall, "2h", "2h"),
    ] {
        let edited = edited(text, &[set(field, value)]);
        let [fault] = &edited.faults[..] else { panic!("{value}: {:?}", edited.faults) };
        assert_eq!((fault.field, &fault.range), (field, &(0..value.len())), "{value}");
        assert!(fault.message.contains(words), "{fault:?}");
        assert_eq!(edited.in_the_way().len(), 1, "{value}: {:?}", edited.findings);
    }
}

#[test]
fn faults_elsewhere_are_told_but_hinder_only_if_they_are_new() {
    let other = "[tasks.other]\nplugin = \"compaction\"\nschedule = \"nonsense\"\njitter = \"x\"\n";
    let task = "[tasks.sweep]\nplugin = \"compaction\"\nschedule = \"@daily\"\n";
    let edited = edited(&format!("{task}{other}"), &[set(Field::Jitter, "1s")]);
    assert_eq!(edited.findings.len(), 2, "{:?}", edited.findings);
    assert!(edited.findings.iter().all(|finding| !finding.new && !finding.of_task));
    assert_eq!(edited.in_the_way(), []);

    // A second occurrence of the same error is a new error.
    let twice = super::tests::edited(&format!("{other}{task}"), &[set(Field::Jitter, "x")]);
    assert_eq!(twice.in_the_way().len(), 1, "{:?}", twice.findings);

    // Earlier errors of the edited task have to be corrected as well.
    let broken = "[tasks.sweep]\nplugin = \"compaction\"\nschedule = \"@daily\"\novrlap = 1\n";
    let edited = super::tests::edited(broken, &[set(Field::Jitter, "1s")]);
    assert_eq!(edited.in_the_way().len(), 1, "{:?}", edited.findings);
}

#[test]
fn what_is_no_toml_or_no_task_is_not_edited() {
    let refused = try_edit("[tasks.sweep\nplugin = 1\n", &[set(Field::Jitter, "1s")]);
    assert!(matches!(&refused, Err(Refusal::Syntax(problems)) if !problems.0.is_empty()));
    let refused = try_edit("[tasks.sweeep]\nplugin = \"compaction\"\n", &[]).expect_err("refused");
    assert!(matches!(refused, Refusal::NoTask { .. }));
    assert!(refused.to_string().contains("sweeep"), "{refused}");
}

#[test]
fn nothing_asked_for_is_nothing_changed() {
    let text = "[tasks.sweep]\nplugin = \"compaction\"\nschedule = '@daily'\n";
    for changes in [vec![], vec![set(Field::Schedule, "@daily")], vec![unset(Field::Jitter)]] {
        let edited = edited(text, &changes);
        assert_eq!((edited.text.as_str(), &edited.hunks[..]), (text, &[][..]), "{changes:?}");
    }
}

#[test]
fn the_difference_names_the_lines_and_the_task_before_and_after() {
    let text =
        "# a\n[tasks.sweep]\nplugin = \"compaction\"\nschedule = \"@daily\" # b\n\n[store]\n";
    let edited = edited(text, &[set(Field::Schedule, "@hourly"), set(Field::Overlap, "queue")]);
    let [hunk] = &edited.hunks[..] else { panic!("{:?}", edited.hunks) };
    let changed: Vec<_> = hunk.lines.iter().filter(|line| line.fate != Fate::Kept).collect();
    let lines: Vec<_> =
        changed.iter().map(|line| (line.fate, line.old, line.new, line.text.as_str())).collect();
    assert_eq!(
        lines,
        [
            (Fate::Removed, Some(4), None, "schedule = \"@daily\" # b"),
            (Fate::Added, None, Some(4), "schedule = \"@hourly\" # b"),
            (Fate::Added, None, Some(5), "overlap = \"queue\""),
        ]
    );
    assert_eq!(hunk.lines.len(), 3 + 2 + 2);
    let schedules = (edited.before.schedule.as_deref(), edited.after.schedule.as_deref());
    assert_eq!(schedules, (Some("@daily"), Some("@hourly")));
    assert_eq!(edited.after.policy.overlap, besom_core::plan::Overlap::Queue);
}

#[test]
fn the_values_that_stand_are_told_without_their_quotes() {
    let text = "[tasks.sweep]\nplugin = 'x'\nschedule = '@daily'\ncatch_up_max = 7\nlimits.wall = \"5s\"\n";
    let found = current(text, &TaskName::from("sweep")).expect("the task");
    let expected = [(Field::Schedule, "@daily"), (Field::CatchUpMax, "7"), (Field::Wall, "5s")];
    assert_eq!(found, expected.map(|(field, value)| (field, value.to_owned())).into());
    assert_eq!(current(text, &TaskName::from("other")), None);
}

#[test]
fn windows_and_brakes_are_written_as_the_file_has_them() {
    let text =
        "[tasks.sweep]\nplugin = 'compaction'\nschedule = '@hourly'\nwindows = ['22:00-05:00']\n";
    let edited = edited(
        text,
        &[
            set(Field::Windows, "Mon-Fri 22:00-05:00 ;Sat,Sun 00:00-24:00"),
            set(Field::MaxDelete, "900"),
            set(Field::KeepRemoved, "1d"),
        ],
    );
    let windows = "windows = [\"Mon-Fri 22:00-05:00\", \"Sat,Sun 00:00-24:00\"]\n";
    assert!(edited.text.contains(windows), "{}", edited.text);
    assert!(edited.text.contains("max_delete = 900\n"), "{}", edited.text);
    let part = try_edit(&edited.text, &[set(Field::MaxDelete, "5%")]).expect("a text").text;
    assert!(part.contains("max_delete = \"5%\"\n"), "{part}");
    let faults = faults(&[set(Field::Windows, "22:00-05:00; 25:00-26:00")], "UTC");
    assert_eq!(faults.len(), 1, "{faults:?}");
    // Comments would be lost.
    let commented = text.replace("['22", "[\n  # nights\n  '22");
    let refused = try_edit(&commented, &[set(Field::Windows, "23:00-05:00")]);
    assert!(matches!(refused, Err(Refusal::Layout { .. })), "{refused:?}");
}

/// A task in one of its possible notations, with comments everywhere.
fn task_text() -> impl Strategy<Value = String> {
    let keys = prop::sample::subsequence(
        vec![
            ("schedule", "\"@daily\""),
            ("timezone", "'Asia/Tokyo'"),
            ("overlap", "\"allow\""),
            ("catch_up", "\"all\""),
            ("catch_up_max", "3"),
            ("jitter", "\"\"\"7s\"\"\""),
            ("limits.wall", "\"9s\""),
            ("limits.batch_items", "5"),
            ("keep_removed", "\"1d\""),
            ("max_delete", "\"5%\""),
            ("windows", "[ \"22:00-05:00\", 'Sat,Sun 00:00-24:00' ]"),
        ],
        0..=11,
    );
    (keys.prop_shuffle(), 0..5, prop::bool::ANY, prop::bool::ANY, "[ \t]{0,3}").prop_map(
        |(keys, form, crlf, ended, space)| {
            let keys = [vec![("plugin", "\"compaction\"")], keys].concat();
            let lines = |prefix: &str| -> String {
                let line = |(n, (key, value)): (usize, &(&str, &str))| {
                    format!("{space}{prefix}{key}{space}= {value}{space}# comment {n}\n")
                };
                keys.iter().enumerate().map(line).collect()
            };
            let inline =
                keys.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>();
            let text = match form {
                0 => format!("# top\n[tasks.sweep]\n{}\n# end\n[host]\n", lines("")),
                1 => format!("# top\n[tasks]\n# in\n{}[host]\n", lines("sweep.")),
                2 => lines("tasks . 'sweep'."),
                3 => format!("[tasks]\nsweep = {{{space}{} }} # in\n# end\n", inline.join(" , ")),
                _ => {
                    format!("# top\n[tasks.sweep]\n{}[tasks.x]\nplugin = \"compaction\"", lines(""))
                }
            };
            let text = if ended { text } else { text.trim_end().to_owned() };
            if crlf { text.replace('\n', "\r\n") } else { text }
        },
    )
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let value = |field: Field| match field {
        Field::Schedule => "0 4 * * *",
        Field::Timezone => "Europe/Berlin",
        Field::Overlap => "queue",
        Field::CatchUp => "coalesce",
        Field::CatchUpMax => "12",
        Field::Jitter => "3m",
        Field::KeepRemoved => "2d",
        Field::MaxDelete => "700",
        Field::Windows => "Mon-Fri 22:00-06:00; Sat,Sun 00:00-24:00 Europe/Berlin",
        Field::Mode => "approve",
        Field::Wall => "30s",
    };
    let fields = prop::sample::subsequence(Field::ALL.to_vec(), 0..=11);
    (fields, prop::collection::vec(prop::bool::ANY, 11)).prop_map(move |(fields, keep)| {
        let change = |(field, keep): (Field, bool)| Change {
            field,
            value: keep.then(|| value(field).to_owned()),
        };
        fields.into_iter().zip(keep).map(change).collect()
    })
}

proptest! {
    #[test]
    fn an_edit_says_what_was_asked_loses_no_comment_and_can_be_undone_by_value(
        text in task_text(),
        changes in changes(),
    ) {
        let edited = try_edit(&text, &changes);
        let edited = edited.map_err(|refusal| TestCaseError::fail(format!("{refusal}\n{text}")))?;
        let task = TaskName::from("sweep");
        let found = current(&edited.text, &task).expect("the task");
        for change in &changes {
            prop_assert_eq!(found.get(&change.field), change.value.as_ref());
        }
        let comments = |text: &str| -> Vec<String> {
            let comment = |line: &str| line.split_once('#').map(|(_, c)| c.trim_end().to_owned());
            text.lines().filter_map(comment).collect()
        };
        prop_assert_eq!(comments(&text), comments(&edited.text));
        let ends = |text: &str| (text.matches("\r\n").count() > 0, text.matches('\n').count() > text.matches("\r\n").count());
        if text.contains('\n') {
            prop_assert_eq!(ends(&text), ends(&edited.text), "line ends of {}", edited.text);
        }
        // Setting the previous value restores the text.
        let before = current(&text, &task).expect("the task");
        let back: Vec<Change> = changes
            .iter()
            .map(|change| Change { field: change.field, value: before.get(&change.field).cloned() })
            .collect();
        let undone = try_edit(&edited.text, &back).expect("edited");
        prop_assert_eq!(current(&undone.text, &task).expect("the task"), before);
    }
}
