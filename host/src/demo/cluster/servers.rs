//! The servers of a cluster on one machine: etcd, PostgreSQL and Redis, as they are installed,
//! on free ports and with data of their own. Nothing of the machine's own services is touched.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::process::{Process, Start};

/// How long a server may take to answer.
const READY_MAX: Duration = Duration::from_secs(60);
/// How often it is asked.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// Where Debian has PostgreSQL's programs.
const POSTGRES_BY_VERSION: &str = "/usr/lib/postgresql";
/// Connections that PostgreSQL takes: those of each node, and some for people.
const CONNECTIONS: u32 = 300;
/// The name of the database.
const DATABASE: &str = "demo";

/// The programs of the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    etcd: PathBuf,
    postgres: PathBuf,
    initdb: PathBuf,
    redis: PathBuf,
}

impl Programs {
    /// Looks for them on the search path, and where Debian has them.
    ///
    /// # Errors
    /// Those that are not there, with their packages.
    pub fn find() -> anyhow::Result<Programs> {
        let newest = || {
            let versions = std::fs::read_dir(POSTGRES_BY_VERSION).ok()?;
            let version = |name: std::ffi::OsString| name.to_str()?.parse::<u32>().ok();
            let newest = versions.flatten().filter_map(|v| version(v.file_name())).max()?;
            Some(Path::new(POSTGRES_BY_VERSION).join(newest.to_string()).join("bin"))
        };
        let bin = newest();
        let beside = |name: &str| {
            let installed = bin.as_ref().map(|bin| bin.join(name)).filter(|path| path.is_file());
            installed.or_else(|| on_path(name))
        };
        let found = [
            (on_path("etcd"), "etcd", "etcd-server"),
            (beside("postgres"), "postgres", "postgresql"),
            (beside("initdb"), "initdb", "postgresql"),
            (on_path("redis-server"), "redis-server", "redis-server"),
        ];
        let missing: Vec<_> = found.iter().filter(|(path, ..)| path.is_none()).collect();
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter().map(|(_, name, _)| *name).collect();
            let mut packages: Vec<_> = missing.iter().map(|(.., package)| *package).collect();
            packages.dedup();
            bail!(
                "a cluster needs {}, which are not installed here: apt-get install {}",
                names.join(", "),
                packages.join(" ")
            );
        }
        let [etcd, postgres, initdb, redis] = found.map(|(path, ..)| path.unwrap_or_default());
        Ok(Programs { etcd, postgres, initdb, redis })
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// How many members etcd has, and how seriously data is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Members of etcd.
    pub etcd_members: usize,
    /// Whether a commit of PostgreSQL waits for the disk.
    pub durable: bool,
}

/// The servers at work.
#[derive(Debug)]
pub struct Servers {
    programs: Programs,
    dir: PathBuf,
    etcd: Vec<Member>,
    postgres: Server,
    redis: Server,
    /// Where PostgreSQL's data is if it cannot be under `dir`; last, for it goes last.
    _elsewhere: Option<tempfile::TempDir>,
}

#[derive(Debug)]
struct Member {
    url: String,
    args: Vec<String>,
    process: Option<Process>,
}

#[derive(Debug)]
struct Server {
    args: Vec<String>,
    user: Option<(u32, u32)>,
    port: u16,
    process: Option<Process>,
}

/// A server, to do something to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// A member of etcd.
    Etcd(usize),
    /// PostgreSQL.
    Postgres,
    /// Redis.
    Redis,
}

impl Servers {
    /// Starts them with their data under `dir`, and waits until each of them answers.
    pub fn start(programs: Programs, dir: &Path, shape: Shape) -> anyhow::Result<Servers> {
        let dir = std::path::absolute(dir)?;
        std::fs::create_dir_all(&dir)?;
        let ports = free_ports(2 * shape.etcd_members + 2)?;
        let (etcd_ports, others) = ports.split_at(2 * shape.etcd_members);
        let user = unprivileged()?;
        let elsewhere = user.map(|user| elsewhere(user, &dir)).transpose()?;
        let data = elsewhere.as_ref().map_or(dir.as_path(), tempfile::TempDir::path).join("data");
        init_postgres(&programs, &data, user)?;
        let mut servers = Servers {
            etcd: etcd_members(&dir, etcd_ports),
            postgres: Server {
                args: postgres_args(&data, others[0], shape.durable),
                user,
                port: others[0],
                process: None,
            },
            redis: Server {
                args: redis_args(&dir, others[1]),
                user: None,
                port: others[1],
                process: None,
            },
            programs,
            dir,
            _elsewhere: elsewhere,
        };
        // All before any is waited for: etcd is not ready without a majority.
        let all = servers.all();
        for which in &all {
            servers.spawn(*which)?;
        }
        for which in all {
            servers.wait(which)?;
        }
        servers.create_database()?;
        Ok(servers)
    }

