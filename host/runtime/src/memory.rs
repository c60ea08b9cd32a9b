//! Limits the memory of a guest: all its linear memories together.
//!
//! A refusal is a result (`memory.grow` returns -1) and not a trap, because a guest with a garbage
//! collector may continue with what it has. The refused amount is recorded, so that an allocator
//! failure that follows is reported as such.

use wasmtime::ResourceLimiter;

use super::engine::PARTS_MAX;

/// Maximum number of elements of one table. Toolchains use a few thousand, one per indirect callee.
const TABLE_ELEMENTS_MAX: usize = 100_000;

/// The memory account of one store.
pub(super) struct MemoryLimiter {
    limit: u64,
    used: u64,
    peak: u64,
    refused: Option<u64>,
}

impl MemoryLimiter {
    /// Creates an account with a limit in bytes.
    pub(super) fn new(limit: u64) -> MemoryLimiter {
        MemoryLimiter { limit, used: 0, peak: 0, refused: None }
    }

    /// The peak usage in bytes.
    pub(super) fn peak(&self) -> u64 {
        self.peak
    }

    /// The total, in bytes, that was last requested and refused.
    pub(super) fn refused(&self) -> Option<u64> {
        self.refused
    }

    /// The limit in bytes.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self.used.saturating_sub(current as u64).saturating_add(desired as u64);
        if total > self.limit || maximum.is_some_and(|maximum| desired > maximum) {
            self.refused = Some(total);
            return Ok(false);
        }
        self.used = total;
        self.peak = self.peak.max(total);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS_MAX && maximum.is_none_or(|maximum| desired <= maximum))
    }

    fn instances(&self) -> usize {
        PARTS_MAX as usize
    }

    fn tables(&self) -> usize {
        PARTS_MAX as usize
    }

    fn memories(&self) -> usize {
        PARTS_MAX as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_are_summed() {
        let mut limiter = MemoryLimiter::new(300);
        let cases = [
            // (current, desired, maximum, granted, peak)
            (0, 100, None, true, 100),
            (0, 150, None, true, 250),
            (100, 151, None, false, 250),
            (100, 150, Some(120), false, 250),
            (100, 150, None, true, 300),
        ];
        for (current, desired, maximum, granted, peak) in cases {
            assert_eq!(
                limiter.memory_growing(current, desired, maximum).unwrap(),
                granted,
                "{current} -> {desired}"
            );
            assert_eq!(limiter.peak(), peak);
        }
        assert_eq!(limiter.refused(), Some(300));
    }
}
