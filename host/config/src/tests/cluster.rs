//! `[coordination]` and `[ring]`.

use std::path::PathBuf;

use besom_core::ring::{HashName, Placement};

use super::*;

#[test]
fn a_cluster_is_described_by_its_endpoints_and_files() {
    let text = "\
[coordination]
etcd = [\"https://a:2379\", \"https://b:2379\"]
cluster = \"eu-1\"
user = \"besom\"
password_file = \"secret/password\"
ca = \"/etc/ca.pem\"
cert = \"node.pem\"
key = \"node.key\"

[ring]
hash = \"md5\"
placement = \"modulo\"
virtual_nodes = 100

[store]
url = \"postgres://db/product\"
";
    let parsed = RawConfig::parse(text, Path::new("conf/besom.toml"), &Overrides::default());
    let config = parsed.resolve(&plugin, &default_collections()).finish().unwrap();
    let c = &config.coordination;
    assert!(c.is_cluster());
    assert_eq!(c.etcd, ["https://a:2379", "https://b:2379"]);
    assert_eq!((&*c.cluster, c.user.as_deref()), ("eu-1", Some("besom")));
    let paths = [&c.password_file, &c.ca, &c.cert, &c.key].map(Clone::clone);
    let files = ["conf/secret/password", "/etc/ca.pem", "conf/node.pem", "conf/node.key"];
    assert_eq!(paths, files.map(|file| Some(PathBuf::from(file))));
    let ring = &config.ring;
    assert_eq!((ring.hash, ring.placement), (HashName::Md5, Placement::Modulo));
    assert_eq!(ring.virtual_nodes().get(), 100);
}

#[test]
fn without_endpoints_there_is_no_cluster_and_the_ring_is_the_usual_one() {
    let config = load("").unwrap();
    assert!(!config.coordination.is_cluster());
    assert_eq!(config.coordination.cluster, "besom");
    let ring = &config.ring;
    assert_eq!((ring.hash, ring.placement), (HashName::Xxh3, Placement::Consistent));
    assert_eq!(ring.virtual_nodes().get(), 1_024);
}

#[test]
fn the_environment_and_flags_list_endpoints_by_commas() {
    let overrides = Overrides {
        variables: vec![("BESOM_COORDINATION_CLUSTER".into(), "two".into())],
        flags: vec![
            "coordination.etcd=http://a:1, http://b:1".into(),
            "store.url=postgres://db/product".into(),
        ],
    };
    let config = load_with("", &overrides).unwrap();
    assert_eq!(config.coordination.etcd, ["http://a:1", "http://b:1"]);
    assert_eq!(config.coordination.cluster, "two");
}

#[test]
fn what_is_wrong_with_a_cluster_is_said_at_its_place() {
    check(
        "\
[coordination]
etcd = [\"localhost:2379\"]
cluster = \"a/b\"
user = \"besom\"
cert = \"node.pem\"
",
        r#"
besom.toml:2:8: error: `localhost:2379` is not an etcd endpoint
  2 | etcd = ["localhost:2379"]
    |        ^^^^^^^^^^^^^^^^^^ write http://host:2379 or https://host:2379
besom.toml:2:8: error: coordination.etcd is for several nodes, but the store is a file on one machine
  2 | etcd = ["localhost:2379"]
    |        ^^^^^^^^^^^^^^^^^^ set store.url to a PostgreSQL server, or remove etcd
besom.toml:3:11: error: `a/b` is not a valid name for a cluster
  3 | cluster = "a/b"
    |           ^^^^^ use letters, digits, '-', '_' and '.', at most 128
besom.toml:4:8: error: coordination.user requires coordination.password_file
  4 | user = "besom"
    |        ^^^^^^^ set coordination.password_file as well, or remove user
besom.toml:5:8: error: coordination.cert requires coordination.key
  5 | cert = "node.pem"
    |        ^^^^^^^^^^ set coordination.key as well, or remove cert
besom.toml:5:8: error: coordination.cert requires TLS, but every endpoint is http://
  5 | cert = "node.pem"
    |        ^^^^^^^^^^ write https:// in coordination.etcd, or remove it
"#,
    );
    check(
        "\
[coordination]
etcd = \"http://a:2379\"
clutser = \"a\"

[ring]
hash = \"md6\"
virtual_nodes = 0
",
        r#"
besom.toml:2:8: error: `etcd` must be an array of strings, not a string
  2 | etcd = "http://a:2379"
    |        ^^^^^^^^^^^^^^^ write, for example, etcd = ["text"]
besom.toml:3:1: error: unknown key `clutser` in [coordination]
  3 | clutser = "*"
    | ^^^^^^^ did you mean `cluster`?
besom.toml:6:8: error: `md6` is not a valid value for `hash`
  6 | hash = "md6"
    |        ^^^^^ did you mean "md5"?
besom.toml:7:17: error: 0 is below the minimum
  7 | virtual_nodes = 0
    |                 ^ the minimum is 1
"#,
    );
    check(
        "[coordination]\netcd = [\"http://a:1\", 7]\n",
        r#"
besom.toml:2:8: error: `etcd` must contain strings, not an integer
  2 | etcd = ["http://a:1", 7]
    |        ^^^^^^^^^^^^^^^^^ put each entry in double quotes
"#,
    );
    check(
        "[coordination]\netcd = [\"http://a:1\", \"http://a:1\"]\n",
        r#"
besom.toml:2:8: error: `http://a:1` is listed twice in `etcd`
  2 | etcd = ["http://a:1", "http://a:1"]
    |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ remove one of them
"#,
    );
}
