//! A small static program that tests run inside containers: the first process, and the attacker.
//!
//! Compiled by the tests with plain `rustc`, so that it depends on nothing but the standard library. System call
//! numbers come from the test, which knows them for its architecture.

use std::ffi::{CString, c_int, c_long};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{env, fs};

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn fork() -> c_int;
    fn setsid() -> c_int;
    fn signal(number: c_int, handler: usize) -> usize;
    fn pause() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    match args.first().map(String::as_str) {
        Some("hold") => hold(),
        Some("echo") => echo(),
        Some("calls") => rest.iter().for_each(|call| println!("{}", errno_of(call))),
        Some("writable") => writable(Path::new("/")),
        Some("create") => rest.iter().for_each(|path| println!("{}", outcome(fs::write(path, "made inside")))),
        Some("read") => rest.iter().for_each(|path| match fs::read_to_string(path) {
            Ok(text) => print!("{text}"),
            Err(error) => println!("error {}", error.raw_os_error().unwrap_or(-1)),
        }),
        Some("owner") => rest.iter().for_each(|path| match fs::metadata(path) {
            Ok(meta) => println!("{} {}", meta.uid(), meta.gid()),
            Err(error) => println!("error {}", error.raw_os_error().unwrap_or(-1)),
        }),
        Some("connect") => {
            rest.iter().for_each(|address| println!("{}", outcome(std::net::TcpStream::connect(address).map(drop))));
        }
        Some("tree") => tree(),
        #[cfg(target_arch = "x86_64")]
        Some("int80") => int80(),
        _ => std::process::exit(64),
    }
}

/// The first process: reaps what is left to it.
fn hold() {
    loop {
        if unsafe { waitpid(-1, std::ptr::null_mut(), 0) } < 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

fn echo() {
    eprintln!("aside");
    let mut buffer = [0; 4096];
    loop {
        match io::stdin().read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(n) => {
                io::stdout().write_all(&buffer[..n]).unwrap();
                io::stdout().flush().unwrap();
            }
        }
    }
}

/// `number,argument,…`, where an argument is a number or `@` and a string. Prints nothing, returns errno or 0.
fn errno_of(call: &str) -> i32 {
    let mut strings = Vec::new();
    let values: Vec<c_long> = call
        .split(',')
        .map(|field| match field.strip_prefix('@') {
            Some(text) => {
                strings.push(CString::new(text).unwrap());
                strings.last().unwrap().as_ptr() as c_long
            }
            None => field.parse().unwrap(),
        })
        .collect();
    let value = |index: usize| values.get(index).copied().unwrap_or(0);
    let result = unsafe { syscall(value(0), value(1), value(2), value(3), value(4), value(5), value(6)) };
    if result == -1 { io::Error::last_os_error().raw_os_error().unwrap() } else { 0 }
}

fn outcome(result: io::Result<()>) -> i32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0)
}

/// Prints every directory in which a file can be made, and every file that can be opened for writing.
fn writable(directory: &Path) {
    let probe = directory.join("cofferdam-probe");
    if fs::File::create_new(&probe).is_ok() {
        println!("{}", directory.display());
        let _ = fs::remove_file(&probe);
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && path != Path::new("/proc") {
            writable(&path);
        } else if kind.is_file() && fs::OpenOptions::new().write(true).open(&path).is_ok() {
            println!("{}", path.display());
        }
    }
}

/// Waits for a byte, then leaves behind what is hard to end: two forks, a session of its own, deaf to TERM.
fn tree() {
    println!("waiting");
    let mut byte = [0];
    io::stdin().read_exact(&mut byte).unwrap();
    let (mut reader, writer) = io::pipe().unwrap();
    for _ in 0..8 {
        if unsafe { fork() } == 0 {
            unsafe { setsid() };
            if unsafe { fork() } == 0 {
                unsafe { signal(15, 1) };
                (&writer).write_all(b"x").unwrap();
                loop {
                    unsafe { pause() };
                }
            }
            std::process::exit(0);
        }
    }
    reader.read_exact(&mut [0; 8]).unwrap();
    println!("ready {}", std::process::id());
    loop {
        unsafe { pause() };
    }
}

/// `getpid` by the 32-bit entry, which must not exist.
#[cfg(target_arch = "x86_64")]
fn int80() {
    let result: u32;
    unsafe {
        std::arch::asm!("push rbx", "int 0x80", "pop rbx", inlateout("eax") 20_u32 => result);
    }
    println!("survived {result}");
}
