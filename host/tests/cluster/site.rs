//! A cluster in its own directory, and a ledger of the changes of rows, kept by triggers in the
//! transaction that changes them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use besom_demo::cluster::{Host, Programs, Servers, Shape, configuration, stop_all};
use besom_snapshot::Snapshot;
use rustix::process::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use crate::wait::{wait_at_most, wait_for};

/// The lease of the tests: short, but far longer than the stalls of a slow machine.
pub const LEASE: (&str, &str) = ("4s", "1s");
/// How long it may take until everything is executed.
const REST_MAX: Duration = Duration::from_secs(180);

/// How long a host may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// One cluster at a time.
static ONE: Mutex<()> = Mutex::new(());

/// The effects, by row.
const LEDGER: &str = "
CREATE TABLE seen_unshared (share text, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION see_unshared() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen_unshared VALUES (new.project_id || '/' || new.share_id);
    RETURN NULL;
END $$;
CREATE TRIGGER see_unshared AFTER UPDATE OF unshared_at ON shares
    FOR EACH ROW EXECUTE FUNCTION see_unshared();
";

/// A cluster: servers, hosts, and a product's connection.
pub struct Site {
    pub servers: Servers,
    pub hosts: Vec<Host>,
    runtime: Runtime,
    product: Option<Client>,
    dir: tempfile::TempDir,
    _one: MutexGuard<'static, ()>,
}

/// Waits until no other cluster runs. A failed test leaves nothing behind that affects another.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a line to an address, and reads the first response.
pub fn exchange(address: &str, line: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(ANSWER_MAX)).expect("set");
    stream.write_all(line.as_bytes()).expect("it is taken");
    let mut answer = [0; 256];
    let read = stream.read(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

impl Site {
    /// Servers and this many hosts, which are not started yet, with the tables of the model.
    pub fn new(hosts: usize) -> Site {
        let one = alone();
        let dir = tempfile::tempdir().expect("a directory");
        let shape = Shape { etcd_members: 3, durable: false, etcd_password: false };
        let programs = Programs::find().expect("the servers are installed");
        let servers = Servers::start(programs, &dir.path().join("servers"), shape);
        let runtime = Runtime::new().expect("a runtime");
        let mut site = Site {
            servers: servers.expect("the servers start"),
            hosts: Vec::new(),
            runtime,
            product: None,
            dir,
            _one: one,
        };
        for number in 1..=hosts {
            let host = site.prepare(&format!("node-{number}"), |config| config);
            site.hosts.push(host);
        }
        site
    }

    /// A host's directory, with its configuration changed.
    pub fn prepare(&self, name: &str, change: impl FnOnce(String) -> String) -> Host {
        let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache");
        let config = configuration(&self.servers, name, &cache, Some(LEASE));
        Host::prepare(self.dir.path(), name, &change(config)).expect("written")
    }

    /// Creates the tables, and the ledger beside them.
    pub fn create_tables(&mut self) {
        self.create_model();
        self.sql(LEDGER);
    }

    /// Creates the tables.
    pub fn create_model(&self) {
        std::fs::write(self.dir.path().join("first.log"), [1, 0, 0, 0, 2, 0, 0, 0, 0, 0])
            .expect("written");
        let (code, said) = self.said(&["doc", "import", "first.log", "--tenant", "first"]);
        assert_eq!(code, 0, "{said}");
    }

    /// Starts all hosts, and waits until each has its share.
    pub fn start(&mut self) {
        for host in &mut self.hosts {
            host.start(env!("CARGO_BIN_EXE_besom").as_ref(), &[]).expect("started");
        }
        self.shared_out();
    }

    /// Starts one host.
    pub fn start_host(&mut self, index: usize) {
        let besom = env!("CARGO_BIN_EXE_besom");
        self.hosts[index].start(besom.as_ref(), &[]).expect("started");
    }

    /// A verb with a host's configuration.
    pub fn command(&self, host: &Host, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_besom"));
        command.arg("--config").arg(host.config()).args(args);
        command.current_dir(self.dir.path()).env_remove("BESOM_CONFIG");
        command.env("BESOM_HOST_DEFAULT_MODE", "live");
        command.stdin(Stdio::null());
        command
    }

    fn besom(&self, args: &[&str]) -> Output {
        self.command(&self.hosts[0], args).output().expect("the binary runs")
    }

    /// The exit code and stderr.
    pub fn said(&self, args: &[&str]) -> (i32, String) {
        said(self.besom(args))
    }

    /// The exit code and stdout as JSON.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> (i32, Value) {
        let out = self.besom(&[args, &["--output", "json"]].concat());
        let (text, said) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        let json = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{args:?}: {e}: `{text}`\n{said}"));
        (out.status.code().expect("not killed"), json)
    }

    /// The members, as `besom node ls` prints them.
    pub fn members(&self) -> Vec<Value> {
        let (code, members) = self.json(&["node", "ls"]);
        assert_eq!(code, 0);
        members.as_array().expect("a list").clone()
    }

    /// The socket of a host's admin API.
    pub fn socket(&self, index: usize) -> PathBuf {
        self.hosts[index].config().with_file_name("besom.sock")
    }

    /// A host's snapshot of the deployment; none: it does not answer.
    pub fn snapshot(&self, index: usize) -> Option<Snapshot> {
        let mut stream = UnixStream::connect(self.socket(index)).ok()?;
        stream.set_read_timeout(Some(ANSWER_MAX)).expect("set");
        let request = "GET /v1/snapshot HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8(answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n")?;
        if !head.starts_with("HTTP/1.1 200 ") {
            return None;
        }
        Some(serde_json::from_str(body).expect("a snapshot"))
    }

    /// The index of the host that leads.
    #[track_caller]
    pub fn leader(&self) -> usize {
        // The first host of a cold cache compiles the plugins, or waits for a process that does.
        wait_at_most(REST_MAX, "somebody to lead", || {
            let members = self.members();
            let leads = members.iter().find(|member| member["leads"] == true)?;
            self.hosts.iter().position(|host| leads["name"] == host.name())
        })
    }

    /// The term of the store.
    pub fn term(&mut self) -> i64 {
        self.number("SELECT coalesce(max(term), 0)::int8 FROM besom.fence")
    }

    /// Waits until the partitions belong to the running hosts, about as many to each.
    #[track_caller]
    pub fn shared_out(&mut self) {
        wait_at_most(REST_MAX, "the partitions to be shared out", || {
            // Counted every time: a process that was just killed may not have ended yet.
            let (alive, dead): (Vec<_>, Vec<_>) = self.hosts.iter().partition(|h| h.is_alive());
            let alive = alive.len();
            let members = self.members();
            let there = |host: &&Host| members.iter().any(|m| m["name"] == host.name());
            let active = members.iter().filter(|m| m["state"] == "active").count();
            if active != alive || dead.iter().any(there) {
                return None;
            }
            // One that is still starting is registered as the process before it.
            let mut running = (0..self.hosts.len()).filter(|index| self.hosts[*index].is_alive());
            if running.any(|index| self.snapshot(index).is_none()) {
                return None;
            }
            let incarnations: Vec<String> = members
                .iter()
                .map(|m| format!("'{}'", m["incarnation"].as_str().expect("a name")))
                .collect();
            let owners = self.number(&format!(
                "SELECT count(DISTINCT owner) FROM besom.partition WHERE owner IN ({})",
                incarnations.join(",")
            ));
            let lost = self.number(&format!(
                "SELECT count(*) FROM besom.partition WHERE owner IS NULL OR owner NOT IN ({})",
                incarnations.join(",")
            ));
            if owners != alive as i64 || lost != 0 {
                return None;
            }
            // Partitions move until every node has the share that the ring assigns.
            let (code, ring) = self.json(&["ring", "show"]);
            let settled = |node: &Value| node["owned"] == node["partitions"];
            (code == 0 && ring.as_array().is_some_and(|ring| ring.iter().all(settled)))
                .then_some(())
        });
    }

    /// Sends a host a signal.
    pub fn signal(&self, index: usize, signal: Signal) {
        self.hosts[index].process().expect("it runs").signal(signal).expect("sent");
    }

    /// Adds `count` shares that fall due one after the other, `from` to `to` seconds from now.
    pub fn add_shares(&mut self, tag: &str, count: u32, from: f64, to: f64) {
        self.sql(&format!(
            "INSERT INTO projects VALUES ('acme') ON CONFLICT DO NOTHING;
             INSERT INTO shares (project_id, share_id, file_id, start_date)
             SELECT 'acme', '{tag}-' || n, 'f' || n,
                    now() - interval '7 days'
                        + ({from} + ({to} - {from}) * n / {count}.0) * interval '1 second'
             FROM generate_series(1, {count}) n"
        ));
    }

    /// Waits until all shares have ended.
    #[track_caller]
    pub fn comes_to_rest(&mut self) {
        wait_at_most(REST_MAX, "everything due to be done", || {
            let open = self.number("SELECT count(*) FROM shares WHERE unshared_at IS NULL");
            (open == 0).then_some(())
        });
    }

    /// Checks what has to hold after every fault: the books balance, and every effect happened
    /// once.
    #[track_caller]
    pub fn balanced(&mut self) {
        let (code, audit) = self.json(&["audit"]);
        assert_eq!((code, &audit["balanced"]), (0, &Value::Bool(true)), "{audit:#}");
        let doubled = "SELECT count(*) FROM (SELECT share FROM seen_unshared GROUP BY share
                       HAVING count(*) > 1) AS doubled";
        assert_eq!(self.number(doubled), 0, "an effect took place twice");
        let ended = self.number("SELECT count(*) FROM shares WHERE unshared_at IS NOT NULL");
        let seen = self.number("SELECT count(*) FROM seen_unshared");
        assert_eq!(ended, seen, "the ledger has an entry for every share that ended");
        let early = "SELECT count(*) FROM shares
                     WHERE unshared_at < start_date + interval '7 days'";
        assert_eq!(self.number(early), 0, "nothing ended before it was due");
        assert_eq!(self.dead(), 0, "a fault of the servers is nobody's fault");
    }

    /// Prints who owns partitions, under which ring, and what the server is executing.
    fn show_locks(&mut self) {
        let rows =
            "SELECT concat_ws(' ', owner, ring_term, ring_rev, count(*)) FROM besom.partition
                    GROUP BY owner, ring_term, ring_rev ORDER BY 1";
        let sessions = "SELECT concat_ws(' ', pid, application_name, state, wait_event_type,
                          wait_event, clock_timestamp() - state_change, pg_blocking_pids(pid),
                          left(query, 120))
                        FROM pg_stat_activity WHERE state <> 'idle' ORDER BY 1";
        for line in [rows, sessions].into_iter().flat_map(|sql| self.text(sql)) {
            eprintln!("{line}");
        }
    }

    fn dead(&mut self) -> i64 {
        self.number("SELECT count(*) FROM besom.dead")
    }

    /// Runs statements as the product.
    pub fn sql(&mut self, sql: &str) {
        let client = self.client();
        let done = self.runtime.block_on(client.batch_execute(sql));
        self.product = Some(client);
        done.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }

    /// One number.
    pub fn number(&mut self, sql: &str) -> i64 {
        let client = self.client();
        let row = self.runtime.block_on(client.query_one(sql, &[]));
        self.product = Some(client);
        row.unwrap_or_else(|e| panic!("{sql}: {e:?}")).get(0)
    }

    /// The first column of all rows, as text.
    pub fn text(&mut self, sql: &str) -> Vec<String> {
        let client = self.client();
        let rows = self.runtime.block_on(client.query(sql, &[]));
        self.product = Some(client);
        let rows = rows.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// A transaction of the product that stays open until it is ended.
    pub fn transaction(&self, sql: &str) -> Open {
        let client = self.connect();
        self.runtime.block_on(client.batch_execute(&format!("BEGIN; {sql}"))).expect("locked");
        Open { client, runtime: self.runtime.handle().clone() }
    }

    fn client(&mut self) -> Client {
        self.product.take().filter(|c| !c.is_closed()).unwrap_or_else(|| self.connect())
    }

    fn connect(&self) -> Client {
        let config = self.servers.connection();
        wait_for("the server to take connections", || {
            self.runtime.block_on(async {
                let (client, connection) = config.connect(NoTls).await.ok()?;
                tokio::spawn(connection);
                Some(client)
            })
        })
    }
}

impl AsRef<Path> for Site {
    fn as_ref(&self) -> &Path {
        self.dir.path()
    }
}

/// A transaction that is open.
pub struct Open {
    client: Client,
    runtime: tokio::runtime::Handle,
}

impl Open {
    /// Ends it.
    pub fn roll_back(self) {
        self.runtime.block_on(self.client.batch_execute("ROLLBACK")).expect("rolled back");
    }
}

/// The exit code and stderr.
pub fn said(out: Output) -> (i32, String) {
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    (out.status.code().expect("not killed"), said)
}

impl Drop for Site {
    /// A failed test prints the logs of its hosts.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for command in [&["status"][..], &["node", "ls"], &["ring", "show"]] {
                eprintln!("{}", String::from_utf8_lossy(&self.besom(command).stdout));
            }
            self.show_locks();
            for host in &self.hosts {
                let log = std::fs::read_to_string(host.log()).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                eprintln!(
                    "{}:\n{}",
                    host.name(),
                    lines[lines.len().saturating_sub(40)..].join("\n")
                );
            }
        }
        stop_all(&mut self.hosts);
    }
}
