//! Secrets: how they are read from files, and how they stay out of everything that is shown.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// The largest file of a secret, in bytes: a chain of certificates with its key fits.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Said of what is no file, where one has to be.
pub const NOT_REGULAR: &str = "it is no regular file";

/// Opens a file to read it, without waiting for somebody who writes into a pipe of that name.
///
/// # Errors
/// The system's.
pub fn open(path: &Path) -> io::Result<File> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    OpenOptions::new().read(true).custom_flags(nonblocking).open(path)
}

/// Reads a secret from a regular file that only its owner can read.
///
/// # Errors
/// Says what is wrong with the file, without its name.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = open(path).map_err(|error| format!("{error}; check its path and permissions"))?;
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err(NOT_REGULAR.into());
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!("others can read it (mode {mode:o}): chmod 600"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it has more than {FILE_BYTES_MAX} bytes: it is no secret"));
    }
    Ok(bytes)
}

/// Reads a line of text, a password or a token, without what ends the line. Not empty.
///
/// # Errors
/// Says what is wrong with the file, without its name.
pub fn line(path: &Path) -> Result<String, String> {
    let text = String::from_utf8(read(path)?).map_err(|_| "it is not UTF-8".to_owned())?;
    match text.trim().is_empty() {
        true => Err("it is empty".into()),
        false => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
    }
}

/// What stands in place of each character of a secret: the columns of the text stay.
const MASK: char = '*';

/// A text without the passwords that stand in it: `***` in `scheme://user:***@host`, and behind
/// `password=`. As many characters as before, so that places in the text stay right.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut spans = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("://") {
        let begin = from + at + 3;
        let rest = &text[begin..];
        let end = rest.find(|c: char| c.is_whitespace() || "\"'`<>".contains(c));
        let rest = &rest[..end.unwrap_or(rest.len())];
        // An `@` behind the first `/` is one of a path, unless a password holds the `/`: then the
        // more that is masked, the better.
        if let Some(host) = rest.rfind('@')
            && let Some(colon) = rest[..host].find(':')
        {
            spans.push(begin + colon + 1..begin + host);
        }
        from = begin;
    }
    let lower = text.to_ascii_lowercase();
    for (at, word) in lower.match_indices("password=") {
        let begin = at + word.len();
        let rest = text[begin..].trim_start_matches(['\'', '"']);
        let begin = text.len() - rest.len();
        let end = rest.find(|c: char| c.is_whitespace() || "&\"'`".contains(c));
        spans.push(begin..begin + end.unwrap_or(rest.len()));
    }
    if spans.iter().all(std::ops::Range::is_empty) {
        return Cow::Borrowed(text);
    }
    let masked = |(at, c): (usize, char)| match spans.iter().any(|span| span.contains(&at)) {
        true => MASK,
        false => c,
    };
    Cow::Owned(text.char_indices().map(masked).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn passwords_are_masked_and_every_column_stays() {
        let cases = [
            ("url = \"postgres://u:s3cr3t@h:1/d\" # x", "url = \"postgres://u:******@h:1/d\" # x"),
            ("postgres://u:a/b@c@h/d", "postgres://u:*****@h/d"),
            ("two https://a:b@c and redis://:p@d:1", "two https://a:*@c and redis://:*@d:1"),
            ("postgres://h/d?user=u&password=pw&x=1", "postgres://h/d?user=u&password=**&x=1"),
            ("host=h password='p w'", "host=h password='* w'"),
            ("postgres://u:é@h/d", "postgres://u:*@h/d"),
            ("postgres://u@h:5432/d, https://h/@x", "postgres://u@h:5432/d, https://h/@x"),
            ("password_file = \"p\"", "password_file = \"p\""),
            ("at 10:20://", "at 10:20://"),
        ];
        for (text, expected) in cases {
            assert_eq!(redact(text), expected);
            assert_eq!(text.chars().count(), expected.chars().count(), "{text}");
        }
    }

    #[test]
    fn a_secret_is_in_a_regular_file_of_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let put = |text: &[u8], mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        put(b"  open sesame \r\n", 0o600);
        assert_eq!(line(&path).unwrap(), "  open sesame ");
        put(b"open sesame", 0o640);
        assert_eq!(line(&path).unwrap_err(), "others can read it (mode 640): chmod 600");
        put(b"\n", 0o600);
        assert_eq!(line(&path).unwrap_err(), "it is empty");
        put(b"\xff", 0o400);
        assert_eq!(line(&path).unwrap_err(), "it is not UTF-8");
        assert!(line(dir.path()).is_err());
        assert!(line(&dir.path().join("none")).unwrap_err().contains("check its path"));
    }
}
