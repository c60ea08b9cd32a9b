//! The dashboard: six screens that show a deployment's snapshots.
//!
//! A model without a terminal: inputs change the [`State`], which returns [`Effect`]s, and
//! [`view()`] draws it. The shell around it owns the terminal, the connection and the clock. It
//! sends a tick before each input, and draws when the state is dirty, at [`State::next_tick`] at
//! the latest.
//!
//! ```text
//! keys, snapshots, clock ── Input ──> State::update ──┬─> Effect ──> shell: ask, act, copy, quit
//!                                                     └─> dirty ──> view ──> terminal
//! ```
//!
//! - `data`, `history`, `trends`, `context`: the data, and the part of it that a screen sees;
//! - `screens`: one directory each, with the model in `mod.rs` and the drawing in `view.rs`;
//! - `bindings`, `everywhere`: the keys, from which the line of keys, the help and the palette are made;
//! - `confirm`, `actions`, `palette`: the actions, and their confirmation;
//! - `table`, `field`, `text`: models of what is drawn, without a terminal;
//! - `theme`, `widgets`, `view`: the drawing.

pub mod actions;
pub mod bindings;
pub mod confirm;
pub mod context;
pub mod data;
pub mod effect;
pub mod everywhere;
pub mod field;
pub mod frame;
pub mod help;
pub mod history;
pub mod key;
pub mod palette;
pub mod plain;
pub mod screens;
pub mod state;
pub mod table;
pub mod tabs;
pub mod text;
pub mod theme;
pub mod trends;
mod update;
pub mod view;
pub mod widgets;

pub use context::Context;
pub use effect::{Effect, Outbox, Tone};
pub use key::{Code, Feed, Input, Key, MouseKind};
pub use screens::{Place, Screen};
pub use state::{Options, State, ThemeChoice};
pub use theme::Theme;
pub use view::view;
