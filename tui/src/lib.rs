//! Besom in the terminal: a pure model, its update, and views of it.
//!
//! So far there is the progress of a bounded piece of work, as `besom demo` shows it. The model
//! ([`Progress`]) knows no terminal; [`Screen`] draws it in place where there is one, and says
//! it line by line where there is none.
//!
//! ```text
//! Event ──> Progress::update ──> Screen::draw ──┬─> view   (a terminal: a few lines, in place)
//!                                               └─> plain  (a pipe, a log: lines now and then)
//! ```
//!
//! Whoever runs the work owns the clock and asks the store; the screen only shows:
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
//! // A line that is to stay, above what is drawn in place; logs go the same way.
//! screen.say("share-expiry: reloaded")?;
//!
//! let phase = Phase::Finished;
//! progress.update(Event::Entered { task: "compaction".into(), phase });
//! screen.draw(&progress)?;
//! drop(screen); // The last picture stays, and the cursor is on the line below it.
//! # Ok(())
//! # }
//! ```
//!
//! Results never come this way: they are written to standard output by whoever has them,
//! after the screen was dropped.

pub mod console;
pub mod dash;
mod plain;
pub mod progress;
mod screen;
mod view;

pub use progress::{Counts, Event, Phase, Progress};
pub use screen::Screen;
