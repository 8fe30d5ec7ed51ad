//! More than there is.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::{report, sys};

/// Forks until nothing is left to fork with, all of them at once. Deaf to SIGTERM.
pub fn bomb() {
    unsafe { sys::signal(sys::SIGTERM, sys::SIG_IGN) };
    loop {
        unsafe { sys::fork() };
    }
}

/// So many chains of processes, each of which makes the next one and is gone. Deaf to SIGTERM.
pub fn chains(count: &str) {
    unsafe { sys::signal(sys::SIGTERM, sys::SIG_IGN) };
    for _ in 0..count.parse().unwrap() {
        if unsafe { sys::fork() } == 0 {
            loop {
                if unsafe { sys::fork() } > 0 {
                    std::process::exit(0);
                }
            }
        }
    }
    loop {
        unsafe { sys::pause() };
    }
}

/// Forks until the kernel refuses, and says how often it did not.
pub fn forks() {
    let mut children = 0;
    loop {
        match unsafe { sys::fork() } {
            0 => loop {
                unsafe { sys::pause() };
            },
            -1 => break,
            _ => children += 1,
        }
    }
    assert_eq!(io::Error::last_os_error().raw_os_error(), Some(sys::EAGAIN));
    println!("{children}");
}

/// Takes memory and uses it, without end.
pub fn memory() {
    let mut taken = Vec::new();
    loop {
        taken.push(vec![1_u8; 1 << 20]);
        std::hint::black_box(&taken);
    }
}

/// Writes a file of this size.
pub fn file(path: &str, bytes: &str) {
    // The signal would end the process before it can say what happened.
    unsafe { sys::signal(sys::SIGXFSZ, sys::SIG_IGN) };
    let written = File::create(path).and_then(|mut file| {
        let chunk = vec![0_u8; 64 << 10];
        let mut rest: usize = bytes.parse().unwrap();
        while rest > 0 {
            rest -= file.write(&chunk[..rest.min(chunk.len())])?;
        }
        Ok(())
    });
    report("file", written);
    println!("size {}", fs::metadata(path).map_or(0, |file| file.len()));
}

/// Fills a file system with data, and then with files.
pub fn fill(directory: &str) {
    unsafe { sys::signal(sys::SIGXFSZ, sys::SIG_IGN) };
    let directory = Path::new(directory);
    let data = directory.join("data");
    let mut bytes = 0;
    let mut file = File::create(&data).unwrap();
    let chunk = vec![0_u8; 64 << 10];
    let filled: io::Result<()> = loop {
        match file.write(&chunk) {
            Ok(written) => bytes += written,
            Err(error) => break Err(error),
        }
    };
    report("data", filled);
    println!("bytes {bytes}");
    fs::remove_file(data).unwrap();
    let mut files = 0;
    let filled: io::Result<()> = loop {
        match File::create(directory.join(format!("file-{files}"))) {
            Ok(_) => files += 1,
            Err(error) => break Err(error),
        }
    };
    report("files", filled);
    println!("count {files}");
}

/// Writes so many bytes to standard output.
pub fn flood(bytes: &str) {
    let chunk = vec![b'x'; 64 << 10];
    let mut rest: usize = bytes.parse().unwrap();
    let mut output = io::stdout().lock();
    while rest > 0 {
        rest -= output.write(&chunk[..rest.min(chunk.len())]).unwrap();
    }
    output.flush().unwrap();
}
