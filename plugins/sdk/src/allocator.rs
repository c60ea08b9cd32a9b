//! The component's allocator.
//!
//! A call allocates many small blocks: the host writes each text of an item into one, and each text, list and guard
//! of a verdict is one. Rust's general-purpose allocator for WebAssembly took half of the guest's time for them, and
//! a quarter of the time of a compaction. Here small blocks come from free lists, one per size, and are cut from
//! larger pieces; large blocks come from the underlying allocator. (The allocator libraries that were measured save
//! space rather than time and gain nothing.) Freed small blocks are reused for their size until the instance ends,
//! at the end of the batch.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{NonNull, null_mut};

/// The bytes to whose multiples sizes are rounded up; also the alignment of small blocks.
const STEP: usize = 16;
/// The number of lists, for blocks of up to 1 KiB.
const LISTS: usize = 64;
/// The bytes of the first piece from which small blocks are cut. It fits into the memory that an instance has
/// at its start, so that a call with few items need not ask for more.
const PIECE_MIN: usize = 16 * 1024;
/// The bytes of a later piece; each is twice as large as the one before it, until then.
const PIECE_MAX: usize = 64 * 1024;

/// A free block, whose first word points to the next free block of its list.
type Free = Option<NonNull<FreeBlock>>;

struct FreeBlock {
    next: Free,
}

/// Free lists over another allocator.
pub(crate) struct FreeLists<A> {
    beneath: A,
    lists: [Free; LISTS],
    /// The unused rest of the current piece.
    rest: *mut u8,
    rest_bytes: usize,
    /// The bytes of the next piece.
    piece_bytes: usize,
}

/// The list of a layout; none: the underlying allocator serves it.
fn list(layout: Layout) -> Option<usize> {
    let small = layout.size() <= LISTS * STEP && layout.align() <= STEP;
    small.then(|| layout.size().saturating_sub(1) / STEP)
}

impl<A: GlobalAlloc> FreeLists<A> {
    /// Empty lists over `beneath`.
    pub(crate) const fn new(beneath: A) -> FreeLists<A> {
        FreeLists {
            beneath,
            lists: [None; LISTS],
            rest: null_mut(),
            rest_bytes: 0,
            piece_bytes: PIECE_MIN,
        }
    }

    /// See [`GlobalAlloc::alloc`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn alloc(&mut self, layout: Layout) -> *mut u8 {
        let Some(list) = list(layout) else {
            // SAFETY: the caller's layout, for the caller.
            return unsafe { self.beneath.alloc(layout) };
        };
        if let Some(block) = self.lists[list] {
            // SAFETY: a block of a list is free, large enough for the word that was written when
            // it came there, and nobody else's.
            self.lists[list] = unsafe { block.as_ref() }.next;
            return block.as_ptr().cast();
        }
        let bytes = (list + 1) * STEP;
        if self.rest_bytes < bytes && !self.another_piece() {
            return null_mut();
        }
        let block = self.rest;
        self.rest_bytes -= bytes;
        // SAFETY: so many bytes were left of the piece.
        self.rest = unsafe { self.rest.add(bytes) };
        block
    }

    #[cold]
    fn another_piece(&mut self) -> bool {
        let bytes = self.piece_bytes;
        let Ok(layout) = Layout::from_size_align(bytes, STEP) else { return false };
        // SAFETY: the layout is not empty.
        let piece = unsafe { self.beneath.alloc(layout) };
        if piece.is_null() {
            return false;
        }
        (self.rest, self.rest_bytes) = (piece, bytes);
        self.piece_bytes = PIECE_MAX.min(2 * bytes);
        true
    }

    /// See [`GlobalAlloc::alloc_zeroed`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn alloc_zeroed(&mut self, layout: Layout) -> *mut u8 {
        if list(layout).is_none() {
            // SAFETY: the caller's layout, for the caller. Fresh memory is zero already.
            return unsafe { self.beneath.alloc_zeroed(layout) };
        }
        // SAFETY: as above, and then as many bytes are there as the layout says.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    /// See [`GlobalAlloc::dealloc`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn dealloc(&mut self, block: *mut u8, layout: Layout) {
        match (list(layout), NonNull::new(block.cast::<FreeBlock>())) {
            (Some(list), Some(free)) => {
                // SAFETY: the caller gives the block up; it has at least a step of bytes, and a
                // step is aligned for a word.
                unsafe { free.write(FreeBlock { next: self.lists[list] }) };
                self.lists[list] = Some(free);
            }
            // SAFETY: it came from beneath, with that layout.
            _ => unsafe { self.beneath.dealloc(block, layout) },
        }
    }

    /// See [`GlobalAlloc::realloc`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn realloc(
        &mut self,
        block: *mut u8,
        layout: Layout,
        size: usize,
    ) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        match (list(layout), list(wanted)) {
            (Some(before), Some(after)) if before == after => block,
            // SAFETY: it came from beneath, and stays there.
            (None, None) => unsafe { self.beneath.realloc(block, layout, size) },
            // SAFETY: both blocks have at least the smaller number of bytes, and the new one
            // is nobody's yet.
            _ => unsafe {
                let moved = self.alloc(wanted);
                if !moved.is_null() {
                    moved.copy_from_nonoverlapping(block, layout.size().min(size));
                    self.dealloc(block, layout);
                }
                moved
            },
        }
    }
}

