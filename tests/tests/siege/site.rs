//! A directory with a configuration, a database on either store, and a host as a process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use besom_ports::embedded::Scripts;
use besom_postgres::PostgresStore;
use besom_product::model::product::create_tables;
use besom_sqlite::{Options, SqliteStore};
use besom_tests::adapters::postgres::patient;
use besom_tests::measured::memory_kib;
use besom_tests::servers::postgres::{Database, ROLE, Server};
use besom_tests::site::Place;
use besom_tests::{compiled, plugin_path};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio_postgres::Client;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// The interval between two checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Shares of each part of the test, and the time between two of them.
const SHARES: i64 = 200;
const SHARE_EVERY_US: i64 = 40_000;
/// The limit of a share without one of its own: seven days.
const SHARE_LIMIT_US: i64 = 7 * 86_400 * 1_000_000;

/// How late shares ended, and how long the neighbour's runs took, in milliseconds: the median, the
/// 99th percentile and the latest.
pub struct Late {
    pub shares: [i64; 3],
    pub runs: [i64; 3],
}

/// The product's own connection.
enum Product {
    File(Connection),
    Server(Client, Database),
}

pub struct Site {
    product: Product,
    url: Option<String>,
    directory: tempfile::TempDir,
}

impl Site {
    /// A site with the tables of the model and the hostile plugin.
    pub async fn new(place: Place, config: &str) -> Site {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("besom.db");
        let (scripts, product, url): (Arc<dyn Scripts>, _, _) = match place {
            Place::Sqlite => {
                let store = SqliteStore::open(path.clone(), Options::default());
                let product = Connection::open(path).expect("the file opens");
                product.busy_timeout(PATIENCE).expect("set");
                (store.expect("the file opens"), Product::File(product), None)
            }
            Place::Postgres => {
                let database = Server::shared().empty();
                let store = PostgresStore::open(&database.url(), patient()).await;
                let product = Product::Server(database.connect().await, database);
                let Product::Server(_, database) = &product else { unreachable!() };
                let url = database.url();
                (store.expect("the database opens"), product, Some(url))
            }
        };
        create_tables(&*scripts).await.expect("the tables");
        let plugins = directory.path().join("plugins.d");
        std::fs::create_dir(&plugins).expect("a directory");
        std::fs::copy(plugin_path("hostile"), plugins.join("hostile.wasm")).expect("the plugin");
        let site = Site { product, url, directory };
        site.configure(config);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces the configuration as editors do: written beside it, then renamed.
    pub fn configure(&self, config: &str) {
        let cache = compiled();
        let url = self.url.iter().map(|url| format!("[store]\nurl = {url:?}\n"));
        let url: String = url.collect();
        let text = format!("{url}{config}\n[runtime]\ncache = {cache:?}\n");
        std::fs::write(self.path("new"), text).expect("written");
        std::fs::rename(self.path("new"), self.path("besom.toml")).expect("renamed");
    }

    /// Runs statements of the product, in each database's own dialect.
    async fn sql(&self, sqlite: &str, postgres: &str) {
        match &self.product {
            Product::File(db) => {
                db.execute_batch(sqlite).unwrap_or_else(|e| panic!("{sqlite}: {e}"));
            }
            Product::Server(db, _) => {
                db.batch_execute(postgres).await.unwrap_or_else(|e| panic!("{postgres}: {e:?}"));
            }
        }
    }

    /// The first column of the rows of a statement.
    async fn numbers(&self, sqlite: &str, postgres: &str) -> Vec<i64> {
        match &self.product {
            Product::File(db) => {
                let mut found = db.prepare(sqlite).unwrap_or_else(|e| panic!("{sqlite}: {e}"));
                let rows = found.query_map([], |row| row.get(0)).expect(sqlite);
                rows.map(|row| row.expect("a number")).collect()
            }
            Product::Server(db, _) => {
                let rows = db.query(postgres, &[]).await;
                let rows = rows.unwrap_or_else(|e| panic!("{postgres}: {e:?}"));
                rows.iter().map(|row| row.get(0)).collect()
            }
        }
    }

    async fn number(&self, sqlite: &str, postgres: &str) -> i64 {
        self.numbers(sqlite, postgres).await[0]
    }

    /// The table that the hostile plugin is granted, with that many rows of one tenant.
    pub async fn add_things(&self, rows: u32) {
        self.sql(
            &format!(
                "CREATE TABLE things (tenant TEXT, id INTEGER, name TEXT, data BLOB, state INTEGER,
                   PRIMARY KEY (tenant, id));
                 CREATE TABLE secrets (id INTEGER PRIMARY KEY);
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
                 INSERT INTO things SELECT 'first', i, 'name', NULL, 0 FROM n"
            ),
            &format!(
                "CREATE TABLE things (tenant text, id bigint, name text, data bytea, state bigint,
                   PRIMARY KEY (tenant, id));
                 CREATE TABLE secrets (id bigint PRIMARY KEY);
                 INSERT INTO things SELECT 'first', i, 'name', NULL, 0 FROM generate_series(1, {rows}) i;
                 ANALYZE things"
            ),
        )
        .await;
    }

    /// Records when shares end, by the clock of the statement that ends them: `unshared_at` is the
    /// present of the task, which is earlier.
    pub async fn note_ends(&self) {
        self.sql(
            "CREATE TABLE ended (share_id TEXT, at INTEGER);
             CREATE TRIGGER ended AFTER UPDATE OF unshared_at ON shares BEGIN
               INSERT INTO ended VALUES
                 (new.share_id, CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER));
             END",
            "CREATE TABLE ended (share_id text, at timestamptz);
             CREATE FUNCTION ended() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
               BEGIN INSERT INTO ended VALUES (new.share_id, clock_timestamp()); RETURN NULL; END $$;
             CREATE TRIGGER ended AFTER UPDATE OF unshared_at ON shares
               FOR EACH ROW EXECUTE FUNCTION ended()",
        )
        .await;
    }

    /// Lets shares fall due one after the other, and waits until the last one has ended.
    pub async fn observe(&self, part: &str) -> Late {
        let begin = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        let begin = i64::try_from(begin.as_micros()).expect("this century");
        let start = begin + 2_000_000 - SHARE_LIMIT_US;
        self.sql(
            &format!(
                "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {SHARES} - 1)
                 INSERT INTO shares (project_id, share_id, file_id, start_date)
                 SELECT 'acme', '{part}-' || i, 'f', {start} + i * {SHARE_EVERY_US} FROM n"
            ),
            &format!(
                "INSERT INTO shares (project_id, share_id, file_id, start_date)
                 SELECT 'acme', '{part}-' || i, 'f',
                        'epoch'::timestamptz + ({start} + i * {SHARE_EVERY_US}) * interval '1 us'
                 FROM generate_series(0, {SHARES} - 1) i"
            ),
        )
        .await;
        let open = format!(
            "SELECT count(*) FROM shares WHERE share_id LIKE '{part}-%' AND unshared_at IS NULL"
        );
        wait_for("the shares to end", async || {
            (self.number(&open, &open).await == 0).then_some(())
        })
        .await;
        let shares = self
            .numbers(
                &format!(
                    "SELECT at - start_date - {SHARE_LIMIT_US} FROM ended JOIN shares USING (share_id)
                     WHERE share_id LIKE '{part}-%'"
                ),
                &format!(
                    "SELECT (extract(epoch FROM at - start_date) * 1000000)::int8 - {SHARE_LIMIT_US}
                     FROM ended JOIN shares USING (share_id) WHERE share_id LIKE '{part}-%'"
                ),
            )
            .await;
        assert_eq!(shares.len() as i64, SHARES, "each ends once");
        // SQLite's clock is cut to a millisecond.
        assert!(shares.iter().all(|late| *late > -1_000), "{part}: one ended early: {shares:?}");
        let ended = |run: &str, task: &str| {
            format!(
                "SELECT r.ended_at - r.started_at FROM {run} r JOIN {task} t ON t.id = r.task
                 WHERE t.name = 'neighbour' AND r.started_at > {begin} AND r.ended_at IS NOT NULL"
            )
        };
        let (file, server) = (ended("besom_run", "besom_task"), ended("besom.run", "besom.task"));
        let runs = self.numbers(&file, &server).await;
        Late { shares: quantiles(shares), runs: quantiles(runs) }
    }

    /// The term of the store.
    pub async fn term(&self) -> i64 {
        self.number("SELECT term FROM besom_fence", "SELECT term::int8 FROM besom.fence").await
    }

    /// The bytes of all messages.
    pub async fn outbox_bytes(&self) -> i64 {
        self.number(
            "SELECT coalesce(sum(octet_length(payload)), 0) FROM besom_outbox",
            "SELECT coalesce(sum(octet_length(payload)), 0)::int8 FROM besom.outbox",
        )
        .await
    }

    /// Waits until no statement of Besom runs on the server: none outlives its host.
    pub async fn leaves_the_database_alone(&self) {
        let Product::Server(db, _) = &self.product else { return };
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = '{ROLE}' AND state = 'active'"
        );
        wait_for("the server to be left alone", async || {
            let active: i64 = db.query_one(&sql, &[]).await.expect("asked").get(0);
            (active == 0).then_some(())
        })
        .await;
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_besom-under-test"));
        command.args(args).current_dir(self.directory.path()).env_remove("BESOM_CONFIG");
        command.env("BESOM_HOST_DEFAULT_MODE", "live");
        command.stdin(Stdio::null());
        command
    }

    /// What a verb prints as JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let out = self.command(&[args, &["--output", "json"]].concat()).output();
        let out = out.expect("the binary runs");
        serde_json::from_slice(&out.stdout).unwrap_or_else(|error| {
            panic!("{args:?}: {error}: {}", String::from_utf8_lossy(&out.stderr))
        })
    }

    /// A host that leads.
    pub async fn serve(&self) -> Host {
        let log = self.path("host.log");
        let child = self
            .command(&["serve"])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("a log"))
            .spawn()
            .expect("it starts");
        let mut host = Host { child, log };
        wait_for("somebody to lead", async || {
            host.is_alive();
            self.json(&["status"])["leader"].is_string().then_some(())
        })
        .await;
        host
    }
}

