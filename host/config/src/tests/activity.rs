//! `[activity]`.

use std::path::PathBuf;

use super::*;
use crate::activity::Wake;

#[test]
fn redis_is_described_by_its_addresses_and_files() {
    let text = "\
[activity]
redis = [\"rediss://a:6379\", \"rediss://b:6379\"]
redis_user = \"besom\"
redis_password_file = \"secret/password\"
redis_ca = \"/etc/ca.pem\"
redis_cert = \"node.pem\"
redis_key = \"node.key\"
redis_connections = \"app:ws_conn:{{id}}\"
wake = \"never\"
";
    let parsed = RawConfig::parse(text, Path::new("conf/besom.toml"), &Overrides::default());
    let config = parsed.resolve(&plugin, &default_collections()).finish().unwrap();
    let a = &config.activity;
    assert!(a.in_redis());
    assert_eq!(a.redis, ["rediss://a:6379", "rediss://b:6379"]);
    assert_eq!(a.redis_connections, "app:ws_conn:{{id}}");
    assert_eq!(a.redis_timer, "idle_timer:{id}");
    assert_eq!(a.wake, Wake::Never);
    let paths = [&a.redis_password_file, &a.redis_ca, &a.redis_cert, &a.redis_key];
    let files = ["conf/secret/password", "/etc/ca.pem", "conf/node.pem", "conf/node.key"];
    assert_eq!(paths.map(Clone::clone), files.map(|file| Some(PathBuf::from(file))));
}

#[test]
fn without_addresses_activity_is_kept_in_the_store() {
    let config = load("").unwrap();
    assert!(!config.activity.in_redis());
    assert_eq!(config.activity.wake, Wake::Mapped);
    assert_eq!(config.activity.redis_connections, "ws_conn:{id}");
}

#[test]
fn what_cannot_be_is_said_with_the_fix() {
    for (line, message, fix) in [
        (
            "tcp = \"127.0.0.1:1\"",
            "without a token is open to every local user",
            "set activity.token_file",
        ),
        ("redis = [\"10.0.0.1:6379\"]", "is not a Redis address", "redis://HOST:PORT"),
        ("redis = [\"redis://me:pw@a:1\"]", "contains a user or a password", "redis_password_file"),
        ("redis_connections = \"ws_conn\"", "must contain {id} exactly once", "write {id} where"),
        ("redis_timer = \"{id}{id}\"", "must contain {id} exactly once", "write {id} where"),
        (
            "redis_timer = \"ws_conn:{id}\"",
            "must differ from activity.redis_connections",
            "another name",
        ),
        ("redis_user = \"me\"", "requires activity.redis_password_file", "set activity"),
        ("redis_key = \"k.pem\"", "requires activity.redis_cert", "set activity.redis_cert"),
        ("redis = [\"redis://a:1\"]\nredis_ca = \"c\"", "requires TLS", "write rediss://"),
        ("origins = [\"app.example\"]", "is not a valid origin", "write https://HOST"),
        ("origins = [\"https://*\"]", "is not a valid origin", "write https://HOST"),
        (
            "origins = [\"https://a.example\"]",
            "requires activity.ticket_key_file",
            "or remove origins",
        ),
        ("ticket_key_file = \"keys\"", "requires activity.origins", "or remove ticket_key_file"),
        ("wake = \"always\"", "is not a valid value for `wake`", "choose one of"),
    ] {
        let said = load(&format!("[activity]\n{line}\n")).unwrap_err().to_string();
        assert!(said.contains(message) && said.contains(fix), "{line}:\n{said}");
        assert!(!said.contains("pw@"), "a password is not shown: {said}");
    }
}
