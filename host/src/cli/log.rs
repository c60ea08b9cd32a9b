//! Logs to stderr, line by line. While a screen is drawn on the terminal, the lines go to the code that
//! draws it.

use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

/// Maximum number of lines buffered for the screen; further lines go to stderr directly.
const LINES_MAX: usize = 1_024;

static DIVERTED: Mutex<Option<SyncSender<String>>> = Mutex::new(None);

/// Starts logging with a level or with `tracing` directives.
///
/// # Errors
/// Directives that cannot be parsed.
pub fn start(directives: &str) -> Result<(), String> {
    let filter = tracing_subscriber::EnvFilter::try_new(own(directives))
        .map_err(|e| format!("--log `{directives}`: {e}; write, for example, `debug`"))?;
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Lines)
        .with_ansi(colours && !diverts())
        .init();
    Ok(())
}

/// Applies a plain `debug` or `trace` level only to Besom's own events: the plugin compiler alone would log
/// ten thousand lines at `debug`. The database driver logs each failed connection, which the health of
/// the host already reports once.
fn own(directives: &str) -> String {
    const DRIVER: &str = "tokio_postgres=warn,deadpool=error";
    match directives.trim() {
        level @ ("debug" | "trace") => format!("info,besom={level},{DRIVER}"),
        "info" | "warn" => format!("{},{DRIVER}", directives.trim()),
        other => other.to_owned(),
    }
}

/// Whether a screen can be drawn on this terminal.
fn diverts() -> bool {
    io::stdout().is_terminal() && io::stderr().is_terminal()
}

/// Diverts log lines until the result is dropped, which writes the lines left over to stderr.
pub fn divert() -> Diverted {
    let (sender, lines) = sync_channel(LINES_MAX);
    *DIVERTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    Diverted { lines }
}

/// Receives the log lines while they are diverted from stderr.
pub struct Diverted {
    lines: Receiver<String>,
}

impl Diverted {
    /// Takes the buffered lines.
    pub fn take(&self) -> impl Iterator<Item = String> + '_ {
        self.lines.try_iter()
    }
}

impl Drop for Diverted {
    fn drop(&mut self) {
        *DIVERTED.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for line in self.lines.try_iter() {
            // If stderr is closed, there is nowhere left to report it.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
}

/// Creates a writer for each event.
struct Lines;

/// Buffers the text of one event, and emits it when dropped.
struct Line(Vec<u8>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(Vec::with_capacity(160))
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.0);
        let diverted = DIVERTED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let line = text.trim_end_matches('\n');
        if diverted.is_none_or(|sender| sender.try_send(line.to_owned()).is_err()) {
            // A log that cannot be written must not stop the program.
            let _ = io::stderr().write_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mere_level_is_about_besom_and_directives_are_left_as_they_are() {
        for (given, meant) in [
            ("debug", "info,besom=debug,tokio_postgres=warn,deadpool=error"),
            ("trace", "info,besom=trace,tokio_postgres=warn,deadpool=error"),
            ("info", "info,tokio_postgres=warn,deadpool=error"),
            ("warn", "warn,tokio_postgres=warn,deadpool=error"),
            ("error", "error"),
            ("off", "off"),
            ("info,besom_node=debug", "info,besom_node=debug"),
            ("debug,hyper=warn", "debug,hyper=warn"),
        ] {
            assert_eq!(own(given), meant);
            assert!(tracing_subscriber::EnvFilter::try_new(own(given)).is_ok(), "{meant}");
        }
    }
}
