//! The servers of a cluster on one machine: the installed etcd, PostgreSQL and Redis, on free ports
//! and with separate data. The machine's own services are not affected. Loopback is open to every
//! local user, so each server requires a password, which is generated each time.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use etcd_client::{Permission, PermissionType};
use rand::TryRngCore as _;
use rand::rngs::OsRng;

use super::process::{Process, Start};

/// How long a server may take to become ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// How often its readiness is checked.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// The directory of PostgreSQL's programs on Debian.
const POSTGRES_BY_VERSION: &str = "/usr/lib/postgresql";
/// Maximum number of connections of PostgreSQL: those of all nodes, and some for users.
const CONNECTIONS: u32 = 300;
/// The name of the database.
const DATABASE: &str = "demo";
/// The owner of the database.
pub const POSTGRES_USER: &str = "postgres";
/// The user of etcd with access to Besom's keys.
pub const ETCD_USER: &str = "besom";
/// The file with the password of all servers.
const PASSWORD_FILE: &str = "password";
/// The directory of the sockets by which the members of etcd reach each other.
const PEERS: &str = "etcd-peers";

/// The programs of the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    etcd: PathBuf,
    postgres: PathBuf,
    initdb: PathBuf,
    redis: PathBuf,
}

impl Programs {
    /// Finds the programs on the search path and in Debian's directories.
    ///
    /// # Errors
    /// The missing programs, with their packages.
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
                "a cluster needs {}, which are not installed: run apt-get install {}",
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

/// The size and the durability of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of members of etcd.
    pub etcd_members: usize,
    /// Whether a commit of PostgreSQL waits for the disk.
    pub durable: bool,
    /// Whether etcd also requires the password, which costs an additional hash per connection.
    pub etcd_password: bool,
}

/// The running servers.
#[derive(Debug)]
pub struct Servers {
    programs: Programs,
    dir: PathBuf,
    etcd: Vec<Member>,
    postgres: Server,
    redis: Server,
    password: String,
    etcd_password: bool,
    /// The directory of PostgreSQL's data if it cannot be under `dir`. Last, because it has to be
    /// removed last.
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

/// One of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// A member of etcd, by index.
    Etcd(usize),
    /// PostgreSQL.
    Postgres,
    /// Redis.
    Redis,
}

impl Servers {
    /// Starts the servers with their data under `dir`, and waits until all of them answer.
    pub fn start(programs: Programs, dir: &Path, shape: Shape) -> anyhow::Result<Servers> {
        let dir = std::path::absolute(dir)?;
        std::fs::create_dir_all(&dir)?;
        let ports = free_ports(shape.etcd_members + 2)?;
        let (etcd_ports, others) = ports.split_at(shape.etcd_members);
        let peers = dir.join(PEERS);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&peers)?;
        let user = unprivileged()?;
        let elsewhere = user.map(|user| elsewhere(user, &dir)).transpose()?;
        let data = elsewhere.as_ref().map_or(dir.as_path(), tempfile::TempDir::path).join("data");
        let password = draw_password()?;
        write_secret(&dir.join(PASSWORD_FILE), &password, None)?;
        init_postgres(&programs, &data, user, &password)?;
        let mut servers = Servers {
            etcd: etcd_members(&dir, etcd_ports),
            postgres: Server {
                args: postgres_args(&data, others[0], shape.durable),
                user,
                port: others[0],
                process: None,
            },
            redis: Server {
                args: redis_args(&dir, others[1], &password)?,
                user: None,
                port: others[1],
                process: None,
            },
            programs,
            dir,
            password,
            etcd_password: shape.etcd_password,
            _elsewhere: elsewhere,
        };
        // All are started before waiting for any: etcd is not ready without a majority.
        let all = servers.all();
        for which in &all {
            servers.spawn(*which)?;
        }
        for which in all {
            servers.wait(which)?;
        }
        servers.create_database()?;
        if shape.etcd_password {
            servers.protect_etcd().context("the password of etcd cannot be set")?;
        }
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

