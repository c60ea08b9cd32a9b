//! A child process that ends with the demo, however the demo ends.
//!
//! A shell runs in between: it holds one end of a pipe whose other end only this process has. When
//! the pipe closes (because it is dropped or this process is killed), the shell stops its child and
//! waits for it.

use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Starts the child, prints its process id, waits for the end of the input, and stops the child.
const GUARD: &str = r#"
stop=$1; shift
"$@" </dev/null >&2 &
echo $!
exec >/dev/null
cat
kill -$stop $! 2>/dev/null
wait
"#;

/// The settings of a process.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    /// The program to run.
    pub program: &'a Path,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// The working directory.
    pub dir: &'a Path,
    /// The file to which its output is appended.
    pub log: PathBuf,
    /// The signal that stops it, as named by `kill`.
    pub stop: &'static str,
    /// The user and group to run as; `None`: those of this process.
    pub user: Option<(u32, u32)>,
}

/// A process that is running or has ended.
#[derive(Debug)]
pub struct Process {
    guard: Child,
    pid: Pid,
    log: PathBuf,
}

impl Process {
    /// Starts the process.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn start(start: Start<'_>) -> io::Result<Process> {
        let log = OpenOptions::new().create(true).append(true).open(&start.log)?;
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "besom-demo", start.stop]).arg(start.program);
        command.args(&start.args).current_dir(start.dir);
        // Ctrl-C is meant for the demo, which stops its processes in order.
        command.process_group(0);
        if let Some((uid, gid)) = start.user {
            command.uid(uid).gid(gid);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut guard = command.spawn()?;
        let mut said = String::new();
        if let Some(output) = guard.stdout.take() {
            BufReader::new(output).read_line(&mut said)?;
        }
        let pid = said.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process could not be started"))?;
        Ok(Process { guard, pid, log: start.log })
    }

    /// The process id.
    pub fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// The process has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if !self.is_alive() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the process has exited"));
        }
        Ok(kill_process(self.pid, signal)?)
    }

    /// Whether the process is running or stopped. A zombie does not count.
    pub fn is_alive(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        // The name in parentheses may contain any characters; the state follows it.
        let state = stat.ok().and_then(|s| s.rsplit(')').next()?.trim().chars().next());
        state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// The file that receives its output.
    pub fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A stopped process would not receive the signal to end.
        let _ = self.signal(Signal::CONT);
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(dir: &Path) -> Process {
        Process::start(Start {
            program: "sleep".as_ref(),
            args: vec!["1000".into()],
            dir,
            log: dir.join("log"),
            stop: "TERM",
            user: None,
        })
        .unwrap()
    }

    #[test]
    fn a_process_is_stopped_with_its_handle_and_seen_to_be_dead_when_killed() {
        let dir = tempfile::tempdir().unwrap();
        let process = sleeper(dir.path());
        let id = process.id();
        assert!(process.is_alive());
        drop(process);
        assert!(!Path::new(&format!("/proc/{id}")).exists());

        let process = sleeper(dir.path());
        process.signal(Signal::KILL).unwrap();
        while process.is_alive() {
            std::thread::yield_now();
        }
        assert!(process.signal(Signal::TERM).is_err());
    }
}
