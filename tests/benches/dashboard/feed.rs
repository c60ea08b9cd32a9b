//! The host's side: the program `feed`, and the cost of its answer alone.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// How long the feed may take to listen, and to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What changes from picture to picture.
#[derive(Clone, Copy)]
pub enum Life {
    Still,
    Alive,
    Stirred,
}

impl Life {
    /// As the feed calls it.
    pub fn name(self) -> &'static str {
        match self {
            Life::Still => "still",
            Life::Alive => "alive",
            Life::Stirred => "stirred",
        }
    }
}

/// A feed that answers.
pub struct Feed {
    process: Child,
    socket: PathBuf,
}

impl Feed {
    /// Starts it, and waits until it answers.
    pub fn start(dir: &Path, life: Life) -> Result<Feed> {
        let socket = dir.join(format!("{}.sock", life.name()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_feed"));
        let process = command.arg(&socket).arg(life.name()).spawn()?;
        let feed = Feed { process, socket };
        let begun = Instant::now();
        while UnixStream::connect(&feed.socket).is_err() {
            ensure!(begun.elapsed() < PATIENCE, "the feed does not listen");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(feed)
    }

    /// The words that start a dashboard on it.
    pub fn dashboard(&self, binary: &Path) -> Result<Vec<String>> {
        let words = [binary.as_os_str(), "top".as_ref(), "--socket".as_ref(), self.socket.as_ref()];
        let text = |word: &std::ffi::OsStr| {
            word.to_str().map(str::to_owned).ok_or_else(|| anyhow::anyhow!("{word:?}: not UTF-8"))
        };
        words.into_iter().map(text).collect()
    }

    /// How long its first whole picture takes to arrive, read by somebody who does nothing
    /// with it.
    pub fn answer(&self) -> Result<Duration> {
        let begun = Instant::now();
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        // A picture is one line.
        while !line.starts_with(b"{\"whole\"") {
            line.clear();
            ensure!(lines.read_until(b'\n', &mut line)? > 0, "the feed has ended the connection");
        }
        Ok(begun.elapsed())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
