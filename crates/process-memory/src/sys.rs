//! Implements the allocator, which overwrites all freed memory, and wraps two functions of mimalloc that its crate does
//! not.
//!
//! Only this file contains `unsafe` code.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr;

use mimalloc::MiMalloc;

unsafe extern "C" {
    /// `mi_collect` of mimalloc, which the program is linked with.
    fn mi_collect(force: bool);

    /// `mi_usable_size` of mimalloc: the size of the block in bytes, which is at least the size that was requested.
    fn mi_usable_size(block: *const c_void) -> usize;
}

/// Gives back to the kernel the memory that this thread has freed, and memory that no thread owns.
pub(crate) fn collect() {
    // SAFETY: the function accepts any value, may be called by any thread, and touches only the allocator's own memory.
    unsafe { mi_collect(true) }
}

/// mimalloc, with zeroes written over all memory that is freed or moved.
///
/// Secrets pass through the buffers of many libraries, which copy, grow and free them as they like. Only the allocator
/// sees the end of every copy.
pub struct Wiping;

// SAFETY: mimalloc provides every block, with the layout that was requested. Bytes of a block are written only when its
// owner gives them up.
unsafe impl GlobalAlloc for Wiping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller makes the same promise.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller makes the same promise.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller owns the block, which has `layout.size()` bytes, and gives it up. The compiler does not
        // remove the zeroes, because the next call is to a function of another language, which could read them.
        unsafe {
            ptr::write_bytes(block, 0, layout.size());
            MiMalloc.dealloc(block, layout);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller owns the block. A size that the block has space for changes only its layout; for other
        // sizes a new block is allocated. The caller promises that `size` is not zero and makes a valid layout.
        unsafe {
            let space = mi_usable_size(block.cast());
            if size <= space && size >= space / 2 {
                let kept = size.min(layout.size());
                ptr::write_bytes(block.add(kept), 0, layout.size() - kept);
                return block;
            }
            let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, size.min(layout.size()));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a block that are not zero, beyond the two pointers at its beginning that the allocator has in free blocks.
    fn left(block: *const u8, from: usize, to: usize) -> usize {
        // SAFETY: the allocator keeps a page of blocks while one of them is in use, as every caller's neighbour is.
        (from.max(16)..to).filter(|&at| unsafe { block.add(at).read_volatile() } != 0).count()
    }

    #[test]
    fn freed_and_moved_memory_is_wiped() {
        for (size, new_size) in [(64, 64), (64, 4096), (4096, 64), (300, 310), (310, 300), (30_000, 60_000)] {
            let layout = Layout::from_size_align(size, 8).unwrap();
            // SAFETY: each block is freed once, with its layout, and read afterwards as `left` says.
            unsafe {
                let neighbour = Wiping.alloc(layout);
                let block = Wiping.alloc(layout);
                block.write_bytes(b's', size);
                let moved = Wiping.realloc(block, layout, new_size);
                let kept = size.min(new_size);
                assert!((0..kept).all(|at| moved.add(at).read() == b's'), "{size} {new_size}");
                let from = if moved == block { kept } else { 0 };
                assert_eq!(left(block, from, size), 0, "{size} {new_size}");
                let new_layout = Layout::from_size_align(new_size, 8).unwrap();
                let new_neighbour = Wiping.alloc(new_layout);
                Wiping.dealloc(moved, new_layout);
                assert_eq!(left(moved, 0, new_size), 0, "{size} {new_size}");
                Wiping.dealloc(neighbour, layout);
                Wiping.dealloc(new_neighbour, new_layout);
            }
        }
    }
}
