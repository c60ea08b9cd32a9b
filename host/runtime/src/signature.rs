//! Signatures of plugin files, made with minisign and stored beside them.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use besom_system::secret;
use minisign_verify::{Error, PublicKey, Signature};

/// What follows the name of a plugin file in that of its signature.
const ENDING: &str = ".minisig";

/// Maximum size of a signature file, in bytes: two lines of comments and two of Base64.
const BYTES_MAX: u64 = 16 << 10;

/// A public key whose signatures are accepted.
#[derive(Clone)]
pub struct TrustedKey(PublicKey);

impl TrustedKey {
    /// Reads a key as minisign prints it: one line of Base64 that begins with `RW`.
    ///
    /// # Errors
    /// The text is something else.
    pub fn parse(text: &str) -> Result<TrustedKey, String> {
        let wrong =
            |_| "is not a public key of minisign, which is 56 characters of Base64".to_owned();
        PublicKey::from_base64(text.trim()).map(TrustedKey).map_err(wrong)
    }
}

impl fmt::Debug for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustedKey").finish_non_exhaustive()
    }
}

/// Whose signatures a plugin file needs.
#[derive(Debug, Clone, Default)]
pub struct Signing {
    /// The trusted keys; without any, signatures are not read.
    pub keys: Vec<TrustedKey>,
    /// Whether a file without a signature is refused. A signature that is there has to be right in any case.
    pub required: bool,
}

/// Why no trusted key vouches for a file.
#[derive(Debug, thiserror::Error)]
pub enum Unvouched {
    /// There is no signature.
    #[error("it is not signed: there is no {}", .0.display())]
    Missing(PathBuf),
    /// The signature cannot be read.
    #[error("its signature {} cannot be read: {error}", path.display())]
    Unreadable {
        /// The signature.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The file beside it is no signature.
    #[error("{} is not a signature of minisign", .0.display())]
    Malformed(PathBuf),
    /// None of the trusted keys has made the signature.
    #[error("its signature {} is by none of plugins.trusted_keys", .0.display())]
    AnotherKey(PathBuf),
    /// A trusted key has signed another content.
    #[error("its signature {} is of another content, or was changed", .0.display())]
    AnotherContent(PathBuf),
}

impl Unvouched {
    /// How to fix it.
    pub fn fix(&self) -> &'static str {
        match self {
            Unvouched::Missing(_) => {
                "review the file and sign it with `minisign -Sm FILE`, or put its signature beside it"
            }
            Unvouched::Unreadable { .. } => "make it a file that this user can read",
            Unvouched::Malformed(_) => {
                "copy the signature again, or sign the file with `minisign -Sm FILE`"
            }
            Unvouched::AnotherKey(_) => {
                "get the file from somebody whose key is trusted, or add the key to plugins.trusted_keys \
                 after examining it"
            }
            Unvouched::AnotherContent(_) => {
                "copy the file and its signature again, from the same release; if they are right, \
                 somebody has changed the file"
            }
        }
    }
}

/// Where the signature of a file is.
fn beside(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(ENDING);
    path.into()
}

