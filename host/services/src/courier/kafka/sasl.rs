//! SASL: how a user proves to a broker that it knows its password.

use std::num::NonZeroU32;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use besom_config::delivery::Sasl;
use bytes::Bytes;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use rand::distr::{Alphanumeric, SampleString as _};
use ring::{digest, hmac, pbkdf2};

use super::connection::{Connection, User, lifetime};

/// Maximum number of iterations that a broker may ask for; Kafka itself has at most 16,384. They run on
/// the thread of the connection.
const ITERATIONS_MAX: u32 = 100_000;
/// The code of a mechanism that a broker does not offer.
const UNSUPPORTED_MECHANISM: i16 = 33;
/// The code of a listener without SASL.
const ILLEGAL_STATE: i16 = 34;
const WITHOUT_SASL: &str = "has the listener SASL (`user` of the topic)?";
const NONCE_CHARS: usize = 32;

/// Identifies the user. Returns how long the session lasts, if the broker ends it.
pub(super) async fn authenticate(
    open: &mut Connection,
    user: &User,
) -> Result<Option<Duration>, String> {
    // Read for each connection, so that a replaced password takes effect with the next one.
    let password = super::super::password(&user.password_file)?;
    let mechanism = name(user.sasl);
    let request =
        SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str(mechanism));
    let answer = open.call(&request).await.map_err(|error| format!("{error}; {WITHOUT_SASL}"))?;
    if answer.error_code == ILLEGAL_STATE {
        return Err(format!("it refuses to authenticate a user; {WITHOUT_SASL}"));
    }
    if answer.error_code == UNSUPPORTED_MECHANISM {
        let offered: Vec<&str> = answer.mechanisms.iter().map(StrBytes::as_str).collect();
        let offered = offered.join(", ");
        return Err(format!("it does not offer {mechanism} (`sasl` of the topic), but {offered}"));
    }
    let failed = |error: String| {
        let file = user.password_file.display();
        format!("authentication of `{}` with {mechanism} failed ({file}): {error}", user.name)
    };
    if answer.error_code != 0 {
        return Err(failed(super::words(answer.error_code, None)));
    }
    let Some(algorithms) = algorithms(user.sasl) else {
        let token = format!("\0{}\0{password}", user.name);
        return Ok(exchange(open, token).await.map_err(failed)?.1);
    };
    let nonce = Alphanumeric.sample_string(&mut rand::rng(), NONCE_CHARS);
    let first = first(&user.name, &nonce);
    let (challenge, _) = exchange(open, format!("n,,{first}")).await.map_err(failed)?;
    let (proof, signature) =
        prove(algorithms, &first, &nonce, &challenge, &password).map_err(failed)?;
    let (end, lifetime) = exchange(open, proof).await.map_err(failed)?;
    match end.strip_prefix("v=").and_then(|text| BASE64_STANDARD.decode(text).ok()) {
        Some(own) if own == signature => Ok(lifetime),
        _ => Err(failed("the server does not know the password itself".to_owned())),
    }
}

/// The name of a mechanism, as Kafka has it.
fn name(sasl: Sasl) -> &'static str {
    match sasl {
        Sasl::Plain => "PLAIN",
        Sasl::ScramSha256 => "SCRAM-SHA-256",
        Sasl::ScramSha512 => "SCRAM-SHA-512",
    }
}

/// Sends a token and returns the answer's.
async fn exchange(
    open: &mut Connection,
    token: String,
) -> Result<(String, Option<Duration>), String> {
    let request = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(token));
    let answer = open.call(&request).await?;
    if answer.error_code != 0 {
        return Err(super::words(answer.error_code, answer.error_message.as_deref()));
    }
    let token = String::from_utf8(answer.auth_bytes.to_vec());
    Ok((token.map_err(|_| UNREADABLE)?, lifetime(answer.session_lifetime_ms)))
}

const UNREADABLE: &str = "the challenge is not that of the mechanism";

