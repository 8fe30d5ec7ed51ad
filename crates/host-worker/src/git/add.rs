//! Implements `git add`: stages new, changed and removed files of the given paths.
//!
//! It refuses a file that a filter or an encoding changes on its way, unless the file is in its stored form or unchanged
//! ([`conversion`]). All paths are checked before any is staged. The index is written once, at the end, and so has either none or
//! all of the changes. (Objects of a failed call may remain unreferenced, as with git.)

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use git2::{DiffOptions, Index, IndexEntry, IndexEntryExtendedFlag, Oid, Repository};
use jail::{Access, Jail, Mount, SandboxPath};
use operations::{Binder, Bound, Bounds};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;

use super::conversion::{self, Conversion};
use super::error::{GitError, shown};
use super::formats::new_path;
use super::index::{self, SUBMODULE, as_path};
use super::output::Output;
use super::quote::quoted;
use super::repository::{WORKSPACE, plain};
use super::{compare, diff, formats, paths, withheld};

/// Largest file that can be added, bytes: an object must fit the limits of the process.
const LARGEST: u64 = 128 * 1024 * 1024;
/// Most paths that a refusal names.
const REFUSED_SHOWN: usize = 20;

/// Mode and blob of a path afterwards; `None` if it is removed.
type After = Option<(u32, Oid)>;

/// The index after adding, in memory.
struct Staged {
    index: Index,
    /// Each path that changes.
    changes: Vec<(Vec<u8>, After)>,
}

/// The staged change of a path.
enum Change {
    Removal,
    Content,
    /// A change of the mode alone, with the new entry.
    Mode(IndexEntry),
}

pub(super) fn add(
    repository: &Repository,
    jail: &Jail,
    given: &[SandboxPath],
    bounds: &Bounds,
    output: &mut Output,
) -> Result<(), GitError> {
    let held_to = bounds.held_to.as_ref();
    let mut staged = stage(repository, jail, given, output).map_err(|error| error.before_effect(held_to))?;
    staged.bound().demand(held_to).map_err(GitError::Consent)?;
    staged.index.write()?;
    Ok(())
}

/// Shows a reviewer the effect of adding `given`: a line for each path, and the difference between the index now and afterwards.
///
/// The repository makes its objects in memory.
pub(super) fn preview(
    repository: &Repository,
    jail: &Jail,
    given: &[SandboxPath],
    output: &mut Output,
) -> Result<Bound, GitError> {
    let mut before = Index::open(&repository.path().join("index"))?;
    let staged = stage(repository, jail, given, output)?;
    for (path, after) in &staged.changes {
        let verb = if after.is_some() { "add" } else { "remove" };
        output.push_str(&format!("{verb} '{}'\n", quoted(path)));
    }
    if !staged.changes.is_empty() {
        output.push_str("\n");
        // Compares an unmerged path with our side of it.
        index::take_our_sides(&mut before)?;
        let plain = plain(repository)?;
        let diff = plain.diff_index_to_index(&before, &staged.index, Some(&mut compare::contents()))?;
        let changed: HashSet<&[u8]> = staged.changes.iter().map(|(path, _)| path.as_slice()).collect();
        formats::patches(&[diff], |delta| changed.contains(new_path(delta)), output)?;
    }
    Ok(staged.bound())
}

/// Stages the changes. Reads each file once: the index gets exactly the content that was read.
fn stage(
    repository: &Repository,
    jail: &Jail,
    given: &[SandboxPath],
    output: &mut Output,
) -> Result<Staged, GitError> {
    let mut index = repository.index()?;
    let wanted = wanted(repository, &index, jail, given)?;
    let changes = changes(repository, &index, &wanted, output)?;
    for (path, _) in &changes {
        withheld::check(jail, path, Access::Read)?;
        withheld::check(jail, path, Access::Write)?;
    }
    // Removals first, since a directory may replace a file.
    for (path, _) in changes.iter().filter(|(_, change)| matches!(change, Change::Removal)) {
        index.remove_path(as_path(path))?;
    }
    for (path, change) in &changes {
        match change {
            Change::Removal => {}
            Change::Content => index.add_path(as_path(path))?,
            Change::Mode(entry) => index.add(entry)?,
        }
    }
    let after = |path: &[u8]| index.get_path(as_path(path), 0).map(|entry| (entry.mode, entry.id));
    let changes =
        changes.into_iter().map(|(path, _)| (after(&path), path)).map(|(after, path)| (path, after));
    let changes = changes.collect();
    Ok(Staged { index, changes })
}

impl Staged {
    fn bound(&self) -> Bound {
        let mut binder = Binder::new("git.add");
        for (path, after) in &self.changes {
            binder.bytes(path);
            let (mode, id) = after.unwrap_or((0, Oid::ZERO_SHA1));
            binder.number(mode.into());
            binder.bytes(id.as_bytes());
        }
        binder.finish()
    }
}

/// Checks the given paths and returns them relative to the work tree.
fn wanted<'g>(
    repository: &Repository,
    index: &Index,
    jail: &Jail,
    given: &'g [SandboxPath],
) -> Result<Vec<&'g str>, GitError> {
    let wanted: Vec<&str> = given.iter().map(paths::in_work_tree).collect::<Result<_, _>>()?;
    let mut ignored = Vec::new();
    for path in wanted.iter().copied().filter(|path| !path.is_empty()) {
        check(repository, index, jail, path, &mut ignored)?;
    }
    if ignored.is_empty() { Ok(wanted) } else { Err(GitError::Ignored(ignored.join("\n"))) }
}

