//! The credentials of callers over TCP: tokens, and the tickets of web pages.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::hmac;

use super::listen::{Error, Rights};

/// Minimum length of a token: 128 bits in hexadecimal.
const TOKEN_CHARS_MIN: usize = 32;

/// A secret that a caller over TCP sends.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Reads a caller's token from a file that only its owner can read: the first of [`Tokens`].
    ///
    /// # Errors
    /// Other users can read the file, or the token is too short.
    pub fn read(path: &Path) -> Result<Token, Error> {
        Ok(parsed(path)?.remove(0).token)
    }

    /// The text of the token, for the request to a host.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    fn matches(&self, shown: &str) -> bool {
        use sha2::{Digest as _, Sha256};
        Sha256::digest(shown.as_bytes()) == Sha256::digest(self.0.as_bytes())
    }
}

/// A token and the name of its holder.
#[derive(Clone)]
struct Named {
    name: Option<Arc<str>>,
    token: Token,
}

/// A file of tokens, one per line: `TOKEN`, or `NAME TOKEN`. It is read again when it changes, so
/// that tokens can be replaced and revoked without a restart.
#[derive(Clone)]
pub struct Tokens(Arc<File>);

struct File {
    path: PathBuf,
    rights: Rights,
    known: Mutex<Known>,
}

/// The result of the last read.
struct Known {
    /// The version of the file that was read; `None`: it could not be read. It is then read again
    /// every time, because the cause may disappear without a change of the file itself.
    version: Option<FileVersion>,
    named: Vec<Named>,
    /// The last error, which is logged once.
    fault: Option<String>,
}

/// Identifies a version of a file by its location, its size, and the times at which its content,
/// mode and owner were changed.
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
    /// Other users can read the file, it contains no token, or a token is too short.
    pub fn read(path: &Path, rights: Rights) -> Result<Tokens, Error> {
        let version = FileVersion::of(path);
        let known = Mutex::new(Known { version, named: parsed(path)?, fault: None });
        Ok(Tokens(Arc::new(File { path: path.to_owned(), rights, known })))
    }

    /// The holder of this token; `None`: it is not among the tokens.
    pub(super) fn find(&self, shown: &str) -> Option<Bearer> {
        self.find_by(|token| token.matches(shown))
    }

    /// The holder of the token that satisfies `holds`.
    fn find_by(&self, holds: impl Fn(&Token) -> bool) -> Option<Bearer> {
        let version = FileVersion::of(&self.0.path);
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.version != version || version.is_none() {
            *known = match parsed(&self.0.path) {
                Ok(named) => Known { version, named, fault: None },
                // An unreadable file rejects every token, because the change may have revoked it.
                Err(error) => {
                    let said = error.to_string();
                    if known.fault.as_ref() != Some(&said) {
                        tracing::warn!(%error, "invalid token file: all requests are rejected");
                    }
                    Known { version: None, named: Vec::new(), fault: Some(said) }
                }
            };
        }
        // Every token is compared, so that the response time does not reveal partial matches.
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
    let bytes = besom_system::secret::read(path).map_err(fail)?;
    let text = String::from_utf8(bytes).map_err(|_| fail("it is not UTF-8".into()))?;
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, token) = match words.as_slice() {
            [] => continue,
            [token] => (None, *token),
            [name, token] => (Some(Arc::from(*name)), *token),
            _ => {
                return Err(fail(format!(
                    "line {}: invalid format: write TOKEN or NAME TOKEN",
                    number + 1
                )));
            }
        };
        if token.len() < TOKEN_CHARS_MIN {
            return Err(fail(format!(
                "line {}: a token of {} characters is too short; the minimum is {TOKEN_CHARS_MIN}: \
                 create one with `openssl rand -hex 32`",
                number + 1,
                token.chars().count()
            )));
        }
        all.push(Named { name, token: Token(token.into()) });
    }
    match all.is_empty() {
        true => Err(fail("it is empty: create a token with `openssl rand -hex 32`".into())),
        false => Ok(all),
    }
}

/// The holder of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// The name that the file gives to the token.
    pub name: Option<Arc<str>>,
    /// What the token allows.
    pub rights: Rights,
}

/// A token that a request has shown. What lasts longer than a request asks whether it is still valid.
#[derive(Clone)]
pub(super) struct Standing {
    files: Vec<Tokens>,
    shown: Arc<str>,
    bearer: Bearer,
}

