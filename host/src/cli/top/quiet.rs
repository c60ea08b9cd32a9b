//! Keeps log lines off the terminal while the dashboard is shown: writes them to a file, or prints them
//! afterwards.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use super::super::Failure;
use super::super::log::{self, Diverted};

/// Maximum number of lines, the newest, that are printed afterwards if there is no file.
const KEPT_MAX: usize = 50;
/// Interval at which buffered lines are taken; short enough that the buffer does not fill up.
const TAKE_EVERY: Duration = Duration::from_millis(100);

/// Diverts log lines from the terminal.
pub struct Quiet {
    lines: Diverted,
    file: Option<BufWriter<File>>,
    kept: VecDeque<String>,
}

impl Quiet {
    /// Starts diverting; truncates and fills `file` if it is given.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn begin(file: Option<&Path>) -> Result<Quiet, Failure> {
        let open = |path: &Path| {
            let fail = |error| Failure::Failed(format!("{}: {error}", path.display()));
            File::create(path).map(BufWriter::new).map_err(fail)
        };
        let file = file.map(open).transpose()?;
        Ok(Quiet { lines: log::divert(), file, kept: VecDeque::new() })
    }

    /// Diverts lines while `work` runs, then prints the lines kept.
    pub async fn during<T>(mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                () = tokio::time::sleep(TAKE_EVERY) => self.take(),
            }
        };
        self.take();
        drop(self.lines);
        for line in self.kept {
            to_stderr!("{line}");
        }
        done
    }

    fn take(&mut self) {
        for line in self.lines.take() {
            match &mut self.file {
                // A full disk must not stop the work.
                Some(file) => drop(writeln!(file, "{line}")),
                None => self.kept.push_back(line),
            }
        }
        if let Some(file) = &mut self.file {
            let _ = file.flush();
        }
        while self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
    }
}
