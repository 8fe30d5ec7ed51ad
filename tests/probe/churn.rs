//! A tree that is never the same for long.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::place;

/// Lines of the files, all alike: whoever reads anything else has read what never was.
const LINE: &[u8] = b"all lines are alike\n";

/// Changes what is beneath `directory` in every way that a reader may be in the middle of, says through the FIFO
/// `ready` that each has been done once, and goes on until `stop` exists.
pub fn churn(directory: &str, ready: &str, stop: &str) {
    let at = Path::new(directory);
    let mut rounds = 0_u64;
    while !Path::new(stop).exists() {
        cut_and_grow(&at.join("file"));
        come_and_go(&at.join("directory"));
        replace(&at.join("changing"), rounds);
        rename(at, rounds);
        rounds += 1;
        if rounds == 8 {
            fs::write(ready, "churning").unwrap();
        }
    }
    println!("{rounds}");
}

/// A file that loses its end while it is read, and gets it back.
fn cut_and_grow(path: &Path) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(&LINE.repeat(64 << 10)).unwrap();
    file.set_len(LINE.len() as u64 * 3).unwrap();
}

/// A directory that is removed while it is listed.
fn come_and_go(path: &Path) {
    let below = path.join("below");
    fs::create_dir_all(&below).unwrap();
    for number in 0..64 {
        File::create(below.join(format!("entry-{number}")))
            .and_then(|mut file| file.write_all(LINE))
            .unwrap();
    }
    fs::remove_dir_all(path).unwrap();
}

/// A name that stands for something else each time.
fn replace(path: &Path, round: u64) {
    // Whatever the last round has made.
    let _ = fs::remove_dir(path).or_else(|_| fs::remove_file(path));
    match round % 5 {
        0 => fs::write(path, LINE).unwrap(),
        1 => fs::create_dir(path).unwrap(),
        2 => symlink("/etc/passwd", path).unwrap(),
        3 => symlink("file", path).unwrap(),
        _ => place::fifo(path.to_str().unwrap()).unwrap(),
    }
}

/// Names that move between two directories.
fn rename(at: &Path, round: u64) {
    for side in ["left", "right"] {
        fs::create_dir_all(at.join(side)).unwrap();
    }
    let moved = at.join(if round % 2 == 0 { "left" } else { "right" }).join("moved");
    let to = at.join(if round % 2 == 0 { "right" } else { "left" }).join("moved");
    fs::create_dir_all(&moved).unwrap();
    fs::write(moved.join("leaf"), LINE).unwrap();
    let _ = fs::remove_dir_all(&to);
    fs::rename(moved, to).unwrap();
}
