//! Styles by meaning. Colour is never the only sign: problems also have words or symbols, the
//! selected row has a `>`.

use ratatui::style::{Color, Modifier, Style};

use super::state::ThemeChoice;
use super::table::Emphasis;

/// The styles by meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// Plain text.
    pub text: Style,
    /// Less important text.
    pub dim: Style,
    /// Headings.
    pub title: Style,
    /// A good state.
    pub good: Style,
    /// A warning.
    pub warn: Style,
    /// A problem.
    pub bad: Style,
    /// Highlights that are not problems: keys, the leader.
    pub accent: Style,
    /// The selected row.
    pub selected: Style,
    /// The active tab or button.
    pub active: Style,
    /// The full part of bars.
    pub bar: Style,
    /// Small curves.
    pub spark: Style,
    /// Lines around and between.
    pub line: Style,
    /// Text fields.
    pub field: Style,
    /// The cursor in a text field.
    pub cursor: Style,
}

impl Theme {
    /// The styles of a choice.
    pub fn of(choice: ThemeChoice) -> Theme {
        match choice {
            ThemeChoice::Auto => Theme::auto(),
            ThemeChoice::Light => Theme::explicit([28, 130, 160, 25, 242, 254, 250, 24]),
            ThemeChoice::Dark => Theme::explicit([114, 221, 210, 117, 246, 237, 240, 110]),
            ThemeChoice::Mono => Theme::mono(),
        }
    }

    /// The style of an emphasis.
    pub fn style(&self, emphasis: Emphasis) -> Style {
        match emphasis {
            Emphasis::Text => self.text,
            Emphasis::Dim => self.dim,
            Emphasis::Good => self.good,
            Emphasis::Warn => self.warn,
            Emphasis::Bad => self.bad,
            Emphasis::Accent => self.accent,
            Emphasis::Bar => self.bar,
            Emphasis::Spark => self.spark,
        }
    }

    /// Styles without colours.
    fn mono() -> Theme {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let dim = plain.add_modifier(Modifier::DIM);
        let reverse = plain.add_modifier(Modifier::REVERSED);
        let underlined = plain.add_modifier(Modifier::UNDERLINED);
        Theme {
            text: plain,
            dim,
            title: bold,
            good: plain,
            warn: bold,
            bad: bold.add_modifier(Modifier::UNDERLINED),
            accent: bold,
            selected: reverse,
            active: reverse,
            bar: plain,
            spark: plain,
            line: dim,
            field: underlined,
            cursor: reverse,
        }
    }

    /// The terminal's own colours: those of the sixteen that are readable on light and on dark
    /// backgrounds.
    fn auto() -> Theme {
        let colour = |colour| Style::new().fg(colour);
        Theme {
            good: colour(Color::Green),
            warn: colour(Color::Magenta).add_modifier(Modifier::BOLD),
            bad: colour(Color::Red).add_modifier(Modifier::BOLD),
            accent: colour(Color::Cyan).add_modifier(Modifier::BOLD),
            bar: colour(Color::Cyan),
            spark: colour(Color::Cyan),
            ..Theme::mono()
        }
    }

    /// Colours of the fixed palette with enough contrast on their background: good, warn, bad,
    /// accent, dim, the selected row's background, lines, bars.
    fn explicit([good, warn, bad, accent, dim, ground, line, bar]: [u8; 8]) -> Theme {
        let colour = |n| Style::new().fg(Color::Indexed(n));
        let bold = |n| colour(n).add_modifier(Modifier::BOLD);
        let selected = Style::new().bg(Color::Indexed(ground)).add_modifier(Modifier::BOLD);
        Theme {
            good: colour(good),
            warn: bold(warn),
            bad: bold(bad),
            accent: bold(accent),
            dim: colour(dim),
            line: colour(line),
            selected,
            bar: colour(bar),
            spark: colour(bar),
            field: Style::new().bg(Color::Indexed(ground)),
            ..Theme::mono()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_there_is_none_and_what_is_wrong_still_stands_out() {
        let theme = Theme::of(ThemeChoice::Mono);
        let Theme { text, dim, title, good, warn, bad, accent, selected, .. } = theme;
        let Theme { active, bar, spark, line, field, cursor, .. } = theme;
        let all = [text, dim, title, good, warn, bad, accent, selected, active, bar, spark, line];
        for style in all.into_iter().chain([field, cursor]) {
            assert_eq!((style.fg, style.bg), (None, None));
        }
        for style in [warn, bad, selected] {
            assert_ne!(style, text);
        }
    }
}
