//! The effects of keys and other inputs: the resulting state, and the tasks for the shell.

mod common;

use std::sync::Arc;

use besom_core::command::{Action, Command, DeadSelector};
use besom_core::ids::{RunId, TaskName, Term};
use besom_core::plan::{SlotOutcome, SlotRecord};
use besom_core::time::Time;
use besom_samples::{NOW, small};
use besom_snapshot::{
    Answer, DeadPage, Done, Event, Explained, LastRun, Letter, NodeState, Query, Refusal, Run,
    RunPage, RunState, Snapshot, TaskPast,
};
use besom_tui::dash::data::{Connection, Shown};
use besom_tui::dash::state::Overlay;
use besom_tui::dash::{
    Code, Effect, Feed, Input, Key, MouseKind, Options, Place, ThemeChoice, Tone,
};
use common::{Dashboard, key};

fn later(seconds: i64) -> Snapshot {
    let mut snap = small();
    snap.at = Time(NOW.0 + seconds * 1_000_000);
    snap
}

/// The scan of the active run has not ended.
fn scanning() -> Snapshot {
    let mut snap = small();
    for run in snap.runs.iter_mut().filter(|run| run.id == 8_812) {
        Arc::make_mut(run).state = RunState::Scanning;
    }
    for task in snap.tasks.iter_mut().filter(|task| task.name == "share-expiry") {
        for last in Arc::make_mut(task).last.iter_mut().filter(|last| last.id == 8_812) {
            last.state = RunState::Scanning;
        }
    }
    snap
}

fn feed(dashboard: &mut Dashboard, snap: Snapshot) {
    dashboard.input(Input::Tick(snap.at));
    dashboard.input(Input::Feed(Feed::Snapshot(Arc::new(snap))));
}

#[test]
fn places_are_reached_by_numbers_and_by_tab() {
    let mut dashboard = Dashboard::of(small());
    for (code, place) in [
        (Code::Char('2'), Place::Tasks),
        (Code::Char('6'), Place::Edit),
        (Code::Tab, Place::Overview),
        (Code::Tab, Place::Tasks),
        (Code::BackTab, Place::Overview),
        (Code::Char('9'), Place::Overview),
        (Code::Other, Place::Overview),
        (Code::F(5), Place::Overview),
    ] {
        dashboard.input(key(code));
        assert_eq!(dashboard.state.place, place, "{code:?}");
    }
    assert_eq!(dashboard.done(), []);
}

#[test]
fn quitting_takes_one_key() {
    for leave in [key(Code::Char('q')), Input::Key(Key::ctrl('c'))] {
        let mut dashboard = Dashboard::of(small());
        assert_eq!(dashboard.input(leave).done(), [Effect::Quit]);
    }
}

#[test]
fn control_c_quits_whatever_is_open() {
    for open in ["?", ":", "/", "p"] {
        let mut dashboard = Dashboard::of(small());
        dashboard.go(Place::Tasks).type_in(open);
        dashboard.input(Input::Key(Key::ctrl('c')));
        assert_eq!(dashboard.done(), [Effect::Quit], "{open}");
    }
}

#[test]
fn pasted_text_is_never_a_command() {
    for place in Place::ALL {
        let mut dashboard = Dashboard::of(small());
        dashboard.go(place);
        dashboard.effects.clear();
        dashboard.input(Input::Paste("q\nt\r\ny:quit\n2\x03".into()));
        assert_eq!(dashboard.done(), [], "{place:?}");
        assert_eq!(dashboard.state.place, place);
    }
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Tasks).type_in("/").input(Input::Paste("sha\x1b[2Jre\n".into()));
    let Overlay::Filter(field) = &dashboard.state.overlay else { panic!("the filter is open") };
    assert_eq!(field.text(), "sha␛[2Jre");
}

#[test]
fn a_choice_stays_with_its_row_when_rows_move() {
    let mut dashboard = Dashboard::of(small());
    dashboard.type_in("jj");
    assert!(dashboard.picture(80, 24).contains(">node-c"));
    let mut snap = later(1);
    snap.nodes.remove(0);
    feed(&mut dashboard, snap);
    assert!(dashboard.picture(80, 24).contains(">node-c"), "{}", dashboard.picture(80, 24));
    let mut snap = later(2);
    snap.nodes.remove(2);
    feed(&mut dashboard, snap);
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains(">node-d") || picture.contains(">node-b"), "{picture}");
}

