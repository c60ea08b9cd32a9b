//! A server process that ends with the test process, however that ends: a shell waits for the end
//! of its standard input, which only the test holds.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Starts the server, prints its pid, and kills it when the pipe closes.
const GUARD: &str = r#"
"$@" </dev/null 2>&1 &
echo "pid $!"
exec >/dev/null
read -r _
kill -9 $! 2>/dev/null
wait
"#;

/// The output of the server.
pub type Output = BufReader<ChildStdout>;

/// A server that runs, until this is dropped.
pub struct Running {
    guard: Child,
    pid: Pid,
}

impl Running {
    /// Starts it.
    ///
    /// # Errors
    /// The system's error; the start may be repeated.
    pub fn start(program: &Path, arguments: &[String]) -> Result<(Running, Output), String> {
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "sh"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("sh: {e}"))?;
        let mut output = BufReader::new(guard.stdout.take().expect("it is piped"));
        let mut first = String::new();
        output.read_line(&mut first).map_err(|e| e.to_string())?;
        let pid = first.trim().strip_prefix("pid ").and_then(|pid| pid.parse().ok());
        let pid = pid.and_then(Pid::from_raw).ok_or_else(|| format!("no process: {first}"))?;
        Ok((Running { guard, pid }, output))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("it is there");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its input ends, and it ends the server and waits for it: the port is free then.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Waits until a server prints any of these words, and continues to read, so that the server never
/// blocks.
///
/// # Errors
/// Its whole output, if it ended before.
pub fn ready(mut output: Output, words: &[&str]) -> Result<(), String> {
    let mut said = String::new();
    loop {
        let mut line = String::new();
        let read = output.read_line(&mut line).map_err(|e| e.to_string())?;
        if read == 0 {
            return Err(said);
        }
        if words.iter().any(|words| line.contains(words)) {
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
pub fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    held.iter().map(|socket| socket.local_addr().expect("an address").port()).collect()
}

/// A directory in memory, if it has room for so many bytes: the tests do not depend on the disk.
pub fn directory(bytes: u64) -> Result<tempfile::TempDir, String> {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |found| found.f_bavail * found.f_frsize);
    let made = if room >= bytes { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.map_err(|e| e.to_string())
}
