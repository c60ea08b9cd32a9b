//! A store that cannot be used is refused when it is opened, with the fix.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use besom_ports::store::{Error, Store};
use besom_postgres::{Options, PostgresStore};
use besom_tests::adapters::postgres::patient;
use besom_tests::conformance::block_on;
use besom_tests::servers::certificates::Authority;
use besom_tests::servers::postgres::{Disk, Server, Setup};

/// Why a store is not opened.
async fn refused(url: &str, options: Options) -> Error {
    match PostgresStore::open(url, options).await {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error,
    }
}

/// A store that is not this host's is invalid; the message names the server and the fix.
fn says(error: &Error, parts: &[&str]) {
    let Error::Invalid(said) = error else { panic!("not invalid: {error:?}") };
    contains(said, parts);
}

/// A server that does not let this host in denies it; the message names the server and the fix.
fn denies(error: &Error, parts: &[&str]) {
    let Error::Denied(said) = error else { panic!("not denied: {error:?}") };
    contains(said, parts);
}

fn contains(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is not said: {said}");
    }
}

#[test]
fn a_newer_schema_is_refused() {
    block_on(async {
        let database = Server::shared().database();
        let newer = "UPDATE besom.meta SET value = '99' WHERE key = 'schema_version'";
        database.connect().await.batch_execute(newer).await.unwrap();
        let error = refused(&database.url(), patient()).await;
        says(&error, &["schema version 99", "use the version of besom that wrote it", "database"]);
    });
}

#[test]
fn the_store_of_another_cluster_is_refused() {
    block_on(async {
        let database = Server::shared().empty();
        let of = |cluster: &str| Options { cluster: cluster.into(), ..patient() };
        drop(PostgresStore::open(&database.url(), of("north")).await.unwrap());
        let error = refused(&database.url(), of("south")).await;
        says(&error, &["\"north\"", "\"south\"", "use another schema or database"]);
        assert!(PostgresStore::open(&database.url(), of("north")).await.is_ok());
    });
}

/// Another schema of the same database is another store.
#[test]
fn two_clusters_share_a_database_in_schemas_of_their_own() {
    block_on(async {
        let database = Server::shared().empty();
        for cluster in ["north", "south"] {
            let (schema, cluster) = (format!("besom \"{cluster}\""), cluster.to_owned());
            let options = Options { schema, cluster, partitions: 8, ..patient() };
            let store = PostgresStore::open(&database.url(), options).await.unwrap();
            assert_eq!(store.fence().await.unwrap(), None);
        }
    });
}

#[test]
fn a_missing_database_is_named() {
    block_on(async {
        // With a database, the server has the role.
        let _there = Server::shared().empty();
        let error = refused(&Server::shared().url("nowhere"), patient()).await;
        denies(&error, &["\"nowhere\" does not exist", "create the database"]);
    });
}

/// The tests' certificate authority, and a server that requires TLS and a password.
struct Guarded {
    server: Server,
    root: PathBuf,
    stranger: PathBuf,
}

const LOGINS: &str = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";

impl Guarded {
    fn start(expired: bool) -> Guarded {
        let authority = Authority::new("Besom's tests");
        let certificate = Some(authority.sign("localhost", expired));
        let logins = Some(LOGINS.to_owned());
        let setup = Setup { logins, certificate, tcp: true, ..Setup::new(Disk::Ignored) };
        let server = Server::with(&setup);
        server.sql("CREATE ROLE ann LOGIN PASSWORD 'right'");
        server.sql("CREATE DATABASE app OWNER ann");
        let file = |name: &str, text: &str| {
            let path = std::env::temp_dir().join(format!("{name}-{}.pem", server.port()));
            std::fs::write(&path, text).expect("a certificate is written");
            path
        };
        let root = file("besom-root", authority.certificate());
        let stranger = file("besom-stranger", Authority::new("somebody").certificate());
        Guarded { server, root, stranger }
    }

    fn shared() -> &'static Guarded {
        static GUARDED: OnceLock<Guarded> = OnceLock::new();
        GUARDED.get_or_init(|| Guarded::start(false))
    }

    fn url(&self, host: &str, password: &str, mode: &str) -> String {
        let port = self.server.port();
        format!("postgres://ann:{password}@{host}:{port}/app?hostaddr=127.0.0.1&sslmode={mode}")
    }

    fn trusting(&self, root: &Path) -> Options {
        Options { root_certificate: Some(root.to_owned()), ..patient() }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = (std::fs::remove_file(&self.root), std::fs::remove_file(&self.stranger));
    }
}

#[test]
fn a_server_with_the_right_certificate_and_password_is_used() {
    block_on(async {
        let guarded = Guarded::shared();
        for mode in ["require", "verify-ca", "verify-full"] {
            let url = guarded.url("localhost", "right", mode);
            let store = PostgresStore::open(&url, guarded.trusting(&guarded.root)).await;
            let store = store.unwrap_or_else(|e| panic!("{mode}: {e}"));
            assert!(store.partitions() > 0);
        }
    });
}

#[test]
fn a_wrong_password_is_refused() {
    block_on(async {
        let guarded = Guarded::shared();
        let url = guarded.url("localhost", "wrong", "verify-full");
        let error = refused(&url, guarded.trusting(&guarded.root)).await;
        denies(&error, &["password authentication failed", "\"ann\"", "store.password_file"]);
        assert!(!error.to_string().contains("wrong"), "the password is not shown: {error}");
    });
}

/// `verify-ca` verifies only the authority, `verify-full` the name as well.
#[test]
fn a_certificate_of_another_host_is_refused_where_names_are_verified() {
    block_on(async {
        let guarded = Guarded::shared();
        let options = || guarded.trusting(&guarded.root);
        let full = guarded.url("db.example", "right", "verify-full");
        denies(&refused(&full, options()).await, &["db.example", "name the host in store.url"]);
        let authority = guarded.url("db.example", "right", "verify-ca");
        assert!(PostgresStore::open(&authority, options()).await.is_ok());
    });
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    block_on(async {
        let guarded = Guarded::shared();
        for mode in ["verify-ca", "verify-full"] {
            let url = guarded.url("localhost", "right", mode);
            let error = refused(&url, guarded.trusting(&guarded.stranger)).await;
            denies(&error, &["store.root_certificate", "localhost"]);
        }
    });
}

#[test]
fn an_expired_certificate_is_refused() {
    let guarded = Guarded::start(true);
    block_on(async {
        let url = guarded.url("localhost", "right", "verify-full");
        let error = refused(&url, guarded.trusting(&guarded.root)).await;
        denies(&error, &["expired", "renew the server's certificate"]);
    });
}

/// The server refuses a login without TLS.
#[test]
fn a_server_that_wants_tls_says_so() {
    block_on(async {
        let guarded = Guarded::shared();
        let url = guarded.url("localhost", "right", "disable");
        let error = refused(&url, patient()).await;
        denies(&error, &["no encryption", "pg_hba.conf"]);
    });
}
