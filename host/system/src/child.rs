//! Processes untrusted bytes in a child process with limits.
//!
//! A compiler may use any amount of time and memory for a malicious input, and cannot be interrupted
//! from inside the process. Therefore it runs in a child process with kernel limits and an almost empty
//! environment, which is killed when its time is over. The child is the same program, called with
//! [`WORD`] as its first argument.

use std::io::{self, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, kill_process, setrlimit,
    waitid,
};

/// The first argument of a child process.
pub const WORD: &str = "__child";
/// Maximum size of the error message that is read from a child, in bytes.
const WORDS_BYTES_MAX: u64 = 4 * 1024;
/// Wall-clock limit of a child, as a multiple of its CPU time limit.
const WALL_FACTOR: u32 = 4;
/// Maximum number of compiler threads in a child. With one per processor, their stacks and arenas alone
/// could exceed the address space limit on a large machine.
const THREADS_MAX: usize = 4;
/// Maximum number of glibc allocator arenas in a child; each reserves 64 MiB of address space.
const ARENAS_MAX: usize = 2;

/// A kind of work that a child can do.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Name of the work, passed as an argument.
    pub name: &'static str,
    /// Maximum size of the output, in bytes; the host holds it in memory.
    pub output_bytes_max: u64,
    /// The function that the child runs.
    pub function: Function,
}

/// Computes the output from arguments and input, or describes what is wrong with the input.
pub type Function = fn(&[String], Vec<u8>) -> Result<Vec<u8>, String>;

/// The program of a child, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Path of the program, a Besom of the same version.
    pub program: PathBuf,
    /// Maximum address space, in bytes.
    pub memory_bytes: u64,
    /// Maximum CPU time of all threads together; rounded up to a second.
    pub processor: Duration,
}

impl Limits {
    /// Limits for a child of the running program, even if its file was replaced since it started.
    pub fn of_this_program(memory_bytes: u64, processor: Duration) -> Limits {
        Limits { program: "/proc/self/exe".into(), memory_bytes, processor }
    }
}

/// Why a child returned no output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The work failed because of its input.
    #[error("{0}")]
    Refused(String),
    /// The work exceeded a limit.
    #[error("{0}")]
    Limit(String),
    /// The child could not be started, limited or read from, or was killed by another process. The input
    /// is not to blame, and a retry may succeed.
    #[error("child process: {0}")]
    Failed(String),
}

/// Runs work in a child process and waits for its output.
///
/// # Errors
/// A refused input, an exceeded limit, or a child that failed or could not be started.
pub fn run(limits: &Limits, work: &Work, args: &[&str], input: &[u8]) -> Result<Vec<u8>, Failure> {
    let failed = |error: io::Error| Failure::Failed(error.to_string());
    let threads = thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX));
    let mut child = Command::new(&limits.program)
        .args([WORD, work.name, &limits.memory_bytes.to_string(), &seconds(limits).to_string()])
        .args(args)
        .env_clear()
        .env("RAYON_NUM_THREADS", threads.to_string())
        .env("MALLOC_ARENA_MAX", ARENAS_MAX.to_string())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let heard = hear(&mut child, limits, work, input);
    if heard.is_err() {
        // Nothing reads its output any more. Killing fails only if it has already ended.
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    judge(limits, work, heard.map_err(failed)?, status)
}

/// Returns the CPU time limit in whole seconds, as the kernel expects it.
fn seconds(limits: &Limits) -> u64 {
    let seconds = limits.processor.as_millis().div_ceil(1_000).max(1);
    u64::try_from(seconds).unwrap_or(u64::MAX)
}

/// Returns the wall-clock limit of a child.
fn wall(limits: &Limits) -> Duration {
    limits.processor.saturating_mul(WALL_FACTOR)
}

/// What a child has written, before its exit status is known.
struct Heard {
    /// Its output, up to one byte more than the limit.
    output: Vec<u8>,
    words: String,
    /// Whether it was killed for exceeding the wall-clock limit.
    late: bool,
}

/// Writes the input to a child and reads its output until it has ended. The caller must still reap it.
fn hear(child: &mut Child, limits: &Limits, work: &Work, input: &[u8]) -> io::Result<Heard> {
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("its pipes are missing"));
    };
    // The process ID cannot be reused until the child is reaped. A pidfd would be no safer, and is not
    // available in some kernels and containers.
    let pid = Pid::from_child(child);
    let kill = move || kill_process(pid, Signal::KILL).is_ok();
    let wall = wall(limits);
    let (ended, end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let start = thread::Builder::new;
        let watch = start().spawn_scoped(scope, move || {
            matches!(end.recv_timeout(wall), Err(mpsc::RecvTimeoutError::Timeout)) && kill()
        })?;
        // A write error is ignored: a child that fails stops reading and reports the reason itself.
        start().spawn_scoped(scope, move || stdin.write_all(input))?;
        let words = start().spawn_scoped(scope, move || taken(stderr, WORDS_BYTES_MAX))?;
        let output = taken(stdout, work.output_bytes_max.saturating_add(1));
        if output.as_ref().map_or(true, |output| output.len() as u64 > work.output_bytes_max) {
            kill();
        }
        let words = words.join().unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default();
        // A child may close its pipes and keep running, so the time limit applies until it has ended.
        let until_ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), until_ended))?;
        drop(ended);
        let late = watch.join().unwrap_or(false);
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        Ok(Heard { output: output?, words, late })
    })
}

