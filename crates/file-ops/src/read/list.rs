//! `list`: the entries of a directory. Memory is bounded by the answer, not by the number of entries.

use std::collections::BTreeMap;

use jail::{Access, Dir, FileKind, Jail, OpenErrorKind, RelPath, SandboxPath};
use operations::{
    ASK_FOR_MORE, Bounds, Entry, EntryType, Hint, LeftOut, List, ListResult, OpResult, Outcome, Reason,
    ToolFailure, noted,
};

use super::location::{below, beside};
use crate::Cancel;
use crate::cancel::Stopped;

/// Entries after which the rest is no longer counted.
const MAX_SEEN: u64 = 1_000_000;

/// Lists a directory: the first entries by path, and the number of all.
pub fn list(jail: &Jail, list: &List, bounds: &Bounds, cancel: &Cancel) -> Outcome {
    let place = jail.readable(&list.path)?;
    let (resolved, dir) = place.open_dir_resolved().map_err(|error| {
        let kind = place.metadata().map(|meta| meta.kind);
        match kind {
            Ok(FileKind::File) => {
                ToolFailure::new(Reason::InvalidArgument, format!("{} is a file", list.path.excerpt()))
                    .hint(Hint::Read)
            }
            _ => ToolFailure::from(error),
        }
    })?;
    let mut lister = Lister {
        jail,
        list,
        cancel,
        resolved: &resolved,
        kept: BTreeMap::new(),
        space: usize::try_from(bounds.max_output_bytes).unwrap_or(usize::MAX),
        kept_bytes: 0,
        full: false,
        seen: 0,
        left_out: LeftOut::default(),
    };
    match lister.directory(&dir, resolved.rel(), list.path.to_string().trim_end_matches('/'), 1) {
        Ok(()) => Ok(noted(OpResult::List(lister.result()))),
        Err(Stop::Called(stopped)) => Err(stopped
            .failure(format!(
                "{}: {} entries seen; list a subdirectory or fewer levels",
                list.path.excerpt(),
                lister.seen
            ))
            .with("entries_seen", lister.seen.to_string())),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

enum Stop {
    Called(Stopped),
    Failed(ToolFailure),
}

struct Lister<'a> {
    jail: &'a Jail,
    list: &'a List,
    cancel: &'a Cancel,
    /// Path at which the walk began, without links.
    resolved: &'a SandboxPath,
    /// Smallest paths so far. The name's bytes distinguish names that look the same.
    kept: BTreeMap<(String, Vec<u8>), Entry>,
    /// Bytes of paths that fit into the answer, and bytes that are kept.
    space: usize,
    kept_bytes: usize,
    /// True if an entry was dropped. Entries that sort after the last one kept do not fit either.
    full: bool,
    seen: u64,
    left_out: LeftOut,
}

impl Lister<'_> {
    fn directory(&mut self, dir: &Dir, at: &RelPath, shown: &str, depth: u32) -> Result<(), Stop> {
        let entries = dir.entries().map_err(|error| Stop::Failed(error.into()))?;
        for entry in entries {
            self.cancel.check().map_err(Stop::Called)?;
            let Ok(entry) = entry else {
                self.left_out.unreadable += 1;
                break;
            };
            if self.seen >= MAX_SEEN {
                break;
            }
            if !self.list.include_hidden && entry.name.as_bytes().starts_with(b".") {
                self.left_out.hidden += 1;
                continue;
            }
            if !self.list.include_symlinks && entry.kind == FileKind::Symlink {
                self.left_out.links += 1;
                continue;
            }
            let rel = below(at, &entry.name);
            let path = beside(self.resolved, rel.as_ref());
            if let Some(Err(refusal)) = path.map(|path| self.jail.check(&path, Access::Read)) {
                self.left_out.withheld += u64::from(refusal.is_by_rule());
                continue;
            }
            let child = format!("{shown}/{}", entry.name.shown());
            if !self.keep(dir, &entry, &child)? {
                continue;
            }
            if entry.kind == FileKind::Directory
                && depth < self.list.depth
                && let Some(rel) = rel
            {
                self.descend(dir, &entry, &rel, &child, depth)?;
            }
        }
        Ok(())
    }

    fn descend(
        &mut self,
        dir: &Dir,
        entry: &jail::Entry,
        rel: &RelPath,
        shown: &str,
        depth: u32,
    ) -> Result<(), Stop> {
        match dir.open_dir(&entry.name) {
            Ok(inner) => match self.directory(&inner, rel, shown, depth + 1) {
                Err(Stop::Failed(_)) => self.left_out.unreadable += 1,
                done => return done,
            },
            // The entry has vanished or was replaced.
            Err(error) if matches!(error.kind, OpenErrorKind::NotFound | OpenErrorKind::NotADirectory) => {}
            Err(_) => self.left_out.unreadable += 1,
        }
        Ok(())
    }

    /// Counts the entry and keeps it while it is among the first. Returns `false` if it has vanished.
    ///
    /// Fails in a directory of mode `r--`, where only names can be read: an answer without its entries would look like an empty directory.
    fn keep(&mut self, dir: &Dir, entry: &jail::Entry, shown: &str) -> Result<bool, Stop> {
        let key = (shown.to_owned(), entry.name.as_bytes().to_vec());
        if self.full && self.kept.last_key_value().is_none_or(|(last, _)| *last < key) {
            self.seen += 1;
            return Ok(true);
        }
        let meta = match dir.metadata(&entry.name) {
            Ok(meta) => meta,
            Err(error) if matches!(error.kind, OpenErrorKind::PermissionDenied) => {
                return Err(Stop::Failed(error.into()));
            }
            Err(_) => return Ok(false),
        };
        self.seen += 1;
        self.kept_bytes += space_of(shown);
        self.kept.insert(key, describe(shown, &entry.name.shown(), meta));
        while self.kept.len() > self.list.max_entries as usize || self.kept_bytes > self.space {
            let Some((_, last)) = self.kept.pop_last() else { break };
            self.kept_bytes -= space_of(&last.path);
            self.full = true;
        }
        Ok(true)
    }

    fn result(self) -> ListResult {
        let entries: Vec<_> = self.kept.into_values().collect();
        let counted = self.seen < MAX_SEEN;
        let truncated = (entries.len() as u64) < self.seen || !counted;
        let mut hints = Vec::new();
        if truncated {
            let at_least = if counted { "" } else { "at least " };
            hints.push(format!(
                "the first {} of {at_least}{} entries: list a subdirectory, or {ASK_FOR_MORE}",
                entries.len(),
                self.seen
            ));
        }
        ListResult {
            path: self.list.path.to_string(),
            entries,
            truncated,
            total_entries: self.seen,
            hint: hints.join("; "),
            left_out: Some(self.left_out).filter(|left_out| *left_out != LeftOut::default()),
        }
    }
}

/// Returns the bytes that an entry takes in the answer.
fn space_of(path: &str) -> usize {
    path.len() + 1
}

fn describe(path: &str, name: &str, meta: jail::Metadata) -> Entry {
    let entry_type = match meta.kind {
        FileKind::File => EntryType::File,
        FileKind::Directory => EntryType::Directory,
        FileKind::Symlink => EntryType::Symlink,
        FileKind::Fifo | FileKind::Socket | FileKind::Device | FileKind::Other => EntryType::Other,
    };
    Entry {
        path: path.to_owned(),
        name: name.to_owned(),
        r#type: entry_type.into(),
        size_bytes: if entry_type == EntryType::File { meta.size } else { 0 },
        modified_unix_seconds: meta.modified.0,
    }
}
