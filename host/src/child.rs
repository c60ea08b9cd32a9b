//! Work on the bytes of strangers, in a process of its own.
//!
//! A compiler takes what time and memory its input makes it take, and has no handle by which it
//! could be stopped. The kernel has: a child with limits, without an environment, that is killed
//! when its time is over. It is this same program, called with [`WORD`] before everything else.

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

/// The first argument of a child.
pub const WORD: &str = "__child";
/// Of what a child says of its failure, so much is taken.
const WORDS_BYTES_MAX: u64 = 4 * 1024;
/// Beyond its time of a processor, a child may take so many times that by the clock.
const WALL_FACTOR: u32 = 4;
/// Threads that a compiler in a child computes with. With one for each processor, their stacks and
/// arenas alone would take the address space on a machine with many.
const THREADS_MAX: usize = 4;
/// Arenas of glibc's allocator in a child: each reserves 64 MiB of its address space.
const ARENAS_MAX: usize = 2;

/// What a child does.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// By this it is asked for.
    pub name: &'static str,
    /// The most that its output may have, in bytes: the host holds it in memory.
    pub output_bytes_max: u64,
    /// What it runs.
    pub function: Function,
}

/// From arguments and input to output, or what is wrong with the input.
pub type Function = fn(&[String], Vec<u8>) -> Result<Vec<u8>, String>;

/// The bounds of a child, and where its program is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The program: a Besom of the same version.
    pub program: PathBuf,
    /// Its address space, in bytes.
    pub memory_bytes: u64,
    /// Its time of a processor, all threads together; rounded up to a second.
    pub processor: Duration,
}

impl Limits {
    /// The bounds of a child of this very program, even where its file was replaced meanwhile.
    pub fn of_this_program(memory_bytes: u64, processor: Duration) -> Limits {
        Limits { program: "/proc/self/exe".into(), memory_bytes, processor }
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
    /// The child could not be started, bounded or spoken to, or somebody else has ended it: that says
    /// nothing of the input, and the same may succeed another time.
    #[error("a process of its own: {0}")]
    Failed(String),
}

/// Has a piece of work done by a child, and waits for it.
///
/// # Errors
/// The work's own, its limits', or those of starting a process.
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
        // Nobody listens to it any more. That it has ended already is no failure.
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    judge(limits, work, heard.map_err(failed)?, status)
}

/// Its time of a processor, as the kernel counts it.
fn seconds(limits: &Limits) -> u64 {
    let seconds = limits.processor.as_millis().div_ceil(1_000).max(1);
    u64::try_from(seconds).unwrap_or(u64::MAX)
}

/// By the clock, how long a child may take.
fn wall(limits: &Limits) -> Duration {
    limits.processor.saturating_mul(WALL_FACTOR)
}

/// What was heard of a child.
struct Heard {
    /// Up to a byte more than it may have.
    output: Vec<u8>,
    words: String,
    /// Whether it was killed because its time by the clock was over.
    late: bool,
}

/// Gives a child its input, and hears it until it has ended. It is still to be waited for.
fn hear(child: &mut Child, limits: &Limits, work: &Work, input: &[u8]) -> io::Result<Heard> {
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("its pipes are missing"));
    };
    // Until it is waited for, its number is no other process's. A handle of the process would be no
    // safer, and some kernels and containers have none.
    let pid = Pid::from_child(child);
    let kill = move || kill_process(pid, Signal::KILL).is_ok();
    let wall = wall(limits);
    let (ended, end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let start = thread::Builder::new;
        let watch = start().spawn_scoped(scope, move || {
            matches!(end.recv_timeout(wall), Err(mpsc::RecvTimeoutError::Timeout)) && kill()
        })?;
        // A child that fails reads no further: what it says counts.
        start().spawn_scoped(scope, move || stdin.write_all(input))?;
        let words = start().spawn_scoped(scope, move || taken(stderr, WORDS_BYTES_MAX))?;
        let output = taken(stdout, work.output_bytes_max.saturating_add(1));
        if output.as_ref().map_or(true, |output| output.len() as u64 > work.output_bytes_max) {
            kill();
        }
        let words = words.join().unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default();
        // It may have closed its pipes and go on: the clock runs until it has ended.
        let until_ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), until_ended))?;
        drop(ended);
        let late = watch.join().unwrap_or(false);
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        Ok(Heard { output: output?, words, late })
    })
}

