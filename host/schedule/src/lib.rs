//! Besom's time: instants, days, cron schedules and windows.
//!
//! Everything in this crate is pure: a clock reading is passed in.

pub mod cron;
pub mod time;
pub mod window;
