//! A directory with a configuration and a database, in which verbs are run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::Value;

use crate::host::Host;
pub use crate::wait::{wait_at_most, wait_for};

/// How long a write waits for another writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether the built-in plugins are in the cache.
static COMPILED: Once = Once::new();

fn built_in_tasks() -> String {
    ["compaction", "client-deactivation", "share-expiry", "ttl-transitions"]
        .map(|name| format!("[tasks.{name}]\nplugin = \"{name}\"\nschedule = \"@hourly\"\n"))
        .concat()
}

/// The collections of the hostile plugin.
const HOSTILE_COLLECTIONS: &str = r#"
[collections.things]
tenant = "tenant"
key = ["id"]
columns = { id = "integer", name = "text", data = "bytes", state = "integer" }
[collections.secrets]
key = ["id"]
columns = { id = "integer" }
"#;

/// The tables of these collections.
const THINGS: &str = "
CREATE TABLE things (tenant TEXT, id INTEGER, name TEXT, data BLOB, state INTEGER,
  PRIMARY KEY (tenant, id));
INSERT INTO things VALUES ('first', 1, 'one', x'01', 0);
CREATE TABLE secrets (id INTEGER PRIMARY KEY);
";

/// A task of the hostile plugin with that scan, the grants that it requests, and its collections;
/// `keys` are further keys of its table. [`Site::add_hostile`] adds the plugin itself.
pub fn hostile(task: &str, scan: &str, keys: &str) -> String {
    format!("{}{HOSTILE_COLLECTIONS}", another_hostile(task, scan, keys))
}

/// A further task of the hostile plugin in a configuration that has its collections.
pub fn another_hostile(task: &str, scan: &str, keys: &str) -> String {
    format!(
        "[tasks.{task}]\nplugin = \"hostile.wasm\"\nsettings.scan = \"{scan}\"\n{keys}\n\
         [tasks.{task}.grants]\nthings = [\"read\", \"update\", \"delete\"]\n\
         secrets = [\"read\"]\ntopics = [\"cleaned\"]\n"
    )
}

/// Lines shown of each log of a test that has failed.
const TAIL_LINES: usize = 30;

/// A directory of its own.
pub struct Site {
    dir: tempfile::TempDir,
}

impl AsRef<Path> for Site {
    fn as_ref(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Site {
    /// A failed test prints the logs of its hosts.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let status = self.besom(&["status"]);
        eprintln!("{}", String::from_utf8_lossy(&status.stdout));
        for entry in std::fs::read_dir(self.dir.path()).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let log = std::fs::read(&path).unwrap_or_default();
                let log = String::from_utf8_lossy(&log);
                let lines: Vec<&str> = log.lines().collect();
                let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
                eprintln!("{}:\n{}", path.display(), tail.join("\n"));
            }
        }
    }
}

impl Site {
    /// A directory with that configuration. Plugins compiled once serve every site.
    pub fn new(config: &str) -> Site {
        // The first start of a debug build compiles for a long time; the bounds of the tests do not
        // allow for that.
        COMPILED.call_once(|| {
            let site = Site::bare(&built_in_tasks());
            let (code, said) = site.said(&["check"]);
            assert_eq!(code, 0, "{said}");
        });
        Site::bare(config)
    }

    fn bare(config: &str) -> Site {
        let site = Site { dir: tempfile::tempdir().expect("a directory") };
        site.configure(config);
        site
    }

    /// Replaces the configuration as editors do: written beside it, then renamed.
    pub fn configure(&self, config: &str) {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache");
        let text = format!("{config}\n[runtime]\ncache = {:?}\n", cache.display().to_string());
        let new = self.path("besom.toml.new");
        std::fs::write(&new, text).expect("written");
        std::fs::rename(new, self.path("besom.toml")).expect("renamed");
    }

    /// A file of the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A verb, ready to be started.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_besom"));
        command.args(args).current_dir(self.dir.path()).env_remove("BESOM_CONFIG");
        // Some calls here sleep forever, and the limit of a call must not exceed that of its
        // snapshot.
        command.env("BESOM_HOST_ACT_SNAPSHOT_MAX", "1h");
        command.env("BESOM_HOST_DEFAULT_MODE", "live");
        command.stdin(Stdio::null());
        command
    }

    /// A line for the shell, ready to be started.
    pub fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.dir.path()).env_remove("BESOM_CONFIG");
        command.env("BESOM_HOST_DEFAULT_MODE", "live");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a verb to its end.
    pub fn besom(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary runs")
    }

    /// The exit code and stdout as JSON.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> (i32, Value) {
        let out = self.besom(&[args, &["--output", "json"]].concat());
        let (text, said) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        let json = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{args:?}: {e}: `{text}`\n{said}"));
        (out.status.code().expect("not killed"), json)
    }

    /// The exit code and stderr.
    #[track_caller]
    pub fn said(&self, args: &[&str]) -> (i32, String) {
        let out = self.besom(args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code().expect("not killed"), said)
    }

    /// Starts a host; it is killed at the latest when it goes out of scope.
    pub fn serve(&self) -> Host {
        Host::start(self, &[])
    }

    /// The database, as a product opens it.
    pub fn database(&self) -> Connection {
        let db = Connection::open(self.path("besom.db")).expect("the database opens");
        db.busy_timeout(BUSY_TIMEOUT).expect("set");
        db.pragma_update(None, "foreign_keys", true).expect("set");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(self.path("besom.db"), private).expect("set");
        db
    }

    /// Creates the database with the tables of the entity model, by importing a document with one
    /// empty update.
    pub fn create_tables(&self) {
        std::fs::write(self.path("first.log"), [1, 0, 0, 0, 2, 0, 0, 0, 0, 0]).expect("written");
        let (code, said) = self.said(&["doc", "import", "first.log", "--tenant", "first"]);
        assert_eq!(code, 0, "{said}");
    }

    /// The audit, which has to balance.
    #[track_caller]
    pub fn balanced(&self) -> Value {
        let (code, audit) = self.json(&["audit"]);
        assert_eq!((code, &audit["balanced"]), (0, &Value::Bool(true)), "{audit:#}");
        audit
    }

    /// A task in `besom status`.
    #[track_caller]
    pub fn task(&self, name: &str) -> Value {
        let (_, status) = self.json(&["status"]);
        let tasks = status["tasks"].as_array().expect("tasks").clone();
        tasks.into_iter().find(|task| task["task"] == name).expect("the task")
    }

    /// Adds the hostile plugin, and the tables that it requests.
    pub fn add_hostile(&self) {
        self.create_tables();
        self.drop_in("besom_hostile.wasm", "hostile.wasm");
        self.database().execute_batch(THINGS).expect("tables");
    }

    /// Copies a component that `cargo plugins` has built into `plugins.d`.
    pub fn drop_in(&self, built: &str, name: &str) {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target");
        let from = target.join("wasm32-wasip2/plugin").join(built);
        let dir = self.path("plugins.d");
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::copy(&from, dir.join(name)).unwrap_or_else(|error| {
            panic!("cannot copy {}: {error}: run `cargo plugins` first", from.display())
        });
    }
}

/// The row of a task in a list of them.
pub fn row_of<'v>(tasks: &'v Value, task: &str) -> &'v Value {
    let tasks = tasks.as_array().expect("tasks");
    tasks.iter().find(|row| row["task"] == task).expect("the task")
}
