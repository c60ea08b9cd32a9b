//! A `besom serve`.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::site::{Site, wait_for};

/// A running host. Dropping it kills it.
pub struct Host {
    child: Child,
    log: PathBuf,
}

/// How often hosts were started, for the names of their logs.
static STARTED: AtomicU32 = AtomicU32::new(0);

impl Host {
    /// Starts `besom serve` with more arguments; its stderr goes to a file of its own.
    pub fn start(site: &Site, more: &[&str]) -> Host {
        let log = site.path(&format!("host-{}.log", STARTED.fetch_add(1, Ordering::Relaxed)));
        let args = [&["serve"], more].concat();
        Host::spawn(site.command(&args), log)
    }

    /// The same with SIGXFSZ ignored: writing beyond a limit fails instead of killing it.
    pub fn start_ignoring_file_size(site: &Site) -> Host {
        let mut command = site.shell("trap '' XFSZ; exec \"$BESOM\" serve");
        command.env("BESOM", env!("CARGO_BIN_EXE_besom"));
        Host::spawn(command, site.path("host-limited.log"))
    }

    /// The same with a limit of open files, soft (`-S`) or of both kinds (empty).
    pub fn start_with_few_files(site: &Site, kind: &str, most: u32) -> Host {
        let mut command = site.shell(&format!("ulimit {kind} -n {most}; exec \"$BESOM\" serve"));
        command.env("BESOM", env!("CARGO_BIN_EXE_besom"));
        Host::spawn(command, site.path("host-few-files.log"))
    }

    fn spawn(mut command: Command, log: PathBuf) -> Host {
        let stderr = File::create(&log).expect("a log");
        let child = command.stdout(Stdio::null()).stderr(stderr).spawn().expect("it starts");
        Host { child, log }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).expect("the log")).into_owned()
    }

    /// Waits until its log contains these words.
    #[track_caller]
    pub fn says(&mut self, words: &str) -> &mut Host {
        wait_for(&format!("the host to say `{words}`"), || {
            if self.log().contains(words) {
                return Some(());
            }
            if let Some(status) = self.child.try_wait().expect("waited") {
                panic!("the host has ended ({status}) without saying `{words}`:\n{}", self.log());
            }
            None
        });
        self
    }

    /// Waits until it leads.
    #[track_caller]
    pub fn leads(&mut self) -> &mut Host {
        self.says("role=Leading")
    }

    /// The lines of its log that contain all these words.
    pub fn lines(&self, words: &[&str]) -> Vec<String> {
        let log = self.log();
        let lines = log.lines().filter(|line| words.iter().all(|word| line.contains(word)));
        lines.map(str::to_owned).collect()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process");
        kill_process(pid, signal).expect("sent");
    }

    /// SIGSTOP; returns when every thread has stopped, which is some time after the signal.
    #[track_caller]
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        wait_for("the host to stop", || {
            let all = std::fs::read_dir(&tasks).ok()?;
            // The state follows the name, which is in parentheses.
            let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
                let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
                Some(stat.rsplit_once(") ")?.1.starts_with('T'))
            };
            all.map(is_stopped).all(|stopped| stopped.unwrap_or(true)).then_some(())
        });
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn ends(&mut self) -> ExitStatus {
        wait_for("the host to end", || self.child.try_wait().expect("waited"))
    }

    /// SIGTERM; it drains and exits with 0.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.ends();
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
