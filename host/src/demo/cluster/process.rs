//! A process of the demo: it ends with the demo, however that ends.
//!
//! A shell stands between: it holds one end of a pipe whose other end only this process has.
//! When the pipe closes (dropped, or this process was killed) the shell stops its child and
//! waits for it.

use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Starts the child, says its number, waits for the end of the input, stops the child.
const GUARD: &str = r#"
stop=$1; shift
"$@" </dev/null >&2 &
echo $!
exec >/dev/null
cat
kill -$stop $! 2>/dev/null
wait
"#;

/// What is to be started.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it runs.
    pub dir: &'a Path,
    /// Where its output goes; appended to.
    pub log: PathBuf,
    /// By what it is asked to stop, as `kill` names it.
    pub stop: &'static str,
    /// The user and group it runs as; none: this process's.
    pub user: Option<(u32, u32)>,
}

/// A process that runs, or did.
#[derive(Debug)]
pub struct Process {
    guard: Child,
    pid: Pid,
    log: PathBuf,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(start: Start<'_>) -> io::Result<Process> {
        let log = OpenOptions::new().create(true).append(true).open(&start.log)?;
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "besom-demo", start.stop]).arg(start.program);
        command.args(&start.args).current_dir(start.dir);
        // Ctrl-C is for the demo, which stops its processes in their order.
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

    /// Its number.
    pub fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if !self.is_alive() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended"));
        }
        Ok(kill_process(self.pid, signal)?)
    }

    /// Whether it runs (or is stopped); one that has ended and was not waited for does not.
    pub fn is_alive(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        // The name in parentheses may hold anything; the state is the word after it.
        let state = stat.ok().and_then(|s| s.rsplit(')').next()?.trim().chars().next());
        state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A stopped one would never see that it is asked to end.
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
