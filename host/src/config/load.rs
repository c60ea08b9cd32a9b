//! Reading the file itself.

use std::io::Read as _;
use std::path::Path;

use super::diagnostic::{Diagnostic, Problems, Source};
use super::resolve::{Overrides, Parsed, RawConfig};

/// The largest file that is read, in bytes. What is larger is no configuration.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads and parses a file. An error here means that there is no text at all; what is wrong
/// with the text is kept in the result.
pub fn read(path: &Path, overrides: &Overrides) -> Result<Parsed, Problems> {
    let whole = Source::new(path.display().to_string(), "").whole();
    let fail = |message: String, fix: &str| {
        Problems(vec![Diagnostic::error(whole.clone(), message).fix(fix)])
    };
    // Opening a pipe would wait for somebody who writes into it.
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(fail(
            "it is no regular file".into(),
            "name the file itself by --config FILE, or put one in its place",
        ));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => fail(
                "there is no such file".into(),
                "write one with `besom config init`, or name another by --config FILE",
            ),
            _ => fail(format!("the file cannot be read: {e}"), "check its path and permissions"),
        })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(fail(
            format!("the file has more than {FILE_BYTES_MAX} bytes"),
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