impl Signing {
    /// Checks the signature beside a file with this content.
    ///
    /// # Errors
    /// Why no trusted key vouches for it.
    pub fn check(&self, file: &Path, content: &[u8]) -> Result<(), Unvouched> {
        let path = beside(file);
        if self.keys.is_empty() && !self.required {
            return Ok(());
        }
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return if self.required { Err(Unvouched::Missing(path)) } else { Ok(()) };
            }
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(Unvouched::Malformed(path));
            }
            Err(error) => return Err(Unvouched::Unreadable { path, error }),
        };
        let Ok(signature) = Signature::decode(&text) else {
            return Err(Unvouched::Malformed(path));
        };
        let mut is_of_a_key = false;
        for TrustedKey(key) in &self.keys {
            match key.verify(content, &signature, true) {
                Ok(()) => return Ok(()),
                Err(Error::UnexpectedKeyId) => {}
                Err(_) => is_of_a_key = true,
            }
        }
        Err(match is_of_a_key {
            true => Unvouched::AnotherContent(path),
            false => Unvouched::AnotherKey(path),
        })
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    secret::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use besom_doubles::signer::Signer;

    use super::*;

    fn trusting(signers: &[&Signer]) -> Signing {
        let keys = signers.iter().map(|signer| TrustedKey::parse(&signer.public()).expect("a key"));
        Signing { keys: keys.collect(), required: true }
    }

    #[test]
    fn a_file_is_vouched_for_by_a_trusted_key_and_its_own_content_alone() {
        let [one, two, other] = [1, 2, 3].map(Signer::new);
        let signing = trusting(&[&one, &two]);
        let dir = tempfile::tempdir().expect("a directory");
        let (file, beside) = (dir.path().join("a.wasm"), dir.path().join("a.wasm.minisig"));
        let check = || signing.check(&file, b"code").map_err(|why| why.to_string());
        let refused = |words: &str| {
            let why = check().expect_err(words);
            assert!(why.contains(words) && why.contains("a.wasm.minisig"), "{why}");
        };
        refused("it is not signed");
        for signer in [&one, &two] {
            std::fs::write(&beside, signer.sign(b"code")).expect("written");
            check().expect("signed");
        }
        std::fs::write(&beside, other.sign(b"code")).expect("written");
        refused("by none of plugins.trusted_keys");
        std::fs::write(&beside, two.sign(b"other code")).expect("written");
        refused("of another content");
        // The trusted comment is signed as well.
        let text = one.sign(b"code");
        std::fs::write(&beside, text.replace("file:a.wasm", "file:b.wasm")).expect("written");
        refused("of another content");
        let half = &text[..text.len() / 2];
        for malformed in ["", "untrusted comment: x\n", "\u{0}\u{1}", half] {
            std::fs::write(&beside, malformed).expect("written");
            refused("is not a signature of minisign");
        }
        std::fs::write(&beside, [0xff, 0xfe]).expect("written");
        refused("is not a signature of minisign");
        std::fs::remove_file(&beside).expect("removed");
        std::fs::create_dir(&beside).expect("created");
        refused("cannot be read");
    }

    /// As minisign makes it today, of the hash of the content. From the documentation of minisign-verify.
    #[test]
    fn a_signature_of_minisign_is_accepted() {
        let dir = tempfile::tempdir().expect("a directory");
        let signature = "untrusted comment: signature from minisign secret key\n\
            RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=\n\
            trusted comment: timestamp:1633700835\tfile:test\tprehashed\n\
            wLMDjy9FLAuxZ3q4NlEvkgtyhrr0gtTu6KC4KBJdITbbOeAi1zBIYo0v4iTgt8jJpIidRJnp94ABQkJAgAooBQ==\n";
        std::fs::write(dir.path().join("test.minisig"), signature).expect("written");
        let signing =
            Signing { keys: vec![TrustedKey::parse(KEY).expect("a key")], required: true };
        signing.check(&dir.path().join("test"), b"test").expect("signed");
        signing.check(&dir.path().join("test"), b"Test").expect_err("another content");
    }

    #[test]
    fn a_signature_that_is_not_required_has_to_be_right_if_it_is_there() {
        let [one, other] = [1, 2].map(Signer::new);
        let signing = Signing { required: false, ..trusting(&[&one]) };
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a.wasm");
        signing.check(&file, b"code").expect("no signature");
        std::fs::write(dir.path().join("a.wasm.minisig"), other.sign(b"code")).expect("written");
        signing.check(&file, b"code").expect_err("another key");
        Signing::default().check(&file, b"code").expect("nobody is trusted, and nothing required");
    }

    const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

    #[test]
    fn a_key_that_is_none_is_refused() {
        for text in ["", "RW", &KEY[..55], "ssh-ed25519 AAAA"] {
            TrustedKey::parse(text).expect_err(text);
        }
        TrustedKey::parse(KEY).expect("a key");
    }
}
