//! Shows the progress: in place on a terminal, or as lines.
//!
//! Decides between the two and owns the terminal while drawing. It changes no terminal mode, and
//! the cursor stays visible and is below the drawing afterwards: however the program ends, even
//! killed, there is nothing to restore.

use std::io::{self, IsTerminal, Stderr, Write};

use crossterm::execute;
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use ratatui::backend::CrosstermBackend;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget};
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::plain::Plain;
use crate::progress::Progress;
use crate::view::{Palette, height, view};

/// Shows the progress on standard error.
pub struct Screen {
    output: Output,
}

enum Output {
    Inline(Box<Terminal<CrosstermBackend<Stderr>>>, Palette),
    Plain(Plain),
}

impl Screen {
    /// A screen with room for these tasks.
    ///
    /// It draws in place if standard error is a terminal that supports it. Standard output has to
    /// be a terminal as well, because the query for the cursor's position goes to standard output,
    /// and must not end up among results in a pipe.
    pub fn start(progress: &Progress) -> Screen {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminals = io::stderr().is_terminal() && io::stdout().is_terminal();
        let inline = if terminals && !dumb { inline(progress).ok() } else { None };
        let palette = Palette::of(std::env::var_os("NO_COLOR").as_deref());
        let output = match inline {
            Some(terminal) => Output::Inline(Box::new(terminal), palette),
            None => Output::Plain(Plain::default()),
        };
        Screen { output }
    }

    /// Whether the progress is drawn in place.
    pub fn is_inline(&self) -> bool {
        matches!(self.output, Output::Inline(..))
    }

    /// Shows the progress. In place, only changes are written; calling it ten times per second is
    /// sufficient.
    ///
    /// # Errors
    /// Returns an error if standard error cannot be written to.
    pub fn draw(&mut self, progress: &Progress) -> io::Result<()> {
        match &mut self.output {
            Output::Inline(terminal, palette) => {
                let palette = *palette;
                // In one write, so that a partial drawing is never visible.
                execute!(io::stderr(), BeginSynchronizedUpdate)?;
                let drawn = terminal.draw(|frame| view(progress, palette, frame)).map(|_| ());
                execute!(io::stderr(), EndSynchronizedUpdate)?;
                drawn
            }
            Output::Plain(plain) => {
                let mut stderr = io::stderr().lock();
                plain.lines(progress).iter().try_for_each(|line| writeln!(stderr, "{line}"))
            }
        }
    }

    /// Prints a permanent line above the drawing.
    ///
    /// # Errors
    /// Returns an error if standard error cannot be written to.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        match &mut self.output {
            Output::Inline(terminal, _) => terminal.insert_before(1, |buffer| {
                Paragraph::new(Line::raw(line)).render(buffer.area, buffer);
            }),
            Output::Plain(_) => writeln!(io::stderr(), "{line}"),
        }
    }
}

fn inline(progress: &Progress) -> io::Result<Terminal<CrosstermBackend<Stderr>>> {
    if matches!(crossterm::terminal::size()?, (0, _) | (_, 0)) {
        return Err(io::Error::other("a terminal without a size"));
    }
    let viewport = Viewport::Inline(height(progress));
    Terminal::with_options(CrosstermBackend::new(io::stderr()), TerminalOptions { viewport })
}

impl Drop for Screen {
    /// The last drawing stays; the cursor is already on the empty line below it.
    fn drop(&mut self) {
        if let Output::Inline(terminal, _) = &mut self.output {
            // An error cannot be reported when standard error cannot be written to.
            let _ = execute!(io::stderr(), EndSynchronizedUpdate);
            let _ = terminal.show_cursor();
        }
    }
}
