//! The cost of a frame with a thousand nodes, five hundred tasks and a hundred thousand waiting
//! items: when everything has changed, and when nothing has.

use std::hint::black_box;
use std::sync::Arc;

use besom_core::time::Time;
use besom_samples::{NOW, large, stirred};
use besom_tui::dash::{Code, Feed, Input, Key, Options, Place, State, view};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// The terminal.
const AREA: Rect = Rect { x: 0, y: 0, width: 160, height: 48 };

fn dashboard(place: Place) -> State {
    let mut state = State::new(Options::default());
    state.update(Input::Resize(AREA.width, AREA.height));
    state.update(Input::Tick(NOW));
    state.update(Input::Feed(Feed::Connected));
    state.update(Input::Feed(Feed::Snapshot(Arc::new(large()))));
    let number = char::from_digit(place.number() as u32, 10).expect("a digit");
    state.update(Input::Key(Key::plain(Code::Char(number))));
    state
}

/// A new picture in which everything differs: taken in, drawn, and compared with what the
/// terminal shows.
fn everything(c: &mut Criterion) {
    let first = large();
    let pictures: Vec<_> = (1..9).map(|round| Arc::new(stirred(&first, round))).collect();
    let mut group = c.benchmark_group("everything changes");
    for place in Place::ALL {
        let mut state = dashboard(place);
        let mut shown = Buffer::empty(AREA);
        let mut round = 0_usize;
        group.bench_function(place.name(), |b| {
            b.iter_batched(
                || {
                    round += 1;
                    Arc::clone(&pictures[round % pictures.len()])
                },
                |picture| {
                    state.update(Input::Feed(Feed::Snapshot(picture)));
                    let mut buffer = Buffer::empty(AREA);
                    view(&state, AREA, &mut buffer);
                    black_box(shown.diff(&buffer).len());
                    shown = buffer;
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// Another second, and nothing else.
fn nothing(c: &mut Criterion) {
    let mut group = c.benchmark_group("a second passes");
    for place in Place::ALL {
        let mut state = dashboard(place);
        let mut second = 0_i64;
        group.bench_function(place.name(), |b| {
            b.iter(|| {
                second += 1;
                state.update(Input::Tick(Time(NOW.0 + second * 1_000_000)));
                let mut buffer = Buffer::empty(AREA);
                view(&state, AREA, &mut buffer);
                black_box(&buffer);
            });
        });
    }
    group.finish();
    let mut state = dashboard(Place::Overview);
    state.drawn();
    c.bench_function("a tick within a second", |b| {
        b.iter(|| {
            state.update(Input::Tick(NOW));
            assert!(!state.dirty(), "nothing is to be drawn");
        });
    });
}

criterion_group!(benches, everything, nothing);
criterion_main!(benches);
