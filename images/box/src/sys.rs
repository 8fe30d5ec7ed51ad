//! The entry, and the call into dash: the only unsafe code of this binary.
#![allow(unsafe_code)]

use std::{
    ffi::{CString, OsString, c_char, c_int},
    os::unix::ffi::OsStringExt as _,
};

/// Where the C library starts this program, after it has told the standard library its arguments: glibc does that before
/// `main`. The standard library's own runtime is passed over. That prepares a
/// message for when the stack overflows, for which it reads `/proc/self/maps`, a fifth of what `true` takes; here an
/// overflow is a segmentation fault without a message.
#[cfg(all(target_env = "gnu", not(test)))]
#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    // SAFETY: no other thread runs, and there is no handler to be replaced. As the runtime would: the applets expect an
    // error from a closed pipe, or set the signal back themselves.
    unsafe { uucore::libc::signal(uucore::libc::SIGPIPE, uucore::libc::SIG_IGN) };
    // Empties the buffer of standard output.
    std::process::exit(crate::run())
}

unsafe extern "C" {
    /// dash's `main`. Most often it does not return but ends the process.
    fn dash_main(argc: c_int, argv: *mut *mut c_char) -> c_int;
}

/// Runs the shell with these arguments, its own name first.
pub(crate) fn dash(args: Vec<OsString>) -> c_int {
    // Arguments come from the kernel, which ends each at its first NUL: nothing is dropped here.
    let words = args.into_iter().filter_map(|arg| CString::new(arg.into_vec()).ok());
    let mut pointers: Vec<*mut c_char> = words.map(CString::into_raw).collect();
    let count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
    pointers.push(std::ptr::null_mut());
    // SAFETY: this is what a `main` is promised: `count` pointers to NUL-terminated strings and a null pointer behind
    // them, writable, and valid until the process ends (the strings are never freed, and `pointers` lives past the call).
    // No other thread runs, so dash may fork and own the signals.
    unsafe { dash_main(count, pointers.as_mut_ptr()) }
}