/// Maps the output and the exit status of a child to a result.
fn judge(
    limits: &Limits,
    work: &Work,
    heard: Heard,
    status: ExitStatus,
) -> Result<Vec<u8>, Failure> {
    /// Signals that a process causes by itself, for example when it runs out of memory.
    const OWN: [Signal; 7] = [
        Signal::ABORT,
        Signal::SEGV,
        Signal::BUS,
        Signal::ILL,
        Signal::FPE,
        Signal::TRAP,
        Signal::SYS,
    ];
    let Heard { output, words, late } = heard;
    if output.len() as u64 > work.output_bytes_max {
        let max = work.output_bytes_max;
        return Err(Failure::Limit(format!("its output exceeds {max} bytes")));
    }
    let ended_by = |signal: Signal| status.signal() == Some(signal.as_raw());
    if late && ended_by(Signal::KILL) || ended_by(Signal::XCPU) {
        let (seconds, wall) = (seconds(limits), wall(limits));
        let what =
            format!("it takes more than {seconds} s of CPU time or {wall:?} of wall-clock time");
        return Err(Failure::Limit(what));
    }
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(output),
        (Some(REFUSED), _) => Err(Failure::Refused(words)),
        (Some(UNABLE), _) => Err(Failure::Failed(words)),
        (None, Some(signal)) if !OWN.iter().any(|own| own.as_raw() == signal) => {
            let what = format!(
                "it was killed by signal {signal} from outside; the kernel does this if the machine \
                 or the container is out of memory"
            );
            Err(Failure::Failed(what))
        }
        _ => {
            let mib = limits.memory_bytes >> 20;
            let what = format!("it takes more than {mib} MiB of memory, or crashed: {words}");
            Err(Failure::Limit(what))
        }
    }
}

/// Reads at most `max` bytes.
fn taken(from: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max).read_to_end(&mut bytes).map(|_| bytes)
}

/// Exit code of a child whose work failed because of its input.
const REFUSED: i32 = 3;
/// Exit code of a child that could not start its work or write its output.
const UNABLE: i32 = 4;
/// Exit code of a child that has no memory for its input.
const OVER: i32 = 5;

/// Runs the child process: sets its limits, reads its input, works, and writes its output. Returns `None` if
/// this process is not a child.
pub fn main(known: &[Work]) -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() != Some(WORD) {
        return None;
    }
    let args: Vec<String> = args.collect();
    let (code, words) = match work(known, &args) {
        Ok(()) => return Some(ExitCode::SUCCESS),
        Err(Failure::Refused(words)) => (REFUSED, words),
        Err(Failure::Limit(words)) => (OVER, words),
        Err(Failure::Failed(words)) => (UNABLE, words),
    };
    // The parent may no longer read it.
    let _ = writeln!(io::stderr(), "{words}");
    Some(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

fn work(known: &[Work], args: &[String]) -> Result<(), Failure> {
    let unable = |error: io::Error| match error.kind() {
        io::ErrorKind::OutOfMemory => Failure::Limit(error.to_string()),
        _ => Failure::Failed(error.to_string()),
    };
    let [name, memory, seconds, rest @ ..] = args else {
        return Err(Failure::Failed("the arguments for work, memory and time are missing".into()));
    };
    let Some(work) = known.iter().find(|work| work.name == name) else {
        return Err(Failure::Failed(format!("unknown work `{name}`")));
    };
    bound(memory, seconds).map_err(Failure::Failed)?;
    let input = taken(io::stdin(), u64::MAX).map_err(unable)?;
    let output = (work.function)(rest, input).map_err(Failure::Refused)?;
    let mut out = io::stdout().lock();
    out.write_all(&output).and_then(|()| out.flush()).map_err(unable)
}

/// Sets the kernel limits of this process.
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
        setrlimit(resource, lowered(getrlimit(resource), most))
            .map_err(|error| format!("cannot set the limit {resource:?}: {error}"))?;
    }
    Ok(())
}