    /// The password of all servers. The user of PostgreSQL is [`POSTGRES_USER`], that of etcd is
    /// [`ETCD_USER`].
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The file with the password (mode 0600).
    pub fn password_file(&self) -> PathBuf {
        self.dir.join(PASSWORD_FILE)
    }

    /// The user of hosts in etcd; `None`: etcd requires no password.
    pub fn etcd_user(&self) -> Option<&'static str> {
        self.etcd_password.then_some(ETCD_USER)
    }

    /// The connection settings of a product.
    pub fn connection(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.postgres.port).dbname(DATABASE);
        config.user(POSTGRES_USER).password(&self.password);
        config
    }

    /// The URL of the database, without the password.
    pub fn postgres(&self) -> String {
        let port = self.postgres.port;
        format!("postgres://{POSTGRES_USER}@127.0.0.1:{port}/{DATABASE}?sslmode=disable")
    }

    /// The URL of Redis.
    pub fn redis(&self) -> String {
        format!("redis://127.0.0.1:{}", self.redis.port)
    }

    /// The process of a server; `None`: it was stopped.
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

    /// Restarts a server with its data. A server that was killed may have left processes that have
    /// not ended yet; the start is repeated until it succeeds.
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

    /// Restarts several servers at once, because etcd answers only with a majority.
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
        let peers = self.dir.join(PEERS);
        let dir = match which {
            Which::Etcd(_) => &peers,
            // The user of PostgreSQL may have no access to the directory.
            Which::Postgres | Which::Redis => Path::new("/"),
        };
        let start = Start { program, args, dir, log, stop, user };
        let process =
            Process::start(start).with_context(|| format!("{name} could not be started"))?;
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
                let words = if alive { "does not answer" } else { "has exited" };
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
            Which::Redis => {
                let question = format!("AUTH {}\r\nPING\r\n", self.password);
                asked(&format!("127.0.0.1:{}", self.redis.port), question.as_bytes(), "+PONG")
            }
        }
    }

    fn create_database(&self) -> anyhow::Result<()> {
        let mut psql = Command::new(self.programs.initdb.with_file_name("psql"));
        psql.args(["-q", "-h", "127.0.0.1", "-p", &self.postgres.port.to_string()]);
        psql.args(["-U", POSTGRES_USER, "-d", "postgres", "-c"]).env("PGPASSWORD", &self.password);
        psql.arg(format!("CREATE DATABASE {DATABASE}")).current_dir("/");
        let output = psql.output().context("psql")?;
        if !output.status.success() {
            bail!("the database could not be created: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Enables authentication in etcd, and limits hosts to their own keys.
    fn protect_etcd(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut client = etcd_client::Client::connect(self.etcd(), None).await?;
            let hosts = Permission::new(PermissionType::Readwrite, "/besom/").with_prefix();
            client.role_add(ETCD_USER).await?;
            client.role_grant_permission(ETCD_USER, hosts).await?;
            client.role_add("root").await?;
            for user in [ETCD_USER, "root"] {
                client.user_add(user, self.password.as_str(), None).await?;
                client.user_grant_role(user, user).await?;
            }
            client.auth_enable().await?;
            anyhow::Ok(())
        })
    }
}

/// A random password of characters that no server interprets.
fn draw_password() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    OsRng.try_fill_bytes(&mut bytes).context("the system provides no random bytes")?;
    Ok(hex::encode(bytes))
}

/// Writes a file that only its owner can read: this user, or the given one.
fn write_secret(path: &Path, text: &str, owner: Option<(u32, u32)>) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let name = || path.display().to_string();
    writeln!(file.with_context(name)?, "{text}").with_context(name)?;
    if let Some((uid, gid)) = owner {
        chown(path, Some(uid), Some(gid)).with_context(name)?;
    }
    Ok(())
}

