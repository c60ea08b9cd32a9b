//! Logs to stderr, line by line. While a screen is drawn on the terminal, the lines go to the code that
//! draws it.

use std::fmt::Debug;
use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use besom_config::printable;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{self, MakeWriter};

/// Maximum number of lines buffered for the screen; further lines go to stderr directly.
const LINES_MAX: usize = 1_024;

/// The levels of logging.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

static DIVERTED: Mutex<Option<SyncSender<String>>> = Mutex::new(None);

/// Starts logging with a level or with `tracing` directives; without what plugins log, unless the directives name
/// it.
///
/// # Errors
/// Directives that cannot be parsed.
pub fn start(directives: &str, of_plugins: bool) -> Result<(), String> {
    let word = directives.trim().to_ascii_lowercase();
    let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic());
    if is_word && !LEVELS.contains(&word.as_str()) {
        // It would be taken for a module, of which nothing is logged.
        return Err(format!("--log `{directives}` is no level: write {}", LEVELS.join(", ")));
    }
    let filter = tracing_subscriber::EnvFilter::try_new(own(directives, of_plugins))
        .map_err(|e| format!("--log `{directives}`: {e}; write, for example, `debug`"))?;
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .fmt_fields(fmt::format::debug_fn(field).delimited(" "))
        .with_writer(Lines)
        .with_ansi(colours && !diverts())
        .init();
    Ok(())
}

/// Writes a field. Its text can come from a database, a peer or a plugin, and must not look like a record
/// of its own: whatever is not printable is escaped, and further lines of a message are indented.
fn field(to: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = format!("{value:?}");
    if field.name() != "message" {
        return write!(to, "{}={}", field.name(), printable(&text));
    }
    for (at, line) in text.lines().enumerate() {
        to.write_str(if at > 0 { "\n  " } else { "" })?;
        to.write_str(&printable(line))?;
    }
    Ok(())
}

/// Applies a plain `debug` or `trace` level only to Besom's own events: the plugin compiler alone would log
/// ten thousand lines at `debug`. The database driver logs each failed connection, which the health of
/// the host already reports once.
fn own(directives: &str, of_plugins: bool) -> String {
    const DRIVER: &str = "tokio_postgres=warn,deadpool=error";
    let mut own = match directives.trim() {
        level @ ("debug" | "trace") => format!("info,besom={level},{DRIVER}"),
        "info" | "warn" => format!("{},{DRIVER}", directives.trim()),
        other => other.to_owned(),
    };
    if !of_plugins && !own.contains("besom::task") {
        own.push_str(",besom::task=off");
    }
    own
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
    use std::sync::Arc;

    use super::*;

    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A database's or a peer's error text could otherwise begin a line of the log.
    #[test]
    fn no_field_looks_like_a_record_or_moves_the_cursor() {
        let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
        let to = Arc::clone(&kept);
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(fmt::format::debug_fn(field).delimited(" "))
            .with_writer(move || Kept(Arc::clone(&to)))
            .with_ansi(false)
            .finish();
        let hostile = "too long: y\n2026-11-27T08:00:01Z  INFO forged\u{1b}]0;x\u{7}\u{202e}";
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(error = %hostile, by = hostile, "refused: {hostile}");
        });
        let text = String::from_utf8(kept.lock().expect("no panic").clone()).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("ERROR") && lines[0].ends_with("refused: too long: y"), "{text}");
        assert!(lines[1].starts_with("  2026-11-27"), "{text}");
        let escaped = "y\\n2026-11-27T08:00:01Z  INFO forged\\u{1b}]0;x\\u{7}\\u{202e}";
        assert!(lines[1].contains(&format!(" error=too long: {escaped}")), "{text}");
        assert!(lines[1].contains(" by=\"too long: y"), "{text}");
        let is_odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(is_odd), "{text:?}");
    }

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
            assert_eq!(own(given, true), meant);
            let quiet = own(given, false);
            assert_eq!(quiet, format!("{meant},besom::task=off"));
            for directives in [meant, &quiet] {
                assert!(tracing_subscriber::EnvFilter::try_new(directives).is_ok(), "{directives}");
            }
        }
        assert_eq!(own("besom::task=debug", false), "besom::task=debug", "it is asked for");
    }
}
