//! What is refused permanently, and the messages.

use std::time::Duration;

use besom_ports::coordination::{Campaign, Coordination, Error, Result};
use besom_ports::members::Members;
use besom_services::coordination::etcd::{Credentials, Etcd, Identity, Options, Tls};
use besom_tests::adapters::etcd::{Cluster, clocks, program};
use besom_tests::conformance::block_on;
use etcd_client::{Client, PermissionType};

const TTL: Duration = Duration::from_secs(15);

fn handle(name: &str, mut options: Options) -> Result<Etcd> {
    // Hashing a password is slow on purpose, and the machine may be busy.
    options.attempt_timeout = Duration::from_secs(60);
    let identity = Identity {
        name: name.into(),
        incarnation: format!("{name}-a").as_str().into(),
        hostname: "host".into(),
    };
    Etcd::new(identity, options, clocks())
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, words: &[&str]) {
    let Err(Error::Refused(said)) = result else { panic!("it is refused: {result:?}") };
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn names_and_addresses_that_cannot_be_are_refused_with_the_setting() {
    let urls = || vec!["http://127.0.0.1:2379".to_owned()];
    for (name, cluster, endpoints, words) in [
        ("n1", "", urls(), ["[coordination] cluster", "is not a valid name"]),
        ("n1", "a/b", urls(), ["[coordination] cluster", "a/b"]),
        ("n 1", "a", urls(), ["[node] name", "n 1"]),
        ("n1", "a", vec![], ["[coordination] etcd", "at least one"]),
        ("n1", "a", vec!["localhost:2379".into()], ["[coordination] etcd", "http://host:2379"]),
        ("n1", "a", vec!["ftp://localhost".into()], ["[coordination] etcd", "ftp://localhost"]),
        ("n1", "a", vec!["http://".into()], ["[coordination] etcd", "http://"]),
    ] {
        let refusal = handle(name, Options::new(endpoints, cluster, TTL)).map(|_| ());
        refused(refusal, &words);
    }
}

#[test]
fn an_endpoint_where_nobody_listens_is_away_and_named() {
    let url = "http://127.0.0.1:1".to_owned();
    let node = handle("n1", Options::new(vec![url.clone()], "gone", TTL)).expect("a handle");
    let answer = block_on(node.leader());
    let Err(Error::Unavailable(said)) = answer else { panic!("it is away: {answer:?}") };
    assert!(said.contains(&url) && said.contains("refused"), "{said}");
}

#[test]
fn a_cluster_of_another_store_is_refused() {
    let options = || Options::new(Cluster::shared().urls(), "one-store", TTL);
    let (one, two) = (handle("n1", options()).unwrap(), handle("n2", options()).unwrap());
    block_on(async {
        one.claim("store-1").await.expect("the first to say so");
        one.claim("store-1").await.expect("the same");
        two.claim("store-1").await.expect("the same");
        refused(two.claim("store-2").await, &["store-1", "store-2", "[coordination] cluster"]);
    });
}

#[test]
fn a_value_that_is_not_understood_is_named_by_its_key() {
    let urls = Cluster::shared().urls();
    let node = handle("n1", Options::new(urls.clone(), "foreign", TTL)).unwrap();
    block_on(async {
        let mut client = Client::connect(&urls, None).await.unwrap();
        client.put("/besom/foreign/members/n7", "what?", None).await.unwrap();
        refused(node.members().await, &["/besom/foreign/members/n7", "[coordination] cluster"]);
        client.put("/besom/foreign/leader", "what?", None).await.unwrap();
        refused(node.leader().await, &["/besom/foreign/leader"]);
    });
}

#[test]
fn only_who_shows_the_right_password_and_may_write_is_served() {
    let cluster = Cluster::start(1);
    let with = |who: Option<(&str, &str)>| {
        let mut options = Options::new(cluster.urls(), "secret", TTL);
        options.credentials = who
            .map(|(user, password)| Credentials { user: user.into(), password: password.into() });
        options.jitter_max = Duration::ZERO;
        handle("n1", options).expect("a handle")
    };
    block_on(async {
        // Before authentication is enabled, a user is rejected.
        refused(with(Some(("besom", "right"))).leader().await, &["authentication is disabled"]);
        let mut client = Client::connect(cluster.urls(), None).await.unwrap();
        client.user_add("root", "root", None).await.unwrap();
        client.role_add("root").await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        for (user, prefix) in [("besom", "/besom/"), ("other", "/other/")] {
            client.user_add(user, "right", None).await.unwrap();
            client.role_add(user).await.unwrap();
            let options = etcd_client::Permission::new(PermissionType::Readwrite, prefix);
            client.role_grant_permission(user, options.with_prefix()).await.unwrap();
            client.user_grant_role(user, user).await.unwrap();
        }
        client.auth_enable().await.unwrap();

        refused(with(None).leader().await, &["requires authentication", "password_file"]);
        refused(with(Some(("besom", "wrong"))).leader().await, &["user", "password_file"]);
        refused(with(Some(("nobody", "right"))).leader().await, &["user", "password_file"]);
        refused(with(Some(("other", "right"))).leader().await, &["readwrite", "/besom/"]);
        let node = with(Some(("besom", "right")));
        let won = node.campaign(None).await.expect("it is served");
        let Campaign::Won(fence) = won else { panic!("it is free: {won:?}") };
        assert!(node.renew(&fence).await.expect("an answer"));
        node.resign(&fence).await.expect("it resigns");
        node.leave().await.expect("it leaves");
    });
}

#[test]
fn a_password_is_never_shown() {
    let who = Credentials { user: "besom".into(), password: "s3cret".into() };
    let tls = Tls { ca: None, identity: Some((b"cert".to_vec(), b"k3y".to_vec())) };
    let shown = format!("{who:?} {tls:?}");
    assert!(shown.contains("besom"), "{shown}");
    assert!(!shown.contains("s3cret") && !shown.contains("k3y"), "{shown}");
}

/// Certificates made by the system's own tool, and whether it is there.
struct Authority(tempfile::TempDir);

impl Authority {
    fn new() -> Option<Authority> {
        let authority = Authority(tempfile::tempdir().expect("a directory"));
        let there = authority.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "30",
            "-subj",
            "/CN=test authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ]);
        there.then_some(authority)
    }

    fn openssl(&self, arguments: &[&str]) -> bool {
        let mut command = std::process::Command::new("openssl");
        let ran = command.args(arguments).current_dir(self.0.path()).output();
        match ran {
            Ok(output) => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => panic!("openssl: {error}"),
        }
    }

    /// A certificate for this machine, for server and client alike.
    fn issue(&self, name: &str, days: &str) {
        let extensions = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
        std::fs::write(self.0.path().join("ext"), extensions).expect("written");
        let (key, request, pem) =
            (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
        self.openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=node",
            "-keyout",
            &key,
            "-out",
            &request,
        ]);
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            days,
            "-extfile",
            "ext",
            "-out",
            &pem,
        ]);
    }

    fn path(&self, file: &str) -> String {
        self.0.path().join(file).display().to_string()
    }

    fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path(file)).expect("a file")
    }

    fn server(&self, name: &str) -> Cluster {
        let (cert, key, ca) = (
            self.path(&format!("{name}.pem")),
            self.path(&format!("{name}.key")),
            self.path("ca.pem"),
        );
        let arguments = [
            "--cert-file",
            &*cert,
            "--key-file",
            &key,
            "--trusted-ca-file",
            &ca,
            "--client-cert-auth",
        ];
        Cluster::start_with(&program(), 1, &arguments)
    }
}

