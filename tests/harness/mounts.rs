//! Mounts of this host, as the kernel lists them. The tests do not ask the code that they test.

use std::path::Path;

/// Returns the mount points beneath a directory, and not on it.
pub fn mounts_beneath(directory: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let beneath =
        points.filter(|point| Path::new(point).starts_with(directory) && Path::new(point) != directory);
    beneath.map(str::to_owned).collect()
}