#[cfg(target_family = "wasm")]
mod global {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::UnsafeCell;

    use super::FreeLists;

    struct Global(UnsafeCell<FreeLists<System>>);

    // SAFETY: without atomics there is one thread.
    unsafe impl Sync for Global {}

    // SAFETY: what is asked is what the lists promise.
    unsafe impl GlobalAlloc for Global {
        #[inline]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: each call ends before the next begins: there is one reference at a time.
            unsafe { (*self.0.get()).alloc(layout) }
        }

        #[inline]
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: each call ends before the next begins: there is one reference at a time.
            unsafe { (*self.0.get()).alloc_zeroed(layout) }
        }

        #[inline]
        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: each call ends before the next begins: there is one reference at a time.
            unsafe { (*self.0.get()).dealloc(block, layout) }
        }

        #[inline]
        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // SAFETY: each call ends before the next begins: there is one reference at a time.
            unsafe { (*self.0.get()).realloc(block, layout, size) }
        }
    }

    #[global_allocator]
    static GLOBAL: Global = Global(UnsafeCell::new(FreeLists::new(System)));
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::cell::Cell;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Counts what it gives, and gives nothing more at some point.
    struct Bounded {
        left: Cell<usize>,
    }

    // SAFETY: it is the system's allocator, or says that there is no memory.
    unsafe impl GlobalAlloc for Bounded {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            match self.left.get().checked_sub(layout.size()) {
                Some(left) => {
                    self.left.set(left);
                    // SAFETY: the caller's layout.
                    unsafe { System.alloc(layout) }
                }
                None => null_mut(),
            }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: it came from there.
            unsafe { System.dealloc(block, layout) }
        }
    }

    /// A block in use, and what was written into it.
    struct Block {
        at: *mut u8,
        layout: Layout,
        byte: u8,
    }

    impl Block {
        fn filled(at: *mut u8, layout: Layout, byte: u8) -> Block {
            assert!(!at.is_null() && at.align_offset(layout.align()) == 0, "{layout:?}");
            // SAFETY: the block has so many bytes.
            unsafe { at.write_bytes(byte, layout.size()) };
            Block { at, layout, byte }
        }

        /// The first bytes are what was written, whatever happened to the other blocks.
        fn check(&self, bytes: usize) {
            // SAFETY: as many as the block has, all of them written.
            let found = unsafe { std::slice::from_raw_parts(self.at, bytes) };
            assert!(found.iter().all(|byte| *byte == self.byte), "{:?}", self.layout);
        }
    }

    fn some_layout(random: &mut SmallRng) -> Layout {
        let size = match random.random_range(0..10) {
            0..7 => random.random_range(1..=200),
            7..9 => random.random_range(900..=1_200),
            _ => random.random_range(1_000..=100_000),
        };
        Layout::from_size_align(size, 1 << random.random_range(0..=6)).unwrap()
    }

    #[test]
    fn no_block_touches_another_and_each_keeps_its_bytes() {
        for seed in 0..20 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut lists = FreeLists::new(System);
            let mut blocks: Vec<Block> = Vec::new();
            for turn in 0..20_000_usize {
                let byte = turn as u8;
                match random.random_range(0..10) {
                    0..5 => {
                        let layout = some_layout(&mut random);
                        // SAFETY: no layout is empty.
                        let at = unsafe { lists.alloc(layout) };
                        blocks.push(Block::filled(at, layout, byte));
                    }
                    5 => {
                        let layout = some_layout(&mut random);
                        // SAFETY: no layout is empty.
                        let at = unsafe { lists.alloc_zeroed(layout) };
                        Block { at, layout, byte: 0 }.check(layout.size());
                        blocks.push(Block::filled(at, layout, byte));
                    }
                    6 if !blocks.is_empty() => {
                        let block = blocks.swap_remove(random.random_range(0..blocks.len()));
                        let size = some_layout(&mut random).size();
                        // SAFETY: it is in use, and is not afterwards.
                        let at = unsafe { lists.realloc(block.at, block.layout, size) };
                        let kept = block.layout.size().min(size);
                        Block { at, ..block }.check(kept);
                        let layout = Layout::from_size_align(size, block.layout.align()).unwrap();
                        blocks.push(Block::filled(at, layout, byte));
                    }
                    _ if !blocks.is_empty() => {
                        let block = blocks.swap_remove(random.random_range(0..blocks.len()));
                        block.check(block.layout.size());
                        // SAFETY: it is in use, and is not afterwards.
                        unsafe { lists.dealloc(block.at, block.layout) };
                    }
                    _ => {}
                }
            }
            for block in &blocks {
                block.check(block.layout.size());
            }
        }
    }

    #[test]
    fn a_block_that_was_given_back_is_the_next_of_its_size() {
        let mut lists = FreeLists::new(System);
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: no layout is empty; what is given back is in use until then.
        unsafe {
            let first = lists.alloc(layout(33));
            let second = lists.alloc(layout(40));
            assert_eq!(second.addr() - first.addr(), 48);
            lists.dealloc(first, layout(33));
            assert_ne!(lists.alloc(layout(49)), first);
            assert_eq!(lists.alloc(layout(48)), first);
            // Within its size it stays where it is.
            assert_eq!(lists.realloc(second, layout(40), 48), second);
            assert_ne!(lists.realloc(second, layout(48), 49), second);
        }
    }

    #[test]
    fn where_there_is_no_memory_that_is_said_and_what_there_was_stays() {
        let mut lists = FreeLists::new(Bounded { left: Cell::new(PIECE_MIN + 2_000) });
        let small = Layout::from_size_align(1_024, 16).unwrap();
        // SAFETY: no layout is empty, and blocks are in use until they are given back.
        unsafe {
            let blocks: Vec<Block> = (0..PIECE_MIN / 1_024)
                .map(|nth| Block::filled(lists.alloc(small), small, nth as u8))
                .collect();
            assert!(lists.alloc(small).is_null());
            assert!(lists.alloc_zeroed(small).is_null());
            assert!(lists.realloc(blocks[3].at, small, 4_000).is_null());
            blocks.iter().for_each(|block| block.check(1_024));
            // A large one of what is left.
            assert!(!lists.realloc(blocks[4].at, small, 2_000).is_null());
            assert_eq!(lists.alloc(small), blocks[4].at);
        }
    }
}