#[test]
fn attention_leads_to_its_cause() {
    // If there is room only for the list, its keys are the screen's.
    for (downs, place) in
        [(0, Place::Overview), (2, Place::Queues), (5, Place::Runs), (7, Place::Tasks)]
    {
        let mut dashboard = Dashboard::of(small());
        dashboard.input(Input::Resize(40, 10));
        dashboard.type_in(&"j".repeat(downs));
        dashboard.input(key(Code::Enter));
        assert_eq!(dashboard.state.place, place, "{downs}");
    }
}

#[test]
fn the_clock_of_a_frozen_picture_stands_still_and_its_age_goes_on() {
    let mut dashboard = Dashboard::of(small());
    feed(&mut dashboard, later(5));
    dashboard.type_in("f");
    feed(&mut dashboard, later(9));
    assert!(matches!(dashboard.state.data.shown, Shown::Frozen(_)));
    assert_eq!(dashboard.state.context().now, later(5).at);
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("frozen 4s ago") && picture.contains("14:03:32Z"), "{picture}");
    dashboard.type_in("f");
    assert!(dashboard.picture(80, 24).contains("●live 0s"));
}

#[test]
fn one_steps_back_and_forth_and_ends_in_the_present() {
    let mut dashboard = Dashboard::of(small());
    for second in 1..4 {
        feed(&mut dashboard, later(second));
    }
    for (step, at) in [("<", 2), ("<", 1), ("<", 0), ("<", 0), (">", 1), (">", 2)] {
        dashboard.type_in(step);
        assert!(matches!(dashboard.state.data.shown, Shown::Rewound(_)), "{step} {at}");
        assert_eq!(dashboard.state.data.snap().at, later(at).at);
    }
    dashboard.type_in(">");
    assert!(matches!(dashboard.state.data.shown, Shown::Live));
    dashboard.type_in(">");
    assert!(matches!(dashboard.state.data.shown, Shown::Live));
}

#[test]
fn a_lost_connection_shows_the_last_picture_with_its_age_and_comes_back() {
    let mut dashboard = Dashboard::of(small());
    let lost = Feed::Lost { why: "the host has gone".into(), retry_at: None };
    dashboard.input(Input::Feed(lost));
    dashboard.input(Input::Tick(Time(NOW.0 + 75_000_000)));
    assert_eq!(dashboard.state.context().now, NOW, "what is shown is of then");
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("✕lost 1m15s old") && picture.contains("node-a"), "{picture}");
    feed(&mut dashboard, later(80));
    assert_eq!(dashboard.state.data.connection, Connection::Live);
    assert!(dashboard.picture(80, 24).contains("●live 0s"));
}

#[test]
fn only_what_changes_the_picture_makes_it_dirty() {
    let mut dashboard = Dashboard::of(small());
    let quiet = |dashboard: &mut Dashboard, input: Input| {
        dashboard.state.drawn();
        dashboard.input(input);
        !dashboard.state.dirty()
    };
    assert!(quiet(&mut dashboard, Input::Tick(Time(NOW.0 + 400_000))));
    assert!(quiet(&mut dashboard, Input::Resize(80, 24)));
    assert!(!quiet(&mut dashboard, Input::Tick(Time(NOW.0 + 1_000_000))));
    assert!(!quiet(&mut dashboard, Input::Resize(81, 24)));
    assert_eq!(dashboard.state.next_tick(), Time(NOW.0 + 2_000_000));
}

