//! The allocator's pools are a property of the process, so this test has a process of its own.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};

use besom_system::memory;

const THREADS: usize = 8;
/// The C library reserves the memory of a pool in parts that begin at multiples of this.
const PART_BYTES: usize = 64 << 20;

#[test]
fn threads_that_allocate_at_once_share_few_pools() {
    memory::bound_pools();
    let all_are_alive = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let all_are_alive = Arc::clone(&all_are_alive);
            std::thread::spawn(move || {
                let buffer = std::hint::black_box(vec![1u8; 30_000]);
                all_are_alive.wait();
                buffer.as_ptr() as usize / PART_BYTES
            })
        })
        .collect();
    let parts: BTreeSet<usize> =
        threads.into_iter().map(|thread| thread.join().expect("an address")).collect();
    // The first pool may lie across the boundary of two parts.
    assert!(parts.len() <= 3, "{parts:?}");
}
