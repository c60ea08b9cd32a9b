//! Checks whether a text is JSON, as JavaScript's `JSON.parse` reads it.
//!
//! Does not interpret the text. Yjs parses the JSON of embedded objects, of mark values and of old
//! contents while it reads an update; if that throws, Yjs does not read the rest of the update.
//! The check does not recurse, and does not allocate for flat values.

use super::wire::Malformed;

/// The maximum nesting of arrays and objects.
pub const DEPTH_MAX: usize = 512;

/// Checks that the text is one JSON value.
pub fn check(text: &str) -> Result<(), Malformed> {
    let mut json = Json { bytes: text.as_bytes(), at: 0 };
    // The closing bracket of each array or object that is open.
    let mut open: Vec<u8> = Vec::new();
    loop {
        json.space();
        match json.next()? {
            bracket @ (b'[' | b'{') => {
                // In ASCII the closing bracket is two behind the opening one.
                let closing = bracket + 2;
                json.space();
                if !json.skip_if(closing) {
                    if open.len() == DEPTH_MAX {
                        return Err(Malformed::Depth);
                    }
                    open.push(closing);
                    json.key(closing)?;
                    continue;
                }
            }
            first => json.scalar(first)?,
        }
        // A value has ended, and with it every array or object of which it was the last.
        loop {
            json.space();
            let Some(&closing) = open.last() else {
                return if json.at == json.bytes.len() { Ok(()) } else { Err(Malformed::Json) };
            };
            match json.next()? {
                b',' => {
                    json.space();
                    json.key(closing)?;
                    break;
                }
                found if found == closing => drop(open.pop()),
                _ => return Err(Malformed::Json),
            }
        }
    }
}

struct Json<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Json<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, Malformed> {
        let byte = self.peek().ok_or(Malformed::Json)?;
        self.at += 1;
        Ok(byte)
    }

    fn skip_if(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if bytes.iter().all(|&byte| self.skip_if(byte)) { Ok(()) } else { Err(Malformed::Json) }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Reads the key before a value in an object.
    fn key(&mut self, closing: u8) -> Result<(), Malformed> {
        if closing == b'}' {
            self.expect(b"\"")?;
            self.string()?;
            self.space();
            self.expect(b":")?;
        }
        Ok(())
    }

    fn scalar(&mut self, first: u8) -> Result<(), Malformed> {
        match first {
            b'"' => self.string(),
            b't' => self.expect(b"rue"),
            b'f' => self.expect(b"alse"),
            b'n' => self.expect(b"ull"),
            b'-' => {
                let first = self.next()?;
                self.number(first)
            }
            first => self.number(first),
        }
    }

    /// Reads a string after its opening quote. Single halves of surrogate pairs may be escaped.
    fn string(&mut self) -> Result<(), Malformed> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    b'u' => {
                        for _ in 0..4 {
                            if !self.next()?.is_ascii_hexdigit() {
                                return Err(Malformed::Json);
                            }
                        }
                    }
                    _ => return Err(Malformed::Json),
                },
                0x00..=0x1f => return Err(Malformed::Json),
                _ => {}
            }
        }
    }

    fn number(&mut self, first: u8) -> Result<(), Malformed> {
        match first {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return Err(Malformed::Json),
        }
        if self.skip_if(b'.') {
            self.some_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        self.digits();
        if self.at > start { Ok(()) } else { Err(Malformed::Json) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_javascript_parses_is_json() {
        let texts = [
            "0",
            "-0",
            "1.5e+10",
            " [ ] ",
            "{}",
            "\"\"",
            "\"\\ud83d\\n\\/\"",
            "true",
            "null",
            "{\"a\":[1,{\"b\":\"c\"},[]],\"\":-1E-2}",
            "[[],{},[{}]]",
            "\"é😀\u{2028}\"",
        ];
        for text in texts {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_javascript_refuses_is_not() {
        let texts = [
            "",
            " ",
            "undefined",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "NaN",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{a:1}",
            "{\"a\":1,}",
            "[1}",
            "{\"a\":1]",
            "1 2",
            "[1",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\n\"",
            "tru",
            "nulll",
            "{\"a\":}",
            "[]]",
            "\u{feff}1",
            "'a'",
        ];
        for text in texts {
            assert_eq!(check(text), Err(Malformed::Json), "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth| check(&("[".repeat(depth) + "1" + &"]".repeat(depth)));
        assert_eq!(nested(DEPTH_MAX), Ok(()));
        assert_eq!(nested(DEPTH_MAX + 1), Err(Malformed::Depth));
    }
}
