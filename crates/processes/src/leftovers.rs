//! Reads the processes that an earlier daemon left. This happens before its runs are taken over, so that the takeover does not
//! end them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use identity::{CallId, RunId};
use refusal::chain;
use seal::StreamKey;

use crate::disk::{self, Edition, Known, ProcessFiles};

/// The processes that an earlier daemon left.
#[derive(Default)]
pub struct Leftovers {
    known: Vec<(ProcessFiles, Edition, Known)>,
    /// Processes that may still live, and whose records cannot be read. They are ended once that is recorded.
    unreadable: Vec<ProcessFiles>,
}

impl Leftovers {
    /// Reads all records. Blocks on the disk.
    pub fn read(root: &Path, key: &StreamKey) -> io::Result<Self> {
        let mut leftovers = Self::default();
        for files in disk::all(root)? {
            match files.read(key) {
                Ok((edition, known)) => leftovers.known.push((files, edition, known)),
                Err(error) if files.may_live() => {
                    tracing::error!(process = %files.id, error = %chain(&error), "the record of a process from before the restart cannot be read: the process is ended");
                    leftovers.unreadable.push(files);
                }
                // A process that was never begun, or whose end is recorded, has nothing that must survive.
                Err(error) => {
                    tracing::warn!(process = %files.id, error = %chain(&error), "the record of a process from before the restart is removed");
                    files.remove()?;
                }
            }
        }
        Ok(leftovers)
    }

    /// Returns the cgroups of the processes that may still live, by run.
    pub fn names(&self) -> BTreeMap<RunId, BTreeSet<String>> {
        let known = self.known.iter().filter(|(_, edition, _)| *edition == Edition::Living);
        let mut names: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for files in known.map(|(files, ..)| files).chain(&self.unreadable) {
            names.entry(files.run).or_default().insert(name(files.id));
        }
        names
    }

    /// Returns the processes with a readable record, and the others.
    pub(crate) fn into_parts(self) -> (Vec<(ProcessFiles, Edition, Known)>, Vec<ProcessFiles>) {
        (self.known, self.unreadable)
    }
}

/// Returns the name of a process's cgroups.
pub(crate) fn name(id: CallId) -> String {
    format!("process-{id}")
}

#[cfg(test)]
mod tests {
    use wire::v1;

    use super::*;

    #[test]
    fn unreadable_process_is_kept_while_it_may_run() {
        let root = tempfile::tempdir().unwrap();
        let key = StreamKey::from_bytes([7; 32]);
        let run = RunId::new();
        let [never_begun, living, garbled, ended] =
            std::array::from_fn(|_| ProcessFiles::new(root.path(), run, CallId::new()));
        let known = Known::new(&v1::Process::default(), "uid:1", "alice", None, 10);
        for files in [&never_begun, &living, &garbled, &ended] {
            files.make().unwrap();
        }
        for files in [&living, &garbled, &ended] {
            files.write(&key, Edition::Living, &known).unwrap();
        }
        ended.write(&key, Edition::Ended, &known).unwrap();
        for (files, file) in [(&garbled, "living.sealed"), (&ended, "ended.sealed")] {
            std::fs::write(files.directory().join(file), "not this").unwrap();
        }

        let leftovers = Leftovers::read(root.path(), &key).unwrap();
        let spared = [&living, &garbled].map(|files| name(files.id));
        assert_eq!(leftovers.names(), [(run, spared.into())].into());
        let (known, unreadable) = leftovers.into_parts();
        let ids =
            |all_files: Vec<ProcessFiles>| all_files.into_iter().map(|files| files.id).collect::<Vec<_>>();
        let known = known.into_iter().map(|(files, ..)| files).collect();
        assert_eq!((ids(known), ids(unreadable)), (vec![living.id], vec![garbled.id]));
        let left = disk::all(root.path()).unwrap();
        assert_eq!(left.len(), 2, "the others are removed: {left:?}");
    }
}
