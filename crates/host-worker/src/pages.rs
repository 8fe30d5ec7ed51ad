//! The pages that an operation needs: had before it comes.
//!
//! A fresh fork shares all pages with the host worker and has none of the program's in its own table. Some forty faults are a
//! tenth of what a small write takes. The process that waits for its operation takes them while it waits.

use std::ops::Range;

use crate::sys;

/// The program, its data, its heap and its stack, as they are when the host worker starts.
#[derive(Debug, Default)]
pub(crate) struct Pages(Vec<(Range<usize>, bool)>);

impl Pages {
    /// Of this process, by proc_pid_maps(5). None where there is no `/proc`: then every page comes when it is needed.
    pub(crate) fn of_this_process() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Self(maps.lines().filter_map(mapping).collect())
    }

    pub(crate) fn populate(&self) {
        for (pages, writable) in &self.0 {
            sys::populate(pages, *writable);
        }
    }
}

/// Addresses, and whether they are writable; of private memory that can be read, and not the kernel's own.
fn mapping(line: &str) -> Option<(Range<usize>, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let access = words.next()?;
    let name = words.nth(3).unwrap_or_default();
    let plain = access.starts_with('r') && access.ends_with('p');
    let kernels = name.starts_with("[v");
    let addresses = usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?;
    (plain && !kernels).then_some((addresses, access.contains('w')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_needs_is_found_and_what_is_the_kernels_is_not() {
        let found = |line: &str| mapping(line).map(|(pages, writable)| (pages.start, pages.len(), writable));
        let of = |access: &str, name: &str| format!("1000-3000 {access} 00000000 fe:00 123      {name}");
        assert_eq!(found(&of("r-xp", "/bin/x")), Some((0x1000, 0x2000, false)));
        assert_eq!(found(&of("rw-p", "[heap]")), Some((0x1000, 0x2000, true)));
        assert_eq!(found("1000-3000 rw-p 00000000 00:00 0 "), Some((0x1000, 0x2000, true)));
        for other in [of("---p", ""), of("rw-s", "/dev/shm/x"), of("r--p", "[vvar]"), of("r-xp", "[vdso]")] {
            assert_eq!(found(&other), None, "{other}");
        }
        assert_eq!(found("junk"), None);
    }

    #[test]
    fn this_process_has_some() {
        let pages = Pages::of_this_process();
        assert!(pages.0.iter().any(|(_, writable)| *writable));
        assert!(pages.0.iter().any(|(_, writable)| !writable));
        pages.populate();
    }
}
