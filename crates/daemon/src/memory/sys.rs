//! The one call of the allocator that its crate does not wrap.
//!
//! Only this file of the daemon holds `unsafe` code.
#![allow(unsafe_code)]

unsafe extern "C" {
    /// `mi_collect` of mimalloc, which the program is linked with.
    fn mi_collect(force: bool);
}

/// Gives the memory that this thread has freed back to the kernel, and what no thread owns.
pub(super) fn collect() {
    // SAFETY: the function takes any value, may be called by any thread, and touches nothing but the allocator's own.
    unsafe { mi_collect(true) }
}