/// What a child's end means.
fn judge(
    limits: &Limits,
    work: &Work,
    heard: Heard,
    status: ExitStatus,
) -> Result<Vec<u8>, Failure> {
    /// By these a process ends that does wrong itself, as one that gets no more memory.
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
        return Err(Failure::Limit(format!("its output has more than {max} bytes")));
    }
    let ended_by = |signal: Signal| status.signal() == Some(signal.as_raw());
    if late && ended_by(Signal::KILL) || ended_by(Signal::XCPU) {
        let (seconds, wall) = (seconds(limits), wall(limits));
        let what =
            format!("it takes more than {seconds} s of a processor, or {wall:?} by the clock");
        return Err(Failure::Limit(what));
    }
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(output),
        (Some(REFUSED), _) => Err(Failure::Refused(words)),
        (Some(UNABLE), _) => Err(Failure::Failed(words)),
        (None, Some(signal)) if !OWN.iter().any(|own| own.as_raw() == signal) => {
            let what = format!(
                "signal {signal} has ended it, sent by somebody else: by the kernel, where the \
                 machine or the container has no memory left"
            );
            Err(Failure::Failed(what))
        }
        _ => {
            let mib = limits.memory_bytes >> 20;
            let what =
                format!("it takes more than {mib} MiB of memory, or ends by itself: {words}");
            Err(Failure::Limit(what))
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
/// How a child ends that could not begin its work, or hand over what came of it.
const UNABLE: i32 = 4;
/// How a child ends that has no memory for its input.
const OVER: i32 = 5;

/// The whole of a child: bounds itself, reads its input, works, writes its output. None: this
/// process is none.
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
    // Nobody may read it any more.
    let _ = writeln!(io::stderr(), "{words}");
    Some(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

fn work(known: &[Work], args: &[String]) -> Result<(), Failure> {
    let unable = |error: io::Error| match error.kind() {
        io::ErrorKind::OutOfMemory => Failure::Limit(error.to_string()),
        _ => Failure::Failed(error.to_string()),
    };
    let [name, memory, seconds, rest @ ..] = args else {
        return Err(Failure::Failed("work, memory and time are missing".into()));
    };
    let Some(work) = known.iter().find(|work| work.name == name) else {
        return Err(Failure::Failed(format!("there is no work `{name}`")));
    };
    bound(memory, seconds).map_err(Failure::Failed)?;
    let input = taken(io::stdin(), u64::MAX).map_err(unable)?;
    let output = (work.function)(rest, input).map_err(Failure::Refused)?;
    let mut out = io::stdout().lock();
    out.write_all(&output).and_then(|()| out.flush()).map_err(unable)
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
        setrlimit(resource, lowered(getrlimit(resource), most))
            .map_err(|error| format!("its limit of {resource:?}: {error}"))?;
    }
    Ok(())
}

/// A limit of that much, or of what there is where that is less: only a privileged process may raise
/// the greater one of the two numbers, as they stand in a service that allows no dumps.
fn lowered(now: Rlimit, most: u64) -> Rlimit {
    // At the greater one of the processor's time the kernel kills without saying why.
    let above = most.saturating_add(2);
    let maximum = now.maximum.map_or(above, |maximum| maximum.min(above));
    Rlimit { current: Some(most.min(maximum.saturating_sub(1))), maximum: Some(maximum) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;

    /// A program for the shell. Another process writes it: a file that one thread of this process
    /// has open for writing could not be run by another one.
    pub(crate) fn script(directory: &Path, text: &str) -> PathBuf {
        let program = directory.join("program");
        let line = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 700 "$1""#;
        let written = Command::new("sh").args(["-c", line, "sh"]).arg(&program).arg(text).status();
        assert!(written.unwrap().success());
        program
    }

    fn nothing(_: &[String], _: Vec<u8>) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    const WORK: Work = Work { name: "nothing", output_bytes_max: 1_000, function: nothing };

    /// What a child is said to have done that is a line of the shell.
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
        // What the shell adds by itself.
        let line = "cat >/dev/null; env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort";
        let said = ran(&format!("PATH=/usr/bin:/bin; {line}"), LONG).unwrap();
        let (arenas, threads) = said.trim().split_once('\n').unwrap();
        assert_eq!(arenas, "MALLOC_ARENA_MAX=2");
        let threads = threads.strip_prefix("RAYON_NUM_THREADS=").unwrap();
        assert!((1..=4).contains(&threads.parse::<usize>().unwrap()), "{threads}");
    }

    #[test]
    fn a_child_that_writes_without_end_is_ended_by_name() {
        let limit = Failure::Limit("its output has more than 1000 bytes".into());
        assert_eq!(ran("exec yes", LONG), Err(limit));
        let most = ran("cat >/dev/null; printf %01000d 0", LONG).unwrap();
        assert_eq!(most.len(), 1_000);
        // What it says beside its output is taken up to a bound, and hinders nobody.
        assert_eq!(ran("yes | head -c 1000000 >&2; exit 0", LONG), Ok(String::new()));
    }

    #[test]
    fn a_child_that_waits_is_ended_by_the_clock() {
        let little = Duration::from_millis(10);
        for line in ["exec tail -f /dev/null", "exec >/dev/null 2>&1; exec tail -f /dev/null"] {
            let Err(Failure::Limit(why)) = ran(line, little) else { panic!("{line}") };
            assert!(why.contains("40ms by the clock"), "{line}: {why}");
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
            // As the kernel does where there is no memory, and a terminal to all of its group.
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