fn act(dashboard: &Dashboard) -> (u64, Action, String) {
    let acts: Vec<_> = dashboard
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Act { ticket, action, reason } => {
                Some((*ticket, action.clone(), reason.clone()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(acts.len(), 1, "{:?}", dashboard.effects);
    acts.into_iter().next().expect("one")
}

#[test]
fn every_action_asks_first_and_then_says_why() {
    let task = || TaskName::from("share-expiry");
    let ask = |command| Action::Ask { command };
    // The screen, the keys that select and request, the typed reason, and the resulting action.
    let cases: Vec<(Place, &str, Action)> = vec![
        (Place::Tasks, "t", ask(Command::Trigger { task: TaskName::from("audit-trim") })),
        (Place::Tasks, "jjjjjp", ask(Command::Pause { task: task() })),
        (
            Place::Tasks,
            "jjjp",
            ask(Command::Resume { task: TaskName::from("gc-orphans"), release: false }),
        ),
        (Place::Tasks, "jjjjjc", ask(Command::Cancel { run: besom_core::ids::RunId(8_812) })),
        (Place::Overview, "d", Action::Drain { node: "node-a".into() }),
        (Place::Overview, "jjjr", Action::Rejoin { node: "node-d".into() }),
        (Place::Overview, "L", ask(Command::Resign)),
        (
            Place::Queues,
            "dr",
            ask(Command::RetryDead(DeadSelector {
                ids: vec![],
                task: Some(task()),
                error: Some("etcd: lease not found".into()),
                expect: Some(1),
            })),
        ),
    ];
    for (place, keys, expected) in cases {
        let mut dashboard = Dashboard::of(scanning());
        dashboard.go(place).type_in(keys);
        assert!(matches!(dashboard.state.overlay, Overlay::Confirm(_)), "{place:?} {keys}");
        assert_eq!(dashboard.done(), [], "{place:?} {keys}: nothing before the answer");
        dashboard.type_in("INC-9").input(key(Code::Enter));
        let (ticket, action, reason) = act(&dashboard);
        assert_eq!((action, reason.as_str()), (expected, "INC-9"), "{place:?} {keys}");
        let done = Done { command: Some(7), applied: true, result: Some("it is so".into()) };
        let answer = Answer::Done(done);
        dashboard.input(Input::Feed(Feed::Answer { ticket, answer }));
        let said = dashboard.state.message.as_ref().expect("what came of it is said");
        assert!(said.text.ends_with("it is so"), "{said:?}");
    }
}

#[test]
fn escape_changes_nothing_and_a_required_reason_is_required() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Tasks).type_in("p").input(key(Code::Esc));
    assert!(matches!(dashboard.state.overlay, Overlay::None));
    dashboard.type_in("p").input(key(Code::Enter)).type_in("  ").input(key(Code::Enter));
    assert!(matches!(dashboard.state.overlay, Overlay::Confirm(_)));
    assert_eq!(dashboard.done(), []);
}

#[test]
fn a_held_key_does_nothing_by_itself() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Tasks);
    for _ in 0..200 {
        dashboard.input(key(Code::Char('p')));
    }
    dashboard.input(key(Code::Esc));
    for _ in 0..200 {
        dashboard.input(key(Code::Enter));
    }
    let acts = dashboard.effects.iter().filter(|e| matches!(e, Effect::Act { .. })).count();
    assert_eq!(acts, 0);
}

#[test]
fn what_is_refused_is_told_with_what_was_asked() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Tasks).type_in("t").input(key(Code::Enter));
    let (ticket, ..) = act(&dashboard);
    let answer = Answer::Refused(Refusal { message: "you may only look".into() });
    dashboard.input(Input::Feed(Feed::Answer { ticket, answer }));
    let said = dashboard.state.message.as_ref().expect("it is told");
    assert_eq!(said.text, "task trigger audit-trim: you may only look");
}

#[test]
fn nothing_is_changed_where_nothing_may_be_or_of_the_past() {
    let mut readonly = small();
    readonly.readonly = true;
    let mut by_option = Dashboard::of(small());
    by_option.state.options = Options { readonly: true, ..Options::default() };
    let mut rewound = Dashboard::of(small());
    feed(&mut rewound, later(1));
    rewound.type_in("<");
    let mut lost = Dashboard::of(small());
    lost.input(Input::Feed(Feed::Lost { why: "gone".into(), retry_at: None }));
    for (mut dashboard, why) in [
        (Dashboard::of(readonly), "read-only"),
        (by_option, "read-only"),
        (rewound, "the past"),
        (lost, "not connected"),
    ] {
        for (place, keys) in [(Place::Tasks, "p"), (Place::Overview, "L"), (Place::Overview, "d")] {
            dashboard.go(place).type_in(keys);
            assert!(matches!(dashboard.state.overlay, Overlay::None), "{why}");
            let said = dashboard.state.message.as_ref().expect("it is said why");
            assert!(said.text.contains(why), "{said:?}");
        }
    }
}

fn letter(id: u64) -> Letter {
    Letter {
        id,
        task: "ttl-transition".into(),
        key: format!("doc:{id}"),
        errors: vec!["first".into(), "trap: all fuel consumed ttl::scan+0x4c".into()],
        payload: "{\"n\": 1}".into(),
        payload_bytes: 8,
        ..Letter::default()
    }
}

fn asked(dashboard: &Dashboard) -> (u64, Query) {
    let last = dashboard.effects.iter().rev().find_map(|effect| match effect {
        Effect::Ask { ticket, query } => Some((*ticket, query.clone())),
        _ => None,
    });
    last.expect("something was asked")
}

fn answer_dead(dashboard: &mut Dashboard, ids: std::ops::Range<u64>, more: bool) {
    let (ticket, _) = asked(dashboard);
    let letters = ids.rev().map(letter).collect();
    let answer = Answer::Dead(DeadPage { letters, more });
    dashboard.input(Input::Feed(Feed::Answer { ticket, answer }));
}

