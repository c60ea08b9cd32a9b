//! The admin API, with the dashboard's own client on the other end.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use besom_core::command::{Action, Command};
use besom_core::ids::{Incarnation, TaskName};
use besom_snapshot::{Answer, Done, Report, Snapshot};
use besom_tui::dash::Feed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};

use super::{Address, Link, Remote};
use besom_config::Overrides;
use besom_doubles::coordination::MemoryLease;
use besom_doubles::store::MemoryStore;
use besom_engine::api::{Listener, Rights, Served, Tokens, admin, only_for};
use besom_engine::gather::{Gatherer, Sources};
use besom_engine::host::clock;
use besom_engine::host::editing::Desk;
use besom_engine::host::{Live, health::Health};
use besom_node::Role;
use besom_ports::activity::Timeouts;
use besom_ports::store::{NodeRow, Store};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A listener that is being served.
struct Serving {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Serving {
    async fn end(self) {
        self.stop.send_replace(true);
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended.expect("it ends").expect("it does not panic");
    }
}

fn socket() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("besom.sock");
    (directory, path)
}

/// A host that gathers from a store in memory.
struct Site {
    store: Arc<MemoryStore>,
    gatherer: Gatherer,
    gathering: tokio::task::JoinHandle<()>,
    // The sources end with their senders.
    _live: watch::Sender<Live>,
    _defined: watch::Sender<Arc<besom_engine::gather::Defined>>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.gathering.abort();
    }
}

impl Site {
    fn new(directory: &Path) -> Site {
        let store = Arc::new(MemoryStore::new(8, Timeouts::default(), Arc::new(clock::wall)));
        let node = Incarnation::new("node-a", 7);
        let lease = MemoryLease::new(Duration::from_secs(15), Arc::new(clock::wall));
        let (live, lives) = watch::channel(Live { role: Role::Following, term: None });
        let (defined, defines) = watch::channel(Arc::default());
        let path = directory.join("besom.toml");
        let (host, saved) = ("node-a".into(), Arc::default());
        let desk = Desk { host, path, overrides: Overrides::default(), saved };
        let gatherer = Gatherer::new(Sources {
            store: Arc::clone(&store) as _,
            coordination: Arc::new(lease.handle(node.clone(), "machine")),
            members: None,
            health: Arc::new(Health::default()),
            node,
            cluster: "test".into(),
            lease: Duration::from_secs(15),
            nodes_shown: Duration::from_secs(3_600),
            virtual_nodes: 0,
            routes: BTreeSet::new(),
            desk,
            defined: defines,
            live: lives,
        });
        let gathering = tokio::spawn(gatherer.clone().run());
        Site { store, gatherer, gathering, _live: live, _defined: defined }
    }

    fn serve(&self, listener: Listener, readonly: bool) -> Serving {
        let (stop, stopping) = watch::channel(false);
        let source = Arc::new(self.gatherer.clone());
        let router = admin::router(admin::Admin { source, readonly, stopping: stopping.clone() });
        let router = only_for(router, Some(&store("this")));
        Serving { stop, task: tokio::spawn(listener.serve(router, stopping)) }
    }

    async fn report(&self, name: &str) {
        let row = NodeRow {
            node: Incarnation::new(name, 1),
            state: Role::Following,
            seen_at: clock::wall(),
            config_digest: "aa".into(),
            missing: Vec::new(),
            hostname: "machine".into(),
            address: String::new(),
            weight: 1,
            report: Some(Report { started_at: clock::wall(), ..Report::default() }),
        };
        self.store.report_node(&row).await.expect("it is written");
    }
}

/// What a watcher receives.
struct Onlooker {
    feeds: mpsc::Receiver<Feed>,
    watching: tokio::task::JoinHandle<()>,
}

impl Drop for Onlooker {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Onlooker {
    fn of(link: &Link) -> Onlooker {
        let (feed, feeds) = mpsc::channel(4);
        Onlooker { feeds, watching: tokio::spawn(link.clone().watch(feed)) }
    }

    async fn next(&mut self) -> Feed {
        let next = tokio::time::timeout(PATIENCE, self.feeds.recv()).await;
        next.expect("something in time").expect("the link goes on")
    }

