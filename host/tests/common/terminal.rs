//! A terminal with a shell, in which tests type and read the screen: tmux, on its own server.

#![allow(dead_code, reason = "each suite uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::wait::PATIENCE;

/// How often the screen is read. Each reading starts a process.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The prompt of the shell.
const PROMPT: &str = "ready> ";
/// The number of started servers, for the names of their sockets.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// The modes of a terminal that a program may change and has to restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modes {
    /// Alternate screen, cursor, mouse, keypad, title.
    flags: String,
    /// The line discipline, as `stty` writes it.
    line: String,
}

/// A terminal. Dropping it ends whatever runs in it.
pub struct Terminal {
    /// Of its server.
    socket: PathBuf,
}

impl Drop for Terminal {
    /// A failed test prints the screen.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let shown = self.tmux(&["capture-pane", "-p"]);
            eprintln!("the terminal:\n{}", String::from_utf8_lossy(&shown.stdout));
        }
        self.tmux(&["kill-server"]);
    }
}

impl Terminal {
    /// A shell in a directory, in a terminal of that many columns and rows, with colours.
    #[track_caller]
    pub fn open(dir: impl AsRef<Path>, columns: u16, rows: u16) -> Terminal {
        Terminal::open_with(dir, columns, rows, &[])
    }

    /// The same with more variables in the environment.
    #[track_caller]
    pub fn open_with(
        dir: impl AsRef<Path>,
        columns: u16,
        rows: u16,
        variables: &[(&str, &str)],
    ) -> Terminal {
        let dir = dir.as_ref();
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let terminal = Terminal { socket: dir.join(format!("terminal-{number}.sock")) };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let mut command = terminal.command(&[]);
        // The shell's environment is fixed, whatever the environment of the tests.
        for name in ["NO_COLOR", "BESOM_CONFIG", "ENV", "TMUX", "COLORTERM", "EDITOR", "VISUAL"] {
            command.env_remove(name);
        }
        command.envs([("LANG", "C.UTF-8"), ("LC_ALL", "C.UTF-8"), ("PS1", PROMPT)]);
        command.env("BESOM", env!("CARGO_BIN_EXE_besom"));
        command.env("BESOM_HOST_DEFAULT_MODE", "live");
        command.envs(variables.iter().copied()).current_dir(dir);
        command.args([
            "start-server",
            ";",
            "set-option",
            "-g",
            "default-terminal",
            "tmux-256color",
            ";",
        ]);
        command.args(["set-option", "-g", "status", "off", ";"]);
        command.args(["new-session", "-d", "-x", &columns, "-y", &rows, "sh", "-i"]);
        let out = command.output().unwrap_or_else(|error| {
            panic!("cannot start tmux: {error}; install it: apt-get install tmux")
        });
        assert!(out.status.success(), "tmux: {}", String::from_utf8_lossy(&out.stderr));
        terminal.shows(PROMPT.trim());
        terminal
    }

    /// Types a line into the shell.
    pub fn line(&self, line: &str) {
        self.text(line);
        self.keys(&["Enter"]);
    }

    /// Empties the screen.
    #[track_caller]
    pub fn clear(&self) {
        self.line("clear");
        self.until("nothing but the prompt", |screen| screen.trim() == PROMPT.trim());
    }

    /// Starts the dashboard with more arguments and waits until it shows the present.
    #[track_caller]
    pub fn top(&self, arguments: &str) {
        self.line(&format!("\"$BESOM\" top {arguments}"));
        self.shows("●live");
    }

    /// Presses keys, given by tmux's names or as characters.
    #[track_caller]
    pub fn keys(&self, keys: &[&str]) {
        self.done(&[&["send-keys", "--"], keys].concat());
    }

    /// Types characters.
    #[track_caller]
    pub fn text(&self, text: &str) {
        self.done(&["send-keys", "-l", "--", text]);
    }

    /// Pastes a text as terminals do: bracketed, if the program has requested it.
    #[track_caller]
    pub fn paste(&self, text: &str) {
        self.done(&["set-buffer", "--", text]);
        self.done(&["paste-buffer", "-p"]);
    }

    /// Gives the terminal another size.
    #[track_caller]
    pub fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.done(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    /// The text of the screen.
    #[track_caller]
    pub fn screen(&self) -> String {
        self.done(&["capture-pane", "-p"])
    }

    /// The same with its escape sequences.
    #[track_caller]
    pub fn looks(&self) -> String {
        self.done(&["capture-pane", "-p", "-e"])
    }

    /// Waits until a text is on the screen; returns the screen.
    #[track_caller]
    pub fn shows(&self, text: &str) -> String {
        self.until(&format!("`{text}`"), |screen| screen.contains(text))
    }

    /// Waits until the screen meets the condition; returns it.
    #[track_caller]
    pub fn until(&self, what: &str, mut right: impl FnMut(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if right(&screen) {
                return screen;
            }
            let over = begun.elapsed() >= PATIENCE;
            assert!(!over, "after {PATIENCE:?} the screen does not show {what}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until the shell has the terminal again and reads input.
    #[track_caller]
    pub fn is_given_back(&self, before: &Modes) {
        self.until("the prompt", |screen| {
            screen
                .lines()
                .rfind(|line| !line.is_empty())
                .is_some_and(|line| line.ends_with(PROMPT.trim()))
        });
        assert_eq!(&self.modes(), before, "the modes of the terminal");
        // If bracketed paste were still on, this would not be a command.
        self.paste("echo the shell $((6 * 7)) reads");
        self.keys(&["Enter"]);
        self.shows("the shell 42 reads");
    }

    /// The modes as they are now.
    #[track_caller]
    pub fn modes(&self) -> Modes {
        let tty = self.format("#{pane_tty}");
        let stty = Command::new("stty").args(["-a", "-F", &tty]).output().expect("stty runs");
        assert!(stty.status.success(), "{}", String::from_utf8_lossy(&stty.stderr));
        let flags = "#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{keypad_flag} \
                     #{keypad_cursor_flag} #{pane_title}";
        let line = String::from_utf8_lossy(&stty.stdout).into_owned();
        Modes { flags: self.format(flags), line }
    }

    /// The process that the shell runs in the foreground.
    #[track_caller]
    pub fn foreground(&self) -> i32 {
        let shell = self.format("#{pane_pid}");
        let children = format!("/proc/{shell}/task/{shell}/children");
        let children = std::fs::read_to_string(children).expect("the shell's children");
        let mut children = children.split_whitespace();
        children.next().expect("a child of the shell").parse().expect("a process")
    }

    /// tmux's properties of the terminal.
    #[track_caller]
    pub fn format(&self, format: &str) -> String {
        self.done(&["display-message", "-p", format]).trim_end().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(&self.socket).args(["-f", "/dev/null"]).args(args);
        command
    }

    fn tmux(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("tmux runs")
    }

    #[track_caller]
    fn done(&self, args: &[&str]) -> String {
        let out = self.tmux(args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "tmux {args:?}: {said}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}
