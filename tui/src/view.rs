//! Draws the progress in a few lines: a pure function of the model, the palette and the size.
//! Columns are dropped by priority if there is no room, and colour is never the only sign.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::progress::{Phase, Progress, Task, grouped, per_second, span};

/// The maximum width of a bar, in columns.
const BAR_MAX: usize = 24;
/// A bar that would be narrower is left out.
const BAR_MIN: usize = 8;
/// A reason that would be cut to less is left out.
const ASIDE_MIN: usize = 8;
/// Blank columns between two columns.
const GAP: usize = 2;

/// How styles are expressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Palette {
    /// The terminal's own sixteen colours, which suit light and dark themes.
    Colour,
    /// Weight only, as NO_COLOR requests.
    Plain,
}

impl Palette {
    /// The palette for a value of NO_COLOR: any non-empty value disables colours.
    pub(crate) fn of(no_color: Option<&std::ffi::OsStr>) -> Palette {
        match no_color {
            Some(value) if !value.is_empty() => Palette::Plain,
            _ => Palette::Colour,
        }
    }

    fn of_phase(self, phase: &Phase) -> Style {
        let (colour, modifier) = match phase {
            Phase::Waiting => (None, Modifier::DIM),
            Phase::Working => (Some(Color::Cyan), Modifier::empty()),
            Phase::Finished => (Some(Color::Green), Modifier::empty()),
            Phase::Failed(_) => (Some(Color::Red), Modifier::BOLD),
        };
        let style = Style::new().add_modifier(modifier);
        match (self, colour) {
            (Palette::Colour, Some(colour)) => style.fg(colour),
            _ => style,
        }
    }
}

/// The number of lines of the drawing: the heading, one line per task, and an empty one for the
/// cursor, so that the terminal is usable however the program ends.
pub(crate) fn height(progress: &Progress) -> u16 {
    u16::try_from(progress.tasks().len()).unwrap_or(u16::MAX).saturating_add(2)
}

/// Draws the progress.
pub(crate) fn view(progress: &Progress, palette: Palette, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let mut lines = vec![heading(progress)];
    let columns = Columns::fit(progress, usize::from(area.width));
    lines.extend(progress.tasks().iter().map(|task| columns.line(task, palette)));
    let body = Rect { height: area.height.saturating_sub(1), ..area };
    frame.render_widget(Paragraph::new(lines), body);
    // An explicit position keeps the cursor visible, so that a killed program does not have to
    // restore it.
    frame.set_cursor_position(Position { x: area.x, y: area.bottom() - 1 });
}

fn heading(progress: &Progress) -> Line<'_> {
    let elapsed = span(progress.elapsed());
    let text = match progress.stage() {
        "" => elapsed,
        stage => format!("{stage}  {elapsed}"),
    };
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

/// A column beside the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Phase,
    Bar,
    Count,
    Rate,
    Aside,
}

impl Column {
    /// The order in which columns get room.
    const BY_PRIORITY: [Column; 5] =
        [Column::Phase, Column::Count, Column::Aside, Column::Bar, Column::Rate];

    fn text(self, task: &Task) -> String {
        let counts = task.counts();
        match self {
            Column::Phase => task.phase().word().to_owned(),
            Column::Count => format!("{}/{}", grouped(counts.done), grouped(counts.planned)),
            Column::Rate => task.rate().map(per_second).unwrap_or_default(),
            Column::Aside => match (counts.dead, task.phase()) {
                (_, Phase::Failed(reason)) => reason.clone(),
                (0, _) => String::new(),
                (dead, _) => format!("{} set aside", grouped(dead)),
            },
            Column::Bar => String::new(),
        }
    }
}

/// The columns that fit, with their widths, from left to right.
#[derive(Debug, PartialEq, Eq)]
struct Columns {
    name: usize,
    rest: Vec<(Column, usize)>,
}

impl Columns {
    fn fit(progress: &Progress, width: usize) -> Columns {
        let widest = |text: &dyn Fn(&Task) -> usize| progress.tasks().iter().map(text).max();
        let name = widest(&|task| Span::raw(task.name()).width()).unwrap_or(0).min(width);
        let mut left = width - name;
        let mut rest = Vec::new();
        for column in Column::BY_PRIORITY {
            let wanted = match column {
                Column::Bar => BAR_MAX.min(left.saturating_sub(GAP)),
                // The rest of the line; a long reason is cut.
                Column::Aside => widest(&|task| Span::raw(column.text(task)).width())
                    .unwrap_or(0)
                    .min(left.saturating_sub(GAP)),
                _ => widest(&|task| Span::raw(column.text(task)).width()).unwrap_or(0),
            };
            let least = match column {
                Column::Bar => BAR_MIN,
                Column::Aside => ASIDE_MIN,
                Column::Phase | Column::Count | Column::Rate => 1,
            };
            if wanted < least || wanted + GAP > left {
                continue;
            }
            left -= wanted + GAP;
            rest.push((column, wanted));
        }
        rest.sort_unstable_by_key(|(column, _)| *column);
        Columns { name, rest }
    }

    fn line<'a>(&self, task: &'a Task, palette: Palette) -> Line<'a> {
        let style = palette.of_phase(task.phase());
        let name = Span::raw(task.name());
        let pad = self.name.saturating_sub(name.width());
        let mut spans = vec![name, Span::raw(" ".repeat(pad))];
        for (column, width) in &self.rest {
            spans.push(Span::raw(" ".repeat(GAP)));
            let text = column.text(task);
            spans.push(match column {
                Column::Bar => Span::styled(bar(task.ratio(), *width), style),
                Column::Phase => Span::styled(format!("{text:<width$}"), style),
                Column::Count | Column::Rate => Span::raw(format!("{text:>width$}")),
                Column::Aside => Span::styled(format!("{text:<width$}"), style),
            });
        }
        Line::from(spans)
    }
}

