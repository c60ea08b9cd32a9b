//! Captures a guest's output: the latest bytes of stdout, stderr and its log lines.
//!
//! The buffer is a ring and not a pipe: a guest that floods its stderr loses its oldest lines but
//! never waits, fails or traps. Its output is for people only and affects nothing.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// The amount that a guest may write at once. The ring accepts any amount.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// The latest bytes written. Clones share them.
#[derive(Clone)]
pub(super) struct Capture(Arc<Mutex<Ring>>);

struct Ring {
    bytes: VecDeque<u8>,
    capacity: usize,
    dropped: u64,
}

impl Capture {
    /// Keeps the last `capacity` bytes.
    pub(super) fn new(capacity: u64) -> Capture {
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        Capture(Arc::new(Mutex::new(Ring { bytes: VecDeque::new(), capacity, dropped: 0 })))
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends bytes, dropping the oldest.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut ring = self.ring();
        let kept = &bytes[bytes.len().saturating_sub(ring.capacity)..];
        let over = (ring.bytes.len() + kept.len()).saturating_sub(ring.capacity);
        ring.bytes.drain(..over);
        ring.bytes.extend(kept);
        ring.dropped += (over + bytes.len() - kept.len()) as u64;
    }

    /// The last `limit` bytes as text, starting at a line break if there is one.
    pub(super) fn tail(&self, limit: usize) -> String {
        let mut ring = self.ring();
        let cut = ring.dropped > 0 || ring.bytes.len() > limit;
        let bytes = ring.bytes.make_contiguous();
        let mut tail = &bytes[bytes.len().saturating_sub(limit)..];
        if cut
            && let Some(newline) = tail.iter().position(|b| *b == b'\n')
            && newline + 1 < tail.len()
        {
            tail = &tail[newline + 1..];
        }
        String::from_utf8_lossy(tail).trim_end().to_owned()
    }
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

impl AsyncWrite for Capture {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_bytes_are_kept() {
        let cases: &[(u64, &[&str], &str)] = &[
            (16, &["one\n", "two\n"], "one\ntwo"),
            (8, &["one\n", "two\n", "three\n"], "three"),
            (4, &["a line without end"], " end"),
            (0, &["nothing is kept"], ""),
        ];
        for (capacity, writes, expected) in cases {
            let capture = Capture::new(*capacity);
            for write in *writes {
                capture.push(write.as_bytes());
            }
            assert_eq!(capture.tail(1024), *expected, "{writes:?} in {capacity} bytes");
        }
    }

    #[test]
    fn a_full_ring_still_takes_writes() {
        let mut capture = Capture::new(10);
        for _ in 0..1000 {
            assert_eq!(capture.check_write().unwrap(), WRITE_BYTES_MAX);
            OutputStream::write(&mut capture, Bytes::from_static(b"0123456789abcdef")).unwrap();
        }
        assert_eq!(capture.tail(4), "cdef");
    }
}
