//! Processes that end with the experiment, however that ends, and waiting that an interruption ends.

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many lines of a log are shown.
const LOG_LINES: usize = 12;
/// Runs a program until it ends or the standard input does, which only the experiment holds.
const GUARD: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
program=$!
(read -r _ <&3; kill -9 $program) 2>/dev/null &
guard=$!
exec 3<&-
wait $program
kill $guard 2>/dev/null
"#;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Notes an interruption (SIGINT, SIGTERM); the second one ends the process.
pub(super) fn watch_interruptions() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if INTERRUPTED.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
            }
        });
    });
    Ok(())
}

/// Sleeps.
///
/// # Errors
/// The experiment is interrupted.
pub(super) fn pause(span: Duration) -> Result<()> {
    let begun = Instant::now();
    loop {
        ensure!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
        let left = span.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// Waits until the condition holds, for at most ten minutes: servers start slowly on a machine that is busy.
pub(super) fn wait_for(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(600);
    let begun = Instant::now();
    while !done()? {
        ensure!(begun.elapsed() < PATIENCE, "{what}: not within {} s", PATIENCE.as_secs());
        pause(LOOK_EVERY)?;
    }
    Ok(())
}

/// Ports that are free now; held together, so that they differ.
pub(super) fn free_ports(count: usize) -> Result<Vec<u16>> {
    let held = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>();
    held?.iter().map(|socket| Ok(socket.local_addr()?.port())).collect()
}

/// A process that can be killed and started again.
pub(super) struct Process {
    pub(super) name: String,
    program: PathBuf,
    arguments: Vec<String>,
    directory: PathBuf,
    log: PathBuf,
    guard: Option<Child>,
}

impl Process {
    /// Starts it in the directory. What it prints is appended to NAME.log there.
    pub(super) fn start(
        directory: &Path,
        name: &str,
        program: impl Into<PathBuf>,
        arguments: &[impl AsRef<str>],
    ) -> Result<Process> {
        let mut process = Process {
            name: name.to_owned(),
            program: program.into(),
            arguments: arguments.iter().map(|one| one.as_ref().to_owned()).collect(),
            directory: directory.to_owned(),
            log: directory.join(format!("{name}.log")),
            guard: None,
        };
        process.resume()?;
        Ok(process)
    }

    /// Starts it again, after it was killed.
    pub(super) fn resume(&mut self) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "sh"]).arg(&self.program).args(&self.arguments);
        command.current_dir(&self.directory).env_remove("BESOM_CONFIG");
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        // An interruption from the terminal reaches the experiment alone.
        command.process_group(0);
        self.guard = Some(command.spawn().with_context(|| format!("{}: sh", self.name))?);
        Ok(())
    }

    /// Kills it (SIGKILL), if it runs.
    pub(super) fn kill(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            // The end of its input: the guard kills the program, and ends after it.
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }

    /// Fails with the end of its log if it has ended by itself.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.guard.as_mut().map(Child::try_wait).transpose()?.flatten() {
            Some(status) => bail!("{} has ended ({status}):\n{}", self.name, tail(&self.log)),
            None => Ok(()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last lines of a log.
pub(super) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
