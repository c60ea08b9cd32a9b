//! Redis servers of the tests' own: one, or a cluster of primaries, on free ports.
//!
//! Time passes by moving every deadline in the server: key expirations, the ends of connections,
//! the beginning of the observation.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redis::{Client, Connection, FromRedisValue, cmd};
use rustix::process::Signal;

use super::guard::{self, Running};

/// The memory that a server's files may take, in bytes.
const MEMORY: u64 = 32 << 20;
/// How often other ports are chosen, because another process was faster.
const START_TRIES_MAX: usize = 5;
/// How long a server or a cluster may take to answer.
const READY_MAX: Duration = Duration::from_secs(60);
/// The interval between two checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A server: its process can be frozen, killed and started again.
pub struct Redis {
    port: u16,
    arguments: Vec<String>,
    running: Option<Running>,
    /// Where it keeps its files.
    directory: tempfile::TempDir,
}

impl Redis {
    /// Starts one without persistence, with further arguments.
    pub fn start(more: &[&str]) -> Redis {
        let mut said = String::new();
        for _ in 0..START_TRIES_MAX {
            let port = guard::free_ports(1)[0];
            match Redis::try_start(port, &[&["--port", &port.to_string()], more].concat()) {
                Ok(server) => return server,
                Err(error) => said = error,
            }
        }
        panic!("redis-server does not start (apt-get install redis-server): {said}");
    }

    /// One that accepts only TLS.
    pub fn start_secure(certificate: &Path, key: &Path, ca: &Path, more: &[&str]) -> Redis {
        let mut said = String::new();
        for _ in 0..START_TRIES_MAX {
            let port = guard::free_ports(1)[0];
            let (text, paths) = (port.to_string(), [certificate, key, ca].map(display));
            let secure = [
                "--port",
                "0",
                "--tls-port",
                &text,
                "--tls-cert-file",
                &paths[0],
                "--tls-key-file",
                &paths[1],
                "--tls-ca-cert-file",
                &paths[2],
            ];
            match Redis::try_start(port, &[&secure, more].concat()) {
                Ok(server) => return server,
                Err(error) => said = error,
            }
        }
        panic!("redis-server does not start by TLS: {said}");
    }

    fn try_start(port: u16, more: &[&str]) -> Result<Redis, String> {
        let directory = guard::directory(MEMORY)?;
        let dir = directory.path().display().to_string();
        let fixed = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", &dir];
        let arguments = fixed.iter().chain(more).map(|&argument| argument.to_owned()).collect();
        let mut server = Redis { port, arguments, running: None, directory };
        server.spawn()?;
        Ok(server)
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it keeps its files.
    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// A connection of another client: a proxy, an operator.
    pub fn connect(&self) -> Connection {
        let client = Client::open(self.url()).expect("an address");
        client.get_connection().expect("the server answers")
    }

    /// One command, as typed in `redis-cli`.
    pub fn command<T: FromRedisValue>(&self, line: &str) -> T {
        let mut words = line.split(' ');
        let mut command = cmd(words.next().unwrap_or_default());
        words.for_each(|word| {
            command.arg(word);
        });
        let answer = command.query(&mut self.connect());
        answer.unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.running = None;
    }

    /// Stops its process, which keeps its connections.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes it.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Starts it again on the same port, with the same files.
    pub fn restart(&mut self) {
        self.running = None;
        self.spawn().expect("redis-server starts again");
    }

    /// Lets time pass for everything in it; negative: undoes real time that has passed.
    pub fn pass(&self, span_ms: i64) {
        let mut connection = self.connect();
        let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut connection).expect("its keys");
        for key in keys {
            let run = |connection: &mut Connection, words: &[&str]| -> Vec<(String, f64)> {
                let mut command = cmd(words[0]);
                command.arg(&key).arg(&words[1..]);
                command.query(connection).unwrap_or_default()
            };
            if key.starts_with("besom:conn:") {
                for (member, _) in run(&mut connection, &["ZRANGE", "0", "-1", "WITHSCORES"]) {
                    run(&mut connection, &["ZINCRBY", &(-span_ms).to_string(), &member]);
                }
            } else if key.starts_with("besom:observed") {
                run(&mut connection, &["HINCRBY", "since", &(-span_ms).to_string()]);
            }
            let left: i64 = cmd("PTTL").arg(&key).query(&mut connection).expect("its life");
            if left >= 0 {
                run(&mut connection, &["PEXPIRE", &(left - span_ms).max(0).to_string()]);
            }
        }
    }

    fn signal(&self, signal: Signal) {
        self.running.as_ref().expect("it runs").signal(signal);
    }

    fn spawn(&mut self) -> Result<(), String> {
        let (running, output) = Running::start("redis-server".as_ref(), &self.arguments)?;
        guard::ready(output, &["Ready to accept connections"])?;
        self.running = Some(running);
        Ok(())
    }
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

/// A Redis Cluster of three primaries, each with a third of the slots.
pub struct Cluster {
    /// The primaries, in the order of their slots.
    pub nodes: [Redis; 3],
}

impl Cluster {
    /// Starts it, and waits until every member reports a complete cluster.
    pub fn start() -> Cluster {
        let mut said = String::new();
        for _ in 0..START_TRIES_MAX {
            match Cluster::try_start() {
                Ok(cluster) => return cluster,
                Err(error) => said = error,
            }
        }
        panic!("a Redis Cluster does not start (apt-get install redis-server): {said}");
    }

    fn try_start() -> Result<Cluster, String> {
        let ports = guard::free_ports(6);
        let node = |n: usize| {
            let (port, bus) = (ports[n].to_string(), ports[n + 3].to_string());
            let arguments = [
                "--port",
                &port,
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "2000",
                "--cluster-require-full-coverage",
                "no",
            ];
            Redis::try_start(ports[n], &arguments)
        };
        let nodes = [node(0)?, node(1)?, node(2)?];
        for (n, slots) in ["0 5460", "5461 10922", "10923 16383"].iter().enumerate() {
            let _: String = nodes[n].command(&format!("CLUSTER ADDSLOTSRANGE {slots}"));
            let _: String = nodes[n].command(&format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1));
        }
        for other in 1..3 {
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", ports[other], ports[other + 3]);
            let _: String = nodes[0].command(&meet);
        }
        let cluster = Cluster { nodes };
        cluster.settle();
        Ok(cluster)
    }

    /// Waits until every member knows all others and reports a complete cluster.
    pub fn settle(&self) {
        let whole = |node: &Redis| {
            let info: String = node.command("CLUSTER INFO");
            info.contains("cluster_state:ok")
                && info.contains("cluster_known_nodes:3")
                && info.contains("cluster_slots_ok:16384")
        };
        wait_for("a whole cluster", || self.nodes.iter().all(whole));
    }

    /// The addresses of all members.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }
}

/// Waits until the condition holds.
pub fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < READY_MAX, "waited for {what}");
        std::thread::park_timeout(LOOK_EVERY);
    }
}
