//! A directory with a configuration, in which verbs are run.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub struct Site(tempfile::TempDir);

impl Site {
    pub fn new(config: &str) -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("besom.toml"), config).expect("written");
        Site(dir)
    }

    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    pub fn besom(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary runs")
    }

    /// A verb, ready to be started.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_besom"));
        command.args(args).current_dir(self.dir()).env_remove("BESOM_CONFIG");
        command.env("BESOM_HOST_DEFAULT_MODE", "live");
        command
    }

    /// The exit code and stdout as JSON.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> (i32, Value) {
        let out = self.besom(&[args, &["--output", "json"]].concat());
        let text = String::from_utf8(out.stdout).expect("UTF-8");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{said}"));
        (out.status.code().expect("not killed"), json)
    }

    /// The exit code and stderr.
    pub fn fails(&self, args: &[&str]) -> (i32, String) {
        let out = self.besom(args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code().expect("not killed"), said)
    }

    pub fn log(&self, name: &str, updates: &[&[u8]]) {
        let mut bytes = u32::try_from(updates.len()).expect("small").to_le_bytes().to_vec();
        for update in updates {
            bytes.extend(u32::try_from(update.len()).expect("small").to_le_bytes());
            bytes.extend(*update);
        }
        std::fs::write(self.dir().join(name), bytes).expect("written");
    }
}
