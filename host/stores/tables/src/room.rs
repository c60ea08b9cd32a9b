//! The size limits of one read, and of the before-images of a commit.

use besom_ports::store::Error;

/// The maximum size of the before-images of a commit by default, in bytes: as much as a call of a
/// guest may read in the lane that reads most.
pub const UNDO_BYTES_DEFAULT: u64 = 128 << 20;

/// The remaining room. It is checked while rows arrive: data beyond it is never kept.
#[derive(Clone)]
pub struct Room {
    max: u64,
    /// None: something was refused.
    left: Option<u64>,
    exceeded: fn(u64) -> Error,
}

impl Room {
    /// For one read of so many bytes.
    pub fn new(max: u64) -> Room {
        Room { max, left: Some(max), exceeded: read_exceeded }
    }

    /// For the before-images of a commit, of so many bytes before they are packed.
    pub fn of_images(max: u64) -> Room {
        Room { max, left: Some(max), exceeded: images_exceeded }
    }

    /// Uses a row's bytes, or refuses them and everything after them: even a small row may share the
    /// memory of the large ones that arrived with it.
    pub fn take(&mut self, bytes: usize) -> Result<(), Error> {
        self.left = self.left.and_then(|left| left.checked_sub(bytes as u64));
        self.left.map(drop).ok_or_else(|| (self.exceeded)(self.max))
    }

    /// Refuses a single row that is larger than the whole limit.
    pub fn holds(&self, bytes: usize) -> Result<(), Error> {
        if bytes as u64 > self.max { Err((self.exceeded)(self.max)) } else { Ok(()) }
    }

    /// What is left, in bytes.
    pub fn left(&self) -> u64 {
        self.left.unwrap_or(0)
    }

    /// All of it, in bytes.
    pub fn max(&self) -> u64 {
        self.max
    }
}

fn read_exceeded(max: u64) -> Error {
    Error::TooLarge(format!("one read may return {max} bytes (`read_bytes`)"))
}

/// The items of the commit are retried one by one, and an item whose own images are this large fails.
fn images_exceeded(max: u64) -> Error {
    Error::TooLarge(format!(
        "the rows before their change are larger than {max} bytes (`store.undo_bytes`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_after_a_refusal() {
        let mut room = Room::of_images(10);
        assert!(room.take(6).is_ok() && room.take(4).is_ok() && room.take(0).is_ok());
        let mut room = Room::of_images(10);
        assert!(room.take(6).is_ok() && room.take(5).is_err());
        assert_eq!((room.left(), room.max()), (0, 10));
        assert!(room.take(1).is_err() && room.take(0).is_err());
    }
}
