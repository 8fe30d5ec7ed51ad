//! Small files in which the kernel counts, such as `pids.events`: opened once, read often.
//!
//! Finding such a file by its path takes several times as long as reading it, and the counters are read before and after each command. An
//! open file does not keep its cgroup from being removed; reading it then fails.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

/// Longest content in bytes. The longest files, of cgroup v2, are lists of about twenty numbers.
const LONGEST: usize = 2048;

/// An open counter file. Clones share the same open file.
#[derive(Debug, Clone)]
pub(super) struct Count(Arc<File>);

impl Count {
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(File::open(file)?)))
    }

    /// Reads the file and returns the result of `parse`, or `None` if the file cannot be read.
    pub(super) fn read<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let mut text = [0; LONGEST];
        // Read in one piece and from offset 0, which makes the kernel write it anew.
        let length = self.0.read_at(&mut text, 0).ok()?;
        parse(std::str::from_utf8(text.get(..length)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_reading_counts_the_present_processes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("count");
        assert!(Count::open(&path).is_err());
        fs::write(&path, "7\n").unwrap();
        let count = Count::open(&path).unwrap();
        let number = || count.read(|text| text.trim().parse::<u32>().ok());
        assert_eq!(number(), Some(7));
        fs::write(&path, "11\n").unwrap();
        assert_eq!(number(), Some(11));
        fs::write(&path, "none\n").unwrap();
        assert_eq!(number(), None);
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(number(), None);
    }
}
