//! The ring behind real sockets.

use std::num::NonZeroU32;

use besom_core::ring::{HashName, Placement};
use serde_json::{Value, json};

use super::super::ring::{ServedRing, router};
use super::*;

/// A served ring and the path prefix of its requests.
struct Site {
    path: PathBuf,
    serving: Serving,
    _directory: tempfile::TempDir,
}

impl Site {
    async fn new(hash: HashName, placement: Placement, virtual_nodes: u32) -> Site {
        let (directory, path) = socket();
        let virtual_nodes = NonZeroU32::new(virtual_nodes).unwrap();
        let router = router(ServedRing::new(hash, placement, virtual_nodes));
        let listener = Listener::unix(&path).await.unwrap();
        Site { serving: Serving::of(listener, router), path, _directory: directory }
    }

    /// The status and the body of a response.
    async fn ask(&self, line: &str, body: &str) -> (u16, Value) {
        let (status, answer) = ask(&self.path, line, body).await;
        let said = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let json = serde_json::from_str(said).unwrap_or_else(|e| panic!("{e}: {line}: {answer}"));
        (status, json)
    }

    async fn does(&self, line: &str, body: Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, json) = self.ask(line, &body).await;
        assert_eq!(status, 200, "{line}: {json}");
        json
    }
}

#[tokio::test]
async fn servers_and_keys_come_and_go_and_moves_are_counted() {
    let site = Site::new(HashName::Md5, Placement::Consistent, 1).await;
    // There are no owners, which is not an error.
    let nobody = site.does("GET /ring/key/7", Value::Null).await;
    assert_eq!((&nobody["server"], &nobody["stored"]), (&Value::Null, &json!(false)));
    let nobody = site.does("POST /ring/key", json!({ "key": "7" })).await;
    assert_eq!((&nobody["server"], &nobody["stored"]), (&Value::Null, &json!(false)));

    for n in 0..4 {
        let name = format!("server_{n}");
        let added = site.does("POST /ring/server", json!({ "name": name })).await;
        assert_eq!((&added["servers"], &added["moved"]), (&json!(n + 1), &json!(0)));
    }
    let mut stored = std::collections::BTreeMap::new();
    for n in 0..200 {
        let key = n.to_string();
        let put = site.does("POST /ring/key", json!({ "key": key })).await;
        stored.insert(key, put["server"].clone());
    }
    let on = |server: &str| stored.values().filter(|owner| **owner == json!(server)).count();

    // With one point per server, only server_3 gives keys to server_4.
    let rehash = json!({ "name": "server_4", "rehash": true });
    let added = site.does("POST /consistenthash/server", rehash.clone()).await;
    assert_eq!(added["rehashed"], json!(on("server_3")));
    let moved = added["moved"].as_u64().unwrap();
    assert!(moved > 0 && added["lost"] == json!(0), "{added}");
    for (key, was) in &stored {
        let found = site.does(&format!("GET /ring/key/{key}"), Value::Null).await;
        assert!(found["stored"] == json!(true), "{found}");
        assert!(found["server"] == *was || found["server"] == json!("server_4"), "{found}");
    }
    let removed = site.does("DELETE /ring/server?name=server_4&rehash=true", Value::Null).await;
    assert_eq!((&removed["rehashed"], &removed["moved"]), (&json!(moved), &json!(moved)));
    let lost = site.does("DELETE /ring/server", json!({ "name": "server_2" })).await;
    assert_eq!(lost["lost"], json!(on("server_2")));

    let all = site.does("GET /ring", Value::Null).await;
    assert_eq!(all["hash"], json!("md5"));
    assert_eq!((&all["placement"], &all["virtual_nodes"]), (&json!("consistent"), &json!(1)));
    let keys: u64 =
        all["servers"].as_array().unwrap().iter().map(|s| s["keys"].as_u64().unwrap()).sum();
    assert_eq!(keys, 200 - on("server_2") as u64);
    let gone = site.does("DELETE /ring/key", json!({ "key": "no such" })).await;
    assert_eq!(gone["removed"], json!(false));
    let (key, _) = stored.iter().find(|(_, owner)| **owner != json!("server_2")).unwrap();
    assert_eq!(site.does("DELETE /ring/key", json!({ "key": key })).await["removed"], json!(true));
    let found = site.does(&format!("GET /ring/key/{key}"), Value::Null).await;
    assert_eq!(found["stored"], json!(false));
    site.serving.end().await;
}

