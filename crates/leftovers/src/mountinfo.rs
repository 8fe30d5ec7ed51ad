//! Parser for the fields of `/proc/PID/mountinfo` that mounts and cgroups need, proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mount.
#[derive(Debug)]
pub struct Entry {
    /// Directory of the file system that is mounted.
    pub root: PathBuf,
    pub mount_point: PathBuf,
    pub file_system: String,
    /// Options of the file system.
    pub super_options: String,
}

/// Returns all mounts in the table's order, and skips lines that cannot be parsed.
pub fn entries(table: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    table.split(|&byte| byte == b'\n').filter_map(entry)
}

/// Parses `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda rw`, with any number of fields before the dash.
fn entry(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let root = path(fields.nth(3)?);
    let mount_point = path(fields.next()?);
    fields.find(|&field| field == b"-")?;
    let file_system = text(fields.next()?);
    let super_options = text(fields.nth(1)?);
    Some(Entry { root, mount_point, file_system, super_options })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

/// Decodes a path in which blanks, tabs, newlines and backslashes are written as three octal digits.
fn path(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = |digits: &[u8]| {
            digits.iter().try_fold(0_u32, |sum, &digit| {
                matches!(digit, b'0'..=b'7').then(|| sum * 8 + u32::from(digit - b'0'))
            })
        };
        if let (b'\\', Some(Ok(byte))) = (first, after.get(..3).and_then(octal).map(u8::try_from)) {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_optional_fields_are_read() {
        let table =
            b"36 35 98:0 /r\\040t /a\\134b\\011c rw,nosuid shared:1 master:2 - ext4 /dev/vda rw,discard\n\
            37 35 0:1 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
            broken\n\n";
        let found: Vec<Entry> = entries(table).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].root, PathBuf::from("/r t"));
        assert_eq!(found[0].mount_point, PathBuf::from("/a\\b\tc"));
        assert_eq!(found[0].file_system, "ext4");
        assert_eq!(found[1].super_options, "rw,freezer");
    }
}
