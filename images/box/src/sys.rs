//! The call into dash: the only unsafe code of this binary.
#![allow(unsafe_code)]

use std::{
    ffi::{CString, OsString, c_char, c_int},
    os::unix::ffi::OsStringExt as _,
};

unsafe extern "C" {
    /// dash's `main`. Most often it does not return but ends the process.
    fn dash_main(argc: c_int, argv: *mut *mut c_char) -> c_int;
}

/// Runs the shell with these arguments, its own name first.
pub(crate) fn dash(args: Vec<OsString>) -> c_int {
    // Arguments come from the kernel, which ends each at its first NUL: nothing is dropped here.
    let args = args.into_iter().filter_map(|arg| CString::new(arg.into_vec()).ok());
    let mut argv: Vec<*mut c_char> = args.map(CString::into_raw).collect();
    let argc = c_int::try_from(argv.len()).unwrap_or(c_int::MAX);
    argv.push(std::ptr::null_mut());
    // SAFETY: `argv` is what `main` is promised: `argc` pointers to NUL-terminated strings and a null pointer behind
    // them, writable, and valid until the process ends (the strings are never freed, and `argv` lives past the call).
    // No other thread runs, so dash may fork and own the signals.
    unsafe { dash_main(argc, argv.as_mut_ptr()) }
}
