//! `read_write_delete`: a file was read, written and deleted, in this order and within the window (seed 001: potential data
//! exfiltration).

use policy::AnomalySetting;

use super::tally::Tally;
use super::{Evidence, Rule, within};
use crate::recent::Recent;
use crate::seen::{Kind, Mark, Moment, Seen};

/// Most files of a run that are remembered.
const MAX_FILES: usize = 256;

pub(super) struct SameFile {
    files: Recent<Mark, File>,
    deletions: Tally,
}

/// The last calls on a file.
#[derive(Debug, Default)]
struct File {
    read: Option<(Moment, u64)>,
    /// The last write, and the last reading before it.
    written: Option<(u64, (Moment, u64))>,
}

impl Default for SameFile {
    fn default() -> Self {
        Self { files: Recent::new(MAX_FILES), deletions: Tally::default() }
    }
}

pub(super) fn counts(seen: &Seen) -> bool {
    seen.ended().is_some_and(|ended| {
        ended.succeeded()
            && !ended.files.is_empty()
            && matches!(ended.kind, Kind::Read | Kind::Change | Kind::Delete)
    })
}

impl Rule for SameFile {
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence> {
        let ended = seen.ended()?;
        let mut fired = None;
        for mark in &ended.files {
            match ended.kind {
                Kind::Read => {
                    self.files.touch(mark, File::default).read = Some((seen.at, seen.sequence));
                }
                Kind::Change => {
                    let file = self.files.touch(mark, File::default);
                    file.written = file.read.map(|read| (seen.sequence, read));
                }
                _ => {
                    let file = self.files.remove(mark).unwrap_or_default();
                    let Some((written, (at, read))) = file.written else { continue };
                    if within(at, seen.at, setting) {
                        fired = self.deletions.count(seen.at, seen.sequence, setting).map(|evidence| {
                            let sequences = [&[read, written][..], &evidence.sequences].concat();
                            Evidence { count: evidence.count, sequences }
                        });
                    }
                }
            }
        }
        fired
    }
}