    fn all(&self) -> Vec<Which> {
        let etcd = (0..self.etcd.len()).map(Which::Etcd);
        etcd.chain([Which::Postgres, Which::Redis]).collect()
    }

    /// The addresses of etcd's members.
    pub fn etcd(&self) -> Vec<String> {
        self.etcd.iter().map(|member| member.url.clone()).collect()
    }

    /// The URL of the database.
    pub fn postgres(&self) -> String {
        let port = self.postgres.port;
        format!("postgres://postgres@127.0.0.1:{port}/{DATABASE}?sslmode=disable")
    }

    /// The URL of Redis.
    pub fn redis(&self) -> String {
        format!("redis://127.0.0.1:{}", self.redis.port)
    }

    /// The process of a server; none: it was stopped.
    pub fn process(&self, which: Which) -> Option<&Process> {
        match which {
            Which::Etcd(index) => self.etcd.get(index)?.process.as_ref(),
            Which::Postgres => self.postgres.process.as_ref(),
            Which::Redis => self.redis.process.as_ref(),
        }
    }

    /// Stops a server as an operator would.
    pub fn stop(&mut self, which: Which) {
        *self.slot(which) = None;
    }

    /// Starts a server again, with the data that it had. One that was killed may have left
    /// processes behind that have yet to notice, and does not start beside them.
    pub fn restart(&mut self, which: Which) -> anyhow::Result<()> {
        let asked = Instant::now();
        loop {
            self.stop(which);
            self.spawn(which)?;
            match self.wait(which) {
                Err(error) if asked.elapsed() > READY_MAX => return Err(error),
                Err(_) => std::thread::sleep(ASK_EVERY * 10),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// The same with several at once: etcd answers only with a majority.
    pub fn restart_all(&mut self, these: &[Which]) -> anyhow::Result<()> {
        for which in these {
            self.stop(*which);
            self.spawn(*which)?;
        }
        these.iter().try_for_each(|which| self.wait(*which))
    }

    fn slot(&mut self, which: Which) -> &mut Option<Process> {
        match which {
            Which::Etcd(index) => &mut self.etcd[index].process,
            Which::Postgres => &mut self.postgres.process,
            Which::Redis => &mut self.redis.process,
        }
    }

    fn spawn(&mut self, which: Which) -> anyhow::Result<()> {
        let (program, args, stop, user, name) = match which {
            Which::Etcd(index) => {
                let args = self.etcd[index].args.clone();
                (&self.programs.etcd, args, "TERM", None, format!("etcd-{index}"))
            }
            Which::Postgres => {
                let Server { args, user, .. } = &self.postgres;
                (&self.programs.postgres, args.clone(), "INT", *user, "postgres".to_owned())
            }
            Which::Redis => {
                (&self.programs.redis, self.redis.args.clone(), "TERM", None, "redis".to_owned())
            }
        };
        let log = self.dir.join(format!("{name}.log"));
        // The user of PostgreSQL may not be able to enter the directory.
        let dir = Path::new("/");
        let start = Start { program, args, dir, log, stop, user };
        let process = Process::start(start).with_context(|| format!("{name} cannot be started"))?;
        *self.slot(which) = Some(process);
        Ok(())
    }

    fn wait(&self, which: Which) -> anyhow::Result<()> {
        let asked = Instant::now();
        while !self.answers(which) {
            let process = self.process(which);
            let alive = process.is_some_and(Process::is_alive);
            if !alive || asked.elapsed() > READY_MAX {
                let log = process.map(|p| std::fs::read_to_string(p.log()).unwrap_or_default());
                let words = if alive { "does not answer" } else { "has ended" };
                bail!("{which:?} {words}:\n{}", tail(&log.unwrap_or_default()));
            }
            std::thread::sleep(ASK_EVERY);
        }
        Ok(())
    }

    fn answers(&self, which: Which) -> bool {
        match which {
            Which::Etcd(index) => {
                let address = self.etcd[index].url.trim_start_matches("http://").to_owned();
                asked(&address, b"GET /health HTTP/1.0\r\n\r\n", "\"true\"")
            }
            Which::Postgres => {
                let mut ready = Command::new(self.programs.initdb.with_file_name("pg_isready"));
                ready.args(["-q", "-h", "127.0.0.1", "-p", &self.postgres.port.to_string()]);
                ready.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
            }
            Which::Redis => asked(&format!("127.0.0.1:{}", self.redis.port), b"PING\r\n", "+PONG"),
        }
    }

    fn create_database(&self) -> anyhow::Result<()> {
        let mut psql = Command::new(self.programs.initdb.with_file_name("psql"));
        psql.args(["-q", "-h", "127.0.0.1", "-p", &self.postgres.port.to_string()]);
        psql.args(["-U", "postgres", "-d", "postgres", "-c"]);
        psql.arg(format!("CREATE DATABASE {DATABASE}")).current_dir("/");
        let output = psql.output().context("psql")?;
        if !output.status.success() {
            bail!("the database cannot be made: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

/// Sends a line to a server and looks for words in its answer.
fn asked(address: &str, question: &[u8], words: &str) -> bool {
    use std::io::{Read as _, Write as _};
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut answer = [0; 1024];
    let mut said = String::new();
    if stream.write_all(question).is_err() {
        return false;
    }
    while let Ok(read @ 1..) = stream.read(&mut answer) {
        said.push_str(&String::from_utf8_lossy(&answer[..read]));
        if said.contains(words) {
            return true;
        }
    }
    false
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

fn etcd_members(dir: &Path, ports: &[u16]) -> Vec<Member> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let (clients, peers) = ports.split_at(ports.len() / 2);
    let all: Vec<_> =
        peers.iter().enumerate().map(|(n, port)| format!("m{n}={}", url(*port))).collect();
    let member = |(n, (client, peer)): (usize, (&u16, &u16))| {
        let args: Vec<String> = [
            ("--name", format!("m{n}")),
            ("--data-dir", dir.join(format!("etcd-{n}")).display().to_string()),
            ("--listen-client-urls", url(*client)),
            ("--advertise-client-urls", url(*client)),
            ("--listen-peer-urls", url(*peer)),
            ("--initial-advertise-peer-urls", url(*peer)),
            ("--initial-cluster", all.join(",")),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        Member { url: url(*client), args, process: None }
    };
    clients.iter().zip(peers).enumerate().map(member).collect()
}

fn postgres_args(data: &Path, port: u16, durable: bool) -> Vec<String> {
    let mut args = vec!["-D".to_owned(), data.display().to_string()];
    let on = if durable { "on" } else { "off" };
    for setting in [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        "unix_socket_directories=".to_owned(),
        format!("max_connections={CONNECTIONS}"),
        format!("fsync={on}"),
        format!("synchronous_commit={on}"),
        format!("full_page_writes={on}"),
    ] {
        args.extend(["-c".to_owned(), setting]);
    }
    args
}

fn redis_args(dir: &Path, port: u16) -> Vec<String> {
    [
        ("--port", port.to_string()),
        ("--bind", "127.0.0.1".to_owned()),
        ("--dir", dir.display().to_string()),
        ("--save", String::new()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect()
}

/// A directory for PostgreSQL, which refuses to run as root, where its user can get at it; a
/// link in `dir` tells where.
fn elsewhere((uid, gid): (u32, u32), dir: &Path) -> anyhow::Result<tempfile::TempDir> {
    let home = tempfile::Builder::new().prefix("besom-postgres-").tempdir()?;
    chown(home.path(), Some(uid), Some(gid))?;
    std::os::unix::fs::symlink(home.path(), dir.join("postgres"))?;
    Ok(home)
}

/// Makes the data of PostgreSQL.
fn init_postgres(programs: &Programs, data: &Path, user: Option<(u32, u32)>) -> anyhow::Result<()> {
    let mut initdb = Command::new(&programs.initdb);
    initdb.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]);
    initdb.arg("-D").arg(data).current_dir("/");
    if let Some((uid, gid)) = user {
        use std::os::unix::process::CommandExt as _;
        initdb.uid(uid).gid(gid);
    }
    let output = initdb.output().context("initdb")?;
    if !output.status.success() {
        bail!("PostgreSQL's data cannot be made: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// As whom PostgreSQL runs; none: as whom we run.
fn unprivileged() -> anyhow::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    let named = |name: &str| {
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == name).then_some(())?;
            let (uid, gid) = (fields.nth(1)?, fields.next()?);
            Some((uid.parse().ok()?, gid.parse().ok()?))
        })
    };
    let user = named("postgres").or_else(|| named("nobody"));
    Ok(Some(user.context("PostgreSQL does not run as root, and there is no user `postgres`")?))
}

/// Ports that are free now; held together, so that they differ.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let held: Vec<_> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    held.iter().map(|socket| Ok(socket.local_addr()?.port())).collect()
}
