//! What callers over TCP show: a token, or the ticket of a web page.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::hmac;

use super::listen::{Error, Rights};

/// Characters of a token: as many as 128 bits have in hexadecimal.
const TOKEN_CHARS_MIN: usize = 32;

/// The secret that a caller over TCP shows.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Reads the token of a caller from a file that only its owner can read: the first of
    /// [`Tokens`].
    ///
    /// # Errors
    /// A file that others can read, or whose token is short.
    pub fn read(path: &Path) -> Result<Token, Error> {
        Ok(parsed(path)?.remove(0).token)
    }

    /// What it says, to be shown to a host.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Compares without telling by its time how much was right.
    fn matches(&self, shown: &str) -> bool {
        use sha2::{Digest as _, Sha256};
        Sha256::digest(shown.as_bytes()) == Sha256::digest(self.0.as_bytes())
    }
}

/// A token, and whose it is.
#[derive(Clone)]
struct Named {
    name: Option<Arc<str>>,
    token: Token,
}

/// A file of tokens, a line each: `TOKEN`, or `NAME TOKEN`. It is read again when it has changed,
/// so that tokens are exchanged, and withdrawn, without a restart.
#[derive(Clone)]
pub struct Tokens(Arc<File>);

struct File {
    path: PathBuf,
    rights: Rights,
    known: Mutex<Known>,
}

/// What was read last.
struct Known {
    /// Of which file; none: it could not be read, or was not there. Then it is read again: what
    /// was in its way may have been mended without a trace on the file itself.
    version: Option<FileVersion>,
    named: Vec<Named>,
    /// What was wrong with it, which is said once.
    fault: Option<String>,
}

/// By what a file is known to be as it was: where it is, its size, when it was written, and when its
/// mode or owner were set.
#[derive(PartialEq, Eq, Clone, Copy)]
struct FileVersion {
    device: u64,
    number: u64,
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    fn of(path: &Path) -> Option<FileVersion> {
        let found = std::fs::metadata(path).ok()?;
        Some(FileVersion {
            device: found.dev(),
            number: found.ino(),
            size: found.size(),
            written: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

impl Tokens {
    /// Reads the tokens of a file that only its owner can read.
    ///
    /// # Errors
    /// A file that others can read, that holds no token, or a short one.
    pub fn read(path: &Path, rights: Rights) -> Result<Tokens, Error> {
        let version = FileVersion::of(path);
        let known = Mutex::new(Known { version, named: parsed(path)?, fault: None });
        Ok(Tokens(Arc::new(File { path: path.to_owned(), rights, known })))
    }

    /// Whose token is shown, if it is one of these.
    pub(super) fn find(&self, shown: &str) -> Option<Bearer> {
        self.find_by(|token| token.matches(shown))
    }

    /// Whose token it is about which that is true.
    fn find_by(&self, holds: impl Fn(&Token) -> bool) -> Option<Bearer> {
        let version = FileVersion::of(&self.0.path);
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.version != version || version.is_none() {
            *known = match parsed(&self.0.path) {
                Ok(named) => Known { version, named, fault: None },
                // What cannot be read lets nobody in: a token may have been withdrawn by it.
                Err(error) => {
                    let said = error.to_string();
                    if known.fault.as_ref() != Some(&said) {
                        tracing::warn!(%error, "nobody is let in by these tokens");
                    }
                    Known { version: None, named: Vec::new(), fault: Some(said) }
                }
            };
        }
        // Every token is compared: the time of an answer does not tell which one was nearly right.
        let mut found = None;
        for named in &known.named {
            if holds(&named.token) {
                found = Some(named);
            }
        }
        found.map(|named| Bearer { name: named.name.clone(), rights: self.0.rights })
    }
}

/// The tokens of a file, at least one.
fn parsed(path: &Path) -> Result<Vec<Named>, Error> {
    let fail = |words: String| Error::Token { path: path.to_owned(), words };
    let bytes = crate::secret::read(path).map_err(fail)?;
    let text = String::from_utf8(bytes).map_err(|_| fail("it is not UTF-8".into()))?;
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, token) = match words.as_slice() {
            [] => continue,
            [token] => (None, *token),
            [name, token] => (Some(Arc::from(*name)), *token),
            _ => return Err(fail(format!("line {}: write TOKEN or NAME TOKEN", number + 1))),
        };
        if token.len() < TOKEN_CHARS_MIN {
            return Err(fail(format!(
                "line {}: a token of {} characters can be guessed: make one of at least \
                 {TOKEN_CHARS_MIN} with `openssl rand -hex 32`",
                number + 1,
                token.chars().count()
            )));
        }
        all.push(Named { name, token: Token(token.into()) });
    }
    match all.is_empty() {
        true => Err(fail("it is empty: `openssl rand -hex 32` makes a token".into())),
        false => Ok(all),
    }
}

/// Who has shown a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// The name beside the token, where the file has one.
    pub name: Option<Arc<str>>,
    /// What the token allows.
    pub rights: Rights,
}

/// Tickets of web pages: each opens WebSockets of one thing until a time. The product's back end
/// signs them with a key that the page never sees.
#[derive(Clone)]
pub struct Tickets {
    keys: Tokens,
    /// How far ahead the end of a ticket may lie.
    life_max: Duration,
}

/// A ticket that was signed and has not expired.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ticket(pub(super) Arc<str>);

impl Tickets {
    /// Reads the keys of a file that only its owner can read; it is read again when it changes.
    ///
    /// # Errors
    /// A file that others can read, that holds no key, or a short one.
    pub fn read(path: &Path, life_max: Duration) -> Result<Tickets, Error> {
        Ok(Tickets { keys: Tokens::read(path, Rights::All)?, life_max })
    }

