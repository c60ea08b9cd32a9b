//! Real servers: one or three members, on free ports, gone when the test process is.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};

/// Names the program to be used; by default the one on the path.
const PROGRAM: &str = "BESOM_TEST_ETCD";

/// How often ports are chosen anew, because somebody else was faster.
const START_TRIES_MAX: usize = 5;

/// Said by every version once it answers.
const READY: [&str; 3] = [
    "ready to serve client requests",
    "serving client traffic",
    "serving insecure client requests",
];

/// Holds the server on its end of a pipe: however the test process ends, the pipe closes.
const GUARD: &str = r#"
"$@" </dev/null 2>&1 &
echo "pid $!"
exec >/dev/null
read -r _
kill -9 $! 2>/dev/null
wait
"#;

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

struct Running {
    guard: Child,
    pid: Pid,
}

impl Cluster {
    /// The server of this test binary, started by whoever asks first.
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
        // In memory where there is a place for it: tests do not judge the disk.
        let memory = Path::new("/dev/shm");
        let directory =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let directory = directory.map_err(|e| e.to_string())?;
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
        // All before any is waited for: none is ready without a majority.
        let mut outputs = Vec::new();
        for member in &mut cluster.members {
            outputs.push(member.spawn()?);
        }
        for output in outputs {
            ready(output)?;
        }
        Ok(cluster)
    }

    /// The addresses of all members.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    /// A member, to do something to it.
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

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Starts it again, with the data that it had.
    pub fn restart(&mut self) {
        let output = self.spawn().expect("etcd is started");
        ready(output).expect("etcd is ready");
    }

    fn signal(&self, signal: Signal) {
        let running = self.running.as_ref().expect("it runs");
        kill_process(running.pid, signal).expect("it is there");
    }

    fn spawn(&mut self) -> Result<Output, String> {
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "sh"])
            .arg(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("sh: {e}"))?;
        let mut output = BufReader::new(guard.stdout.take().expect("it is piped"));
        let mut first = String::new();
        output.read_line(&mut first).map_err(|e| e.to_string())?;
        let pid = first.trim().strip_prefix("pid ").and_then(|pid| pid.parse().ok());
        let pid = pid.and_then(Pid::from_raw).ok_or_else(|| format!("no process: {first}"))?;
        self.running = Some(Running { guard, pid });
        Ok(output)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its input ends, and it ends the server and waits for it: the port is free then.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

type Output = BufReader<std::process::ChildStdout>;

/// Waits until a member says that it serves, and goes on reading, so that it never blocks.
fn ready(mut output: Output) -> Result<(), String> {
    let mut said = String::new();
    loop {
        let mut line = String::new();
        let read = output.read_line(&mut line).map_err(|e| e.to_string())?;
        if read == 0 {
            return Err(said);
        }
        if READY.iter().any(|words| line.contains(words)) {
            break;
        }
        said.push_str(&line);
    }
    std::thread::spawn(move || {
        let mut sink = [0; 4096];
        while matches!(output.read(&mut sink), Ok(n) if n > 0) {}
    });
    Ok(())
}

/// Ports that are free now; held together, so that they differ.
fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    held.iter().map(|socket| socket.local_addr().expect("an address").port()).collect()
}
