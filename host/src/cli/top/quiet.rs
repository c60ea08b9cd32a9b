//! What is logged while the dashboard has the terminal: into a file, or said afterwards.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use super::super::Failure;
use super::super::log::{self, Diverted};

/// Lines that are said afterwards where there is no file: the newest.
const KEPT_MAX: usize = 50;
/// How often lines are taken: often enough that none has to wait for room.
const TAKE_EVERY: Duration = Duration::from_millis(100);

/// Keeps the log off the terminal.
pub struct Quiet {
    lines: Diverted,
    file: Option<BufWriter<File>>,
    kept: VecDeque<String>,
}

impl Quiet {
    /// From now on; into a file, which is begun anew, where one is named.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(file: Option<&Path>) -> Result<Quiet, Failure> {
        let open = |path: &Path| {
            let fail = |error| Failure::Failed(format!("{}: {error}", path.display()));
            File::create(path).map(BufWriter::new).map_err(fail)
        };
        let file = file.map(open).transpose()?;
        Ok(Quiet { lines: log::divert(), file, kept: VecDeque::new() })
    }

    /// While that goes on; then what was kept is said.
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
            eprintln!("{line}");
        }
        done
    }

    fn take(&mut self) {
        for line in self.lines.take() {
            match &mut self.file {
                // A disk that is full is no reason to stop the work.
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