#[test]
fn letters_come_page_by_page_and_each_opens() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Queues).type_in("dj").input(key(Code::Enter));
    let error = Some("trap: all fuel consumed ttl::scan+0x4c".to_owned());
    let task = Some("ttl-transition".to_owned());
    let first = Query::Dead { task: task.clone(), error: error.clone(), before: None };
    assert_eq!(asked(&dashboard).1, first);
    answer_dead(&mut dashboard, 100..300, true);
    dashboard.type_in("G");
    assert_eq!(asked(&dashboard).1, Query::Dead { task, error, before: Some(100) });
    answer_dead(&mut dashboard, 50..100, false);
    dashboard.type_in("G");
    assert!(dashboard.picture(80, 24).contains("doc:50 "), "{}", dashboard.picture(80, 24));
    dashboard.input(key(Code::Enter));
    let picture = dashboard.picture(80, 24);
    for words in ["#2 of 2  trap", "#1 of 2  first", "{\"n\": 1}"] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    dashboard.type_in("r").input(key(Code::Enter));
    let (_, action, _) = act(&dashboard);
    let only = DeadSelector { ids: vec![50], ..DeadSelector::default() };
    assert_eq!(action, Action::Ask { command: Command::RetryDead(only) });
    dashboard.input(key(Code::Esc)).input(key(Code::Esc));
    assert!(dashboard.picture(80, 24).contains("Dead letters (3) by error"));
}

#[test]
fn the_filter_and_the_order_are_those_of_the_pane_with_the_keys() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Queues).type_in("djj").input(key(Code::Enter));
    answer_dead(&mut dashboard, 100..300, true);
    // A search fetches the remaining pages as well.
    dashboard.type_in("/doc:77").input(key(Code::Enter));
    feed(&mut dashboard, later(1));
    assert!(matches!(asked(&dashboard).1, Query::Dead { before: Some(100), .. }));
    answer_dead(&mut dashboard, 50..100, false);
    let picture = dashboard.picture(100, 30);
    assert!(picture.contains("filter: doc:77  1 of 250"), "{picture}");
    assert!(picture.contains("doc:77 ") && !picture.contains("doc:78 "), "{picture}");
    assert!(picture.contains("compact-docs"), "the queues stay as they are: {picture}");
    dashboard.input(key(Code::Esc)).type_in("s");
    let picture = dashboard.picture(100, 30);
    assert!(picture.contains("LETTER▲") && picture.contains(">      77"), "{picture}");
    // Back to the errors, which have their own filter.
    dashboard.input(key(Code::Esc)).type_in("/lease").input(key(Code::Enter));
    let picture = dashboard.picture(100, 30);
    assert!(picture.contains("filter: lease") && picture.contains("compact-docs"), "{picture}");
    assert!(!picture.contains("trap: all fuel"), "{picture}");
    dashboard.type_in("a");
    assert_eq!(asked(&dashboard).1, Query::Dead { task: None, error: None, before: None });
}

#[test]
fn letters_that_never_came_are_asked_for_again() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Queues).type_in("d").input(key(Code::Enter));
    let of_letters = |e: &&Effect| matches!(e, Effect::Ask { query: Query::Dead { .. }, .. });
    let asks = |d: &Dashboard| d.effects.iter().filter(of_letters).count();
    for (second, expected) in [(1, 1), (10, 1), (11, 2), (12, 2)] {
        feed(&mut dashboard, later(second));
        assert_eq!(asks(&dashboard), expected, "after {second} s");
    }
    // A frozen view requests nothing by itself, but accepts a pending answer.
    dashboard.type_in("f");
    answer_dead(&mut dashboard, 7..9, false);
    assert!(dashboard.picture(80, 24).contains("doc:8"), "{}", dashboard.picture(80, 24));
}

#[test]
fn discarding_a_group_fetches_it_offers_an_export_and_wants_the_count() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Queues).type_in("djx");
    assert!(matches!(dashboard.state.overlay, Overlay::None), "it is fetched first");
    answer_dead(&mut dashboard, 7..9, false);
    let Overlay::Confirm(confirm) = &dashboard.state.overlay else { panic!("it is asked") };
    assert_eq!(confirm.count.as_ref().map(|(count, _)| *count), Some(2));
    dashboard.type_in("done with").input(key(Code::Enter)).type_in("3").input(key(Code::Enter));
    let acts = |d: &Dashboard| d.effects.iter().filter(|e| matches!(e, Effect::Act { .. })).count();
    assert_eq!(acts(&dashboard), 0, "another count is none");
    // On to the button that exports, and back to the count.
    dashboard.input(key(Code::Tab)).input(key(Code::Enter));
    let exported = dashboard.effects.iter().find_map(|effect| match effect {
        Effect::Export { name, text } => Some((name.as_str(), text.contains("doc:8"))),
        _ => None,
    });
    assert_eq!(exported, Some(("dead-letters-ttl-transition.json", true)));
    dashboard.input(key(Code::BackTab)).input(key(Code::Backspace)).type_in("2");
    dashboard.input(key(Code::Enter));
    let (_, action, reason) = act(&dashboard);
    assert_eq!(reason, "done with");
    let Action::Ask { command: Command::DiscardDead(which) } = action else { panic!("{action:?}") };
    assert_eq!((which.ids.len(), which.expect), (0, Some(2)), "the host judges the count as well");
}