/// Returns a limit of `most`, or of the current hard limit if that is lower: only a privileged process may
/// raise a hard limit, and a service may have set one (for example to 0 for core dumps).
fn lowered(now: Rlimit, most: u64) -> Rlimit {
    // At the hard limit of CPU time the kernel sends SIGKILL, which does not reveal the cause; the soft
    // limit sends SIGXCPU.
    let above = most.saturating_add(2);
    let maximum = now.maximum.map_or(above, |maximum| maximum.min(above));
    Rlimit { current: Some(most.min(maximum.saturating_sub(1))), maximum: Some(maximum) }
}

#[cfg(test)]
mod tests {
    use besom_doubles::script;

    use super::*;

    fn nothing(_: &[String], _: Vec<u8>) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    const WORK: Work = Work { name: "nothing", output_bytes_max: 1_000, function: nothing };

    /// Runs a line of the shell as a child.
    fn ran(line: &str, processor: Duration) -> Result<String, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let program = script(directory.path(), line);
        let limits = Limits { program, memory_bytes: 1 << 30, processor };
        run(&limits, &WORK, &[], b"input").map(|output| String::from_utf8(output).unwrap())
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn no_limit_is_raised() {
        let limit = |current, maximum| Rlimit { current: Some(current), maximum: Some(maximum) };
        let none = Rlimit { current: None, maximum: None };
        for (now, most, expected) in [
            (none, 60, limit(60, 62)),
            (limit(10, 100), 60, limit(60, 62)),
            (limit(10, 60), 60, limit(59, 60)),
            (limit(10, 20), 60, limit(19, 20)),
            (none, 0, limit(0, 2)),
            (limit(0, 0), 0, limit(0, 0)),
            (limit(0, 0), 60, limit(0, 0)),
            (none, u64::MAX, limit(u64::MAX - 1, u64::MAX)),
        ] {
            assert_eq!(lowered(now, most), expected, "{most} of {now:?}");
        }
    }

    #[test]
    fn an_environment_of_few_threads_and_arenas_is_all_that_a_child_gets() {
        // Variables that the shell itself adds are left out.
        let line = "cat >/dev/null; env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort";
        let said = ran(&format!("PATH=/usr/bin:/bin; {line}"), LONG).unwrap();
        let (arenas, threads) = said.trim().split_once('\n').unwrap();
        assert_eq!(arenas, "MALLOC_ARENA_MAX=2");
        let threads = threads.strip_prefix("RAYON_NUM_THREADS=").unwrap();
        assert!((1..=4).contains(&threads.parse::<usize>().unwrap()), "{threads}");
    }

    #[test]
    fn a_child_that_writes_without_end_is_ended_by_name() {
        let limit = Failure::Limit("its output exceeds 1000 bytes".into());
        assert_eq!(ran("exec yes", LONG), Err(limit));
        let most = ran("cat >/dev/null; printf %01000d 0", LONG).unwrap();
        assert_eq!(most.len(), 1_000);
        // Its error output is read up to a limit and does not block it.
        assert_eq!(ran("yes | head -c 1000000 >&2; exit 0", LONG), Ok(String::new()));
    }

    #[test]
    fn a_child_that_waits_is_ended_by_the_clock() {
        let little = Duration::from_millis(10);
        for line in ["exec tail -f /dev/null", "exec >/dev/null 2>&1; exec tail -f /dev/null"] {
            let Err(Failure::Limit(why)) = ran(line, little) else { panic!("{line}") };
            assert!(why.contains("40ms of wall-clock time"), "{line}: {why}");
        }
    }

    #[test]
    fn the_end_of_a_child_tells_whose_fault_it_is() {
        let limit = |why: Failure| matches!(why, Failure::Limit(_));
        let failed = |why: Failure| matches!(why, Failure::Failed(_));
        let refused = |why: Failure| why == Failure::Refused("it is wrong".into());
        let cases: [(&str, &dyn Fn(Failure) -> bool); 9] = [
            ("echo it is wrong >&2; exit 3", &refused),
            ("exit 4", &failed),
            ("exit 5", &limit),
            ("exit 101", &limit),
            ("kill -ABRT $$", &limit),
            ("kill -SEGV $$", &limit),
            ("kill -XCPU $$", &limit),
            // The kernel sends KILL when memory is exhausted; a terminal sends INT to its whole group.
            ("kill -KILL $$", &failed),
            ("kill -INT $$", &failed),
        ];
        for (line, expected) in cases {
            let why = ran(&format!("ulimit -c 0; {line}"), LONG).unwrap_err();
            assert!(expected(why.clone()), "{line}: {why:?}");
        }
        let nowhere = Limits { program: "/nowhere".into(), memory_bytes: 1, processor: LONG };
        assert!(failed(run(&nowhere, &WORK, &[], b"").unwrap_err()));
    }
}
