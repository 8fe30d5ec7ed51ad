//! The journal of a transaction: one file in the run's private directory, whose name shows the stage of the
//! transaction.
//!
//! `JOB.part` is being written and has no effect. `JOB.patch` is durable before the first file changes; its changes are
//! undone after a crash. The rename to `JOB.done` is the commit; after a crash only its shadows are removed. `JOB` is
//! the number of the operation, which has one transaction.
//!
//! Fields end with NUL, which no path contains. A process that wrote the journal may have been taken over. So the
//! journal must be well-formed, may name only temporary files, and its paths are checked by the rules like any path.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, fsync, renameat_with, unlinkat};
use rustix::io::Errno;

use super::revert::Kind;
use super::step::Step;
use crate::name::EntryName;
use crate::path::SandboxPath;
use crate::private::{Keeps, Private, Whose};
use crate::resolve::{open_confined, open_regular};
use crate::temporary_name::{TEMPORARY_PREFIX, is_random};

const MAGIC: &str = "cofferdam-patch-1";
const END: &str = "end";
/// Most bytes of a journal that are read. 256 files and as many directories with the longest paths need less.
const MAX_BYTES: u64 = 8 * 1024 * 1024;

/// Stage of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The journal is being written.
    Part,
    /// A patch that is not committed.
    Patch,
    Done,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Part, Self::Patch, Self::Done];

    const fn suffix(self) -> &'static str {
        match self {
            Self::Part => "part",
            Self::Patch => "patch",
            Self::Done => "done",
        }
    }

    /// Returns the job and the stage from the name of a journal.
    fn parse(name: &str) -> Option<(u64, Self)> {
        let (job, suffix) = name.split_once('.')?;
        let stage = Self::ALL.into_iter().find(|stage| stage.suffix() == suffix)?;
        Some((job.parse().ok()?, stage))
    }
}

/// The journal of one operation.
#[derive(Debug)]
pub(super) struct Journal {
    directory: OwnedFd,
    job: u64,
}

/// The entry of a journal for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) path: SandboxPath,
    pub(super) shadow: EntryName,
    pub(super) inode: u64,
}

/// A journal that was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Entries {
    pub(super) steps: Vec<Entry>,
    pub(super) made: Vec<SandboxPath>,
}

impl Journal {
    pub(super) fn open(private: &Private) -> Result<Self, Errno> {
        Ok(Self { directory: private.open_or_make(Keeps::Patches)?, job: private.job() })
    }

    fn name(&self, stage: Stage) -> String {
        format!("{}.{}", self.job, stage.suffix())
    }