#[test]
fn an_open_question_about_a_group_follows_its_number() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Queues).type_in("djx");
    answer_dead(&mut dashboard, 7..9, false);
    dashboard.type_in("done with").input(key(Code::Enter)).type_in("2");
    let mut more = later(1);
    Arc::make_mut(&mut more.dead[1]).count = 3;
    feed(&mut dashboard, more);
    let picture = dashboard.picture(80, 24);
    for words in ["Discard 3 dead letters?", "--expect 3", "type the count, 3,"] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    dashboard.input(key(Code::Enter));
    let acts = |d: &Dashboard| d.effects.iter().filter(|e| matches!(e, Effect::Act { .. })).count();
    assert_eq!(acts(&dashboard), 0, "two were typed, and there are three");
    dashboard.input(key(Code::Backspace)).type_in("3").input(key(Code::Enter));
    let (_, action, _) = act(&dashboard);
    let Action::Ask { command: Command::DiscardDead(which) } = action else { panic!("{action:?}") };
    assert_eq!(which.expect, Some(3));
}

#[test]
fn the_past_of_a_task_is_that_of_the_books() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Tasks);
    assert!(dashboard.picture(80, 24).contains("╌ not read"), "nothing is made up");
    let (ticket, query) = asked(&dashboard);
    assert_eq!(query, Query::Past { task: "audit-trim".into(), back_s: 7_200 });
    // Slots of an earlier schedule, and one failed run.
    let slot = |n: i64| Time(NOW.0 / 60_000_000 * 60_000_000 - n * 60_000_000);
    let record = |n: i64, count, outcome| SlotRecord {
        task: "audit-trim".into(),
        from: slot(n),
        to: slot(n - count as i64 + 1),
        count,
        outcome,
        reason: "run 4 has been active since 2026-07-30T13:00:00.040307Z".into(),
        run: Some(RunId(n as u64)),
        term: Term(1),
    };
    let failed = LastRun { id: 61, slot: slot(61), state: RunState::Failed, ..LastRun::default() };
    let page = TaskPast {
        task: "audit-trim".into(),
        from: Time(NOW.0 - 7_200_000_000),
        slots: vec![record(59, 20, SlotOutcome::Skipped), record(61, 1, SlotOutcome::Ran)],
        more: false,
        runs: vec![failed],
    };
    dashboard.input(Input::Feed(Feed::Answer { ticket, answer: Answer::Past(page) }));
    dashboard.type_in("[");
    let picture = dashboard.picture(160, 48);
    for words in
        ["(20 slots) skipped: run 4 has been active since", "✕", "different schedule before"]
    {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    assert!(!picture.contains("040307"), "nobody reads microseconds: {picture}");
    dashboard.type_in("[");
    assert!(dashboard.picture(160, 48).contains("started a run"), "there is none before");
    dashboard.type_in("z");
    let query = asked(&dashboard).1;
    assert_eq!(query, Query::Past { task: "audit-trim".into(), back_s: 86_400 });
}

#[test]
fn a_filter_of_runs_asks_the_host_for_those_of_its_tasks() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Tasks).input(key(Code::Enter));
    let (ticket, query) = asked(&dashboard);
    assert_eq!(query, Query::Runs { tasks: vec!["audit-trim".into()], limit: 200 });
    assert!(dashboard.picture(80, 24).contains("reading"), "{}", dashboard.picture(80, 24));
    let old = small().runs.iter().find(|run| run.task == "audit-trim").cloned().expect("a run");
    let runs = (1..=200).rev().map(|id| Run { id, ..(*old).clone() }).collect();
    let answer = Answer::Runs(RunPage { runs, more: true });
    dashboard.input(Input::Feed(Feed::Answer { ticket, answer }));
    assert!(dashboard.picture(80, 24).contains("(208 shown)"), "{}", dashboard.picture(80, 24));
    // At the end of the list, older ones are requested.
    dashboard.type_in("G");
    let query = asked(&dashboard).1;
    assert_eq!(query, Query::Runs { tasks: vec!["audit-trim".into()], limit: 400 });
}

