//! Reads the configuration file.

use std::io::Read as _;
use std::path::Path;

use super::diagnostic::{Diagnostic, Problems, Source};
use super::resolve::{Overrides, Parsed, RawConfig};

/// Maximum size of a configuration file, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads and parses a file. Problems of the text are kept in the result.
///
/// # Errors
/// The file cannot be read, is too large, or is not UTF-8.
pub fn read(path: &Path, overrides: &Overrides) -> Result<Parsed, Problems> {
    let whole = Source::new(path.display().to_string(), "").whole();
    let fail = |message: String, fix: &str| {
        Problems(vec![Diagnostic::error(whole.clone(), message).fix(fix)])
    };
    // Opening a named pipe would block until a writer opens it.
    if let Some(meta) = std::fs::metadata(path).ok().filter(|meta| !meta.is_file()) {
        let what = if meta.is_dir() { "this is a directory" } else { "not a regular file" };
        return Err(fail(what.into(), "name a regular file with --config FILE"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => fail(
                "the file does not exist".into(),
                "create it with `besom config init`, or name another file with --config FILE",
            ),
            _ => fail(format!("the file cannot be read: {e}"), "check its path and permissions"),
        })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(fail(
            format!("the file is larger than {FILE_BYTES_MAX} bytes"),
            "check that --config names a configuration",
        ));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(fail("the file is UTF-16".into(), "save the file as UTF-8"));
    }
    if bytes.contains(&0) {
        return Err(fail(
            "the file is no text: it contains NUL bytes".into(),
            "check that --config names a configuration",
        ));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(RawConfig::parse(text, path, overrides)),
        Err(e) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let at = e.valid_up_to();
            let place = Source::new(path.display().to_string(), text).at(&(at..at + 3));
            let message = format!("byte 0x{:02x} is not UTF-8", bytes[at]);
            Err(Problems(vec![Diagnostic::error(place, message).fix("save the file as UTF-8")]))
        }
    }
}
