//! A PostgreSQL server of the tests: a new cluster in a temporary directory, with a socket beside
//! it.
//!
//! Texts are ordered as in an ordinary database, by a language and not by bytes, and the store uses
//! an ordinary role: neither a superuser nor the owner of the product's tables.
//!
//! One server serves a whole test binary, with a separate database for each test. It ends with the
//! process, however that ends: a shell waits for the end of its standard input, which only the test
//! holds, then stops the server and removes the directory. A test's own server may be killed and
//! started again.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use besom_postgres::PostgresStore;
use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::{Client, NoTls};

use super::guard;
use crate::adapters::postgres::patient;

/// The memory that a server's files may take, in bytes: its log of changes, and the databases of the
/// tests that run at a time.
const MEMORY: u64 = 2 << 30;
/// How long a server may take to answer.
const READY_MAX: Duration = Duration::from_secs(60);
/// The port in the socket's name, for a server without TCP.
const PORT: u16 = 5432;
/// The template of other databases: the engine's tables and nothing else.
const TEMPLATE: &str = "besom_template";
/// The same, made by a role with the rights that `besom grants` prints.
const GRANTED: &str = "besom_granted";
/// The same without the tables: only the role's rights are set.
const EMPTY: &str = "besom_empty";
/// The role of the store.
pub const ROLE: &str = "housekeeper";

/// Whether a commit waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// It does not: for tests, whose data need not survive a crash of the machine.
    Ignored,
    /// It does: for measurements.
    Synced,
}

/// The settings of a server.
pub struct Setup {
    /// Whether commits wait for the disk.
    pub disk: Disk,
    /// Further settings (`name=value`).
    pub settings: Vec<String>,
    /// The lines of `pg_hba.conf`; none: every client is trusted.
    pub logins: Option<String>,
    /// Whether it listens on a port of 127.0.0.1 beside its socket.
    pub tcp: bool,
    /// Its certificate and key (PEM), if it uses TLS.
    pub certificate: Option<(String, String)>,
}

impl Setup {
    /// On its socket only, without authentication.
    pub fn new(disk: Disk) -> Setup {
        Setup { disk, settings: Vec::new(), logins: None, tcp: false, certificate: None }
    }
}

/// A server.
pub struct Server {
    directory: PathBuf,
    bin: PathBuf,
    port: u16,
    databases: AtomicU64,
    /// Whether [`TEMPLATE`] exists.
    template: OnceLock<()>,
    /// Whether [`GRANTED`] exists.
    granted: OnceLock<()>,
    /// Whether [`EMPTY`] and [`ROLE`] exist.
    empty: OnceLock<()>,
    /// The server ends with it.
    shell: Child,
    /// What the shell reads; taken at the end.
    orders: Mutex<Option<ChildStdin>>,
}