#[test]
fn escape_leads_back_to_where_one_came_from() {
    // The screen, the keys that jump, and the target.
    for (place, keys, there) in [
        (Place::Tasks, "jjjjjd", Place::Queues),
        (Place::Tasks, "e", Place::Edit),
        (Place::Runs, "t", Place::Tasks),
    ] {
        let mut dashboard = Dashboard::of(small());
        dashboard.go(place).type_in(keys);
        assert_eq!(dashboard.state.place, there, "{place:?} {keys}");
        dashboard.input(key(Code::Esc));
        assert_eq!(dashboard.state.place, place, "{place:?} {keys}");
    }
    // What was opened since is closed first, and the filter of the jump is cleared afterwards.
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Tasks).input(key(Code::Enter)).input(key(Code::Enter));
    assert!(dashboard.picture(80, 24).contains("Run 8700"), "{}", dashboard.picture(80, 24));
    dashboard.input(key(Code::Esc));
    assert_eq!(dashboard.state.place, Place::Runs);
    dashboard.input(key(Code::Esc));
    assert_eq!(dashboard.state.place, Place::Tasks);
    assert!(!dashboard.go(Place::Runs).picture(80, 24).contains("filter:"));
    // A screen that is selected by its number has no previous screen.
    dashboard.go(Place::Tasks).input(key(Code::Enter)).go(Place::Ring).input(key(Code::Esc));
    assert_eq!(dashboard.state.place, Place::Ring);
}

#[test]
fn a_lost_host_is_the_first_thing_that_deserves_attention() {
    let mut dashboard = Dashboard::of(small());
    let retry_at = Some(Time(NOW.0 + 7_000_000));
    let why = "/run/besom.sock: connection refused".to_owned();
    dashboard.input(Input::Feed(Feed::Lost { why, retry_at }));
    dashboard.input(Input::Tick(Time(NOW.0 + 3_000_000)));
    let picture = dashboard.picture(120, 30);
    for words in [
        "!! no host has answered for 3s; next attempt in 4s",
        "/run/besom.sock: connection refused",
    ] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    dashboard.input(Input::Feed(Feed::Connected));
    let mut other = later(4);
    other.host = "node-c".into();
    feed(&mut dashboard, other);
    let picture = dashboard.picture(120, 30);
    assert!(picture.contains("node-c answers now"), "{picture}");
    assert!(!picture.contains("no host "), "{picture}");
}

#[test]
fn a_reason_that_is_cut_off_stands_in_full_where_there_is_room() {
    let mut snap = small();
    let error = format!("{} the end of it", "a long reason, ".repeat(9));
    Arc::make_mut(&mut snap.dead[0]).error = error;
    let mut dashboard = Dashboard::of(snap);
    let picture = dashboard.picture(100, 40);
    assert!(picture.contains("the end of it"), "{picture}");
}

#[test]
fn one_goes_back_by_a_minute_and_to_the_event_before() {
    let mut dashboard = Dashboard::of(small());
    for second in 1..=200 {
        let mut snap = later(second);
        if second >= 40 {
            let happened = Event { at: Time(NOW.0 + 40_000_000), ..(*snap.events[0]).clone() };
            snap.events.insert(0, Arc::new(happened));
        }
        feed(&mut dashboard, snap);
    }
    let at = |dashboard: &Dashboard| (dashboard.state.data.snap().at.0 - NOW.0) / 1_000_000;
    dashboard.type_in("{");
    assert_eq!(at(&dashboard), 140);
    dashboard.type_in("{{");
    assert_eq!(at(&dashboard), 20);
    dashboard.type_in("{");
    let said = dashboard.state.message.as_ref().expect("why not").text.clone();
    assert!(said.contains("this dashboard started at"), "{said}");
    dashboard.type_in("}}");
    assert_eq!(at(&dashboard), 140);
    dashboard.type_in("(");
    assert_eq!(at(&dashboard), 40);
    dashboard.type_in("}}}");
    assert!(matches!(dashboard.state.data.shown, Shown::Live));
}

#[test]
fn help_says_what_columns_and_signs_mean() {
    for place in Place::ALL {
        let mut dashboard = Dashboard::of(small());
        dashboard.go(place);
        if place == Place::Edit {
            dashboard.input(key(Code::Esc));
        }
        dashboard.type_in("?");
        let picture = dashboard.picture(100, 60);
        assert!(picture.contains("Columns, symbols and terms"), "{place:?}: {picture}");
    }
}

