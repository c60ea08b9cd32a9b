//! Shows the progress: in place on a terminal, or as lines.
//!
//! Decides between the two and owns the terminal while drawing. It changes no terminal mode, and
//! the cursor stays visible and is below the drawing afterwards: however the program ends, even
//! killed, there is nothing to restore.

use std::cell::Cell;
use std::io::{self, IsTerminal, Stderr, Write};

use crossterm::execute;
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Position;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

use crate::dash::table::Order;
use crate::dash::widgets::table::Table;
use crate::dash::widgets::{put_right, rows};
use crate::dash::{State, Theme, ThemeChoice, text};
use crate::progress::{COLUMNS, Progress};

/// Shows the progress on standard error.
pub struct Screen {
    /// The terminal on which it is drawn in place; none: it is reported as lines.
    terminal: Option<Box<Terminal<CrosstermBackend<Stderr>>>>,
    theme: Theme,
}

impl Screen {
    /// A screen with room for these tasks.
    ///
    /// It draws in place if standard error is a terminal that supports it. Standard output has to
    /// be a terminal as well, because the query for the cursor's position goes to standard output,
    /// and must not end up among results in a pipe.
    pub fn start(progress: &Progress, theme: ThemeChoice) -> Screen {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminals = io::stderr().is_terminal() && io::stdout().is_terminal();
        let terminal = if terminals && !dumb { inline(progress).ok() } else { None };
        Screen { terminal: terminal.map(Box::new), theme: Theme::of(theme) }
    }

    /// Whether the progress is drawn in place.
    pub fn is_inline(&self) -> bool {
        self.terminal.is_some()
    }

    /// Shows the progress. In place, only changes are written; calling it ten times per second is
    /// sufficient.
    ///
    /// # Errors
    /// Returns an error if standard error cannot be written to.
    pub fn draw(&mut self, progress: &mut Progress) -> io::Result<()> {
        match &mut self.terminal {
            Some(terminal) => {
                // In one write, so that a partial drawing is never visible.
                execute!(io::stderr(), BeginSynchronizedUpdate)?;
                let drawn = terminal.draw(|frame| view(progress, &self.theme, frame)).map(|_| ());
                execute!(io::stderr(), EndSynchronizedUpdate)?;
                drawn
            }
            None => {
                let mut stderr = io::stderr().lock();
                progress.lines().iter().try_for_each(|line| writeln!(stderr, "{line}"))
            }
        }
    }

    /// Prints a permanent line above the drawing.
    ///
    /// # Errors
    /// Returns an error if standard error cannot be written to.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        match &mut self.terminal {
            Some(terminal) => terminal.insert_before(1, |buffer| {
                Paragraph::new(Line::raw(line)).render(buffer.area, buffer);
            }),
            None => writeln!(io::stderr(), "{line}"),
        }
    }
}

/// The number of lines of the drawing: the heading, one line per task, and an empty one for the
/// cursor, so that the terminal is usable however the program ends.
fn height(progress: &Progress) -> u16 {
    u16::try_from(progress.tasks().len()).unwrap_or(u16::MAX).saturating_add(2)
}

fn inline(progress: &Progress) -> io::Result<Terminal<CrosstermBackend<Stderr>>> {
    if matches!(crossterm::terminal::size()?, (0, _) | (_, 0)) {
        return Err(io::Error::other("a terminal without a size"));
    }
    let viewport = Viewport::Inline(height(progress));
    Terminal::with_options(CrosstermBackend::new(io::stderr()), TerminalOptions { viewport })
}

/// Draws the progress as a table, with the elapsed time at the right of its heading.
fn view(progress: &Progress, theme: &Theme, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let table = Table {
        columns: COLUMNS,
        rows: progress.tasks(),
        selected: None,
        focused: false,
        order: Order::default(),
        empty: "No tasks are configured.",
        seen: &Cell::default(),
    };
    let body = rows(area, 0, area.height - 1);
    let elapsed = text::span(progress.elapsed());
    table.draw(&State::default().context(), theme, body, frame.buffer_mut());
    put_right(frame.buffer_mut(), body, area.width, 0, &elapsed, theme.dim);
    frame.set_cursor_position(Position::new(area.x, area.bottom() - 1));
}

impl Drop for Screen {
    /// The last drawing stays; the cursor is already on the empty line below it.
    fn drop(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            // An error cannot be reported when standard error cannot be written to.
            let _ = execute!(io::stderr(), EndSynchronizedUpdate);
            let _ = terminal.show_cursor();
        }
    }
}

#[cfg(test)]
mod tests {
    use besom_core::time::Mono;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::progress::{Counts, Phase};

    fn progress() -> Progress {
        let tasks = ["compaction", "share-expiry", "ttl-transitions", "client-deactivation"];
        let mut progress = Progress::new(tasks);
        progress.tick(Mono(0));
        progress.count("compaction", Counts { planned: 1_200, done: 0, dead: 2 });
        progress.tick(Mono(2_000_000));
        progress.count("compaction", Counts { planned: 1_200, done: 598, dead: 2 });
        progress.count("share-expiry", Counts { planned: 40, done: 40, dead: 0 });
        progress.enter("share-expiry", Phase::Finished);
        progress.enter("client-deactivation", Phase::Failed("the store is full".into()));
        progress
    }

    /// The picture in a terminal of that size, without what is empty at the ends of lines.
    fn drawn(progress: &Progress, width: u16, height: u16) -> (Vec<String>, Terminal<TestBackend>) {
        let options = TerminalOptions { viewport: Viewport::Inline(super::height(progress)) };
        let backend = TestBackend::new(width, height);
        let mut terminal = Terminal::with_options(backend, options).unwrap();
        let theme = Theme::of(ThemeChoice::Mono);
        terminal.draw(|frame| view(progress, &theme, frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let rows = (0..height).map(|y| row(y).trim_end().to_owned()).collect();
        (rows, terminal)
    }

    #[test]
    fn columns_are_dropped_by_priority_where_there_is_no_room() {
        let cases = [
            (
                80,
                "\
\x20TASK                  STATE   PROGRESS              DONE    RATE             2s
 compaction            working █████·····       598/1,200   299/s 2 set aside
 share-expiry          done    ██████████           40/40
 ttl-transitions       waiting ··········             0/0
 client-deactivation   failed  ··········             0/0         the store is …",
            ),
            (
                60,
                "\
\x20TASK                 STATE              DONE             2s
 compaction           working       598/1,200 2 set aside
 share-expiry         done              40/40
 ttl-transitions      waiting             0/0
 client-deactivation  failed              0/0 the store is …",
            ),
            (
                32,
                "\
\x20TASK                    STATE2s
 compaction              working
 share-expiry            done
 ttl-transitions         waiting
 client-deactivation     failed",
            ),
        ];
        for (width, expected) in cases {
            let (rows, _) = drawn(&progress(), width, 7);
            assert_eq!(rows.join("\n").trim_end(), expected, "{width} columns");
        }
    }

    #[test]
    fn the_last_line_is_the_cursors_and_no_size_is_too_small() {
        for width in [1, 2, 7, 20, 33, 60, 79, 80, 120, 300] {
            for height in [1, 2, 4, 6, 24] {
                let (_, mut terminal) = drawn(&progress(), width, height);
                let cursor = terminal.get_cursor_position().unwrap();
                assert_eq!(cursor.x, 0, "{width}x{height}");
                assert_eq!(cursor.y, height.min(6) - 1, "{width}x{height}");
            }
        }
    }
}