/// Sends a line to a server and checks that the answer contains the given words.
fn asked(address: &str, question: &[u8], words: &str) -> bool {
    use std::io::Read as _;
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
pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// The members, which listen for clients on these ports. What a peer sends needs no password, so members
/// reach each other by sockets in their working directory, which only this user can enter.
fn etcd_members(dir: &Path, ports: &[u16]) -> Vec<Member> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    // The name of the socket is the host and the port of the URL.
    let peer = |n: usize| format!("unix://m{n}:0");
    let all: Vec<_> = (0..ports.len()).map(|n| format!("m{n}={}", peer(n))).collect();
    let member = |(n, client): (usize, &u16)| {
        let args: Vec<String> = [
            ("--name", format!("m{n}")),
            ("--data-dir", dir.join(format!("etcd-{n}")).display().to_string()),
            ("--listen-client-urls", url(*client)),
            ("--advertise-client-urls", url(*client)),
            ("--listen-peer-urls", peer(n)),
            ("--initial-advertise-peer-urls", peer(n)),
            ("--initial-cluster", all.join(",")),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        Member { url: url(*client), args, process: None }
    };
    ports.iter().enumerate().map(member).collect()
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

fn redis_args(dir: &Path, port: u16, password: &str) -> anyhow::Result<Vec<String>> {
    // In a file, because the arguments of a process are visible to all users.
    let secret = dir.join("redis.conf");
    write_secret(&secret, &format!("requirepass {password}"), None)?;
    let settings = [
        ("--port", port.to_string()),
        ("--bind", "127.0.0.1".to_owned()),
        ("--dir", dir.display().to_string()),
        ("--save", String::new()),
    ];
    let settings = settings.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    Ok([secret.display().to_string()].into_iter().chain(settings).collect())
}

/// Creates a directory for PostgreSQL, which refuses to run as root, that its user can access. A
/// link in `dir` points to it.
fn elsewhere((uid, gid): (u32, u32), dir: &Path) -> anyhow::Result<tempfile::TempDir> {
    let home = tempfile::Builder::new().prefix("besom-postgres-").tempdir()?;
    chown(home.path(), Some(uid), Some(gid))?;
    std::os::unix::fs::symlink(home.path(), dir.join("postgres"))?;
    Ok(home)
}

/// Creates the data directory of PostgreSQL.
fn init_postgres(
    programs: &Programs,
    data: &Path,
    user: Option<(u32, u32)>,
    password: &str,
) -> anyhow::Result<()> {
    let secret = data.with_file_name("postgres-password");
    write_secret(&secret, password, user)?;
    let mut initdb = Command::new(&programs.initdb);
    initdb.args(["-A", "scram-sha-256", "-U", POSTGRES_USER, "-E", "UTF8", "--locale=C"]);
    initdb.arg("--no-sync").arg("--pwfile").arg(&secret).arg("-D").arg(data).current_dir("/");
    if let Some((uid, gid)) = user {
        use std::os::unix::process::CommandExt as _;
        initdb.uid(uid).gid(gid);
    }
    let output = initdb.output().context("initdb")?;
    std::fs::remove_file(&secret).context("initdb's password")?;
    if !output.status.success() {
        bail!(
            "the data directory of PostgreSQL could not be created: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// The user that PostgreSQL runs as; `None`: the user of this process.
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
    Ok(Some(user.context(
        "PostgreSQL refuses to run as root, and there is no user `postgres`: create it, or run the \
         demo as another user",
    )?))
}

/// Free ports. All are reserved at the same time, so that they differ.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let held: Vec<_> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    held.iter().map(|socket| Ok(socket.local_addr()?.port())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_password_of_redis_is_in_a_file_of_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let args = redis_args(dir.path(), 1, "secret").unwrap();
        assert!(args.iter().all(|arg| !arg.contains("secret")), "{args:?}");
        let file = dir.path().join("redis.conf");
        assert!(args.contains(&file.display().to_string()), "{args:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "requirepass secret\n");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