/// The algorithms of a mechanism with a challenge (RFC 5802).
#[derive(Clone, Copy)]
struct Algorithms {
    key: pbkdf2::Algorithm,
    mac: hmac::Algorithm,
    hash: &'static digest::Algorithm,
}

fn algorithms(sasl: Sasl) -> Option<Algorithms> {
    match sasl {
        Sasl::Plain => None,
        Sasl::ScramSha256 => Some(Algorithms {
            key: pbkdf2::PBKDF2_HMAC_SHA256,
            mac: hmac::HMAC_SHA256,
            hash: &digest::SHA256,
        }),
        Sasl::ScramSha512 => Some(Algorithms {
            key: pbkdf2::PBKDF2_HMAC_SHA512,
            mac: hmac::HMAC_SHA512,
            hash: &digest::SHA512,
        }),
    }
}

/// The first message of the client, without the header of the channel.
fn first(user: &str, nonce: &str) -> String {
    format!("n={},r={nonce}", user.replace('=', "=3D").replace(',', "=2C"))
}

/// The answer to a challenge, and the signature by which the server proves itself.
fn prove(
    algorithms: Algorithms,
    first: &str,
    nonce: &str,
    challenge: &str,
    password: &str,
) -> Result<(String, Vec<u8>), String> {
    let field = |name: &str| {
        let mut fields = challenge.split(',');
        fields.find_map(|field| field.strip_prefix(name)).ok_or_else(|| UNREADABLE.to_owned())
    };
    let (both, salt, iterations) = (field("r=")?, field("s=")?, field("i=")?);
    let salt = BASE64_STANDARD.decode(salt).map_err(|_| UNREADABLE)?;
    let iterations: NonZeroU32 = iterations.parse().map_err(|_| UNREADABLE)?;
    if !both.starts_with(nonce) || both.len() == nonce.len() {
        return Err("the challenge belongs to another client".to_owned());
    }
    if iterations.get() > ITERATIONS_MAX {
        return Err(format!(
            "the server asks for {iterations} iterations, more than {ITERATIONS_MAX}"
        ));
    }
    let Algorithms { key, mac, hash } = algorithms;
    let mut salted = vec![0; hash.output_len()];
    pbkdf2::derive(key, iterations, &salt, password.as_bytes(), &mut salted);
    let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(mac, key), text);
    let client_key = sign(&salted, b"Client Key");
    let stored_key = digest::digest(hash, client_key.as_ref());
    // `biws` is the header `n,,`: the channel itself is not bound.
    let end = format!("c=biws,r={both}");
    let all = format!("{first},{challenge},{end}");
    let signature = sign(stored_key.as_ref(), all.as_bytes());
    let proof: Vec<u8> =
        client_key.as_ref().iter().zip(signature.as_ref()).map(|(key, sign)| key ^ sign).collect();
    let server_key = sign(&salted, b"Server Key");
    let signature = sign(server_key.as_ref(), all.as_bytes()).as_ref().to_vec();
    Ok((format!("{end},p={}", BASE64_STANDARD.encode(proof)), signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const CHALLENGE: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                             s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn proven(challenge: &str) -> Result<(String, Vec<u8>), String> {
        let sha256 = algorithms(Sasl::ScramSha256).unwrap();
        prove(sha256, &first("user", NONCE), NONCE, challenge, "pencil")
    }

    /// The example of RFC 7677.
    #[test]
    fn a_proof_is_that_of_the_standard() {
        let (proof, signature) = proven(CHALLENGE).unwrap();
        assert_eq!(
            proof,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        let own = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(BASE64_STANDARD.encode(signature), own);
    }

    #[test]
    fn a_challenge_of_another_client_or_without_bounds_is_refused() {
        for (from, to) in
            [("r=r", "r=x"), ("i=4096", "i=4000000000"), ("i=4096", ""), ("s=W", "s=!")]
        {
            assert!(proven(&CHALLENGE.replace(from, to)).is_err(), "{to}");
        }
        assert_eq!(first("a=b,c", "x"), "n=a=3Db=2Cc,r=x");
    }
}
