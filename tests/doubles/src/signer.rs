//! Signs files as minisign does, without hashing the content before (its older form).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// The mark of a key, and of a signature of the content itself.
const ALGORITHM: &[u8] = b"Ed";

/// A secret key.
pub struct Signer {
    pair: Ed25519KeyPair,
    id: [u8; 8],
}

impl Signer {
    /// The key of this number.
    ///
    /// # Panics
    /// If ring refuses the key, which it does not.
    pub fn new(number: u8) -> Signer {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[number; 32]).expect("a seed of 32 bytes");
        Signer { pair, id: [number; 8] }
    }

    /// The public key, as the second line of `minisign.pub` has it.
    pub fn public(&self) -> String {
        STANDARD.encode([ALGORITHM, &self.id, self.pair.public_key().as_ref()].concat())
    }

    /// The text of the file with the signature.
    pub fn sign(&self, content: &[u8]) -> String {
        let signature = self.pair.sign(content);
        let comment = "timestamp:1735689600\tfile:a.wasm";
        let global = self.pair.sign(&[signature.as_ref(), comment.as_bytes()].concat());
        let signature = STANDARD.encode([ALGORITHM, &self.id, signature.as_ref()].concat());
        let global = STANDARD.encode(global.as_ref());
        format!("untrusted comment: of a test\n{signature}\ntrusted comment: {comment}\n{global}\n")
    }
}
