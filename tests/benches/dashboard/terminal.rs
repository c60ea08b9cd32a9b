//! A terminal of 160 columns and 48 rows: tmux in control mode, which reports at once what each
//! program writes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::process::Process;

/// How long anything may take to be shown.
const PATIENCE: Duration = Duration::from_secs(30);
/// Ends a picture that is drawn at once (mode 2026, synchronised output), as tmux writes it.
const PICTURE_ENDS: &str = "\\033[?2026l";

/// A pane of the terminal, with a program in it.
pub struct Pane {
    id: String,
    process: u32,
}

/// The terminal; its programs end with it.
pub struct Terminal {
    tmux: Child,
    asks: ChildStdin,
    /// Its lines, and when they came.
    tells: Receiver<(Instant, String)>,
}

impl Terminal {
    /// Opens one.
    pub fn open(dir: &Path) -> Result<Terminal> {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(dir.join("terminal.sock")).args(["-f", "/dev/null", "-C"]);
        command.args(["start-server", ";"]);
        command.args(["set-option", "-g", "default-terminal", "tmux-256color", ";"]);
        command.args(["new-session", "-x", "160", "-y", "48", "cat"]);
        for name in ["NO_COLOR", "BESOM_CONFIG", "TMUX", "COLORTERM"] {
            command.env_remove(name);
        }
        command.envs([("LANG", "C.UTF-8"), ("LC_ALL", "C.UTF-8")]);
        let mut tmux = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start tmux: install it")?;
        let asks = tmux.stdin.take().context("no stdin")?;
        let out = BufReader::new(tmux.stdout.take().context("no stdout")?);
        let (tell, tells) = channel();
        std::thread::spawn(move || {
            // A character may be torn in two: each line has what came in one piece.
            for line in out.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if tell.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
        let mut terminal = Terminal { tmux, asks, tells };
        terminal.until(|line| line.starts_with("%session-changed").then_some(()))?;
        terminal.ask("refresh-client -C 160x48")?;
        Ok(terminal)
    }

    /// Starts a program in a window of its own; when that was asked for.
    pub fn start(&mut self, words: &[String]) -> Result<(Pane, Instant)> {
        ensure!(words.len() > 1, "tmux gives a single word to a shell");
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let begun = Instant::now();
        writeln!(
            self.asks,
            "new-window -d -P -F 'started #{{pane_id}} #{{pane_pid}}' {}",
            quoted.join(" ")
        )?;
        let (_, (id, process)) = self.until(|line| {
            let (id, process) = line.strip_prefix("started ")?.split_once(' ')?;
            Some((id.to_owned(), process.to_owned()))
        })?;
        Ok((Pane { id, process: process.parse()? }, begun))
    }

    /// The process of a pane.
    pub fn process(&self, pane: &Pane) -> Process {
        Process(pane.process)
    }

    /// When a program has written a text.
    pub fn prints(&mut self, pane: &Pane, text: &str) -> Result<Instant> {
        let mut written = String::new();
        let output = format!("%output {} ", pane.id);
        let (at, ()) = self.until(|line| {
            written.push_str(line.strip_prefix(&output)?);
            written.contains(text).then_some(())
        })?;
        Ok(at)
    }

    /// When the picture with that text in it was whole.
    pub fn shows(&mut self, pane: &Pane, text: &str) -> Result<Instant> {
        let mut written = String::new();
        let output = format!("%output {} ", pane.id);
        let (at, ()) = self.until(|line| {
            written.push_str(line.strip_prefix(&output)?);
            let after = written.find(text).map(|place| &written[place..])?;
            after.contains(PICTURE_ENDS).then_some(())
        })?;
        Ok(at)
    }

    /// Presses a key.
    pub fn key(&mut self, pane: &Pane, key: char) -> Result<()> {
        self.ask(&format!("send-keys -t {} {key}", pane.id))
    }

    /// Ends the program of a pane.
    pub fn end(&mut self, pane: &Pane) -> Result<()> {
        self.ask(&format!("kill-pane -t {}", pane.id))
    }

    fn ask(&mut self, command: &str) -> Result<()> {
        Ok(writeln!(self.asks, "{command}")?)
    }

    /// Reads until something is found, and says when it came.
    fn until<T>(&mut self, mut look: impl FnMut(&str) -> Option<T>) -> Result<(Instant, T)> {
        let begun = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let Ok((at, line)) = self.tells.recv_timeout(left) else {
                bail!("the terminal does not show what it should");
            };
            if let Some(found) = look(&line) {
                return Ok((at, found));
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let ended = self.ask("kill-server");
        if ended.is_err() {
            // It has ended by itself, or does not listen.
            let _ = self.tmux.kill();
        }
        let _ = self.tmux.wait();
    }
}