/// Checks that `path` may be added.
fn check(
    repository: &Repository,
    index: &Index,
    jail: &Jail,
    path: &str,
    ignored: &mut Vec<String>,
) -> Result<(), GitError> {
    let tracked = is_tracked(index, path);
    let Some(kind) = look(jail, path)? else {
        return if tracked { Ok(()) } else { Err(GitError::NoMatch(path.to_owned())) };
    };
    let submodule = index.get_path(Path::new(path), 0).is_some_and(|entry| entry.mode == SUBMODULE);
    match kind {
        FileType::Directory if submodule || has_dot_git(path.as_bytes()) => {
            Err(GitError::NestedRepository(path.to_owned()))
        }
        FileType::RegularFile | FileType::Symlink | FileType::Directory => {
            if !tracked && repository.is_path_ignored(path)? {
                ignored.push(shown(path));
            }
            Ok(())
        }
        _ => Err(GitError::Forbidden(format!("@project/{}", shown(path)))),
    }
}

fn has_dot_git(path: &[u8]) -> bool {
    fs::symlink_metadata(Path::new(WORKSPACE).join(as_path(path)).join(".git")).is_ok()
}

/// Returns true if the index has the path, or a path beneath it.
pub(super) fn is_tracked(index: &Index, path: &str) -> bool {
    (0..=3).any(|stage| index.get_path(Path::new(path), stage).is_some())
        || index.find_prefix(format!("{path}/")).is_ok()
}

/// Returns the type of the file at `path`, without following any link. `None`: there is no file.
pub(super) fn look(jail: &Jail, path: &str) -> Result<Option<FileType>, GitError> {
    let root = jail.root(Mount::Project).map_err(|refusal| GitError::Forbidden(refusal.to_string()))?;
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let found = openat2(root, parent, flags, Mode::empty(), resolve)
        .and_then(|parent| statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW));
    match found {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(Errno::LOOP | Errno::XDEV) => Err(GitError::BeyondLink(path.to_owned())),
        Err(errno) => Err(GitError::Library(errno.to_string())),
    }
}

fn with_untracked(mut options: DiffOptions, wanted: &[&str]) -> DiffOptions {
    options.include_untracked(true).recurse_untracked_dirs(true);
    compare::limit(&mut options, wanted);
    options
}

/// Returns the paths that differ from the index, and the change that adding makes to each.
fn changes(
    repository: &Repository,
    index: &Index,
    wanted: &[&str],
    output: &mut Output,
) -> Result<Vec<(Vec<u8>, Change)>, GitError> {
    let diff = diff::work_tree(repository, None, with_untracked(compare::changes(), wanted))?;
    let (mut changes, mut refused) = (Vec::new(), Vec::new());
    for delta in diff.deltas().filter(diff::is_wanted(index)) {
        let path = new_path(&delta);
        if path.ends_with(b"/") || (delta.old_file().id().is_zero() && has_dot_git(path)) {
            output.push_str(&format!("warning: not adding embedded git repository: {}\n", named(path)));
            continue;
        }
        let change = match fs::symlink_metadata(Path::new(WORKSPACE).join(as_path(path))) {
            Ok(metadata) if metadata.is_file() => match converted(repository, index, path)? {
                Converted::Unchanged => continue,
                Converted::Mode(entry) => Change::Mode(entry),
                Converted::Refused(conversion) => {
                    refused.push(format!("{} ({conversion})", quoted(path)));
                    continue;
                }
                Converted::No if metadata.len() > LARGEST => {
                    let path = named(path);
                    return Err(GitError::TooLarge { path, bytes: metadata.len(), most: LARGEST });
                }
                Converted::No => Change::Content,
            },
            Ok(metadata) if !metadata.is_dir() => Change::Content,
            _ => Change::Removal,
        };
        changes.push((path.to_vec(), change));
    }
    if refused.is_empty() { Ok(changes) } else { Err(GitError::Converted(excerpt(&refused))) }
}

/// The effect of a conversion on a file to add.
enum Converted {
    /// The file has no conversion, or is in its stored form.
    No,
    Unchanged,
    /// A change of the mode alone.
    Mode(IndexEntry),
    Refused(Conversion),
}

fn converted(repository: &Repository, index: &Index, path: &[u8]) -> Result<Converted, GitError> {
    let Some(conversion) = Conversion::of(repository, path)? else { return Ok(Converted::No) };
    let is_announced =
        |entry: &IndexEntry| entry.flags_extended & IndexEntryExtendedFlag::INTENT_TO_ADD.bits() != 0;
    if let Some(entry) = index::merged(index, path).filter(|entry| !is_announced(entry))
        && conversion::is_same(repository, &entry, &conversion)?
    {
        return Ok(conversion::with_mode(repository, &entry).map_or(Converted::Unchanged, Converted::Mode));
    }
    let stored = conversion::is_stored_form(path, &conversion);
    Ok(if stored { Converted::No } else { Converted::Refused(conversion) })
}

/// Joins the first lines, and says how many more there are.
fn excerpt(lines: &[String]) -> String {
    let more = lines.len().saturating_sub(REFUSED_SHOWN);
    let shown = lines[..lines.len() - more].join("\n");
    if more == 0 { shown } else { format!("{shown}\n(and {more} more)") }
}

fn named(path: &[u8]) -> String {
    shown(&String::from_utf8_lossy(path))
}
