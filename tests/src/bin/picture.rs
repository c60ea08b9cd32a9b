//! Turns what `tmux capture-pane -e -p` has captured into an SVG: the pictures of the README are
//! what the program has really drawn.
//!
//!     tmux capture-pane -e -p | picture COLUMNS ROWS light|dark > screen.svg

use std::fmt::Write as _;
use std::io::Read as _;

use unicode_width::UnicodeWidthChar as _;

/// The size of a cell, in the SVG's units.
const CELL: (usize, usize) = (8, 17);
/// Space around the cells.
const MARGIN: usize = 10;

/// What a cell looks like.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Look {
    foreground: Option<u8>,
    background: Option<u8>,
    bold: bool,
    dim: bool,
    underlined: bool,
    reversed: bool,
}

/// The sixteen colours of a terminal, then its foreground and background.
struct Colours {
    sixteen: [&'static str; 16],
    text: &'static str,
    ground: &'static str,
}

const DARK: Colours = Colours {
    sixteen: [
        "#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4",
        "#6e7681", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#ffffff",
    ],
    text: "#c9d1d9",
    ground: "#0d1117",
};

const LIGHT: Colours = Colours {
    sixteen: [
        "#24292f", "#cf222e", "#116329", "#7d4e00", "#0969da", "#8250df", "#1b7c83", "#6e7781",
        "#57606a", "#a40e26", "#1a7f37", "#633c01", "#218bff", "#a475f9", "#3192aa", "#8c959f",
    ],
    text: "#24292f",
    ground: "#ffffff",
};

impl Look {
    /// Takes the numbers of one "select graphic rendition" in.
    fn select(&mut self, numbers: &str) {
        let mut numbers = numbers.split([';', ':']).map(|n| n.parse().unwrap_or(0_u16));
        while let Some(number) = numbers.next() {
            match number {
                0 => *self = Look::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                4 => self.underlined = true,
                7 => self.reversed = true,
                22 => (self.bold, self.dim) = (false, false),
                24 => self.underlined = false,
                27 => self.reversed = false,
                30..=37 => self.foreground = Some((number - 30) as u8),
                38 | 48 => {
                    // The first sixteen of the 256 are the sixteen; no others are drawn.
                    let colour = numbers.nth(1).filter(|n| *n < 16).map(|n| n as u8);
                    if number == 38 {
                        self.foreground = colour;
                    } else {
                        self.background = colour;
                    }
                }
                39 => self.foreground = None,
                40..=47 => self.background = Some((number - 40) as u8),
                49 => self.background = None,
                90..=97 => self.foreground = Some((number - 90 + 8) as u8),
                100..=107 => self.background = Some((number - 100 + 8) as u8),
                _ => {}
            }
        }
    }

    fn colours(self, of: &Colours) -> (&'static str, Option<&'static str>) {
        let named = |n: u8| of.sixteen[usize::from(n)];
        let text = self.foreground.map_or(of.text, named);
        let ground = self.background.map(named);
        match self.reversed {
            true => (ground.unwrap_or(of.ground), Some(text)),
            false => (text, ground),
        }
    }
}

/// A piece of a line that looks the same: its first column, its columns, its text.
struct Piece {
    at: usize,
    columns: usize,
    look: Look,
    text: String,
}

fn pieces(line: &str, look: &mut Look) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::new();
    let (mut at, mut chars) = (0, line.chars());
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // `ESC [ numbers m` is all that tmux writes here, beside changes of the alphabet.
            if chars.next() == Some('[') {
                let rest: String =
                    chars.by_ref().take_while(|c| !c.is_ascii_alphabetic()).collect();
                look.select(&rest);
            }
            continue;
        }
        let columns = c.width().unwrap_or(0);
        match found.last_mut() {
            Some(last) if last.look == *look => {
                last.text.push(c);
                last.columns += columns;
            }
            _ => found.push(Piece { at, columns, look: *look, text: c.to_string() }),
        }
        at += columns;
    }
    found
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn picture(captured: &str, columns: usize, rows: usize, colours: &Colours) -> String {
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, rows * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"{}\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"13\" xml:space=\"preserve\" style=\"white-space:pre\">\n",
        colours.ground
    );
    let mut look = Look::default();
    for (row, line) in captured.lines().take(rows).enumerate() {
        for piece in pieces(line, &mut look) {
            let (x, y) = (MARGIN + piece.at * CELL.0, MARGIN + row * CELL.1);
            let (text, ground) = piece.look.colours(colours);
            let wide = piece.columns * CELL.0;
            if let Some(ground) = ground {
                // Writing to a text cannot fail.
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{}\" fill=\"{ground}\"/>",
                    CELL.1
                );
            }
            if piece.text.trim().is_empty() {
                continue;
            }
            let bold = if piece.look.bold { " font-weight=\"bold\"" } else { "" };
            let dim = if piece.look.dim { " opacity=\"0.6\"" } else { "" };
            let line = if piece.look.underlined { " text-decoration=\"underline\"" } else { "" };
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{}\" textLength=\"{wide}\" fill=\"{text}\"{bold}{dim}{line}>{}</text>",
                y + CELL.1 - 4,
                escaped(&piece.text)
            );
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "picture COLUMNS ROWS light|dark";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [columns, rows, theme] = arguments.as_slice() else { return Err(usage.into()) };
    let colours = match theme.as_str() {
        "light" => &LIGHT,
        "dark" => &DARK,
        _ => return Err(usage.into()),
    };
    let mut captured = String::new();
    std::io::stdin().read_to_string(&mut captured)?;
    let svg = picture(&captured, columns.parse()?, rows.parse()?, colours);
    std::io::Write::write_all(&mut std::io::stdout(), svg.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_captured_is_drawn_where_it_stood() {
        let svg = picture("a \u{1b}[1;31m<b>\u{1b}[0m\n\u{1b}[7m→\u{1b}[0m", 10, 2, &DARK);
        assert!(
            svg.contains("<text x=\"10\" y=\"23\" textLength=\"16\" fill=\"#c9d1d9\">a </text>")
        );
        let bold = "<text x=\"26\" y=\"23\" textLength=\"24\" fill=\"#ff7b72\" font-weight=\"bold\">\
                    &lt;b&gt;</text>";
        assert!(svg.contains(bold), "{svg}");
        let reversed = "<rect x=\"10\" y=\"27\" width=\"8\" height=\"17\" fill=\"#c9d1d9\"/>\n\
                        <text x=\"10\" y=\"40\" textLength=\"8\" fill=\"#0d1117\">→</text>";
        assert!(svg.contains(reversed), "{svg}");
    }
}
