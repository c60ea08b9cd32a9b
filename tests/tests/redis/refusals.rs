//! Servers and settings that cannot be used are refused at the start, with the fix.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use besom_ports::activity::{Activity, Error, State};
use besom_services::activity::redis::{Options, RedisActivity};
use besom_tests::conformance::block_on;
use besom_tests::servers::certificates::Authority;
use besom_tests::servers::redis::Redis;

async fn open(options: Options) -> Result<RedisActivity, Error> {
    RedisActivity::open(options, true, Box::new(|_| {})).await
}

async fn refused(options: Options) -> String {
    match open(options).await {
        Ok(_) => panic!("it is refused"),
        Err(error) => error.0,
    }
}

fn of(server: &Redis) -> Options {
    Options { servers: vec![server.url()], ..Options::default() }
}

#[test]
fn a_wrong_password_is_refused_at_the_start() {
    block_on(async {
        let server = Redis::start(&["--requirepass", "secret"]);
        let password = |text: &str| Some(text.to_owned());
        let missing = refused(of(&server)).await;
        assert!(missing.contains("NOAUTH"), "{missing}");
        let wrong = refused(Options { password: password("wrong"), ..of(&server) }).await;
        assert!(wrong.contains("Redis refuses this host"), "{wrong}");
        assert!(!wrong.contains("wrong"), "the password is not shown: {wrong}");
        let right = Options { password: password("secret"), ..of(&server) };
        let activity = open(right).await.expect("it opens");
        activity.connect("ws-1", "a").await.expect("a connect");
    });
}

#[test]
fn a_user_of_the_access_control_list_needs_what_is_documented() {
    block_on(async {
        let server = Redis::start(&[]);
        // As in the documentation.
        let _: String = server.command(
            "ACL SETUSER besom on >secret ~ws_conn:* ~idle_timer:* ~besom:* -@all +@connection \
             +evalsha +script|load +info +cluster|slots +time +get +set +del +exists +pttl +pexpire \
             +persist +zadd +zcard +zcount +zscore +zrem +zremrangebyscore +zrevrange +hset +hmget",
        );
        let with = |user: &str| Options {
            user: Some(user.to_owned()),
            password: Some("secret".to_owned()),
            ..of(&server)
        };
        let unknown = refused(with("nobody")).await;
        assert!(unknown.contains("Redis refuses this host"), "{unknown}");
        let activity = open(with("besom")).await.expect("it opens");
        activity.connect("ws-1", "a").await.expect("a connect");
        activity.connect("ws-1", "b").await.expect("a connect");
        activity.disconnect("ws-1", "a").await.expect("a disconnect");
        activity.disconnect("ws-1", "b").await.expect("a disconnect");
        let states = activity.states(&["ws-1".to_owned()]).await.expect("states");
        assert_eq!(states, [State::Waiting]);
        let _: String = server.command("ACL SETUSER besom -evalsha");
        let less = refused(with("besom")).await;
        assert!(less.contains("NOPERM") || less.contains("permission"), "{less}");
    });
}

#[test]
fn what_cannot_be_an_address_or_a_key_is_refused() {
    block_on(async {
        let (server, other) = (Redis::start(&[]), Redis::start(&[]));
        let servers = |urls: &[&str]| Options {
            servers: urls.iter().map(|&url| url.to_owned()).collect(),
            ..Options::default()
        };
        for (options, words) in [
            (servers(&[]), "no Redis server"),
            (servers(&["127.0.0.1:6379"]), "redis://HOST:PORT"),
            (servers(&["redis://user:secret@127.0.0.1:6379"]), "contains a password"),
            (servers(&["redis://127.0.0.1:6379/x"]), "redis://HOST:PORT"),
            (Options { timer_key: "timer".into(), ..of(&server) }, "contain {id} exactly once"),
            (servers(&[&server.url(), &other.url()]), "not a member of a Redis Cluster"),
        ] {
            let said = refused(options).await;
            assert!(said.contains(words) && !said.contains("secret"), "{said}");
        }
        let beyond = format!("{}/99", server.url());
        let said = refused(servers(&[&beyond])).await;
        assert!(said.contains("Redis refuses this host"), "{said}");
    });
}

#[test]
fn a_server_that_is_away_is_waited_for() {
    block_on(async {
        let mut server = Redis::start(&[]);
        server.kill();
        let there = Arc::new(AtomicBool::new(true));
        let noted = Arc::clone(&there);
        let told = Box::new(move |looked: Result<(), &str>| {
            noted.store(looked.is_ok(), Ordering::Relaxed);
        });
        let activity = RedisActivity::open(of(&server), true, told).await;
        let activity = activity.expect("it is waited for");
        assert!(!there.load(Ordering::Relaxed), "it is told that it is away");
        let states = activity.states(&["ws-1".to_owned()]).await.expect("states");
        assert_eq!(states, [State::Unknown]);
        server.restart();
        while activity.connect("ws-1", "a").await.is_err() {
            tokio::task::yield_now().await;
        }
        let states = activity.states(&["ws-1".to_owned()]).await.expect("states");
        assert_eq!(states, [State::Active]);
        let nobody = activity.states(&["ws-2".to_owned()]).await.expect("states");
        assert_eq!(nobody, [State::Unknown]);
        assert!(there.load(Ordering::Relaxed), "it is told that it is back");
    });
}

#[test]
fn by_tls_both_ends_show_a_certificate_of_a_known_authority() {
    block_on(async {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("a file");
            // A key that others can read is not used.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("its mode");
            path
        };
        let (ours, others) = (Authority::new("ours"), Authority::new("others"));
        let ca = write("ca.pem", ours.certificate());
        let unknown = write("others.pem", others.certificate());
        let (cert, key) = ours.sign("127.0.0.1", false);
        let (cert, key) = (write("cert.pem", &cert), write("key.pem", &key));
        let server = Redis::start_secure(&cert, &key, &ca, &[]);
        let options = |ca: &std::path::Path| Options {
            servers: vec![format!("rediss://127.0.0.1:{}", server.port())],
            ca: Some(ca.to_owned()),
            identity: Some((cert.clone(), key.clone())),
            ..Options::default()
        };
        let activity = open(options(&ca)).await.expect("it opens");
        activity.connect("ws-1", "a").await.expect("a connect");
        let said = refused(options(&unknown)).await;
        assert!(said.contains("certificate"), "{said}");
        let said = refused(options(&directory.path().join("missing.pem"))).await;
        assert!(said.contains("missing.pem") && said.contains("check its path"), "{said}");
    });
}
