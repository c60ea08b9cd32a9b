//! A database with workspaces, a configuration that moves them to standby after two seconds, and
//! hosts as separate processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_core::time::Time;
use besom_core::value::{Field, Value};
use besom_ports::embedded::Scripts;
use besom_ports::store::Store;
use besom_postgres::{Options as PostgresOptions, PostgresStore};
use besom_product::model::default_collections;
use besom_product::model::product::{self, Product};
use besom_sqlite::{Options as SqliteOptions, SqliteStore};
use besom_tests::servers::postgres::{Database, Server};
use besom_tests::servers::redis::Redis;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// The interval between two checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The tenant of every workspace here.
const TENANT: &str = "p";

/// Which database, and where activity is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One file for both.
    Sqlite,
    /// A file, and Redis.
    SqliteAndRedis,
    /// Two servers.
    PostgresAndRedis,
}

/// All of them.
pub const KINDS: [Kind; 3] = [Kind::Sqlite, Kind::SqliteAndRedis, Kind::PostgresAndRedis];

/// A database and a configuration.
pub struct Site {
    /// The database, as a product reaches it.
    pub store: Arc<dyn Store>,
    product: Product,
    /// Redis, if activity is kept in it.
    pub redis: Option<Redis>,
    directory: tempfile::TempDir,
    _database: Option<Database>,
}

/// The row of a workspace.
#[derive(Debug, Clone, PartialEq)]
pub struct Workspace {
    /// Its desired state.
    pub desired_state: String,
    /// Its version: how often a user has chosen a state.
    pub version: i64,
    /// The last access.
    pub last_access_at: Time,
    /// When a user last chose a state.
    pub last_manual_change_at: Option<Time>,
}

