//! Every input gets a response or a closed connection, and the next caller is served.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::*;
use crate::api::admin;

/// Valid requests, to be corrupted.
const WHOLE: [&str; 6] = [
    "POST /activity/ws-1/connect?connection=tab%201 HTTP/1.1\r\nhost: besom\r\nconnection: close\r\n\r\n",
    "POST /activity/ws-1/connect HTTP/1.1\r\nhost: besom\r\nconnection: close\r\ncontent-length: 23\r\n\r\n{\"connection\": \"tab-2\"}",
    "GET /activity/ws-1 HTTP/1.1\r\nhost: besom\r\nconnection: close\r\n\r\n",
    "GET /activity/ws-1/socket HTTP/1.1\r\nhost: besom\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "POST /activity/ws-1/heartbeat HTTP/1.1\r\nhost: besom\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
];

#[tokio::test]
async fn any_request_is_answered_or_hung_up_on() {
    let (_directory, path) = socket();
    let observed = Observed::new();
    let serving = Serving::start(Listener::unix(&path).await.unwrap(), &observed);
    let seeds = std::env::var("BESOM_FUZZ_SEEDS").map_or(200, |n| n.parse().expect("a number"));
    for seed in 0..seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bytes = WHOLE.choose(&mut random).expect("one").as_bytes().to_vec();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..4) {
                0 => bytes[at] = random.random(),
                1 => bytes.truncate(at.max(1)),
                2 => bytes.splice(at..at, *b"\r\n").for_each(drop),
                _ => bytes.insert(at, random.random()),
            }
        }
        let mut stream = UnixStream::connect(&path).await.expect("somebody listens");
        // A caller that is rejected early may be unable to send the rest.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "seed {seed}: nobody hangs up: {}", bytes.escape_ascii());
        let is_answer = answer.is_empty() || answer.starts_with(b"HTTP/1.1 ");
        assert!(is_answer, "seed {seed}: {}", answer.escape_ascii());
    }
    let (status, answer) = ask(&path, "GET /activity/ws-2", "").await;
    assert_eq!(status, 200, "{answer}");
    serving.end().await;
}

/// Over HTTP/2, one connection would carry any number of requests.
#[tokio::test]
async fn http_2_is_refused_without_tls_too() {
    let (_directory, path) = socket();
    let observed = Observed::new();
    let serving = Serving::start(Listener::unix(&path).await.unwrap(), &observed);
    let mut stream = UnixStream::connect(&path).await.expect("somebody listens");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("taken");
    // A server of HTTP/2 begins with its settings and keeps the connection open.
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.expect("hung up").expect("an answer");
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", answer.escape_ascii());
    serving.end().await;
}

#[test]
fn any_body_of_the_admin_api_is_understood_or_refused() {
    let whole = r#"{"action": {"action": "retry_dead", "task": "sweep", "error": "e", "expect": 3}, "reason": "r"}"#;
    for seed in 0..2_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bytes = whole.as_bytes().to_vec();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..3) {
                0 => bytes[at] = *b"{}[]\",:0-e\\n\xff".choose(&mut random).expect("one"),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, random.random()),
            }
        }
        if let Err(error) = serde_json::from_slice::<admin::Request>(&bytes) {
            assert!(!error.to_string().is_empty());
        }
    }
}
