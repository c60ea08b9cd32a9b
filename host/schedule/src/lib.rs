//! Besom's time: instants, days and cron schedules.
//!
//! Everything in this crate is pure: a clock reading is passed in.

pub mod cron;
pub mod time;