    /// The first snapshot that contains data.
    async fn until(&mut self, shows: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        loop {
            if let Feed::Snapshot(snapshot) = self.next().await
                && shows(&snapshot)
            {
                return snapshot;
            }
        }
    }
}

/// A store that is identified by its name.
fn store(name: &str) -> Served {
    Served::new(format!("{name} store"), [name.to_owned()])
}

fn pause() -> Action {
    Action::Ask { command: Command::Pause { task: TaskName::from("sweep") } }
}

#[tokio::test]
async fn an_onlooker_is_told_the_whole_and_then_what_differs() {
    let (directory, path) = socket();
    let site = Site::new(directory.path());
    let serving = site.serve(Listener::unix(&path).await.unwrap(), false);
    let mut onlooker = Onlooker::of(&Link::new(vec![Address::Unix(path)], false));
    assert_eq!(onlooker.next().await, Feed::Connected);
    let first = onlooker.until(|_| true).await;
    assert_eq!((first.cluster.as_str(), first.host.as_str()), ("test", "node-a"));
    assert!(first.nodes.is_empty(), "{:?}", first.nodes);

    site.report("node-b").await;
    let second = onlooker.until(|snapshot| snapshot.node("node-b").is_some()).await;
    assert!(second.at > first.at);
    let told = second.events.iter().any(|event| event.subject == "node-b");
    assert!(told, "{:?}", second.events);

    // Nothing changes, but the passing of time is reported.
    onlooker.until(|snapshot| snapshot.at > second.at).await;
    serving.end().await;
}

#[tokio::test]
async fn metrics_are_told_in_the_text_format() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (directory, path) = socket();
    let site = Site::new(directory.path());
    site.report("node-b").await;
    let serving = site.serve(Listener::unix(&path).await.unwrap(), true);
    let mut stream = tokio::net::UnixStream::connect(&path).await.expect("it listens");
    let request = b"GET /metrics HTTP/1.1\r\nHost: besom\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.expect("it is asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("\nbesom_info{cluster=\"test\",host=\"node-a\","), "{answer}");
    assert!(answer.contains("\nbesom_node_state{node=\"node-b\",state="), "{answer}");
    serving.end().await;
}

