//! Secrets: reads them from files, and masks them in everything that is shown.

use std::borrow::Cow;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::{getegid, geteuid, getgroups};
use serde::Serializer;

/// Maximum size of a secret file, in bytes; enough for a certificate chain with its key.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Error message for a path that is not a regular file.
pub const NOT_REGULAR: &str = "it is not a regular file";

/// Opens a file for reading. Does not block on a named pipe without a writer.
///
/// # Errors
/// The error of the system.
pub fn open(path: &Path) -> io::Result<File> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    OpenOptions::new().read(true).custom_flags(nonblocking).open(path)
}

/// Owner and mode of a file or directory.
#[derive(Debug, Clone, Copy)]
struct Owned {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl Owned {
    fn of(found: &Metadata) -> Owned {
        Owned { uid: found.uid(), gid: found.gid(), mode: found.mode() & 0o777 }
    }
}

/// The user and groups of this process.
struct Reader {
    uid: u32,
    groups: Vec<u32>,
}

impl Reader {
    fn this_process() -> Reader {
        let mut groups = vec![getegid().as_raw()];
        groups.extend(getgroups().unwrap_or_default().iter().map(|group| group.as_raw()));
        Reader { uid: geteuid().as_raw(), groups }
    }

    /// Checks that no one else can read a secret. It has to belong to this user or to root. If this user owns the file or is root, only its owner may
    /// read it, because this user can set the mode. A secret mounted by an orchestrator belongs to root,
    /// and this user cannot change its mode, so two exceptions apply:
    ///
    /// * the group may read it, if it is one of the groups of this process (`fsGroup`, mode 0440);
    /// * everyone may read it (mode 0444), if no one else can search its directory.
    ///
    /// A file that the group or everyone can write is always refused.
    fn judge(&self, file: Owned, directory: Option<Owned>) -> Result<(), String> {
        let mode = file.mode;
        if file.uid != 0 && file.uid != self.uid {
            let (owner, own) = (file.uid, self.uid);
            return Err(format!(
                "it belongs to another user ({owner}): chown it to {own} or to root"
            ));
        }
        if mode & 0o077 == 0 {
            return Ok(());
        }
        let said = |fix: &str| Err(format!("others can read it (mode {mode:o}): {fix}"));
        if file.uid != 0 || self.uid == 0 {
            return said("chmod 600");
        }
        let ours = |of: Owned| of.uid == 0 && self.groups.contains(&of.gid);
        let written = mode & 0o022 != 0;
        let by_group = mode & 0o040 == 0 || ours(file);
        let closed = |of: Owned| {
            // The group of the directory can reach the file, and could replace it with write access.
            let group = of.mode & 0o030 == 0 || (ours(of) && of.mode & 0o020 == 0);
            [0, self.uid].contains(&of.uid) && of.mode & 0o003 == 0 && group
        };
        match mode & 0o004 == 0 {
            _ if written => said("others can also write it: mount it with mode 0440"),
            true if by_group => Ok(()),
            false if directory.is_some_and(closed) => Ok(()),
            true | false => said(
                "it is owned by root: mount it with mode 0440 and a group of this process, or in a \
                 directory that no one else can search",
            ),
        }
    }
}

/// Returns the directory that contains a file, after symbolic links are resolved.
fn directory_of(path: &Path) -> Option<Owned> {
    let whole = path.canonicalize().ok()?;
    std::fs::metadata(whole.parent()?).ok().as_ref().map(Owned::of)
}

/// Reads a secret from a regular file that no one else can read; see [`Reader::judge`].
///
/// # Errors
/// What is wrong with the file, without its name.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = open(path).map_err(|error| format!("{error}; check its path and permissions"))?;
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err(NOT_REGULAR.into());
    }
    Reader::this_process().judge(Owned::of(&found), directory_of(path))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes and cannot be a secret"));
    }
    Ok(bytes)
}

/// Reads a password or a token that is not empty, without its line ending.
///
/// # Errors
/// What is wrong with the file, without its name.
pub fn line(path: &Path) -> Result<String, String> {
    let text = String::from_utf8(read(path)?).map_err(|_| "it is not UTF-8".to_owned())?;
    match text.trim().is_empty() {
        true => Err("it is empty".into()),
        false => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
    }
}

/// Replaces each character of a secret, so that columns do not change.
pub const MASK: char = '*';