/// A bar in eighths of a column; the missing part is drawn as well, so that its length is visible
/// without colour.
fn bar(ratio: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = ['·', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a ratio from 0 to 1 of a few columns"
    )]
    let eighths = (ratio.clamp(0.0, 1.0) * (width * 8) as f64).floor() as usize;
    let full = eighths / 8;
    (0..width)
        .map(|column| match column {
            column if column < full => '█',
            column if column == full => EIGHTHS[eighths % 8],
            _ => '·',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use besom_core::time::Mono;
    use ratatui::backend::TestBackend;
    use ratatui::{Terminal, TerminalOptions, Viewport};

    use super::*;
    use crate::progress::{Counts, Event};

    fn progress() -> Progress {
        let mut progress = Progress::new(["compaction", "share-expiry", "ttl-transitions"]);
        let counted = |done| Event::Counted {
            task: "compaction".into(),
            counts: Counts { planned: 1_200, done, dead: 2 },
        };
        progress.update(Event::Tick(Mono(0)));
        progress.update(counted(0));
        progress.update(Event::Tick(Mono(2_000_000)));
        progress.update(counted(598));
        let counts = Counts { planned: 40, done: 40, dead: 0 };
        progress.update(Event::Counted { task: "share-expiry".into(), counts });
        let phase = Phase::Finished;
        progress.update(Event::Entered { task: "share-expiry".into(), phase });
        progress.update(Event::Stage("running".into()));
        progress
    }

    /// The picture in a terminal of that size, without what is empty at the ends of lines.
    fn drawn(progress: &Progress, width: u16, height: u16) -> (Vec<String>, Terminal<TestBackend>) {
        let options = TerminalOptions { viewport: Viewport::Inline(super::height(progress)) };
        let backend = TestBackend::new(width, height);
        let mut terminal = Terminal::with_options(backend, options).unwrap();
        terminal.draw(|frame| view(progress, Palette::Plain, frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let rows = (0..height).map(|y| row(y).trim_end().to_owned()).collect();
        (rows, terminal)
    }

    #[test]
    fn columns_are_dropped_by_priority_where_there_is_no_room() {
        let cases = [
            (
                100,
                "\
running  2s
compaction       working  ████████████············  598/1,200  299/s  2 set aside
share-expiry     done     ████████████████████████      40/40
ttl-transitions  waiting  ························        0/0",
            ),
            (
                60,
                "\
running  2s
compaction       working  █████·····  598/1,200  2 set aside
share-expiry     done     ██████████      40/40
ttl-transitions  waiting  ··········        0/0",
            ),
            (
                40,
                "\
running  2s
compaction       working  598/1,200
share-expiry     done         40/40
ttl-transitions  waiting        0/0",
            ),
            (
                24,
                "\
running  2s
compaction       working
share-expiry     done
ttl-transitions  waiting",
            ),
            (8, "running\ncompacti\nshare-ex\nttl-tran"),
        ];
        for (width, expected) in cases {
            let (rows, _) = drawn(&progress(), width, 6);
            assert_eq!(rows.join("\n").trim_end(), expected, "{width} columns");
        }
    }

    #[test]
    fn the_last_line_is_the_cursors_and_no_size_is_too_small() {
        for width in [1, 2, 7, 20, 33, 60, 79, 80, 120, 300] {
            for height in [1, 2, 4, 5, 24] {
                let (_, mut terminal) = drawn(&progress(), width, height);
                let cursor = terminal.get_cursor_position().unwrap();
                assert_eq!(cursor.x, 0, "{width}x{height}");
                assert_eq!(cursor.y, height.min(5) - 1, "{width}x{height}");
            }
        }
    }

    #[test]
    fn a_failure_says_why_without_colour() {
        let mut progress = Progress::new(["a"]);
        let phase = Phase::Failed("the database is full".into());
        progress.update(Event::Entered { task: "a".into(), phase });
        let (rows, _) = drawn(&progress, 80, 3);
        assert!(rows[1].starts_with("a  failed"), "{rows:?}");
        assert!(rows[1].ends_with("the database is full"), "{rows:?}");
    }

    #[test]
    fn no_color_is_respected_unless_it_is_empty() {
        for (value, palette) in [
            (None, Palette::Colour),
            (Some(""), Palette::Colour),
            (Some("1"), Palette::Plain),
            (Some("false"), Palette::Plain),
        ] {
            assert_eq!(Palette::of(value.map(OsStr::new)), palette, "{value:?}");
        }
        for phase in [Phase::Working, Phase::Finished, Phase::Failed(String::new())] {
            assert!(Palette::Plain.of_phase(&phase).fg.is_none());
            assert!(Palette::Colour.of_phase(&phase).fg.is_some());
        }
    }

    #[test]
    fn a_bar_grows_by_eighths() {
        for (ratio, expected) in [
            (0.0, "····"),
            (0.03, "····"),
            (0.05, "▏···"),
            (0.5, "██··"),
            (0.99, "███▉"),
            (1.0, "████"),
            (7.0, "████"),
        ] {
            assert_eq!(bar(ratio, 4), expected, "{ratio}");
        }
    }
}
