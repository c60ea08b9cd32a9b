//! Besom in the terminal: pure models, their updates, and their views.
//!
//! [`dash`] is the dashboard. The rest is the progress of a bounded piece of work, as `besom demo`
//! shows it: the model ([`Progress`]) does not depend on a terminal; [`Screen`] draws it in place
//! on a terminal, and reports it line by line otherwise.
//!
//! ```text
//! Event ──> Progress::update ──> Screen::draw ──┬─> view   (a terminal: a few lines, in place)
//!                                               └─> plain  (a pipe, a log: lines now and then)
//! ```
//!
//! The caller owns the clock and queries the store; the screen only displays:
//!
//! ```
//! use besom_core::time::Mono;
//! use besom_tui::{Counts, Event, Phase, Progress, Screen};
//!
//! # fn main() -> std::io::Result<()> {
//! let mut progress = Progress::new(["compaction", "share-expiry"]);
//! let mut screen = Screen::start(&progress);
//!
//! // Every tenth of a second or so, from `Store::depths` and the tasks' counters:
//! progress.update(Event::Tick(Mono(1_000_000)));
//! let counts = Counts { planned: 400, done: 120, dead: 1 };
//! progress.update(Event::Counted { task: "compaction".into(), counts });
//! screen.draw(&progress)?;
//!
//! // A permanent line above the drawing; log lines are printed in the same way.
//! screen.say("share-expiry: reloaded")?;
//!
//! let phase = Phase::Finished;
//! progress.update(Event::Entered { task: "compaction".into(), phase });
//! screen.draw(&progress)?;
//! drop(screen); // The last drawing stays, and the cursor is on the line below it.
//! # Ok(())
//! # }
//! ```
//!
//! Results are not shown here: the caller writes them to standard output after the screen was
//! dropped.

pub mod console;
pub mod dash;
mod plain;
pub mod progress;
mod screen;
mod view;

pub use progress::{Counts, Event, Phase, Progress};
pub use screen::Screen;