#[test]
fn transport_is_secured_both_ways_and_a_bad_certificate_is_refused() {
    let Some(authority) = Authority::new() else {
        eprintln!("openssl is not installed: there are no certificates to test with");
        return;
    };
    authority.issue("node", "30");
    let cluster = authority.server("node");
    let with = |ca: Option<Vec<u8>>, identity: bool| {
        let mut options = Options::new(cluster.urls(), "secure", TTL);
        let pair = || (authority.read("node.pem"), authority.read("node.key"));
        options.tls = Tls { ca, identity: identity.then(pair) };
        handle("n1", options)
    };
    let stranger = Authority::new().expect("it is installed").read("ca.pem");
    block_on(async {
        let right = with(Some(authority.read("ca.pem")), true).expect("a handle");
        assert_eq!(right.leader().await.expect("it is served"), None);
        for wrong in [Some(stranger), None] {
            let node = with(wrong, true).expect("a handle");
            refused(node.leader().await, &["certificate", "[coordination] ca"]);
        }
        let without = with(Some(authority.read("ca.pem")), false).expect("a handle");
        without.leader().await.expect_err("it shows no certificate");
        let text = with(Some(b"no PEM".to_vec()), false).map(|_| ());
        refused(text, &["PEM", "[coordination] ca"]);
    });
    drop(cluster);
    authority.issue("late", "-1");
    let cluster = authority.server("late");
    block_on(async {
        let mut options = Options::new(cluster.urls(), "secure", TTL);
        let pair = (authority.read("node.pem"), authority.read("node.key"));
        options.tls = Tls { ca: Some(authority.read("ca.pem")), identity: Some(pair) };
        let node = handle("n1", options).expect("a handle");
        refused(node.leader().await, &["Expired", "[coordination]"]);
    });
}
