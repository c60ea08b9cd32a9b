//! Where the progress is shown: in place on a terminal, or as lines.
//!
//! Decides between the two and owns the terminal while it draws. No mode of the terminal is
//! changed, the cursor stays visible and stands below the picture after each drawing: a program
//! that ends in any way, killed even, leaves nothing to be restored.

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
    /// A screen of the size that these tasks need.
    ///
    /// In place if standard error is a terminal that can do it. Standard output has to be one as
    /// well, for the terminal is asked where its cursor is over standard output: a question that
    /// must not end up in a pipe among results.
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

    /// Whether the picture is drawn in place.
    pub fn is_inline(&self) -> bool {
        matches!(self.output, Output::Inline(..))
    }

    /// Shows how far the work has come. In place only what has changed is written; ten times a
    /// second is often enough.
    ///
    /// # Errors
    /// If standard error cannot be written.
    pub fn draw(&mut self, progress: &Progress) -> io::Result<()> {
        match &mut self.output {
            Output::Inline(terminal, palette) => {
                let palette = *palette;
                // At once or not at all: half a picture never shows.
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

    /// Says a line that stays, above the picture.
    ///
    /// # Errors
    /// If standard error cannot be written.
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
    /// The last picture stays; the cursor is on the empty line below it already.
    fn drop(&mut self) {
        if let Output::Inline(terminal, _) = &mut self.output {
            // Where it cannot be written there is nobody to show it to.
            let _ = execute!(io::stderr(), EndSynchronizedUpdate);
            let _ = terminal.show_cursor();
        }
    }
}
