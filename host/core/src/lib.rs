//! Besom's decisions.
//!
//! Everything in this crate is pure: it does no I/O and has no clock and no randomness of its own.
//! A state machine takes `now` and an event and pushes commands; the owner of the clock, the store
//! and the guests executes them. The simulator replaces only that shell.
//!
//! A state machine has one shape, by convention and not by trait: `step(&mut self, now, event, out:
//! &mut Vec<Command>)` and `deadline() -> Option<Time>`.

pub mod activity;
pub mod backoff;
pub mod books;
pub mod brake;
pub mod budget;
pub mod burial;
pub mod clock;
pub mod collection;
pub mod command;
pub mod delivery;
pub mod election;
pub mod fair;
pub mod ids;
pub mod item;
pub mod lane;
pub mod lease;
pub mod membership;
pub mod mode;
pub mod ownership;
pub mod pace;
pub mod plan;
pub mod proposal;
pub mod purge;
pub mod queue;
pub mod reach;
pub mod refusal;
pub mod review;
pub mod ring;
pub mod undo;
pub mod value;
pub mod weight;

pub use besom_schedule::{cron, time, window};