impl Standing {
    /// Finds the holder of a token among the files; `None`: it is in none of them.
    pub(super) fn of(files: &[Tokens], shown: &str) -> Option<Standing> {
        let bearer = files.iter().fold(None, |known, tokens| tokens.find(shown).or(known))?;
        Some(Standing { files: files.to_vec(), shown: shown.into(), bearer })
    }

    /// Who held it, and with which rights, when the request was judged.
    pub(super) fn bearer(&self) -> &Bearer {
        &self.bearer
    }

    /// The token itself.
    pub(super) fn shown(&self) -> Arc<str> {
        Arc::clone(&self.shown)
    }

    /// Whether the token still has the same holder and rights.
    pub(super) fn holds(&self) -> bool {
        Standing::of(&self.files, &self.shown).is_some_and(|now| now.bearer == self.bearer)
    }
}

/// Tickets of web pages: each opens WebSockets of one id until it expires. The product's back end
/// signs them with a key that the page never sees.
#[derive(Clone)]
pub struct Tickets {
    keys: Tokens,
    /// Maximum remaining lifetime of a ticket.
    life_max: Duration,
}

/// A ticket with a valid signature that has not expired.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ticket(pub(super) Arc<str>);

impl Tickets {
    /// Reads the keys of a file that only its owner can read. The file is read again when it
    /// changes.
    ///
    /// # Errors
    /// Other users can read the file, it contains no key, or a key is too short.
    pub fn read(path: &Path, life_max: Duration) -> Result<Tickets, Error> {
        Ok(Tickets { keys: Tokens::read(path, Rights::All)?, life_max })
    }

    /// Verifies a ticket, `EXPIRES.SIGNATURE`, for an id at this time.
    ///
    /// # Errors
    /// The reason for the rejection, as a message for the caller.
    pub(super) fn judge(&self, shown: &str, id: &str, now: SystemTime) -> Result<Ticket, String> {
        let malformed = || {
            "malformed ticket: write EXPIRES.SIGNATURE, seconds since 1970 and hexadecimal digits"
                .to_owned()
        };
        let (expires, signature) = shown.split_once('.').ok_or_else(malformed)?;
        let ends: u64 = expires.parse().map_err(|_| malformed())?;
        let signature = hex::decode(signature).map_err(|_| malformed())?;
        let signed = format!("activity\n{id}\n{expires}");
        let signs = |key: &Token| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key.secret().as_bytes());
            hmac::verify(&key, signed.as_bytes(), &signature).is_ok()
        };
        if self.keys.find_by(signs).is_none() {
            return Err("the ticket's signature does not match this id".into());
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
        // The same digits in another spelling are the same ticket, and count as one.
        Ok(Ticket(format!("{ends}.{}", hex::encode(signature)).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// The output of `printf 'activity\nws-1\n1750000300' | openssl dgst -sha256 -hmac KEY`.
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
        // Its size and modification time stay the same.
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
        let ticket = |shown| tickets.judge(shown, "ws-1", at(1_750_000_000)).unwrap();
        // One ticket has one number of WebSockets, in whatever spelling it is shown.
        assert_eq!(ticket(&upper), ticket(&good));
        let later = format!("1750000301.{SIGNED}");
        let cut = &good[..good.len() - 1];
        let odd = &good[..good.len() - 2];
        for (shown, id, now, words) in [
            (good.as_str(), "ws-1", 1_750_000_300, "expired"),
            (&good, "ws-2", 1_750_000_000, "signature does not match"),
            (&later, "ws-1", 1_750_000_000, "signature does not match"),
            (odd, "ws-1", 1_750_000_000, "signature does not match"),
            (cut, "ws-1", 1_750_000_000, "EXPIRES.SIGNATURE"),
            (&good, "ws-1", 1_749_000_000, "more than 3600 s"),
            ("1750000300.", "ws-1", 1_750_000_000, "signature does not match"),
            ("1750000300.zz", "ws-1", 1_750_000_000, "EXPIRES.SIGNATURE"),
            ("-1.00", "ws-1", 1_750_000_000, "EXPIRES.SIGNATURE"),
            ("", "ws-1", 1_750_000_000, "EXPIRES.SIGNATURE"),
        ] {
            let said = judge(shown, id, now).unwrap_err();
            assert!(said.contains(words), "{shown} for {id}: {said}");
        }
        // Revoking a key revokes its tickets.
        put("ffffffffffffffffffffffffffffffff\n");
        assert!(judge(&good, "ws-1", 1_750_000_000).is_err());
    }
}