    /// Judges a ticket, `EXPIRES.SIGNATURE`, that is shown for a thing now.
    ///
    /// # Errors
    /// Why it opens nothing, to be told to whoever shows it.
    pub(super) fn judge(&self, shown: &str, id: &str, now: SystemTime) -> Result<Ticket, String> {
        let malformed =
            || "a ticket is EXPIRES.SIGNATURE: seconds since 1970, and hexadecimal".to_owned();
        let (expires, signature) = shown.split_once('.').ok_or_else(malformed)?;
        let ends: u64 = expires.parse().map_err(|_| malformed())?;
        let signature = from_hex(signature).ok_or_else(malformed)?;
        let signed = format!("activity\n{id}\n{expires}");
        let signs = |key: &Token| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key.secret().as_bytes());
            hmac::verify(&key, signed.as_bytes(), &signature).is_ok()
        };
        if self.keys.find_by(signs).is_none() {
            return Err("the ticket is not signed for this id".into());
        }
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if Duration::from_secs(ends) <= now {
            return Err("the ticket has expired".into());
        }
        if Duration::from_secs(ends) > now + self.life_max {
            let seconds = self.life_max.as_secs();
            return Err(format!(
                "the ticket ends more than {seconds} s from now; EXPIRES is in seconds, not milliseconds"
            ));
        }
        Ok(Ticket(shown.into()))
    }
}

/// The bytes of hexadecimal digits.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// What `printf 'activity\nws-1\n1750000300' | openssl dgst -sha256 -hmac KEY` prints.
    const KEY: &str = "0123456789abcdef0123456789abcdef";
    const SIGNED: &str = "74c80c669a6e9e76ba7f81122994fe04d547c044c4d1d81e4ce5e69e0b663f40";

    #[test]
    fn a_file_that_could_not_be_read_is_read_again_once_it_is_mended() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokens");
        let mode = |mode| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::write(&file, format!("ann {KEY}\n")).unwrap();
        mode(0o600);
        let tokens = Tokens::read(&file, Rights::All).unwrap();
        let known = || tokens.find(KEY).is_some();
        assert!(known());
        // Its size and the time when it was written stay.
        mode(0o644);
        assert!(!known(), "others could read it");
        mode(0o600);
        assert!(known(), "nobody else can any longer");
        std::fs::rename(&file, directory.path().join("away")).unwrap();
        assert!(!known(), "it is away");
        std::fs::rename(directory.path().join("away"), &file).unwrap();
        assert!(known(), "it is back");
    }

    #[test]
    fn a_ticket_opens_one_thing_until_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys");
        let put = |text: &str| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        put(&format!("old ffffffffffffffffffffffffffffffff\nnew {KEY}\n"));
        let tickets = Tickets::read(&file, Duration::from_secs(3600)).unwrap();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let good = format!("1750000300.{SIGNED}");
        let judge = |shown: &str, id, now| tickets.judge(shown, id, at(now)).map(|_| ());
        assert_eq!(judge(&good, "ws-1", 1_750_000_000), Ok(()));
        assert_eq!(judge(&good, "ws-1", 1_750_000_299), Ok(()));
        let upper = format!("1750000300.{}", SIGNED.to_uppercase());
        assert_eq!(judge(&upper, "ws-1", 1_750_000_000), Ok(()));
        let later = format!("1750000301.{SIGNED}");
        let cut = &good[..good.len() - 1];
        let odd = &good[..good.len() - 2];
        for (shown, id, now, words) in [
            (good.as_str(), "ws-1", 1_750_000_300, "expired"),
            (&good, "ws-2", 1_750_000_000, "not signed"),
            (&later, "ws-1", 1_750_000_000, "not signed"),
            (odd, "ws-1", 1_750_000_000, "not signed"),
            (cut, "ws-1", 1_750_000_000, "EXPIRES.SIGNATURE"),
            (&good, "ws-1", 1_749_000_000, "more than 3600 s"),
            ("1750000300.", "ws-1", 1_750_000_000, "not signed"),
            ("1750000300.zz", "ws-1", 1_750_000_000, "EXPIRES.SIGNATURE"),
            ("-1.00", "ws-1", 1_750_000_000, "EXPIRES.SIGNATURE"),
            ("", "ws-1", 1_750_000_000, "EXPIRES.SIGNATURE"),
        ] {
            let said = judge(shown, id, now).unwrap_err();
            assert!(said.contains(words), "{shown} for {id}: {said}");
        }
        // A key that is withdrawn takes its tickets with it.
        put("ffffffffffffffffffffffffffffffff\n");
        assert!(judge(&good, "ws-1", 1_750_000_000).is_err());
    }
}
