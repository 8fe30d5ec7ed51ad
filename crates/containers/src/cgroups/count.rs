//! Small files in which the kernel counts, such as `pids.events`: opened once, read often.
//!
//! Finding such a file by its path takes several times as long as reading it, and each command is counted before and
//! afterwards. An open file keeps no cgroup from being removed; of one that is gone nothing is read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

/// More than any of them has: those of a cgroup v2 are lists of some twenty numbers.
const LONGEST: usize = 2048;

/// One of them. Clones are the same open file.
#[derive(Debug, Clone)]
pub(super) struct Count(Arc<File>);

impl Count {
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(File::open(file)?)))
    }

    /// What `parse` makes of it as it is now. `None` also when the kernel does not say.
    pub(super) fn read<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let mut text = [0; LONGEST];
        // From its beginning, for which the kernel writes it anew, and in one piece.
        let length = self.0.read_at(&mut text, 0).ok()?;
        parse(std::str::from_utf8(text.get(..length)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_reading_is_of_what_is_there_now() {
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