/// A `besom serve`. Dropping it kills it.
pub struct Host {
    child: Child,
    log: PathBuf,
}

impl Host {
    fn is_alive(&mut self) {
        if let Some(status) = self.child.try_wait().expect("waited") {
            panic!("the host has ended ({status}):\n{}", log(&self.log));
        }
    }

    /// Waits until its log contains these words.
    pub async fn says(&mut self, words: &str) {
        let (path, child) = (self.log.clone(), &mut self.child);
        wait_for(words, async || {
            assert!(child.try_wait().expect("waited").is_none(), "{}", log(&path));
            log(&path).contains(words).then_some(())
        })
        .await;
    }

    /// The peak of its memory, in KiB.
    pub fn memory_kib_max(&self) -> u64 {
        memory_kib(self.child.id(), "VmHWM").expect("it runs")
    }

    /// Sends SIGTERM, and waits until it ends.
    pub async fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it is there");
        let child = &mut self.child;
        let status = wait_for("the host to end", async || child.try_wait().expect("waited")).await;
        assert!(status.success(), "{status}:\n{}", log(&self.log));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A process that has already ended need not be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", log(&self.log));
        }
    }
}

fn log(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// The median, the 99th percentile and the maximum of microseconds, in milliseconds.
fn quantiles(mut all: Vec<i64>) -> [i64; 3] {
    all.sort_unstable();
    assert!(!all.is_empty(), "nothing was measured");
    [50, 99, 100].map(|percent| all[(all.len() * percent).div_ceil(100) - 1] / 1_000)
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