/// The ends of the names of secrets in URL parameters and in `key = value` texts.
const WORDS: [&str; 5] = ["password", "passwd", "passphrase", "secret", "token"];

/// Masks the secrets in a text: `***` in `scheme://user:***@host`, after `password=` and the other
/// [`WORDS`], in the query of an HTTP URL, where any value may be a token (`https://host/path?key=***`), and
/// in an address whose scheme is missing (`user:***@host`). The number of characters does not change, so that
/// places in the text stay valid. If the end of a secret is ambiguous, more is masked rather than less.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut spans = Vec::new();
    for (at, _) in text.match_indices("://") {
        let begin = at + 3;
        let url = &text[begin..begin + url_len(&text[begin..], open_quote(text, at))];
        spans.extend(in_authority(url).map(|s| begin + s.start..begin + s.end));
        if is_http(&text[..at]) {
            spans.extend(in_query(url).map(|s| begin + s.start..begin + s.end));
        }
    }
    for at in text.char_indices().map(|(at, _)| at) {
        if let Some(len) = word_len(&text[at..]) {
            let begin = at + len;
            let in_url = text[..at].ends_with(['?', '&']);
            let quote = open_quote(text, at);
            let found = match text[begin..].strip_prefix(FILE) {
                Some(rest) => not_a_path(rest).map(|s| s.start + FILE.len()..s.end + FILE.len()),
                None => value(&text[begin..], in_url, quote),
            };
            spans.extend(found.map(|s| begin + s.start..begin + s.end));
        }
    }
    for (at, _) in text.match_indices('@') {
        spans.extend(before_host(&text[..at]));
    }
    if spans.iter().all(Range::is_empty) {
        return Cow::Borrowed(text);
    }
    let masked = |(at, c): (usize, char)| match spans.iter().any(|span| span.contains(&at)) {
        true if c != '\n' => MASK,
        _ => c,
    };
    Cow::Owned(text.char_indices().map(masked).collect())
}

/// Returns the password of an address without a scheme that `text` ends with, up to its `@`.
fn before_host(text: &str) -> Option<Range<usize>> {
    let ends = |c: char| c.is_whitespace() || QUOTES.contains(&c) || matches!(c, '=' | '/' | '(');
    let address = text.rsplit(ends).next()?;
    let (user, password) = address.split_once(':')?;
    let is_user = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let named = !user.is_empty() && user.chars().all(is_user);
    named.then_some(text.len() - password.len()..text.len())
}

/// Serializes a URL with its password masked.
///
/// # Errors
/// The error of the serializer.
pub fn masked<S: Serializer>(url: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    match url {
        Some(url) => serializer.serialize_some(&redact(url)),
        None => serializer.serialize_none(),
    }
}

const QUOTES: [char; 3] = ['"', '\'', '`'];

/// Characters that may follow the closing quote of a text.
const CLOSING: &str = ",;)]}>";

/// Returns the quote of the text that is open at a place of a line. A comment opens no text.
fn open_quote(text: &str, at: usize) -> Option<char> {
    let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..at];
    let (mut open, mut chars) = (None, line.chars());
    while let Some(c) = chars.next() {
        match open {
            None if c == '#' => return None,
            None if QUOTES.contains(&c) => open = Some(c),
            Some('"') if c == '\\' => drop(chars.next()),
            Some(quote) if c == quote => open = None,
            None | Some(_) => {}
        }
    }
    open
}

/// Whether a text ends with the scheme of an HTTP URL.
fn is_http(before: &str) -> bool {
    let begin = before.len() - before.len().min(5);
    let scheme = before.as_bytes()[begin..].to_ascii_lowercase();
    scheme.ends_with(b"http") || scheme.ends_with(b"https")
}

/// Returns the ranges of the values in the query of a URL.
fn in_query(url: &str) -> impl Iterator<Item = Range<usize>> {
    let url = &url[..url.find([' ', '\t', '#']).unwrap_or(url.len())];
    let begin = url.find('?').map_or(url.len(), |at| at + 1);
    let mut at = begin;
    url[begin..].split('&').map(move |pair| {
        let (from, to) = (at + pair.find('=').map_or(0, |equals| equals + 1), at + pair.len());
        at = to + 1;
        from..to
    })
}