    /// Writes durably that these steps will be taken.
    pub(super) fn write(&self, steps: &[Step<'_>], made: &[SandboxPath]) -> Result<(), Errno> {
        let entries = Entries {
            steps: steps
                .iter()
                .map(|step| Entry {
                    kind: step.kind,
                    path: step.path(),
                    shadow: step.shadow.clone(),
                    inode: step.inode,
                })
                .collect(),
            made: made.to_vec(),
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let part = self.name(Stage::Part);
        let mut file =
            File::from(open_confined(&self.directory, part.as_bytes(), flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(&encode(&entries))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        fsync(&file)?;
        self.advance(Stage::Part, Stage::Patch)?;
        self.sync()
    }

    /// Commits the transaction, durably after the next [`Self::sync`].
    pub(super) fn commit(&self) -> Result<(), Errno> {
        self.advance(Stage::Patch, Stage::Done)
    }

    fn advance(&self, from: Stage, to: Stage) -> Result<(), Errno> {
        let (from, to) = (self.name(from), self.name(to));
        renameat_with(&self.directory, from, &self.directory, to, RenameFlags::empty())
    }

    pub(super) fn sync(&self) -> Result<(), Errno> {
        fsync(&self.directory)
    }

    /// Removes the journal. Best effort: recovery from one that remains finds all files in their final state.
    pub(super) fn remove(&self) {
        for stage in Stage::ALL {
            let _ = unlinkat(&self.directory, self.name(stage), AtFlags::empty());
        }
    }
}

/// Returns the name and the stage of a journal of `whose`. `None` for another file.
pub(super) fn parse(name: &CStr, whose: Whose) -> Option<(&str, Stage)> {
    let name = name.to_str().ok()?;
    let (job, stage) = Stage::parse(name)?;
    (whose == Whose::Everyone || whose == Whose::Job(job)).then_some((name, stage))
}

/// Reads a journal. `None` if it is not well-formed.
pub(super) fn read(directory: &OwnedFd, name: &str) -> Option<Entries> {
    let file = open_regular(directory, name.as_bytes()).ok()?.file;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    decode(&bytes)
}

impl Kind {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Exchange, "exchange"), (Self::Create, "create"), (Self::Remove, "remove")];
}

fn encode(entries: &Entries) -> Vec<u8> {
    let mut text = format!("{MAGIC}\0");
    for entry in &entries.steps {
        let kind = Kind::ALL.iter().find(|(kind, _)| *kind == entry.kind).map_or("", |(_, word)| word);
        let Entry { path, shadow, inode, .. } = entry;
        for field in [kind, &path.to_string(), &shadow.shown(), &inode.to_string()] {
            text.push_str(field);
            text.push('\0');
        }
    }
    for path in &entries.made {
        for field in ["made", &path.to_string()] {
            text.push_str(field);
            text.push('\0');
        }
    }
    text += END;
    text.into_bytes()
}

fn decode(bytes: &[u8]) -> Option<Entries> {
    let mut fields = str::from_utf8(bytes).ok()?.split('\0');
    if fields.next() != Some(MAGIC) {
        return None;
    }
    let mut entries = Entries::default();
    loop {
        match fields.next()? {
            END => return fields.next().is_none().then_some(entries),
            "made" => entries.made.push(fields.next()?.parse().ok()?),
            word => {
                let (kind, _) = Kind::ALL.into_iter().find(|(_, known)| *known == word)?;
                let path = fields.next()?.parse().ok()?;
                let shadow = fields.next()?;
                if !shadow.strip_prefix(TEMPORARY_PREFIX).is_some_and(is_random) {
                    return None;
                }
                let shadow = EntryName::new(shadow.as_bytes())?;
                let inode = fields.next()?.parse().ok()?;
                entries.steps.push(Entry { kind, path, shadow, inode });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Entries {
        let path = |text: &str| SandboxPath::parse(text).unwrap();
        let shadow = |last: char| {
            EntryName::new(format!("{TEMPORARY_PREFIX}{}{last}", "0".repeat(31)).as_bytes()).unwrap()
        };
        Entries {
            steps: vec![
                Entry { kind: Kind::Exchange, path: path("a\nb/c"), shadow: shadow('1'), inode: 7 },
                Entry { kind: Kind::Create, path: path("@state/made"), shadow: shadow('2'), inode: u64::MAX },
                Entry { kind: Kind::Remove, path: path("end"), shadow: shadow('3'), inode: 0 },
            ],
            made: vec![path("made"), path("made/end")],
        }
    }

    #[test]
    fn journal_reads_back_complete_or_not_at_all() {
        let bytes = encode(&entries());
        assert_eq!(decode(&bytes), Some(entries()));
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_forged_journal_names_no_other_files() {
        let text = String::from_utf8(encode(&entries())).unwrap();
        for (from, to) in [
            (TEMPORARY_PREFIX, ""),
            (TEMPORARY_PREFIX, "../.cofferdam-tmp-"),
            ("@state/made", "@state/../made"),
            ("@state/made", "/etc/passwd"),
            ("\u{0}7\u{0}", "\u{0}-7\u{0}"),
            ("exchange", "Exchange"),
            (MAGIC, "cofferdam-patch-2"),
        ] {
            assert!(text.contains(from));
            assert_eq!(decode(text.replacen(from, to, 1).as_bytes()), None, "{from:?} {to:?}");
        }
    }

    #[test]
    fn names_tell_job_and_stage() {
        assert_eq!(Stage::parse("12.patch"), Some((12, Stage::Patch)));
        for other in ["", "12", "12.", "x.patch", "12.patch.part", "-1.done", "../1.done"] {
            assert_eq!(Stage::parse(other), None, "{other}");
        }
    }
}
