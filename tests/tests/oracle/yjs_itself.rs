//! Yjs under Node, and the files it exchanges with the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const SOURCES: [&str; 8] = [
    "package.json",
    "package-lock.json",
    "log.mjs",
    "document.mjs",
    "edit.mjs",
    "generate.mjs",
    "continue.mjs",
    "judge.mjs",
];

/// Node in a directory with the scripts and the pinned Yjs, installed once.
pub fn node() -> Command {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    let directory = INSTALLED.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle");
        std::fs::create_dir_all(&target).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle");
        let lock = "package-lock.json";
        let is_installed = target.join("node_modules/yjs").is_dir()
            && std::fs::read(target.join(lock)).ok() == std::fs::read(source.join(lock)).ok();
        for file in SOURCES {
            std::fs::copy(source.join(file), target.join(file)).unwrap();
        }
        if !is_installed {
            let mut npm = Command::new("npm");
            npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(&target);
            run(&mut npm);
        }
        target
    });
    let mut node = Command::new("node");
    node.current_dir(directory);
    node
}

/// Runs it, and fails with what it said.
pub fn run(command: &mut Command) {
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
}

/// An empty directory for the cases of one test.
pub fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle-cases").join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path).unwrap();
    }
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Real data beside the repository, or where `BESOM_SHARED_DATA` says; none: not here.
pub fn shared_data(part: &str) -> Option<PathBuf> {
    let root = std::env::var_os("BESOM_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        PathBuf::from,
    );
    Some(root.join(part)).filter(|path| path.is_dir())
}

/// The cases in a directory, sorted.
pub fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|file| file.strip_suffix(".log").map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// A little-endian u32 count, then per update a u32 length and its bytes.
pub fn read_log(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let mut rest = bytes.as_slice();
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

/// The same, written.
pub fn write_log(path: &Path, updates: &[&[u8]]) {
    let mut bytes = (updates.len() as u32).to_le_bytes().to_vec();
    for update in updates {
        bytes.extend((update.len() as u32).to_le_bytes());
        bytes.extend_from_slice(update);
    }
    std::fs::write(path, bytes).unwrap();
}

/// The updates, borrowed.
pub fn slices(updates: &[Vec<u8>]) -> Vec<&[u8]> {
    updates.iter().map(Vec::as_slice).collect()
}
