//! Besom in the terminal: pure models, their updates, and their views.
//!
//! [`dash`] is the dashboard. [`Progress`] is the progress of a bounded piece of work, as
//! `besom run` shows it: the model does not depend on a terminal; [`Screen`] draws it in place on a
//! terminal, with a table of the dashboard, and reports it line by line otherwise.
//!
//! The caller owns the clock and queries the store; the screen only displays:
//!
//! ```
//! use besom_core::time::Mono;
//! use besom_tui::dash::ThemeChoice;
//! use besom_tui::{Counts, Phase, Progress, Screen};
//!
//! # fn main() -> std::io::Result<()> {
//! let mut progress = Progress::new(["compaction", "share-expiry"]);
//! let mut screen = Screen::start(&progress, ThemeChoice::Auto);
//!
//! // Every tenth of a second or so, from `Store::depths` and the tasks' counters:
//! progress.tick(Mono(1_000_000));
//! progress.count("compaction", Counts { planned: 400, done: 120, dead: 1 });
//! screen.draw(&mut progress)?;
//!
//! // A permanent line above the drawing; log lines are printed in the same way.
//! screen.say("share-expiry: reloaded")?;
//!
//! let failed = || Phase::Failed("the scan failed".to_owned());
//! progress.finish(|task| (task == "share-expiry").then(failed));
//! screen.draw(&mut progress)?;
//! drop(screen); // The last drawing stays, and the cursor is on the line below it.
//! # Ok(())
//! # }
//! ```
//!
//! Results are not shown here: the caller writes them to standard output after the screen was
//! dropped.

pub mod console;
pub mod dash;
pub mod progress;
mod screen;

pub use progress::{Counts, Phase, Progress};
pub use screen::Screen;
