//! The files that are a log, for a copy of it while it is written.

use std::fs;
use std::io;
use std::path::Path;

use crate::checkpoint;
use crate::removal;
use crate::segment::{self, SegmentName};

/// Returns the names of the files that are the log, relative to its directory, in the order in which to copy them.
///
/// Files beside the segments come first: a checkpoint that is copied covers no record that is copied later. The caller keeps segments
/// from being compressed and removed meanwhile. The last segment may end in the middle of a line. The index and the frontier are left
/// out, because they can be made again.
pub fn files_to_copy(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    if dir.join(removal::FILE).exists() {
        names.push(removal::FILE.to_owned());
    }
    match fs::read_dir(dir.join(checkpoint::DIRECTORY)) {
        Ok(entries) => {
            for entry in entries {
                let name = format!("{}/{}", checkpoint::DIRECTORY, entry?.file_name().to_string_lossy());
                names.extend(Some(name).filter(|name| is_file_to_copy(name)));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    names.sort_unstable();
    names.extend(segment::list(dir)?.iter().map(ToString::to_string));
    Ok(names)
}

/// Returns true if a file of a log can have this name.
pub fn is_file_to_copy(name: &str) -> bool {
    match name.split_once('/') {
        Some((directory, name)) => directory == checkpoint::DIRECTORY && checkpoint::size_of(name).is_some(),
        None => name == removal::FILE || is_segment(name),
    }
}

/// Returns true if a segment that may still be written has this name.
pub fn is_plain_segment(name: &str) -> bool {
    SegmentName::parse(name).is_some()
}

fn is_segment(name: &str) -> bool {
    SegmentName::parse(name.strip_suffix(".gz").unwrap_or(name)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_log_are_copied() {
        for name in ["removed", "00000000000000000001.jsonl", "00000000000000000001.jsonl.gz"] {
            assert!(is_file_to_copy(name), "{name}");
        }
        let size = checkpoint::Checkpoint::file_name(7);
        assert!(is_file_to_copy(&size), "{size}");
        for name in [
            "",
            "lock",
            "index.db",
            "frontier",
            "new",
            "../removed",
            "checkpoints/",
            "checkpoints/../x",
            "x/removed",
            "1.jsonl",
        ] {
            assert!(!is_file_to_copy(name), "{name}");
        }
    }

    #[test]
    fn a_copy_in_this_order_verifies() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut writer, _) = crate::Writer::open(from.path()).unwrap();
        writer.append(&crate::Event::new(crate::Kind::DaemonStarted)).unwrap();
        let signer = writer.signer(&from.path().join("key")).unwrap();
        writer.checkpoint(&signer).unwrap();
        fs::write(from.path().join("index.db"), "x").unwrap();
        let names = files_to_copy(from.path()).unwrap();
        assert_eq!(names.len(), 2, "{names:?}");
        fs::create_dir(to.path().join("checkpoints")).unwrap();
        for name in names {
            fs::copy(from.path().join(&name), to.path().join(&name)).unwrap();
        }
        let report = crate::verify(to.path(), &mut |_| {}).unwrap();
        assert!(report.is_intact() && report.checkpoints == 1, "{report:?}");
    }
}