#[test]
fn a_file_that_is_wrong_is_opened_at_its_line() {
    let mut snap = small();
    let report = besom_snapshot::Report {
        config_path: "/etc/besom.toml".into(),
        config_fault: Some("/etc/besom.toml:267:16: error: `27` is out of bounds".into()),
        ..Default::default()
    };
    Arc::make_mut(&mut snap.nodes[0]).report = Some(report);
    let mut dashboard = Dashboard::of(snap);
    dashboard.go(Place::Edit);
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("is out of bounds") && picture.contains("E opens line"), "{picture}");
    dashboard.type_in("E");
    let editor = Effect::Editor { path: "/etc/besom.toml".into(), line: 267 };
    assert!(dashboard.done().contains(&editor), "{:?}", dashboard.effects);
}

#[test]
fn a_slot_is_explained_by_the_host() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Tasks).input(key(Code::Left)).type_in("w");
    let (ticket, query) = asked(&dashboard);
    let Query::Explain { task, at } = query else { panic!("{query:?}") };
    let text = "it was skipped, because the run before was still active".to_owned();
    let found = Explained { task, at, text, ..Explained::default() };
    let answer = Answer::Explained(Box::new(found));
    dashboard.input(Input::Feed(Feed::Answer { ticket, answer }));
    assert!(dashboard.picture(120, 30).contains("because the run before"), "it is shown");
}

#[test]
fn an_answer_that_nobody_waits_for_changes_nothing() {
    let mut dashboard = Dashboard::of(small());
    let before = dashboard.picture(80, 24);
    let answer = Answer::Refused(Refusal { message: "late".into() });
    dashboard.input(Input::Feed(Feed::Answer { ticket: 99, answer }));
    assert_eq!(dashboard.picture(80, 24), before);
}

#[test]
fn the_palette_finds_and_does() {
    let mut dashboard = Dashboard::of(small());
    dashboard.type_in(":theme mono").input(key(Code::Enter));
    assert_eq!(dashboard.state.options.theme, ThemeChoice::Mono);
    dashboard.input(Input::Key(Key::ctrl('p'))).type_in("drain node-c").input(key(Code::Enter));
    assert!(matches!(dashboard.state.overlay, Overlay::Confirm(_)));
    dashboard.input(key(Code::Esc)).type_in(":nothing like that").input(key(Code::Enter));
    assert!(matches!(dashboard.state.overlay, Overlay::None));
    assert_eq!(dashboard.done(), []);
}

#[test]
fn sorting_and_filtering_keep_the_choice() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Overview).type_in("j").type_in("ssss");
    assert!(dashboard.picture(80, 24).contains(">node-b"));
    dashboard.type_in("/node-b").input(key(Code::Enter));
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains(">node-b") && !picture.contains("\n node-a"), "{picture}");
    dashboard.type_in("/").input(key(Code::Esc));
    assert!(dashboard.picture(80, 24).contains("\n node-a"));
}

#[test]
fn the_mouse_is_left_alone_until_it_is_asked_for() {
    let mut dashboard = Dashboard::of(small());
    dashboard.picture(80, 24);
    let click = |x, y| Input::Mouse { x, y, kind: MouseKind::Click };
    dashboard.input(click(14, 1));
    assert_eq!(dashboard.state.place, Place::Overview);
    dashboard.type_in("m").input(click(14, 1));
    assert_eq!(dashboard.done(), [Effect::Mouse(true)]);
    assert_eq!(dashboard.state.place, Place::Tasks);
    dashboard.picture(80, 24);
    dashboard.input(click(5, 6));
    assert!(dashboard.picture(80, 24).contains(">compact-docs"), "{}", dashboard.picture(80, 24));
    dashboard.input(Input::Mouse { x: 5, y: 6, kind: MouseKind::ScrollDown });
    assert!(!dashboard.picture(80, 24).contains(">compact-docs"));
}

#[test]
fn copying_names_what_is_chosen() {
    for (place, keys, expected) in [
        (Place::Overview, "jy", "node-b"),
        (Place::Tasks, "y", "audit-trim"),
        (Place::Queues, "y", "share-expiry"),
        (Place::Queues, "dy", "etcd: lease not found"),
    ] {
        let mut dashboard = Dashboard::of(small());
        dashboard.go(place).type_in(keys);
        assert_eq!(dashboard.done(), [Effect::Copy(expected.into())], "{place:?} {keys}");
    }
}

