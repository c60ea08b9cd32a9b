//! The size limit of one read.

use besom_ports::store::Error;

/// The remaining room. It is checked while rows arrive: data beyond it is never kept.
pub struct Room {
    max: u64,
    left: u64,
}

impl Room {
    /// For so many bytes.
    pub fn new(max: u64) -> Room {
        Room { max, left: max }
    }

    /// Uses a row's bytes, or refuses them.
    pub fn take(&mut self, bytes: usize) -> Result<(), Error> {
        match self.left.checked_sub(bytes as u64) {
            Some(left) => self.left = left,
            None => return Err(self.exceeded()),
        }
        Ok(())
    }

    /// Refuses a single row that is larger than the whole limit.
    pub fn holds(&self, bytes: usize) -> Result<(), Error> {
        if bytes as u64 > self.max { Err(self.exceeded()) } else { Ok(()) }
    }

    /// What is left, in bytes.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// All of it, in bytes.
    pub fn max(&self) -> u64 {
        self.max
    }

    fn exceeded(&self) -> Error {
        Error::TooLarge(format!("one read may return {} bytes (`read_bytes`)", self.max))
    }
}
