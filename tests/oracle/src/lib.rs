//! The original npm packages of the libraries under Node.js, and the files that they exchange with
//! tests.
//!
//! Decides nothing: a script generates documents or judges them, as the test requests.

pub mod loro;
pub mod replay;
pub mod shapes;
pub mod trace;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Node in a directory with the scripts beside this crate and the packages that
/// `package-lock.json` pins.
pub struct Oracle {
    target: PathBuf,
}

impl Oracle {
    /// Installs the packages if they are missing or of another version. `temporary` is the test's
    /// `CARGO_TARGET_TMPDIR`.
    ///
    /// # Panics
    /// Without Node, or if the packages cannot be installed.
    pub fn under(temporary: &str) -> Oracle {
        let target = Path::new(temporary).join("oracle");
        std::fs::create_dir_all(&target).unwrap();
        // Tests in other processes may install them at the same time.
        let lock = File::create(target.join("installing")).unwrap();
        lock.lock().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        let pinned = "package-lock.json";
        let is_installed = target.join("node_modules").is_dir()
            && std::fs::read(target.join(pinned)).ok() == std::fs::read(source.join(pinned)).ok();
        for entry in std::fs::read_dir(source).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|it| it == "mjs" || it == "json") {
                let there = target.join(path.file_name().unwrap());
                // An identical file stays, because another process may be running it.
                let script = std::fs::read(&path).unwrap();
                if std::fs::read(&there).ok().as_ref() != Some(&script) {
                    std::fs::write(&there, script).unwrap();
                }
            }
        }
        let oracle = Oracle { target };
        if !is_installed {
            let mut npm = Command::new("npm");
            npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(&oracle.target);
            run(&mut npm);
        }
        oracle
    }

    /// `node SCRIPT`, to be given arguments.
    pub fn script(&self, script: &str) -> Command {
        let mut node = Command::new("node");
        node.arg(script).current_dir(&self.target);
        node
    }

    /// An empty directory for the cases of one test.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let path = self.target.with_file_name("oracle-cases").join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path).unwrap();
        }
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

/// Runs it, and fails with its output.
pub fn run(command: &mut Command) -> Output {
    let program = command.get_program().to_owned();
    let output = command.output().unwrap_or_else(|error| {
        panic!("{program:?} does not start ({error}); Debian has it in `nodejs` and `npm`")
    });
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Real data in the directory that `BESOM_SHARED_DATA` names, or in `../shared/data` beside the
/// repository. If it is missing, returns `None` and writes a line to standard error that the
/// capture of tests does not hide.
///
/// # Panics
/// If `BESOM_SHARED_DATA` is set and its directory lacks the data.
pub fn shared_data(part: &str) -> Option<PathBuf> {
    let named = std::env::var_os("BESOM_SHARED_DATA").map(PathBuf::from);
    let is_named = named.is_some();
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = named.unwrap_or_else(beside).join(part);
    if path.exists() {
        return Some(path);
    }
    let test = std::thread::current().name().unwrap_or("main").to_owned();
    let words = format!("SKIPPED: {test} needs {}: see BESOM_SHARED_DATA", path.display());
    assert!(!is_named, "{words}");
    let _ = writeln!(std::io::stderr(), "{words}");
    None
}

/// The cases in a directory, sorted, without the results.
pub fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|file| file.strip_suffix(".log").map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// Reads an update log: a little-endian u32 count, then per update a u32 length and its bytes.
pub fn read_log(path: &Path) -> Vec<Vec<u8>> {
    parse_log(&std::fs::read(path).unwrap())
}

/// The updates of a log in memory.
///
/// # Panics
/// If it is none.
pub fn parse_log(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let word = |rest: &mut &[u8]| {
        let (head, tail) = rest.split_first_chunk::<4>().expect("a whole word");
        *rest = tail;
        u32::from_le_bytes(*head) as usize
    };
    let count = word(&mut rest);
    (0..count)
        .map(|_| {
            let len = word(&mut rest);
            let (update, tail) = rest.split_at(len);
            rest = tail;
            update.to_vec()
        })
        .collect()
}

/// Writes an update log.
pub fn write_log(path: &Path, updates: &[&[u8]]) {
    std::fs::write(path, encode_log(updates)).unwrap();
}

/// An update log in memory.
pub fn encode_log(updates: &[&[u8]]) -> Vec<u8> {
    let mut bytes = (updates.len() as u32).to_le_bytes().to_vec();
    for update in updates {
        bytes.extend((update.len() as u32).to_le_bytes());
        bytes.extend_from_slice(update);
    }
    bytes
}

/// The updates, borrowed.
pub fn slices(updates: &[Vec<u8>]) -> Vec<&[u8]> {
    updates.iter().map(Vec::as_slice).collect()
}