impl Site {
    /// A site with the workspace `ws-1`, which runs.
    pub async fn new(kind: Kind) -> Site {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, scripts, url, database): (Arc<dyn Store>, Arc<dyn Scripts>, _, _) = match kind {
            Kind::Sqlite | Kind::SqliteAndRedis => {
                let path = directory.path().join("besom.db");
                let store = SqliteStore::open(path, SqliteOptions::default());
                let store = store.expect("the file opens");
                (store.clone(), store, String::new(), None)
            }
            Kind::PostgresAndRedis => {
                let database = Server::shared().empty();
                let url = database.url();
                let store = PostgresStore::open(&url, PostgresOptions::default()).await;
                let store = store.expect("the database opens");
                (store.clone(), store, format!("url = {url:?}\n"), Some(database))
            }
        };
        store.set_collections(Arc::new(default_collections()));
        product::create_tables(&*scripts).await.expect("the tables");
        let product = Product::new(scripts, Arc::new(default_collections()));
        let redis = (kind != Kind::Sqlite).then(|| Redis::start(&[]));
        let servers = redis.iter().map(|redis| format!("redis = [{:?}]\n", redis.url()));
        let servers: String = servers.collect();
        let cache = besom_tests::compiled();
        let text = format!(
            "[store]\n{url}[lease]\nttl = \"3s\"\nrenew = \"1s\"\n\
             [activity]\nidle_timeout = \"2s\"\nheartbeat_timeout = \"1500ms\"\n{servers}\
             [runtime]\ncache = {cache:?}\n\
             [tasks.ttl-transitions]\nplugin = \"ttl-transitions\"\nschedule = \"@every 1s\"\n"
        );
        std::fs::write(directory.path().join("besom.toml"), text).expect("the configuration");
        let site = Site { store, product, redis, directory, _database: database };
        let text = |text: &str| Value::Text(text.into());
        site.write(Change::Insert {
            collection: "workspaces".into(),
            fields: vec![
                Field::new("workspace_id", text("ws-1")),
                Field::new("status", text("RUNNING")),
                Field::new("operation", text("NONE")),
                Field::new("desired_state", text("RUNNING")),
                Field::new("version", Value::Integer(1)),
                Field::new("last_access_at", Value::Timestamp(Time::from_secs(1_700_000_000))),
            ],
        })
        .await;
        site
    }

    /// The socket of a host.
    pub fn socket(&self, host: &str) -> PathBuf {
        self.directory.path().join(format!("{host}.sock"))
    }

    /// The file of the database.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("besom.db")
    }

    async fn write(&self, change: Change) {
        let changes = [(Some(Tenant::from(TENANT)), change)];
        self.product.write(&changes).await.expect("the product writes");
    }

    /// Sets a column of the workspace, as the product or its reconciler does.
    pub async fn set(&self, column: &str, value: &str) {
        self.write(Change::Update {
            collection: "workspaces".into(),
            key: vec![Value::Text("ws-1".into())],
            fields: vec![Field::new(column, Value::Text(value.into()))],
        })
        .await;
    }

    /// The workspace as it stands.
    pub async fn workspace(&self) -> Workspace {
        let view = self.store.snapshot(PATIENCE).await.expect("a snapshot");
        let columns = ["desired_state", "version", "last_access_at", "last_manual_change_at"];
        let columns = columns.map(str::to_owned);
        let keys = [vec![Value::Text("ws-1".into())]];
        let tenant = Tenant::from(TENANT);
        let rows = view.get_many(Some(&tenant), "workspaces", &keys, &columns).await;
        let row = rows.expect("a row is read").remove(0).expect("the workspace is there");
        let [desired, version, access, manual] = row.try_into().expect("four columns");
        let Value::Text(desired_state) = desired else { panic!("{desired:?}") };
        let Value::Integer(version) = version else { panic!("{version:?}") };
        let Value::Timestamp(last_access_at) = access else { panic!("{access:?}") };
        let last_manual_change_at = match manual {
            Value::Timestamp(at) => Some(at),
            _ => None,
        };
        Workspace { desired_state, version, last_access_at, last_manual_change_at }
    }

    /// Waits until the workspace has this desired state.
    pub async fn wanted(&self, state: &str) -> Workspace {
        let what = format!("desired_state to be {state}");
        wait_for(&what, async || Some(self.workspace().await).filter(|w| w.desired_state == state))
            .await
    }

    /// The activity of the workspace, as a host reports it.
    pub async fn state(&self, host: &str) -> String {
        let stream = UnixStream::connect(self.socket(host)).await;
        let mut stream = stream.expect("the endpoint listens");
        let request = "GET /activity/ws-1 HTTP/1.1\r\nhost: besom\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.expect("the request is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        body["state"].as_str().unwrap_or_else(|| panic!("no state: {answer}")).to_owned()
    }

    /// Waits until a host reports this activity.
    pub async fn known(&self, host: &str, state: &str) {
        let what = format!("the activity to be {state}");
        wait_for(&what, async || (self.state(host).await == state).then_some(())).await;
    }
}

/// Repeats until there is a result.
pub async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited for {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A `besom serve`. Dropping it kills it.
pub struct Host {
    child: Child,
    log: PathBuf,
}

impl Host {
    /// Starts a host and waits until it listens.
    pub async fn start(site: &Site, name: &str) -> Host {
        let (directory, socket) = (site.directory.path(), site.socket(name));
        let log = directory.join(format!("{name}.log"));
        let child = Command::new(env!("CARGO_BIN_EXE_besom-under-test"))
            .args(["serve", "--set"])
            .arg(format!("activity.socket={}", shown(&socket)))
            .arg("--set")
            .arg(format!("api.socket={}", shown(&site.socket(&format!("{name}-api")))))
            .current_dir(directory)
            .env_remove("BESOM_CONFIG")
            .env("BESOM_HOST_DEFAULT_MODE", "live")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("a log"))
            .spawn()
            .expect("it starts");
        let mut host = Host { child, log };
        wait_for("the host to listen", async || {
            if let Some(status) = host.child.try_wait().expect("waited") {
                panic!("the host has ended ({status}):\n{}", host.log());
            }
            UnixStream::connect(&socket).await.ok()
        })
        .await;
        host
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).expect("the log")).into_owned()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it is there");
    }

    /// Sends SIGTERM.
    pub fn ask_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        wait_for("the host to end", async || self.child.try_wait().expect("waited")).await
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it is waited for");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A process that has already ended need not be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.log());
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
