//! Checks the program of which the default image is made.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::finding::Finding;
use crate::remedy::Host;

/// Bytes of a program in which its headers are.
const HEADERS: u64 = 64 * 1024;
/// Type of the program header that names a dynamic loader (elf(5), `PT_INTERP`).
const LOADER: u64 = 3;

/// Examines a static busybox at this path, of which a daemon would make its default image.
pub fn default_image(path: &Path) -> Finding {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEADERS).read_to_end(&mut head));
    judge(path, read.map(|_| head).map_err(|error| error.to_string()), &Host::detect())
}

fn judge(path: &Path, head: Result<Vec<u8>, String>, host: &Host) -> Finding {
    const TOPIC: &str = "default image";
    let shown = path.display();
    let found = match head {
        Err(why) => format!("no busybox at {shown}: {why}"),
        Ok(head) if !head.starts_with(b"\x7fELF") => format!("{shown} is not a program"),
        Ok(head) if names_loader(&head) => format!("{shown} is not static: it needs libraries"),
        Ok(_) => return Finding::good(TOPIC, format!("can be made of {shown}")),
    };
    let follows = "runs whose profile and request name no image are refused, unless `default_image.busybox` in the \
                   daemon's configuration names a static busybox";
    Finding::limited(TOPIC, found, follows).with_remedy(host.install_busybox())
}

/// Returns true if a header of a program of 64 bits (little-endian, elf(5)) names a dynamic loader.
///
/// Other programs are accepted, because the daemon examines the file itself.
fn names_loader(head: &[u8]) -> bool {
    const CLASS_AND_ORDER: &[u8] = &[2, 1];
    let number = |at: u64, length: u64| -> Option<u64> {
        let (start, end) = (usize::try_from(at).ok()?, usize::try_from(at.checked_add(length)?).ok()?);
        let bytes = head.get(start..end)?;
        Some(bytes.iter().rev().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte)))
    };
    let headers = || Some((number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?));
    let Some((first, size, count)) = headers().filter(|_| head.get(4..6) == Some(CLASS_AND_ORDER)) else {
        return false;
    };
    (0..count).any(|index| first.checked_add(size * index).and_then(|at| number(at, 4)) == Some(LOADER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;
    use crate::remedy::Packages;

    /// Makes a program with one header of this type.
    fn program(header: u32) -> Vec<u8> {
        let mut bytes = vec![0; 0x40];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (bytes[0x20], bytes[0x36], bytes[0x38]) = (0x40, 56, 1);
        bytes.extend(header.to_le_bytes());
        bytes
    }

    #[test]
    fn headers_that_are_cut_short_name_no_loader() {
        let whole = program(3);
        assert!(names_loader(&whole));
        for length in 0..whole.len() {
            assert!(!names_loader(&whole[..length]), "{length}");
        }
        let mut far = whole;
        far[0x20..0x28].fill(0xff);
        assert!(!names_loader(&far));
    }

    #[test]
    fn only_a_static_program_makes_the_default_image() {
        let apt = Host { packages: Some(Packages::Apt), is_root: true, ..Host::default() };
        let path = Path::new("/bin/busybox");
        let good = judge(path, Ok(program(1)), &apt);
        assert_eq!(good, Finding::good("default image", "can be made of /bin/busybox"));
        for bad in [Err("No such file".to_owned()), Ok(b"#!/bin/sh".to_vec()), Ok(program(3))] {
            let finding = judge(path, bad, &apt);
            assert_eq!(finding.verdict, Verdict::Limited);
            assert!(finding.follows.unwrap().ends_with("run `apt-get install -y busybox-static`"));
        }
        let without = judge(path, Err(String::new()), &Host::default());
        assert!(without.remedy.is_none() && !without.follows.unwrap().contains("apt-get"));
    }

    #[test]
    fn a_file_that_is_absent_is_a_limitation() {
        assert_eq!(default_image(Path::new("/nonexistent/busybox")).verdict, Verdict::Limited);
    }
}
