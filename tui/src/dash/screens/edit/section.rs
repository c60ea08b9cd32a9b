//! Finds a task's section in a configuration file, with its keys and plain values: enough to open
//! an editor at the right line and to fill a form.
//!
//! This is not a TOML parser: the host, which has one, decides the result of an edit. Values other
//! than a plain string are not read.

use std::collections::BTreeMap;

/// A task's section.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Section {
    /// The line of its header, from 1.
    pub line: u32,
    /// By key: its line, and its value if it is a plain string.
    keys: BTreeMap<String, (u32, Option<String>)>,
}

impl Section {
    /// The section `[tasks.NAME]`; none: the file does not have it.
    pub fn find(text: &str, task: &str) -> Option<Section> {
        let mut found: Option<Section> = None;
        // The delimiter of an open multi-line string.
        let mut open: Option<&str> = None;
        for (number, line) in (1_u32..).zip(text.lines()) {
            if let Some(end) = open {
                if line.contains(end) {
                    open = None;
                }
                continue;
            }
            let line = line.trim();
            if line.starts_with('[') {
                if found.is_some() {
                    break;
                }
                if is_header(line, task) {
                    found = Some(Section { line: number, ..Section::default() });
                }
                continue;
            }
            open = ["\"\"\"", "'''"].into_iter().find(|end| line.matches(end).count() % 2 == 1);
            let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
                continue;
            };
            if let Some(section) = &mut found {
                let key = unquoted(key.trim()).to_owned();
                section.keys.entry(key).or_insert((number, plain(value.trim())));
            }
        }
        found
    }

    /// The line of a key, or of the header if the section does not have the key.
    pub fn line_of(&self, key: &str) -> u32 {
        self.keys.get(key).map_or(self.line, |(line, _)| *line)
    }

    /// The value of a key, if it is a plain string.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.keys.get(key)?.1.as_deref()
    }
}

/// Whether a line is `[tasks.NAME]`, with any spacing and quoting.
fn is_header(line: &str, task: &str) -> bool {
    let Some(inner) = line.strip_prefix('[').and_then(|rest| rest.rsplit_once(']')) else {
        return false;
    };
    // A comment after the header may contain a bracket.
    let inner = match inner.0.split_once(']') {
        Some((first, _)) if !task.contains(']') => first,
        _ => inner.0,
    };
    inner.trim().split_once('.').is_some_and(|(table, name)| {
        unquoted(table.trim()) == "tasks" && unquoted(name.trim()) == task
    })
}

fn unquoted(text: &str) -> &str {
    ['"', '\'']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(text)
}

/// The content of a single-line string without escapes.
fn plain(value: &str) -> Option<String> {
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let rest = &value[1..];
    let end = rest.find(quote)?;
    let (text, behind) = (&rest[..end], rest[end + 1..].trim_start());
    let ends = behind.is_empty() || behind.starts_with('#');
    (ends && !(quote == '"' && text.contains('\\'))).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# [tasks.b]
note = """
[tasks.b]
"""
[tasks.a]
schedule = "@daily"

[ tasks . "b" ] # see [1]
plugin = "b.wasm"
schedule = "*/5 * * * *"  # every five, see [2]
timezone = 'Europe/Berlin'
overlap = "que\u0075e"
"jitter" = '''
x'''
# catch_up = "all"
[tasks.b.settings]
catch_up = "skip"
"#;

    #[test]
    fn a_section_is_found_by_its_header_alone() {
        let b = Section::find(TEXT, "b").unwrap();
        assert_eq!(b.line, 8);
        assert_eq!((b.value("schedule"), b.line_of("schedule")), (Some("*/5 * * * *"), 10));
        assert_eq!(b.value("timezone"), Some("Europe/Berlin"));
        assert_eq!((b.value("overlap"), b.line_of("overlap")), (None, 12), "it has an escape");
        assert_eq!(b.value("jitter"), None, "it has several lines");
        assert_eq!((b.value("catch_up"), b.line_of("catch_up")), (None, 8), "it is a comment");
        assert_eq!(Section::find(TEXT, "a").unwrap().value("schedule"), Some("@daily"));
        assert_eq!(Section::find(TEXT, "c"), None);
    }

    #[test]
    fn what_is_no_toml_is_no_panic() {
        for text in
            ["", "[", "]", "[]", "[tasks.]", "[tasks.b", "[tasks.b]\n=\n\"\n= \"\n'''", "ä=\"ä"]
        {
            let _ = Section::find(text, "b");
            let _ = Section::find(text, "");
        }
    }
}
