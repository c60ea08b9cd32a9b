//! Lists of texts as the contract passes them: a JSON array of strings.

/// The array of these texts.
pub(crate) fn written<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut json = String::from("[");
    for text in texts {
        json.push_str(if json.len() > 1 { ",\"" } else { "\"" });
        for c in text.chars() {
            match c {
                '"' | '\\' => json.extend(['\\', c]),
                c if c < ' ' => json.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => json.push(c),
            }
        }
        json.push('"');
    }
    json.push(']');
    json
}

/// The texts of an array; none: it is no array of strings.
pub(crate) fn read(json: &str) -> Option<Vec<String>> {
    let mut rest = json.trim_matches(SPACE).strip_prefix('[')?.strip_suffix(']')?;
    let mut texts = Vec::new();
    rest = rest.trim_matches(SPACE);
    while !rest.is_empty() {
        if !texts.is_empty() {
            rest = rest.strip_prefix(',')?.trim_start_matches(SPACE);
        }
        let (text, after) = string(rest.strip_prefix('"')?)?;
        texts.push(text);
        rest = after.trim_start_matches(SPACE);
    }
    Some(texts)
}

const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// A string after its opening quote, and what follows its closing one.
fn string(json: &str) -> Option<(String, &str)> {
    let (mut text, mut rest) = (String::new(), json);
    loop {
        let end = rest.find(['"', '\\'])?;
        text.push_str(&rest[..end]);
        let (found, after) = rest[end..].split_at(1);
        if found == "\"" {
            return Some((text, after));
        }
        let mut chars = after.chars();
        let escaped = chars.next()?;
        rest = chars.as_str();
        text.push(match escaped {
            '"' | '\\' | '/' => escaped,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let (first, after) = unit(rest)?;
                rest = after;
                match char::from_u32(first.into()) {
                    Some(c) => c,
                    None => {
                        let (second, after) = unit(rest.strip_prefix("\\u")?)?;
                        rest = after;
                        char::decode_utf16([first, second]).next()?.ok()?
                    }
                }
            }
            _ => return None,
        });
    }
}

/// A unit of UTF-16 in hexadecimal digits.
fn unit(json: &str) -> Option<(u16, &str)> {
    let (digits, after) = json.split_at_checked(4)?;
    Some((u16::from_str_radix(digits, 16).ok()?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_are_written() {
        for texts in [
            &[][..],
            &["id"],
            &["", "a b", "\"quoted\" \\ and\n\u{1}", "\u{e9} \u{1f9f9}", "],[\","],
        ] {
            let found = read(&written(texts.iter().copied())).expect("an array");
            assert_eq!(found, texts);
        }
    }

    #[test]
    fn only_an_array_of_strings_is_read() {
        let one = |text: &str| Some(vec![text.to_owned()]);
        for (json, expected) in [
            (" [ ] ", Some(Vec::new())),
            ("[\"a\" , \"b\"]", Some(vec!["a".to_owned(), "b".to_owned()])),
            (r#"["\u00e9\ud83e\uddf9\/\t"]"#, one("\u{e9}\u{1f9f9}/\t")),
            (r#"["\ud83e"]"#, None),
            (r#"["\ud83ex"]"#, None),
            (r#"["\u12"]"#, None),
            (r#"["\x"]"#, None),
            (r#"["a""b"]"#, None),
            (r#"["a",]"#, None),
            (r#"[,"a"]"#, None),
            (r#"["a]"#, None),
            ("[1]", None),
            ("[", None),
            ("\"a\"", None),
            ("", None),
        ] {
            assert_eq!(read(json), expected, "{json}");
        }
    }
}
