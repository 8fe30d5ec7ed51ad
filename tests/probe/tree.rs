//! Processes that are hard to end.

use std::io::{self, Read, Write};
use std::process::exit;

use crate::sys;

/// Grows `count` processes of a kind, says `ready` when all are up, and then stays or leaves, as `end` says.
pub fn grow(kind: &str, count: &str, end: &str) {
    let count: usize = count.parse().unwrap();
    let (mut reader, writer) = io::pipe().unwrap();
    for _ in 0..count {
        if unsafe { sys::fork() } == 0 {
            branch(kind, &writer);
        }
    }
    reader.read_exact(&mut vec![0; count]).unwrap();
    println!("ready");
    if end == "stay" {
        wait();
    }
}

fn branch(kind: &str, mut up: &io::PipeWriter) -> ! {
    match kind {
        "setsid" => {
            unsafe { sys::setsid() };
        }
        "double-fork" => {
            unsafe { sys::setsid() };
            if unsafe { sys::fork() } != 0 {
                exit(0);
            }
        }
        "deaf" => {
            unsafe { sys::signal(sys::SIGTERM, sys::SIG_IGN) };
        }
        "stopped" => {
            up.write_all(b"x").unwrap();
            unsafe { sys::raise(sys::SIGSTOP) };
            wait();
        }
        _ => panic!("{kind}"),
    }
    up.write_all(b"x").unwrap();
    wait();
}

/// A process that is never the same for long: each forks the next one and ends.
pub fn hop() {
    unsafe {
        sys::setsid();
        sys::signal(sys::SIGTERM, sys::SIG_IGN);
    }
    println!("ready");
    loop {
        match unsafe { sys::fork() } {
            0 => unsafe {
                sys::setsid();
            },
            -1 => {}
            _ => exit(0),
        }
    }
}

fn wait() -> ! {
    loop {
        unsafe { sys::pause() };
    }
}
