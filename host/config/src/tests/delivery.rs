//! The checks of delivery routes when the file is read.

use std::time::Duration;

use besom_core::delivery::event::Envelope;

use super::{check, load};
use crate::delivery::{Receiver, Sasl};

#[test]
fn a_route_has_its_defaults_and_only_what_is_listed_is_a_host() {
    let config = load(
        "\
[delivery]
hosts = [\"orchestrator.internal\", \"127.0.0.1:8080\"]

[topics.\"workspace.stop\"]
url = \"https://Orchestrator.internal/v1/stop\"
token_file = \"token\"

[topics.other]
url = \"http://127.0.0.1:8080/\"
timeout = \"2m\"
attempts_max = 3
",
    )
    .unwrap();
    let route = &config.topics["workspace.stop"];
    assert_eq!(route.token_file.as_deref(), Some(std::path::Path::new("token")));
    assert_eq!((route.timeout, route.attempts_max), (Duration::from_secs(10), 200));
    assert_eq!((route.concurrency, route.reply_bytes_max), (4, 65_536));
    assert_eq!(config.topics["other"].timeout, Duration::from_secs(120));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    assert!(load("").unwrap().topics.is_empty());
}

#[test]
fn a_url_is_judged_at_its_place() {
    check(
        "\
[delivery]
hosts = [\"a\"]

[topics.b]
url = \"https://b:9/x\"

[topics.c]
url = \"ftp://a/x\"

[topics.d]
url = \"https://user:secret@a/\"

[topics.e]

[topics.f]
url = \"http://a/#part\"
tocken_file = \"x\"
",
        r#"
besom.toml:5:7: error: the host of `https://b:9/x` is not in delivery.hosts
  5 | url = "https://b:9/x"
    |       ^^^^^^^^^^^^^^^ add "b:9" to delivery.hosts
besom.toml:8:7: error: `ftp://a/x` is neither http nor https
  8 | url = "ftp://a/x"
    |       ^^^^^^^^^^^ write https://host/path, http://host:port/path, redis://host:port for a stream, or kafka://host:port
besom.toml:11:7: error: `https://user:******@a/` contains a user or a password
  11 | url = "https://user:******@a/"
     |       ^^^^^^^^^^^^^^^^^^^^^^^^ put the token into token_file
besom.toml:13:9: error: the topic `e` has no url
  13 | [topics.e]
     |         ^ add url = "https://host/path"
besom.toml:16:7: error: `http://a/#part` has a fragment, which is never sent
  16 | url = "http://a/#part"
     |       ^^^^^^^^^^^^^^^^ remove it
besom.toml:17:1: error: unknown key `tocken_file` in [topics.f]
  17 | tocken_file = "*"
     | ^^^^^^^^^^^ did you mean `token_file`?
"#,
    );
}

#[test]
fn a_token_over_the_open_network_deserves_a_look() {
    let text = |host: &str| {
        format!(
            "[delivery]\nhosts = [\"{host}\"]\n[topics.t]\nurl = \"http://{host}:80/\"\n\
             token_file = \"token\"\n"
        )
    };
    for (host, warnings) in [("localhost", 0), ("127.0.0.1", 0), ("[::1]", 0), ("a.example", 1)] {
        assert_eq!(load(&text(host)).unwrap().warnings.len(), warnings, "{host}");
    }
}

#[test]
fn a_stream_has_its_servers_and_limits() {
    let config = load(
        "\
[delivery]
hosts = [\"a\", \"b:7000\", \"[::1]\"]

[topics.events]
url = \"rediss://A,b:7000,[::1]:7001\"
user = \"feed\"
password_file = \"password\"
envelope = \"structured\"
replicas = 1

[topics.plain]
url = \"redis://a/3\"
stream = \"events:plain\"
",
    )
    .unwrap();
    let route = &config.topics["events"];
    assert_eq!(route.password_file.as_deref(), Some(std::path::Path::new("password")));
    assert_eq!((route.envelope, route.replicas, route.batch), (Envelope::Structured, 1, 2_000));
    let urls = |topic: &str| match Receiver::parse(&config.topics[topic].url) {
        Ok(Receiver::Redis(servers)) => servers.urls(),
        other => panic!("{other:?}"),
    };
    assert_eq!(urls("events"), ["rediss://a:6379/0", "rediss://b:7000/0", "rediss://[::1]:7001/0"]);
    assert_eq!(urls("plain"), ["redis://a:6379/3"]);
    assert_eq!(config.topics["plain"].stream.as_deref(), Some("events:plain"));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn the_servers_of_a_stream_are_judged_at_their_place() {
    check(
        "\
[delivery]
hosts = [\"a\"]

[topics.b]
url = \"redis://a,b:7000\"

[topics.c]
url = \"redis://user:secret@a\"

[topics.d]
url = \"redis://a:7000,a:7001/2\"

[topics.e]
url = \"redis://a/events\"

[topics.f]
url = \"redis://a\"
attempts_max = 3

[topics.g]
url = \"http://a/\"
replicas = 1
",
        r#"
besom.toml:5:7: error: the server `b` is not in delivery.hosts
  5 | url = "redis://a,b:7000"
    |       ^^^^^^^^^^^^^^^^^^ add "b:7000" to delivery.hosts
besom.toml:8:7: error: `redis://user:******@a` contains a user or a password
  8 | url = "redis://user:******@a"
    |       ^^^^^^^^^^^^^^^^^^^^^^^ write user and password_file
besom.toml:11:7: error: `redis://a:7000,a:7001/2` names a database of a cluster, which has only 0
  11 | url = "redis://a:7000,a:7001/2"
     |       ^^^^^^^^^^^^^^^^^^^^^^^^^ remove it
besom.toml:14:7: error: `redis://a/events` has no number as its database
  14 | url = "redis://a/events"
     |       ^^^^^^^^^^^^^^^^^^ write redis://host:port, or redis://host:port,host:port for a cluster
besom.toml:18:16: error: `attempts_max` has no effect: the topic `f` is delivered to Redis
  18 | attempts_max = 3
     |                ^ remove it
besom.toml:22:12: error: `replicas` has no effect: the topic `g` is delivered over HTTP
  22 | replicas = 1
     |            ^ remove it
"#,
    );
}

#[test]
fn a_topic_of_kafka_has_its_servers_and_its_user() {
    let config = load(
        "\
[delivery]
hosts = [\"a\", \"[::1]:9093\"]

[topics.events]
url = \"kafka+ssl://A,[::1]:9093\"
user = \"feed\"
password_file = \"password\"
topic = \"documents\"
cert = \"cert.pem\"
key = \"key.pem\"

[topics.plain]
url = \"kafka://a:9094/\"
user = \"feed\"
password_file = \"password\"
sasl = \"scram-sha-256\"
",
    )
    .unwrap();
    let route = &config.topics["events"];
    assert_eq!((route.sasl, route.topic.as_deref()), (Sasl::ScramSha512, Some("documents")));
    let path = |name: &str| Some(std::path::PathBuf::from(name));
    assert_eq!((&route.cert, &route.key), (&path("cert.pem"), &path("key.pem")));
    let servers = |topic: &str| match Receiver::parse(&config.topics[topic].url) {
        Ok(Receiver::Kafka(servers)) => servers,
        other => panic!("{other:?}"),
    };
    let events = servers("events");
    assert_eq!(events.hosts, [("a".into(), 9092), ("[::1]".into(), 9093)]);
    assert!(events.secure && !servers("plain").secure);
    assert_eq!(config.topics["plain"].sasl, Sasl::ScramSha256);
    assert!(config.warnings.is_empty(), "a challenge sends no password: {:?}", config.warnings);
}

#[test]
fn a_route_to_kafka_is_judged_at_its_place() {
    check(
        "\
[delivery]
hosts = [\"a\"]

[topics.b]
url = \"kafka://a,b\"

[topics.c]
url = \"kafka://user:secret@a\"

[topics.d]
url = \"kafka://a/events\"

[topics.e]
url = \"kafka://a\"
stream = \"events\"

[topics.f]
url = \"kafka://a\"
user = \"feed\"

[topics.g]
url = \"kafka://a\"
cert = \"c\"
key = \"k\"
sasl = \"plain\"

[topics.\"h i\"]
url = \"kafka://a\"

[topics.j]
url = \"redis://a\"
topic = \"events\"
",
        r#"
besom.toml:5:7: error: the server `b` is not in delivery.hosts
  5 | url = "kafka://a,b"
    |       ^^^^^^^^^^^^^ add "b:9092" to delivery.hosts
besom.toml:8:7: error: `kafka://user:******@a` contains a user or a password
  8 | url = "kafka://user:******@a"
    |       ^^^^^^^^^^^^^^^^^^^^^^^ write user and password_file
besom.toml:11:7: error: `kafka://a/events` has a path
  11 | url = "kafka://a/events"
     |       ^^^^^^^^^^^^^^^^^^ write the name of the topic in `topic`
besom.toml:15:10: error: `stream` has no effect: the topic `e` is delivered to Kafka
  15 | stream = "events"
     |          ^^^^^^^^ remove it
besom.toml:19:8: error: `user` of the topic `f` requires `password_file`
  19 | user = "feed"
     |        ^^^^^^ write both
besom.toml:23:8: error: `cert` has no effect: the topic `g` is delivered without TLS
  23 | cert = "c"
     |        ^^^ write kafka+ssl://
besom.toml:25:8: error: `sasl` of the topic `g` requires `user`
  25 | sasl = "plain"
     |        ^^^^^^^ write both
besom.toml:27:9: error: `h i` is not the name of a topic of Kafka
  27 | [topics."h i"]
     |         ^^^^^ write at most 249 of a-z, A-Z, 0-9, `.`, `_` and `-`
besom.toml:32:9: error: `topic` has no effect: the topic `j` is delivered to Redis
  32 | topic = "events"
     |         ^^^^^^^^ remove it
"#,
    );
}

#[test]
fn a_password_over_the_open_network_deserves_a_look() {
    for (sasl, warnings) in [("plain", 1), ("scram-sha-512", 0)] {
        let text = format!(
            "[delivery]\nhosts = [\"a\"]\n[topics.t]\nurl = \"kafka://a\"\nuser = \"u\"\n\
             password_file = \"p\"\nsasl = \"{sasl}\"\n"
        );
        assert_eq!(load(&text).unwrap().warnings.len(), warnings, "{sasl}");
    }
}
