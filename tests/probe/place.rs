//! Sets traps for programs that open files of a workspace.

use std::ffi::CString;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use crate::{check, report, sys};

/// Makes a `fifo`, a `socket`, or a `link` (two paths: its target and itself).
pub fn place(kind: &str, paths: &[&str]) {
    let made: io::Result<()> = match (kind, paths) {
        ("fifo", [path]) => fifo(path),
        ("socket", [path]) => UnixListener::bind(path).map(drop),
        ("link", [target, path]) => symlink(target, path),
        _ => panic!("{kind} {paths:?}"),
    };
    report(kind, made);
}

/// Makes a FIFO.
pub fn fifo(path: &str) -> io::Result<()> {
    let path = CString::new(path).unwrap();
    check(unsafe { sys::mkfifo(path.as_ptr(), 0o666) }).map(drop)
}
