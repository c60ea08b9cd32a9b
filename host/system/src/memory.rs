//! The allocator of the process.

/// Allocations of at least this size are returned to the system as soon as they are freed, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: libc::c_int = 1 << 20;

/// The pools from which the process allocates small buffers. By default, the C library has eight for each
/// processor, and each keeps what its threads have freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const POOLS: libc::c_int = 2;

/// Bounds the pools of small buffers. `MALLOC_ARENA_MAX` in the environment takes precedence. It has to be
/// called before other threads allocate.
pub fn bound_pools() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: it sets a parameter of the allocator, under the allocator's own lock.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, POOLS) };
    }
}

/// Has large buffers returned to the system when they are freed. By default, the C library raises the
/// size from which it does that up to 32 MiB, and the buffers of large commits remain in the process.
/// `MALLOC_MMAP_THRESHOLD_` in the environment takes precedence.
pub fn return_large_buffers() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if std::env::var_os("MALLOC_MMAP_THRESHOLD_").is_none() {
        // SAFETY: it sets a parameter of the allocator, under the allocator's own lock.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    const SIZE: usize = 8 << 20;

    /// The memory of this process in use, in bytes.
    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
    }

    /// A small allocation behind each buffer keeps the heap from shrinking by itself.
    #[test]
    fn a_large_buffer_that_is_freed_leaves_the_process() {
        return_large_buffers();
        // With the defaults, the first one of a size raises the size from which buffers are returned.
        drop(std::hint::black_box(vec![1u8; SIZE]));
        let before = resident();
        let held: Vec<_> = (0..8).map(|_| (vec![1u8; SIZE], vec![1u8; 100_000])).collect();
        assert!(resident() - before > 7 * SIZE, "the buffers are in memory");
        let small: Vec<_> = held.into_iter().map(|(_, small)| small).collect();
        let after = resident();
        assert!(after < before + 2 * SIZE, "{before} bytes before, {after} after");
        drop(small);
    }
}