/// Returns the length of a URL after its `://`. It ends at the end of the line, at a closing quote (a quote
/// inside a password is followed by more of it), or before the next URL. A text that was opened by `quote`
/// and is not closed on its line continues on the following ones.
fn url_len(rest: &str, quote: Option<char>) -> usize {
    let ends = |(at, c): (usize, char)| {
        let next = rest[at + c.len_utf8()..].chars().next();
        let last = next.is_none_or(|next| next.is_whitespace() || CLOSING.contains(next));
        c == '\n' || (QUOTES.contains(&c) && last)
    };
    let end = rest.char_indices().find(|at| ends(*at)).map_or(rest.len(), |(at, _)| at);
    let end = match quote {
        Some(quote) if rest[end..].starts_with('\n') => end_of_text(rest, quote),
        _ => end,
    };
    let next = rest[..end].match_indices("://").find_map(|(at, _)| {
        let scheme =
            rest[..at].trim_end_matches(|c: char| c.is_alphanumeric() || "+-.".contains(c));
        // The scheme of the next URL is not part of this one.
        let before = scheme.chars().next_back()?;
        (before.is_whitespace() || QUOTES.contains(&before) || "<(,[".contains(before))
            .then_some(scheme.len())
    });
    next.unwrap_or(end)
}

/// Returns the range of the password in a URL, given what follows its `://`.
fn in_authority(url: &str) -> Option<Range<usize>> {
    let word = url.find(char::is_whitespace).unwrap_or(url.len());
    let path = url[..word].find('?').unwrap_or(word);
    // An `@` after the first `/` belongs to the path, unless the password contains the `/`.
    let host = url[..path].rfind('@').or_else(|| {
        let colon = url.find(':')?;
        let rest = &url[colon + 1..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let behind = rest[digits..].chars().next();
        let port = digits > 0
            && behind.is_none_or(|c| {
                c == '/' || c.is_whitespace() || QUOTES.contains(&c) || CLOSING.contains(c)
            });
        // The password contains a `?` or a blank.
        if port { None } else { url[..word].rfind('@').or_else(|| url.find('@')) }
    })?;
    let colon = url[..host].find(':')?;
    Some(colon + 1..host)
}

/// The end of the name of a key whose value is the path of a secret.
const FILE: &str = "_file";

/// Returns the range of a value, up to the end of its line, that is not a text and so not a path, but may
/// be the secret itself.
fn not_a_path(rest: &str) -> Option<Range<usize>> {
    let value = rest.trim_start_matches([' ', '\t']).strip_prefix('=')?;
    let value = value.trim_start_matches([' ', '\t']);
    let line = value.lines().next().filter(|line| !line.starts_with(QUOTES) && !line.is_empty())?;
    let begin = rest.len() - value.len();
    Some(begin..begin + line.len())
}

/// Returns the length of one of the [`WORDS`] at the beginning of a text; its letters may be
/// percent-encoded, such as `%70`.
fn word_len(text: &str) -> Option<usize> {
    WORDS.iter().find_map(|word| prefix_len(text, word))
}

fn prefix_len(text: &str, word: &str) -> Option<usize> {
    let mut len = 0;
    for letter in word.bytes() {
        let rest = &text.as_bytes()[len..];
        let (found, taken) = match rest {
            [b'%', high, low, ..] => {
                let digit = |c: u8| char::from(c).to_digit(16);
                let code = digit(*high)? * 16 + digit(*low)?;
                (u8::try_from(code).ok()?, 3)
            }
            [found, ..] => (*found, 1),
            [] => return None,
        };
        if !found.eq_ignore_ascii_case(&letter) {
            return None;
        }
        len += taken;
    }
    Some(len)
}

/// Returns where a text that goes on over several lines ends.
fn end_of_text(rest: &str, quote: char) -> usize {
    closing(rest, quote, false).unwrap_or(rest.len())
}

/// Returns the range of the value after `password`, if there is one. `quote` has opened the text around it.
fn value(rest: &str, in_url: bool, quote: Option<char>) -> Option<Range<usize>> {
    let value = rest.trim_start().strip_prefix('=')?;
    if in_url {
        let begin = rest.len() - value.len();
        let end = value.find('&').unwrap_or(value.len()).min(url_len(value, quote));
        return Some(begin..begin + end);
    }
    let value = value.trim_start_matches(|c: char| c.is_whitespace() && c != '\n');
    let begin = rest.len() - value.len();
    let line = &value[..value.find('\n').unwrap_or(value.len())];
    if let Some(quote) = quote.filter(|quote| closing(line, *quote, false).is_none())
        && line.len() < value.len()
    {
        // A line break inside a text is invalid, and what follows may still be the password.
        return Some(begin..begin + end_of_text(value, quote));
    }
    // The value may start with a quote, with three quotes, or with an escaped quote inside a quoted text.
    let quote = line.strip_prefix('\\').unwrap_or(line).chars().next();
    if let Some(quote) = quote.filter(|quote| QUOTES.contains(quote)) {
        let escaped = line.starts_with('\\');
        let inner = line.trim_start_matches(['\\', quote]);
        let opening = line.len() - inner.len();
        if opening == 2 && !escaped {
            // The value is empty.
            return None;
        }
        if opening == 3 && !escaped {
            // A text of several lines.
            let inner = &value[opening..];
            let end = inner.find(&line[..opening]).unwrap_or(inner.len());
            return Some(begin + opening..begin + opening + end);
        }
        if !escaped && closing(inner, quote, false).is_none() {
            let end = end_of_text(&value[opening..], quote);
            return Some(begin + opening..begin + opening + end);
        }
        let end = closing(inner, quote, escaped).unwrap_or(inner.len());
        return Some(begin + opening..begin + opening + end);
    }
    let word = &line[..line.find(char::is_whitespace).unwrap_or(line.len())];
    Some(begin..begin + word.trim_end_matches(QUOTES).len())
}

/// Returns where a quoted value ends: at a quote that is escaped like the opening one.
fn closing(inner: &str, quote: char, escaped: bool) -> Option<usize> {
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            let (_, next) = chars.next()?;
            if escaped && next == quote {
                return Some(at);
            }
        } else if c == quote && !escaped {
            return Some(at);
        }
    }
    None
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
            ("host=h password='p w' x=y", "host=h password='***' x=y"),
            ("host=h password = 'p\\'w' x", "host=h password = '****' x"),
            ("url = \"password=\\\"p w\\\" host=h\"", "url = \"password=\\\"***\\\" host=h\""),
            ("url = \"host=h password = p&w\" # x", "url = \"host=h password = ***\" # x"),
            ("password = \"p w\" # x", "password = \"***\" # x"),
            ("password = '''p w''' # x", "password = '''***''' # x"),
            ("password = 'p w", "password = '***"),
            ("password = \"\"\"\np\nw\"\"\" # x", "password = \"\"\"\n*\n*\"\"\" # x"),
            ("password = '''p\nw", "password = '''*\n*"),
            ("password = \npw", "password = \npw"),
            ("password = \"\npw\" # x", "password = \"\n**\" # x"),
            ("password = \"p\nw", "password = \"*\n*"),
            ("url = \"postgres://u:\np@h/d\" # x", "url = \"postgres://u:\n*@h/d\" # x"),
            ("url = \"host=h password=\npw\" # x", "url = \"host=h password=\n**\" # x"),
            (
                "url = \"postgres://h/d?password=\npw\" # x",
                "url = \"postgres://h/d?password=\n**\" # x",
            ),
            ("# don't: https://h:x\na = \"@hourly\"", "# don't: https://h:x\na = \"@hourly\""),
            (
                "\"https://h/p?key=s3&x=&t0ken#f\" # a?b=c",
                "\"https://h/p?key=**&x=&*****#f\" # a?b=c",
            ),
            ("see HTTPS://h/p?a=b=c for d=e", "see HTTPS://h/p?a=*** for d=e"),
            ("url = \"postgres://u:pa'ss@h/d\"", "url = \"postgres://u:*****@h/d\""),
            ("url = 'postgres://u:p\"a`<>s@h/d'", "url = 'postgres://u:*******@h/d'"),
            ("url = \"postgres://u:p w@h/d\" # a@b", "url = \"postgres://u:***@h/d\" # a@b"),
            ("url = \"postgres://u:p?w@h/d\"", "url = \"postgres://u:***@h/d\""),
            ("postgres://u:x://y@h/d", "postgres://u:*****@h/d"),
            ("postgres://u:p@h/d?user=a@b", "postgres://u:*@h/d?user=a@b"),
            ("postgres://h/d?pass%77ord=p%20w&x", "postgres://h/d?pass%77ord=*****&x"),
            ("\"postgres://h/d?x=1&PassWord=p w\" # x", "\"postgres://h/d?x=1&PassWord=***\" # x"),
            ("postgres://db:5432/app?user=svc@corp", "postgres://db:5432/app?user=svc@corp"),
            (
                "[\"redis://a:1\", \"redis://b:2\"] # a@b",
                "[\"redis://a:1\", \"redis://b:2\"] # a@b",
            ),
            ("at https://h:80 and mail a@b", "at https://h:80 and mail a@b"),
            ("postgres://u:é@h/d", "postgres://u:*@h/d"),
            ("postgres://u@h:5432/d, https://h/@x", "postgres://u@h:5432/d, https://h/@x"),
            ("password_file = \"p\"", "password_file = \"p\""),
            ("settings.api_token = \"p w\" # x", "settings.api_token = \"***\" # x"),
            ("secret = p and PASSPHRASE=p w", "secret = * and PASSPHRASE=* w"),
            ("token_file = \"p\" # no token", "token_file = \"p\" # no token"),
            ("password_file = [\"p\"]\nb = 1", "password_file = *****\nb = 1"),
            ("token_file = { v = \"p w\" }", "token_file = *************"),
            ("at 10:20://", "at 10:20://"),
            ("url = \"besom:s3cr3t@h/d\" # x", "url = \"besom:******@h/d\" # x"),
            ("invalid: besom:p@h", "invalid: besom:*@h"),
            ("sweep@14:25:00Z of a@b:1", "sweep@14:25:00Z of a@b:1"),
        ];
        for (text, expected) in cases {
            assert_eq!(redact(text), expected);
            assert_eq!(text.chars().count(), expected.chars().count(), "{text}");
        }
    }

    #[test]
    fn a_mounted_secret_is_read_by_the_group_of_this_process_and_by_nobody_else() {
        let reader = Reader { uid: 1000, groups: vec![1000, 2000] };
        let of = |uid, gid, mode| Owned { uid, gid, mode };
        let open = of(0, 0, 0o755);
        for (file, directory, fine) in [
            // Kubernetes with an fsGroup; everyone can search the directory.
            (of(0, 2000, 0o440), of(0, 2000, 0o777), true),
            (of(0, 2000, 0o640), open, true),
            (of(0, 3000, 0o440), open, false),
            (of(0, 2000, 0o460), open, false),
            (of(0, 2000, 0o444), open, false),
            // Not owned by root: the owner can set the mode.
            (of(1000, 2000, 0o440), open, false),
            (of(1001, 2000, 0o440), open, false),
            // Docker, in its own directory and in a closed one.
            (of(0, 0, 0o444), open, false),
            (of(0, 0, 0o444), of(1000, 1000, 0o700), true),
            (of(0, 0, 0o444), of(0, 2000, 0o750), true),
            (of(0, 0, 0o444), of(0, 3000, 0o750), false),
            (of(0, 0, 0o444), of(0, 2000, 0o770), false),
            (of(0, 0, 0o444), of(1000, 2000, 0o750), false),
            (of(0, 0, 0o444), of(1001, 1001, 0o700), false),
            (of(0, 0, 0o444), of(0, 0, 0o711), false),
            (of(0, 0, 0o446), of(0, 0, 0o700), false),
            (of(0, 0, 0o400), open, true),
            (of(1000, 0, 0o600), open, true),
            // Its owner can read it.
            (of(1001, 0, 0o600), open, false),
        ] {
            let judged = reader.judge(file, Some(directory));
            assert_eq!(judged.is_ok(), fine, "{file:?} in {directory:?}: {judged:?}");
        }
        let said = reader.judge(of(0, 0, 0o444), Some(open)).unwrap_err();
        assert!(said.contains("mount it with mode 0440 and a group of this process"), "{said}");
        // Root sets the mode of every file.
        let root = Reader { uid: 0, groups: vec![0] };
        let said = root.judge(of(0, 0, 0o440), Some(of(0, 0, 0o700))).unwrap_err();
        assert_eq!(said, "others can read it (mode 440): chmod 600");
        let said = root.judge(of(1000, 0, 0o600), None).unwrap_err();
        assert_eq!(said, "it belongs to another user (1000): chown it to 0 or to root");
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