impl Server {
    /// The server of this process, started by the first caller.
    pub fn shared() -> &'static Server {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(|| Server::start(Disk::Ignored, &[]))
    }

    /// Starts one, with further settings (`name=value`).
    ///
    /// # Panics
    /// If PostgreSQL is not installed; the message names the package.
    pub fn start(disk: Disk, settings: &[&str]) -> Server {
        let settings = settings.iter().map(ToString::to_string).collect();
        Server::with(&Setup { settings, ..Setup::new(disk) })
    }

    /// Starts one.
    ///
    /// # Panics
    /// As [`Server::start`] does.
    pub fn with(setup: &Setup) -> Server {
        let bin = binaries();
        let directory = match setup.disk {
            Disk::Synced => tempfile::tempdir().expect("a temporary directory"),
            // Every test creates and drops a database of hundreds of files.
            Disk::Ignored => guard::directory(MEMORY).expect("a temporary directory"),
        };
        let directory = directory.keep();
        let user = unprivileged();
        if let Some((uid, gid)) = user {
            chown(&directory, Some(uid), Some(gid)).expect("the directory changes hands");
        }
        let data = directory.join("data");
        let as_user = |command: &mut Command| {
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command.current_dir(&directory);
        };
        let mut initdb = Command::new(bin.join("initdb"));
        initdb.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"]);
        // What `en_US.UTF-8` gives, without that locale installed.
        initdb.args(["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]);
        initdb.arg("-D").arg(&data);
        as_user(&mut initdb);
        let made = initdb.output().expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

        let own = |name: &str, text: &str| {
            let path = data.join(name);
            fs::write(&path, text).expect("a file of the server is written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode is set");
            if let Some((uid, gid)) = user {
                chown(&path, Some(uid), Some(gid)).expect("it changes hands");
            }
        };
        if let Some(logins) = &setup.logins {
            own("pg_hba.conf", logins);
        }
        let (port, address) = if setup.tcp { (free_port(), "127.0.0.1") } else { (PORT, "") };
        let mut settings = setup.settings.clone();
        settings.push(format!("listen_addresses={address}"));
        if let Some((certificate, key)) = &setup.certificate {
            own("server.crt", certificate);
            own("server.key", key);
            settings.push("ssl=on".into());
        }

        let mut shell = Command::new("sh");
        // It starts one server now, and another for each line that it reads.
        shell.arg("-c").arg(
            "directory=$1; shift; run() { \"$@\" >>\"$directory/log\" 2>&1 & server=$!; }; \
             run \"$@\"; while read -r again; do wait $server; run \"$@\"; done; \
             kill -INT $server; wait $server; rm -rf \"$directory\"",
        );
        shell.arg("besom-postgres").arg(&directory).arg(bin.join("postgres"));
        shell.arg("-D").arg(&data).arg("-k").arg(&directory);
        let synced = if setup.disk == Disk::Synced { "on" } else { "off" };
        for setting in ["max_connections=300", "shared_buffers=256MB", "max_wal_size=256MB"] {
            shell.arg("-c").arg(setting);
        }
        shell.arg("-c").arg(format!("port={port}"));
        for setting in &settings {
            shell.arg("-c").arg(setting);
        }
        for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
            shell.arg("-c").arg(format!("{setting}={synced}"));
        }
        as_user(&mut shell);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = shell.spawn().expect("a shell");
        let orders = Mutex::new(shell.stdin.take());
        let (template, granted, empty) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let databases = AtomicU64::new(1);
        let server =
            Server { directory, bin, port, databases, template, granted, empty, shell, orders };
        server.wait();
        server
    }

    /// Kills all of its processes at once, like a loss of power.
    pub fn kill(&self) {
        let file = self.directory.join("data/postmaster.pid");
        let text = fs::read_to_string(file).expect("the server runs");
        let postmaster: i32 =
            text.lines().next().and_then(|line| line.parse().ok()).expect("a pid");
        // Stopped first: it would begin to recover from the loss of the others, or start one more.
        send(postmaster, Signal::STOP);
        let mut all = vec![postmaster];
        all.extend(children(postmaster));
        for &pid in &all {
            send(pid, Signal::KILL);
        }
        // A server does not start while a process of the last one is attached to its memory.
        let asked = Instant::now();
        while all.iter().any(|&pid| runs(pid)) {
            assert!(asked.elapsed() < READY_MAX, "a killed process of the server runs on");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Starts it again after [`Server::kill`].
    pub fn start_again(&self) {
        let mut orders = self.orders.lock().expect("no order panicked");
        let shell = orders.as_mut().expect("the shell listens");
        shell.write_all(b"again\n").expect("the shell is told");
        self.wait();
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn wait(&self) {
        let asked = Instant::now();
        while !self.client("pg_isready").arg("-q").status().is_ok_and(|s| s.success()) {
            let log = self.log();
            assert!(asked.elapsed() < READY_MAX, "the server does not answer:\n{log}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// One of PostgreSQL's programs, pointed at this server.
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.arg("-h").arg(&self.directory).args(["-U", "postgres"]);
        command.arg("-p").arg(self.port.to_string());
        command.current_dir("/");
        command
    }

    /// Runs a statement as the administrator.
    ///
    /// # Panics
    /// If it fails.
    pub fn sql(&self, sql: &str) {
        self.sql_in("postgres", sql);
    }

    /// The same in a database.
    fn sql_in(&self, database: &str, sql: &str) {
        let output = self
            .client("psql")
            .args(["-q", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql])
            .output()
            .expect("psql runs");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The URL of a database, for the role that the store works as.
    pub fn url(&self, database: &str) -> String {
        self.url_of(ROLE, database)
    }

    fn url_of(&self, user: &str, database: &str) -> String {
        let host = self.directory.display();
        let port = self.port;
        format!("postgres:///{database}?host={host}&port={port}&user={user}&sslmode=disable")
    }

    /// A database of that name, copied from another: the role may create its schema, and has its
    /// grants on the product's tables.
    fn make(&self, name: &str, template: &str) {
        self.sql(&format!("CREATE DATABASE {name} TEMPLATE {template}"));
        // A database does not inherit the grants of its template.
        self.sql(&format!("GRANT CREATE ON DATABASE {name} TO {ROLE}"));
    }

    fn prepare(&self) {
        self.empty.get_or_init(|| {
            self.sql(&format!("CREATE ROLE {ROLE} LOGIN"));
            self.make(EMPTY, "template0");
            self.sql_in(
                EMPTY,
                &format!(
                    "GRANT CREATE ON SCHEMA public TO {ROLE};
                     ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES
                       TO {ROLE};
                     ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO {ROLE}"
                ),
            );
        });
    }

    /// The port, if it listens on one.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A new database without anything of the engine in it.
    pub fn empty(&'static self) -> Database {
        self.prepare();
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.make(&name, EMPTY);
        Database { server: self, name }
    }

    /// A new database in which no role but its owner may do anything.
    pub fn bare(&'static self) -> Database {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("CREATE DATABASE {name} TEMPLATE template0"));
        Database { server: self, name }
    }

    /// A new database with the engine's tables, created by a role with only the rights that these
    /// statements grant.
    pub fn granted(&'static self, role: &str, statements: &str) -> Database {
        self.granted.get_or_init(|| {
            self.prepare();
            self.sql(&format!("CREATE DATABASE {GRANTED} TEMPLATE template0"));
            self.sql_in(GRANTED, statements);
            self.found(self.url_of(role, GRANTED));
        });
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("CREATE DATABASE {name} TEMPLATE {GRANTED}"));
        Database { server: self, name }
    }

    /// Creates the engine's tables in a database, on a separate thread, because the caller may be
    /// within a runtime.
    fn found(&self, url: String) {
        let made = std::thread::spawn(move || {
            crate::conformance::block_on(async {
                PostgresStore::open(&url, patient()).await.map(drop)
            })
        });
        made.join().expect("a thread").expect("the template is made");
    }

    /// A new database with the engine's tables, as the default options make them.
    pub fn database(&'static self) -> Database {
        self.template.get_or_init(|| {
            self.prepare();
            self.make(TEMPLATE, EMPTY);
            self.found(self.url(TEMPLATE));
        });
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.make(&name, TEMPLATE);
        Database { server: self, name }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.get_mut().map(Option::take));
        let _ = self.shell.wait();
    }
}

/// A database of one test, dropped with it.
pub struct Database {
    server: &'static Server,
    name: String,
}

impl Database {
    /// Executes statements in it as the superuser.
    pub fn sql(&self, sql: &str) {
        self.server.sql_in(&self.name, sql);
    }

    /// Its URL for another role.
    pub fn url_of(&self, role: &str) -> String {
        self.server.url_of(role, &self.name)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// A superuser's connection beside the store's, as of the product or an operator.
    pub async fn connect(&self) -> Client {
        Database::connect_to(&self.server.url_of("postgres", &self.name)).await
    }

    /// A connection of the store's role.
    pub async fn connect_as_store(&self) -> Client {
        Database::connect_to(&self.url()).await
    }

    async fn connect_to(url: &str) -> Client {
        let url = url.replace("&sslmode=disable", "");
        let (client, connection) =
            tokio_postgres::connect(&url, NoTls).await.expect("a connection");
        // It ends when the client is dropped.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        client
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.server.sql(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        }
    }
}

/// A port on which nothing listens.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// Sends a signal to a process, which may have ended in the meantime.
fn send(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a pid");
    let _ = kill_process(pid, signal);
}

/// The state of a process and its parent, unless it has ended and was waited for.
fn stat(pid: i32) -> Option<(String, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may contain any character: the state, then the parent.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Whether a process has not ended yet.
fn runs(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// The processes that a process has started.
fn children(parent: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("the processes are listed").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| stat(pid).is_some_and(|(_, its)| its == parent)).collect()
}

/// The directory of PostgreSQL's programs: `BESOM_POSTGRES_BIN`, the newest of Debian's, or one
/// of the search path.
fn binaries() -> PathBuf {
    let named = std::env::var_os("BESOM_POSTGRES_BIN").map(PathBuf::from);
    let mut debian: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    debian.sort_unstable();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let newest = debian.into_iter().rev().map(|(_, path)| path);
    let all = named.into_iter().chain(newest).chain(std::env::split_paths(&path));
    let complete = |bin: &PathBuf| bin.join("postgres").exists() && bin.join("initdb").exists();
    all.into_iter().find(complete).expect(
        "PostgreSQL is not installed: apt-get install postgresql (or name the directory of its \
         programs in BESOM_POSTGRES_BIN)",
    )
}

/// The user of the server if this one is root, which PostgreSQL refuses.
fn unprivileged() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string(Path::new("/etc/passwd")).expect("the users are read");
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(ids("postgres").or_else(|| ids("nobody")).expect("a user that is not root"))
}
