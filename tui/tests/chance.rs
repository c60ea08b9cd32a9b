//! Random inputs in any order and at any size: nothing panics, no action is sent without
//! confirmation, and no control character is drawn.

mod common;

use std::sync::Arc;

use besom_core::time::Time;
use besom_samples::{NOW, small};
use besom_snapshot::{Answer, DeadPage, Done, Letter, NodeState, Refusal, Snapshot};
use besom_tui::dash::{Code, Effect, Feed, Input, Key, MouseKind};
use common::Dashboard;
use proptest::prelude::*;

fn code() -> impl Strategy<Value = Code> {
    prop_oneof![
        6 => proptest::char::range(' ', '~').prop_map(Code::Char),
        1 => any::<char>().prop_map(Code::Char),
        4 => prop::sample::select(vec![
            Code::Enter, Code::Esc, Code::Tab, Code::BackTab, Code::Backspace, Code::Delete,
            Code::Up, Code::Down, Code::Left, Code::Right, Code::Home, Code::End, Code::PageUp,
            Code::PageDown, Code::F(5), Code::Other,
        ]),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    (code(), prop::bool::weighted(0.05), prop::bool::weighted(0.05))
        .prop_map(|(code, ctrl, alt)| Key { code, ctrl, alt, shift: false })
        .prop_filter("quitting ends the story", |key| *key != Key::ctrl('c'))
}

/// A deployment with rows missing, or with nothing at all.
fn snapshot(seed: u16, seconds: i64) -> Snapshot {
    let mut snap = small();
    snap.at = Time(NOW.0 + seconds * 1_000_000);
    match seed % 5 {
        0 => snap = Snapshot { at: snap.at, ..Snapshot::default() },
        1 => snap.nodes.truncate(usize::from(seed / 5 % 5)),
        2 => snap.tasks.truncate(usize::from(seed / 5 % 7)),
        3 => {
            snap.dead.clear();
            Arc::make_mut(&mut snap.leadership).leader = None;
            snap.runs.truncate(3);
        }
        _ => {
            for node in &mut snap.nodes {
                let node = Arc::make_mut(node);
                node.name = format!("\x1b[31m{}\u{202e}", node.name);
                node.state = NodeState::Active;
                node.queued = u64::MAX / 8;
            }
        }
    }
    snap
}

fn answer() -> impl Strategy<Value = Answer> {
    let letter = |id| Letter { id, errors: vec!["\x07".into()], ..Letter::default() };
    prop_oneof![
        (0..400_u64, any::<bool>()).prop_map(move |(n, more)| Answer::Dead(DeadPage {
            letters: (0..n).rev().map(letter).collect(),
            more,
        })),
        Just(Answer::Refused(Refusal { message: "\x1bno".into() })),
        Just(Answer::Done(Done { command: None, applied: true, result: None })),
        Just(Answer::Explained(Box::default())),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    let feed = prop_oneof![
        Just(Feed::Connected),
        (any::<u16>(), -100..2_000_i64)
            .prop_map(|(seed, s)| Feed::Snapshot(Arc::new(snapshot(seed, s)))),
        Just(Feed::Lost { why: "\x1b[0m".into(), retry_at: None }),
        (0..60_u64, answer()).prop_map(|(ticket, answer)| Feed::Answer { ticket, answer }),
    ];
    let kind =
        prop::sample::select(vec![MouseKind::Click, MouseKind::ScrollUp, MouseKind::ScrollDown]);
    prop_oneof![
        12 => key().prop_map(Input::Key),
        1 => ".{0,40}".prop_map(Input::Paste),
        1 => (0..200_u16, 0..60_u16).prop_map(|(x, y)| Input::Resize(x, y)),
        1 => (0..200_u16, 0..60_u16, kind).prop_map(|(x, y, kind)| Input::Mouse { x, y, kind }),
        1 => (-5_000..5_000_000_i64).prop_map(|ms| Input::Tick(Time(NOW.0 + ms * 1_000))),
        3 => feed.prop_map(Input::Feed),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_comes_in_is_too_much(inputs in prop::collection::vec(input(), 0..60)) {
        let mut dashboard = Dashboard::of(small());
        for (n, input) in inputs.into_iter().enumerate() {
            let resized = matches!(input, Input::Resize(..));
            let pasted = matches!(input, Input::Paste(_));
            let before = dashboard.effects.len();
            dashboard.input(input);
            let acts = |e: &Effect| matches!(e, Effect::Act { .. } | Effect::Quit);
            prop_assert!(!pasted || !dashboard.effects[before..].iter().any(acts));
            if resized || n % 8 == 0 {
                let (columns, rows) = dashboard.state.size;
                let picture = dashboard.picture(columns, rows);
                prop_assert!(!picture.chars().any(|c| c != '\n' && c.is_control()));
            }
            prop_assert!(dashboard.state.next_tick() > dashboard.state.data.local());
        }
    }
}