#[tokio::test]
async fn hash_and_placement_are_the_configurations() {
    // server_00 by the first four bytes of MD5; by remainder, the key goes to the computed server.
    let md5 = Site::new(HashName::Md5, Placement::Modulo, 1).await;
    for n in 0..4 {
        md5.does("POST /ring/server", json!({ "name": format!("server_{n}") })).await;
    }
    let found = md5.does("GET /ring/key/server_00", Value::Null).await;
    assert_eq!(found["hash"], json!(3_208_578_106_u32));
    assert_eq!(found["server"], json!(format!("server_{}", 3_208_578_106_u32 % 4)));
    md5.serving.end().await;
    let xxh3 = Site::new(HashName::Xxh3, Placement::Consistent, 8).await;
    let found = xxh3.does("GET /ring/key/server_00", Value::Null).await;
    assert_ne!(found["hash"], json!(3_208_578_106_u32));
    xxh3.serving.end().await;
}

#[tokio::test]
async fn what_cannot_be_done_on_a_ring_is_refused_with_the_reason() {
    let site = Site::new(HashName::Xxh3, Placement::Consistent, 1_024).await;
    site.does("POST /ring/server", json!({ "name": "a" })).await;
    let long = "x".repeat(513);
    let cases = [
        ("POST /ring/server", r#"{"name": "a"}"#.to_owned(), 409, "already"),
        ("DELETE /ring/server", r#"{"name": "b"}"#.to_owned(), 404, "no server is called `b`"),
        ("POST /ring/server", String::new(), 400, "no name given"),
        ("POST /ring/server", r#"{"name": ""}"#.to_owned(), 400, "no name given"),
        ("POST /ring/server", r#"{"name"#.to_owned(), 400, "invalid body"),
        ("POST /ring/server", r#"{"nam": "b"}"#.to_owned(), 400, "unknown field"),
        ("POST /ring/server", r#"{"name": "b", "weight": 0}"#.to_owned(), 400, "invalid body"),
        ("POST /ring/server", r#"{"name": "b", "weight": 4294967295}"#.into(), 400, "too many"),
        ("POST /ring/server?nam=b", String::new(), 400, "invalid query"),
        ("POST /ring/key", String::new(), 400, "no key given"),
        ("POST /ring/key", format!(r#"{{"key": "{long}"}}"#), 400, "at most 512 bytes"),
    ];
    for (line, body, wanted, words) in cases {
        let (status, said) = site.ask(line, &body).await;
        assert_eq!(status, wanted, "{line} {body}: {said}");
        let said = said["error"].as_str().unwrap_or_default();
        assert!(said.contains(words), "{line} {body}: {said}");
    }
    let all = site.does("GET /ring", Value::Null).await;
    assert_eq!(all["servers"], json!([{ "name": "a", "weight": 1, "keys": 0 }]));
    site.serving.end().await;
}

#[tokio::test]
async fn without_a_token_only_this_machine_is_listened_to_and_web_pages_are_not() {
    let open = Listener::tcp_of_this_machine(SocketAddr::from(([0, 0, 0, 0], 0))).await;
    assert!(matches!(open, Err(Error::Open(_))));
    let listener = Listener::tcp_of_this_machine(SocketAddr::from(([127, 0, 0, 1], 0)));
    let listener = listener.await.unwrap();
    let Listener::Tcp(socket, _) = &listener else { panic!("TCP was asked for") };
    let address = socket.local_addr().unwrap();
    let ring = ServedRing::new(HashName::Xxh3, Placement::Consistent, NonZeroU32::MIN);
    let serving = Serving::of(listener, router(ring));
    let own = address.to_string();
    for (headers, wanted) in [
        (&[("host", own.as_str())][..], 200),
        (&[("host", own.as_str()), ("origin", "https://evil.example")], 403),
        (&[("host", "evil.example")], 403),
    ] {
        let stream = TcpStream::connect(address).await.unwrap();
        let (status, answer) = exchange(stream, &request("GET /ring", headers, "")).await;
        assert_eq!(status, wanted, "{headers:?}: {answer}");
    }
    serving.end().await;
}
