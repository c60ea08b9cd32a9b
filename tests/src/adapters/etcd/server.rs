//! Real servers: one or three members, on free ports, which end with the test process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::Signal;

use crate::servers::guard::{Output, Running, directory, free_ports, ready};

/// The memory that a server's files may take, in bytes: it reserves 64 MiB for its log twice.
const MEMORY: u64 = 512 << 20;
/// Names the program to be used; by default the one on the path.
const PROGRAM: &str = "BESOM_TEST_ETCD";

/// How often other ports are chosen, because another process was faster.
const START_TRIES_MAX: usize = 5;

/// Logged by every version once it answers.
const READY: [&str; 3] = [
    "ready to serve client requests",
    "serving client traffic",
    "serving insecure client requests",
];

/// The program of etcd.
pub fn program() -> PathBuf {
    std::env::var_os(PROGRAM).map_or_else(|| "etcd".into(), Into::into)
}

/// A cluster of etcd.
pub struct Cluster {
    members: Vec<Member>,
    _directory: tempfile::TempDir,
}

/// One member: its process can be frozen, killed and started again.
pub struct Member {
    url: String,
    program: PathBuf,
    arguments: Vec<String>,
    running: Option<Running>,
}

impl Cluster {
    /// The server of this test binary, started by the first caller.
    pub fn shared() -> &'static Cluster {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Cluster::start(1))
    }

    /// Starts that many members.
    pub fn start(members: usize) -> Cluster {
        Cluster::start_with(&program(), members, &[])
    }

    /// The same with this program and more arguments for each member.
    pub fn start_with(program: &Path, members: usize, more: &[&str]) -> Cluster {
        let mut said = String::new();
        for _ in 0..START_TRIES_MAX {
            match Cluster::try_start(program, members, more) {
                Ok(cluster) => return cluster,
                Err(error) => said = error,
            }
        }
        panic!("etcd does not start ({}): {said}", program.display());
    }

    fn try_start(program: &Path, count: usize, more: &[&str]) -> Result<Cluster, String> {
        let directory = directory(MEMORY)?;
        let scheme = if more.contains(&"--cert-file") { "https" } else { "http" };
        let ports = free_ports(count * 2);
        let peers: Vec<String> =
            (0..count).map(|n| format!("m{n}=http://127.0.0.1:{}", ports[count + n])).collect();
        let members = (0..count).map(|n| {
            let url = format!("{scheme}://127.0.0.1:{}", ports[n]);
            let peer = format!("http://127.0.0.1:{}", ports[count + n]);
            let data = directory.path().join(format!("m{n}"));
            let mut arguments: Vec<String> = Vec::new();
            for (name, value) in [
                ("--name", format!("m{n}")),
                ("--data-dir", data.display().to_string()),
                ("--listen-client-urls", url.clone()),
                ("--advertise-client-urls", url.clone()),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer),
                ("--initial-cluster", peers.join(",")),
            ] {
                arguments.extend([name.to_owned(), value]);
            }
            arguments.extend(more.iter().map(|&argument| argument.to_owned()));
            Member { url, program: program.to_owned(), arguments, running: None }
        });
        let mut cluster = Cluster { members: members.collect(), _directory: directory };
        // All are started before the first wait: none is ready without a majority.
        let mut outputs = Vec::new();
        for member in &mut cluster.members {
            outputs.push(member.spawn()?);
        }
        for output in outputs {
            ready(output, &READY)?;
        }
        Ok(cluster)
    }

    /// The addresses of all members.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    /// A member.
    pub fn member(&mut self, index: usize) -> &mut Member {
        &mut self.members[index]
    }
}

impl Member {
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

    /// Starts it again, with the data that it had.
    pub fn restart(&mut self) {
        let output = self.spawn().expect("etcd is started");
        ready(output, &READY).expect("etcd is ready");
    }

    fn signal(&self, signal: Signal) {
        self.running.as_ref().expect("it runs").signal(signal);
    }

    fn spawn(&mut self) -> Result<Output, String> {
        let (running, output) = Running::start(&self.program, &self.arguments)?;
        self.running = Some(running);
        Ok(output)
    }
}
