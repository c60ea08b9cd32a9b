//! The allocator of the process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Allocations of at least this size are returned to the system as soon as they are freed, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: libc::c_int = 1 << 20;
/// How much of a pool's unused end is kept, in bytes: with the default of 128 KiB, each batch of messages has the
/// system take pages away that the next one needs again.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: libc::c_int = 2 << 20;

/// Has large buffers returned to the system when they are freed. By default, the C library raises the
/// size from which it does that up to 32 MiB, and the buffers of large commits remain in the process.
/// `MALLOC_MMAP_THRESHOLD_` and `MALLOC_TRIM_THRESHOLD_` in the environment take precedence.
pub fn return_large_buffers() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (parameter, name, value) in [
        (libc::M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", LARGE),
        (libc::M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", KEPT),
    ] {
        if std::env::var_os(name).is_none() {
            // SAFETY: it sets a parameter of the allocator, under the allocator's own lock.
            unsafe { libc::mallopt(parameter, value) };
        }
    }
}

/// By how much the process grows before [`Spare`] looks for unused buffers, in bytes.
const GROWTH: usize = 32 << 20;

/// Returns the small buffers that are in no use to the system. By default, the C library keeps them
/// unless they lie at the end of a pool.
#[derive(Debug, Default)]
pub struct Spare {
    /// The smallest memory in use since the last return.
    kept: AtomicUsize,
}

impl Spare {
    /// Whether the process has grown by 32 MiB since this was last so, or since the last return.
    /// Reads one file of the system.
    pub fn has_grown(&self) -> bool {
        let Some(now) = resident() else { return false };
        let has_grown = self.kept.fetch_min(now, Ordering::Relaxed) + GROWTH <= now;
        if has_grown {
            self.kept.store(now, Ordering::Relaxed);
        }
        has_grown
    }

    /// Returns the unused buffers; this takes milliseconds.
    pub fn give_back(&self) {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: it changes the allocator's own state, under its own locks.
        unsafe {
            libc::malloc_trim(0);
        }
        self.kept.store(resident().unwrap_or_default(), Ordering::Relaxed);
    }
}

/// Notices that a process has come to rest: the buffers of its work are in no use then.
#[derive(Debug, Default)]
pub struct Rest {
    cpu: Duration,
    looks: u32,
}

impl Rest {
    /// With less processor time than this between two looks, the process rests.
    const CPU_MAX: Duration = Duration::from_millis(100);
    /// For how many looks it rests before it is told.
    const LOOKS: u32 = 6;

    /// Whether the process has rested for six looks in a row, at intervals of a few seconds, and again after twice as
    /// many and so on: the store gives back its own memory meanwhile. `cpu` is the processor time that it has used
    /// since its start.
    pub fn begins(&mut self, cpu: Duration) -> bool {
        let used = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
        self.looks = if used > Rest::CPU_MAX { 0 } else { self.looks.saturating_add(1) };
        self.looks.is_multiple_of(Rest::LOOKS) && (self.looks / Rest::LOOKS).is_power_of_two()
    }
}

/// The processor time that this process has used since its start.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The memory of this process in use, in bytes.
fn resident() -> Option<usize> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split(' ').nth(1)?.parse::<usize>().ok()? * rustix::param::page_size())
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const SIZE: usize = 8 << 20;
    /// Each test measures the memory of the process.
    static ALONE: Mutex<()> = Mutex::new(());

    fn resident() -> usize {
        super::resident().expect("the memory in use")
    }

    #[test]
    fn a_rest_is_told_ever_more_seldom_until_there_is_work_again() {
        let mut rest = Rest::default();
        let mut told = |cpu_ms: &[u64]| -> Vec<bool> {
            cpu_ms.iter().map(|cpu| rest.begins(Duration::from_millis(*cpu))).collect()
        };
        let mut expected = vec![false; 8];
        expected[6] = true;
        assert_eq!(told(&[5_000, 5_001, 5_002, 5_100, 5_100, 5_110, 5_120, 5_130]), expected);
        assert_eq!(told(&[5_200, 9_000]), [false; 2], "it works again");
        expected.pop();
        assert_eq!(told(&[9_500, 9_510, 9_520, 9_530, 9_540, 9_550, 9_560]), expected);
        let rests = told(&[9_560; 34]);
        let again: Vec<usize> =
            (7..).zip(rests).filter_map(|(at, told)| told.then_some(at)).collect();
        assert_eq!(again, [12, 24]);
        assert!(cpu_time() > Duration::ZERO);
    }

    /// A small allocation behind each buffer keeps the heap from shrinking by itself.
    #[test]
    fn a_large_buffer_that_is_freed_leaves_the_process() {
        let _alone = ALONE.lock();
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

    /// The last buffer keeps the pool from shrinking by itself.
    #[test]
    fn small_buffers_that_are_freed_leave_the_process_once_it_has_grown() {
        let _alone = ALONE.lock();
        let spare = Spare::default();
        spare.give_back();
        assert!(!spare.has_grown());
        let before = resident();
        let mut held: Vec<_> = (0..4_000).map(|_| vec![1u8; 30_000]).collect();
        let last = held.pop();
        assert!(spare.has_grown());
        drop(held);
        let freed = resident();
        spare.give_back();
        let after = resident();
        assert!(after < before + (freed - before) / 4, "{before}, then {freed}, then {after}");
        drop(last);
    }
}