/// Whoever watched before the token was revoked is told nothing more.
#[tokio::test]
async fn a_watch_ends_with_its_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::new(directory.path());
    let file = directory.path().join("token");
    let put = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    put(&"a".repeat(32));
    let tokens = vec![Tokens::read(&file, Rights::Look).unwrap()];
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::tcp(any, tokens, None, None).await.unwrap();
    let address = listener.address().unwrap().expect("TCP was asked for");
    let serving = site.serve(listener, false);
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let token = "a".repeat(32);
    let request = format!(
        "GET /v1/watch HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    put(&"b".repeat(32));
    let mut rest = Vec::new();
    let ended = async {
        // The last chunk: the response has ended.
        while !rest.ends_with(b"\n0\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut rest).await.expect("an answer"), 0);
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("it ends in time");
    serving.end().await;
}

#[tokio::test]
async fn a_lost_host_is_told_of_and_the_next_one_is_asked() {
    let (directory, first) = socket();
    let second = directory.path().join("second.sock");
    let site = Site::new(directory.path());
    let serving = site.serve(Listener::unix(&first).await.unwrap(), false);
    let other = site.serve(Listener::unix(&second).await.unwrap(), false);
    let addresses = vec![Address::Unix(first), Address::Unix(second)];
    let mut onlooker = Onlooker::of(&Link::new(addresses, false));
    onlooker.until(|_| true).await;
    serving.end().await;
    loop {
        match onlooker.next().await {
            Feed::Lost { why, .. } => {
                break assert!(why.contains("closed the connection"), "{why}");
            }
            Feed::Snapshot(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(onlooker.next().await, Feed::Connected);
    onlooker.until(|_| true).await;
    other.end().await;
}

#[tokio::test]
async fn where_nobody_listens_the_onlooker_hears_how_to_start_a_host() {
    let (_directory, path) = socket();
    let mut onlooker = Onlooker::of(&Link::new(vec![Address::Unix(path.clone())], false));
    let Feed::Lost { why, retry_at } = onlooker.next().await else { panic!("nobody listens") };
    assert_eq!(why, format!("no host listens at {}: `besom serve` starts one", path.display()));
    assert!(retry_at.is_some());
}

#[tokio::test]
async fn an_action_is_kept_with_who_asked_and_why() {
    let (directory, path) = socket();
    let site = Site::new(directory.path());
    let serving = site.serve(Listener::unix(&path).await.unwrap(), false);
    let link = Link::new(vec![Address::Unix(path)], false);
    let refused = link.act(pause(), "  ".into()).await;
    let Answer::Refused(refusal) = refused else { panic!("{refused:?}") };
    assert!(refusal.message.starts_with("a reason is required"), "{}", refusal.message);

    let refused = link.act(pause(), "x".repeat(900_000)).await;
    let Answer::Refused(refusal) = refused else { panic!("{refused:?}") };
    assert!(refusal.message.contains("900000 bytes: at most 4096"), "{}", refusal.message);

    // There is no leader: the command is pending, and the answer says so.
    let answer = link.act(pause(), "until the move is over".into()).await;
    let waits = Done { command: Some(1), applied: false, result: None };
    assert_eq!(answer, Answer::Done(waits));
    let [row] = site.store.commands(None, 10).await.unwrap().try_into().expect("one command");
    assert_eq!(row.reason, "until the move is over");
    let uid = rustix::process::getuid().as_raw();
    assert!(
        row.by.ends_with(&format!("uid {uid})")) || row.by == format!("uid {uid}"),
        "{}",
        row.by
    );
    serving.end().await;
}

#[tokio::test]
async fn who_gave_up_the_right_to_change_things_changes_nothing() {
    let (directory, path) = socket();
    let site = Site::new(directory.path());
    let serving = site.serve(Listener::unix(&path).await.unwrap(), false);
    let link = Link::new(vec![Address::Unix(path)], true);
    let snapshot = Onlooker::of(&link).until(|_| true).await;
    assert!(snapshot.readonly);
    let answer = link.act(pause(), "why".into()).await;
    let Answer::Refused(refusal) = answer else { panic!("{answer:?}") };
    assert_eq!(refusal.message, "this connection is read-only");
    assert_eq!(site.store.commands(None, 10).await.unwrap(), []);
    serving.end().await;
}

#[tokio::test]
async fn a_host_of_another_store_is_neither_shown_nor_asked() {
    let (directory, path) = socket();
    let site = Site::new(directory.path());
    let serving = site.serve(Listener::unix(&path).await.unwrap(), false);
    let link =
        |name| Link::new(vec![Address::Unix(path.clone())], false).only_for(Some(store(name)));
    let words = "serves this store, not that store: set api.socket to another path";
    let lost = Onlooker::of(&link("that")).next().await;
    assert!(matches!(&lost, Feed::Lost { why, .. } if why.contains(words)), "{lost:?}");
    let answer = link("that").act(pause(), "why".into()).await;
    let Answer::Refused(refusal) = answer else { panic!("{answer:?}") };
    assert!(refusal.message.contains(words), "{refusal:?}");
    assert_eq!(site.store.commands(None, 10).await.unwrap(), []);
    assert_eq!(Onlooker::of(&link("this")).next().await, Feed::Connected);
    serving.end().await;
}

#[tokio::test]
async fn over_tcp_a_token_says_what_its_bearer_may_do() {
    let (directory, _) = socket();
    let site = Site::new(directory.path());
    let put = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
        path
    };
    let [all, ann, look] = ["a", "b", "c"].map(|letter| letter.repeat(32));
    let looking = Tokens::read(&put("look", &look), Rights::Look).expect("it is ours alone");
    let changing = put("all", &format!("{all}\nann {ann}\n"));
    let changing = Tokens::read(&changing, Rights::All).expect("two tokens");
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    assert!(Listener::tcp(address, Vec::new(), None, None).await.is_err(), "anybody could call");
    let listener = Listener::tcp(address, vec![changing, looking], None, None).await.unwrap();
    let address = listener.address().unwrap().expect("TCP").to_string();
    let serving = site.serve(listener, false);
    let link = |token: &str| {
        let remote = Remote::new(&address, token.to_owned(), None, None).expect("an address");
        Link::new(vec![Address::Tcp(Arc::new(remote))], false)
    };

    let answer = link(&look).act(pause(), "why".into()).await;
    assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
    let Feed::Lost { why, .. } = Onlooker::of(&link("other")).next().await else {
        panic!("a token that is none was taken")
    };
    assert!(why.ends_with("the host does not accept this token"), "{why}");
    assert_eq!(site.store.commands(None, 10).await.unwrap(), []);

    for token in [&all, &ann] {
        let answer = link(token).act(pause(), "why".into()).await;
        assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    }
    let by: Vec<String> =
        site.store.commands(None, 10).await.unwrap().into_iter().map(|row| row.by).collect();
    assert_eq!(by, ["ann (by token, 127.0.0.1)", "127.0.0.1 (by token)"]);
    // Replaced without a restart: the revoked token is no longer valid.
    put("all", &format!("ann {ann}\n"));
    let refused = link(&all).act(pause(), "why".into()).await;
    assert!(matches!(refused, Answer::Refused(_)), "{refused:?}");
    assert!(matches!(link(&ann).act(pause(), "why".into()).await, Answer::Done(_)));
    serving.end().await;
}
