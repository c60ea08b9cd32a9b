//! Work on the bytes of strangers, in a process of its own.
//!
//! A compiler takes what time and memory its input makes it take, and has no handle by which it
//! could be stopped. The kernel has: a child with limits, without an environment, that is killed
//! when its time is over. It is this same program, called with [`WORD`] before everything else.

use std::io::{self, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal, setrlimit,
};

/// The first argument of a child.
pub const WORD: &str = "__child";
/// Of what a child says of its failure, so much is taken.
const WORDS_BYTES_MAX: u64 = 4 * 1024;
/// Beyond its time of a processor, a child may take so many times that by the clock.
const WALL_FACTOR: u32 = 4;

/// What a child does, and the function that does it: from its arguments and its input, to its
/// output or what is wrong.
pub type Work = fn(&[String], Vec<u8>) -> Result<Vec<u8>, String>;

/// The bounds of a child, and where its program is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The program: a Besom of the same version.
    pub program: PathBuf,
    /// Its address space, in bytes.
    pub memory_bytes: u64,
    /// Its time of a processor, all threads together; rounded up to a second.
    pub processor: Duration,
    /// Its output, in bytes.
    pub output_bytes: u64,
}

impl Limits {
    /// The bounds of a child of this very program, even where its file was replaced meanwhile; its
    /// output is bounded as its memory is.
    pub fn of_this_program(memory_bytes: u64, processor: Duration) -> Limits {
        let program = "/proc/self/exe".into();
        Limits { program, memory_bytes, processor, output_bytes: memory_bytes }
    }
}

/// Why there is no output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The work has failed, by its input.
    #[error("{0}")]
    Refused(String),
    /// It wanted more than it may have.
    #[error("{0}")]
    Limit(String),
    /// The child could not be started, or spoken to.
    #[error("a process of its own: {0}")]
    Failed(String),
}

/// Has a piece of work done by a child, and waits for it.
///
/// # Errors
/// The work's own, its limits', or those of starting a process.
pub fn run(limits: &Limits, work: &str, args: &[&str], input: &[u8]) -> Result<Vec<u8>, Failure> {
    let failed = |error: io::Error| Failure::Failed(error.to_string());
    let seconds = limits.processor.as_millis().div_ceil(1_000).max(1);
    let mut child = Command::new(&limits.program)
        .args([WORD, work, &limits.memory_bytes.to_string(), &seconds.to_string()])
        .args(args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(Failure::Failed("its pipes are missing".into()));
    };
    // A number may be another process's once the child has ended; this is the child alone. Where a
    // container forbids it, the kernel's limits alone end the child.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let own = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let kill = || own.as_ref().is_some_and(|own| pidfd_send_signal(own, Signal::KILL).is_ok());
    let wall = limits.processor.saturating_mul(WALL_FACTOR);
    let (ended, end) = mpsc::channel::<()>();
    let (output, words, late, status) = std::thread::scope(|scope| {
        let kill = &kill;
        let watch = scope.spawn(move || {
            let late = matches!(end.recv_timeout(wall), Err(mpsc::RecvTimeoutError::Timeout));
            late && kill()
        });
        // A child that fails reads no further: what it says counts.
        scope.spawn(move || stdin.write_all(input));
        let words = scope.spawn(move || taken(stderr, WORDS_BYTES_MAX));
        let output = taken(stdout, limits.output_bytes.saturating_add(1));
        if output.as_ref().is_ok_and(|output| output.len() as u64 > limits.output_bytes) {
            kill();
        }
        let words = words.join().unwrap_or_else(|_| Ok(Vec::new()));
        let status = child.wait();
        drop(ended);
        (output, words, watch.join().unwrap_or(false), status)
    });
    let (output, status) = (output.map_err(failed)?, status.map_err(failed)?);
    let words = String::from_utf8_lossy(&words.unwrap_or_default()).trim().to_owned();
    let limit = |what: String| Err(Failure::Limit(what));
    if output.len() as u64 > limits.output_bytes {
        return limit(format!("its output has more than {} bytes", limits.output_bytes));
    }
    if late || status.signal() == Some(Signal::XCPU.as_raw()) {
        return limit(format!("it takes more than {seconds} s of a processor"));
    }
    match status.code() {
        Some(0) => Ok(output),
        Some(REFUSED) => Err(Failure::Refused(words)),
        _ => {
            let mib = limits.memory_bytes >> 20;
            limit(format!("it takes more than {mib} MiB of memory, or ends by itself: {words}"))
        }
    }
}

/// What comes, up to a bound; the rest is left.
fn taken(from: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max).read_to_end(&mut bytes).map(|_| bytes)
}

/// How a child ends whose work has failed by its input.
const REFUSED: i32 = 3;

/// The whole of a child: bounds itself, reads its input, works, writes its output. None: this
/// process is none.
pub fn main(known: &[(&str, Work)]) -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() != Some(WORD) {
        return None;
    }
    let args: Vec<String> = args.collect();
    let done = match args.as_slice() {
        [work, memory, seconds, rest @ ..] => bound(memory, seconds)
            .and_then(|()| taken(io::stdin(), u64::MAX).map_err(|error| error.to_string()))
            .and_then(|input| match known.iter().find(|(name, _)| name == work) {
                Some((_, work)) => work(rest, input),
                None => Err(format!("there is no work `{work}`")),
            }),
        _ => Err("work, memory and time are missing".to_owned()),
    };
    let done = done.and_then(|output| {
        let mut out = io::stdout().lock();
        out.write_all(&output).and_then(|()| out.flush()).map_err(|error| error.to_string())
    });
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            // Nobody may read it any more.
            let _ = writeln!(io::stderr(), "{words}");
            ExitCode::from(u8::try_from(REFUSED).unwrap_or(u8::MAX))
        }
    })
}

/// The kernel's bounds of this process, from here on.
fn bound(memory: &str, seconds: &str) -> Result<(), String> {
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a number"));
    let (memory, seconds) = (number(memory)?, number(seconds)?);
    let limits = [
        (Resource::As, memory),
        (Resource::Cpu, seconds),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
    ];
    for (resource, most) in limits {
        // At the greater one of the processor's time the kernel kills without saying why.
        let limit = Rlimit { current: Some(most), maximum: Some(most.saturating_add(2)) };
        setrlimit(resource, limit).map_err(|error| format!("its limits: {error}"))?;
    }
    Ok(())
}