#[test]
fn a_node_that_is_gone_cannot_be_drained() {
    let mut dashboard = Dashboard::of(small());
    dashboard.type_in("jjjjd");
    assert!(matches!(dashboard.state.overlay, Overlay::None));
    assert_eq!(small().nodes[4].state, NodeState::Lost);
}

#[test]
fn what_came_of_an_action_is_told_to_its_last_word() {
    let words: Vec<String> = (0..24).map(|n| format!("word-{n}")).collect();
    let told = format!("dead discard --task compaction --error '{}': discarded", words.join(" "));
    let mut dashboard = Dashboard::of(small());
    dashboard.state.say(Tone::Good, told.clone());
    for (columns, rows) in [(100, 30), (80, 24), (160, 48)] {
        let picture = dashboard.picture(columns, rows);
        let shown: Vec<&str> = picture.split_whitespace().collect();
        let missing = told.split_whitespace().find(|word| !shown.contains(word));
        assert_eq!(missing, None, "{columns}x{rows}:\n{picture}");
    }
    // If there is no room for all lines, it says that there are more, and the status line stays.
    dashboard.state.say(Tone::Bad, told.repeat(9));
    for (columns, rows) in [(40, 10), (40, 3), (40, 2), (3, 3)] {
        let picture = dashboard.picture(columns, rows);
        assert!(picture.contains('…'), "{columns}x{rows}:\n{picture}");
        let status = picture.lines().next().expect("the status");
        assert!(!status.contains("word"), "{columns}x{rows}:\n{picture}");
    }
}

#[test]
fn escape_clears_the_filter_of_every_screen() {
    for place in Place::ALL {
        let mut dashboard = Dashboard::of(small());
        dashboard.go(place).type_in("/zzz").input(key(Code::Enter));
        let filter = |d: &Dashboard| d.state.screens.at(place).filter().to_owned();
        if place == Place::Ring {
            continue;
        }
        assert_eq!(filter(&dashboard), "zzz", "{place:?}");
        // Another message replaces it, whatever is typed.
        dashboard.type_in("/").input(key(Code::Enter));
        assert_eq!(filter(&dashboard), "zzz", "{place:?}");
        dashboard.type_in("/gap").input(key(Code::Enter));
        assert_eq!(filter(&dashboard), "gap", "{place:?}");
        dashboard.input(key(Code::Esc));
        assert_eq!(filter(&dashboard), "", "{place:?}");
    }
}

#[test]
fn a_group_that_is_tried_again_keeps_the_cursor_and_no_other_takes_its_keys() {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(Place::Queues).type_in("dj");
    feed(&mut dashboard, later(1));
    let mut gone = later(2);
    let group = gone.dead.remove(1);
    feed(&mut dashboard, gone);
    dashboard.effects.clear();
    dashboard.type_in("yr");
    assert_eq!(dashboard.done(), [], "another group is copied");
    assert!(matches!(dashboard.state.overlay, Overlay::None), "another group is asked about");
    let mut back = later(3);
    back.dead.remove(1);
    back.dead.insert(0, group);
    feed(&mut dashboard, back);
    dashboard.type_in("y");
    let error = "trap: all fuel consumed ttl::scan+0x4c".to_owned();
    assert_eq!(dashboard.done(), [Effect::Copy(error)]);
}

#[test]
fn a_run_is_reached_by_its_number_and_q_quits() {
    let mut dashboard = Dashboard::of(small());
    dashboard.type_in(":run 3126").input(key(Code::Enter));
    assert_eq!(dashboard.state.place, Place::Runs);
    let run = Query::Run { run: 3_126 };
    let asks = |e: &Effect| matches!(e, Effect::Ask { query, .. } if *query == run);
    assert!(dashboard.effects.iter().any(asks), "{:?}", dashboard.effects);
    let mut dashboard = Dashboard::of(small());
    dashboard.type_in(":q").input(key(Code::Enter));
    assert_eq!(dashboard.done(), [Effect::Quit]);
}

#[test]
fn a_run_whose_scan_has_ended_is_not_offered_to_be_cancelled() {
    for (snapshot, offered) in [(small(), false), (scanning(), true)] {
        let mut dashboard = Dashboard::of(snapshot);
        dashboard.go(Place::Runs);
        assert_eq!(dashboard.picture(80, 24).contains("K cancel"), offered);
        dashboard.type_in("K");
        assert_eq!(matches!(dashboard.state.overlay, Overlay::Confirm(_)), offered);
        let mut dashboard = Dashboard::of(if offered { scanning() } else { small() });
        dashboard.go(Place::Tasks).type_in("jjjjjc");
        assert_eq!(matches!(dashboard.state.overlay, Overlay::Confirm(_)), offered);
    }
}
