//! Lists visible and writable files.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::report;

/// Prints every directory in which a file can be made, and every file that can be opened for writing, from the root
/// on. This process's own entries of `/proc` are left out.
pub fn writable() {
    walk(Path::new("/"), &mut |path, kind| {
        if kind.is_dir() {
            let file = path.join("made-by-the-probe");
            if fs::File::create_new(&file).is_ok() {
                println!("{}", path.display());
                let _ = fs::remove_file(file);
            }
        } else if kind.is_file() && can_write(path) {
            println!("{}", path.display());
        }
    });
}

/// The kernel's own files may open for writing and then refuse it.
fn can_write(path: &Path) -> bool {
    let Ok(mut file) = OpenOptions::new().write(true).open(path) else { return false };
    let kernel = path.starts_with("/proc") || path.starts_with("/sys");
    !kernel || file.write_all(b"0").is_ok()
}

/// Prints every device, socket and FIFO, and every file with a set-id bit.
pub fn special_files() {
    walk(Path::new("/"), &mut |path, kind| {
        let name = if kind.is_block_device() {
            "block"
        } else if kind.is_char_device() {
            "character"
        } else if kind.is_socket() {
            "socket"
        } else if kind.is_fifo() {
            "fifo"
        } else if kind.is_file() && fs::symlink_metadata(path).is_ok_and(|file| file.mode() & 0o6000 != 0) {
            "set-id"
        } else {
            return;
        };
        println!("{name} {}", path.display());
    });
}

/// Prints every path that contains `text`, and every file outside of `/proc` and `/sys` whose content does.
pub fn find(text: &str) {
    let own = std::env::current_exe().unwrap();
    walk(Path::new("/"), &mut |path, kind| {
        let kernel = path.starts_with("/proc") || path.starts_with("/sys");
        let inside = || {
            fs::read(path).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
        };
        let named = path.to_string_lossy().contains(text);
        if named || (kind.is_file() && !kernel && path != own && inside()) {
            println!("{}", path.display());
        }
    });
}

/// Calls `visit` with every path below `directory`, and with itself.
fn walk(directory: &Path, visit: &mut dyn FnMut(&Path, fs::FileType)) {
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    let Ok(kind) = fs::symlink_metadata(directory).map(|directory| directory.file_type()) else { return };
    visit(directory, kind);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        // Not the entry's own type: the engine mounts devices over files of the kernel's.
        let Ok(kind) = fs::symlink_metadata(&path).map(|file| file.file_type()) else { continue };
        if path == own {
            continue;
        }
        if kind.is_dir() {
            walk(&path, visit);
        } else {
            visit(&path, kind);
        }
    }
}

/// Prints the content of each file, or the errno.
pub fn read(paths: &[&str]) {
    for path in paths {
        match fs::read(path) {
            Ok(content) => println!("{path} {:?}", String::from_utf8_lossy(&content)),
            Err(error) => report::<()>(path, Err(error)),
        }
    }
}

/// Prints the names in each directory, sorted, or the errno.
pub fn list(paths: &[&str]) {
    for path in paths {
        match fs::read_dir(path) {
            Ok(entries) => {
                let mut names: Vec<_> =
                    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
                names.sort();
                println!("{path} {}", names.join(" "));
            }
            Err(error) => report::<()>(path, Err(error)),
        }
    }
}

/// Prints the environment, sorted.
pub fn environment() {
    let mut variables: Vec<_> = std::env::vars().collect();
    variables.sort();
    for (name, value) in variables {
        println!("{name}={value}");
    }
}

/// Prints the processes that `/proc` shows: pid and command line.
pub fn processes() {
    for pid in pids() {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        println!("{pid} {}", String::from_utf8_lossy(&line).replace('\0', " ").trim_end());
    }
}

/// The processes that `/proc` shows.
pub fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
