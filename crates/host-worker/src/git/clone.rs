//! Clones the repository that begins a run: a local one, mounted read-only at `/source`, into the empty workspace.
//!
//! A clone has the wanted branch (or a detached HEAD at a tag or commit), all tags and the history beneath. It has no remote, no
//! other branches, no hooks and no path of the host. A shallow source makes a shallow clone. Sources that lack objects are refused,
//! because their clone could not get them: partial clones, and sources that borrow from a third repository, which the jail cannot
//! reach.
//!
//! Files with a filter are checked out in their stored form, so that a Git LFS file is its pointer. Files with a
//! `working-tree-encoding` are encoded ([`encoding`](super::encoding)).
//!
//! A clone that exceeds its bounds is refused before it is written ([`excess`](super::excess)).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use git2::build::{CheckoutBuilder, CloneLocal, RepoBuilder};
use git2::{Branch, BranchType, Config, ErrorCode, IndexEntry, ObjectType, Repository};
use host_launch::TreeBounds;
use operations::Digest;
use rustix::process::geteuid;
use thiserror::Error;

use super::conversion;
use super::encoding::Encoding;
use super::error::{GitError, shown};
use super::excess::{EXCESS, Excess, Size, SizeError, is_full, is_full_in_git};
use super::index::as_path;
use super::quote::quoted;
use super::repository::{self, WORKSPACE, read};
use crate::sys;

pub(super) const SOURCE: &str = "/source";

/// The reason why there is no clone, fit for a client.
#[derive(Debug, Error)]
pub(crate) enum CloneFailure {
    #[error("the workspace to clone into is not empty")]
    NotEmpty,
    #[error("the source is not a git repository")]
    NoRepository,
    #[error("the source belongs to another user than the workspace")]
    NotOwned,
    #[error("the source has no branch, tag or commit '{0}'")]
    NoRevision(String),
    #[error("the source has no commits")]
    Empty,
    #[error("the server names no default branch; name a branch, a tag or a commit")]
    NoDefault,
    #[error("the commit {0} is not in the history of a branch or tag of the server")]
    NotReached(String),
    #[error(
        "the source has its repository elsewhere (its .git is a file), as a submodule has; clone it with git to a directory \
         beneath a workspace root, and name that"
    )]
    Elsewhere,
    #[error(
        "the source is a work tree that its repository no longer lists; `git worktree repair` there may help"
    )]
    NoWorkTree,
    #[error(
        "the source borrows objects from another repository (objects/info/alternates); run `git repack -a -d` in it, remove \
         that file, and try again"
    )]
    Borrows,
    #[error(
        "the source is a partial clone, which lacks objects; run `git fetch --refetch --no-filter` in it and unset its \
         remote's promisor and extensions.partialClone, or use it as an overlay or in place"
    )]
    Partial,
    #[error("the file {0} cannot be checked out: its working-tree-encoding is {1}, which is not supported")]
    Encoding(String, String),
    #[error("the source's shallow file cannot be read; `git fetch --unshallow` in the source may help")]
    Shallow,
    #[error(transparent)]
    Excess(#[from] Excess),
    #[error("the source cannot be cloned: {0}")]
    Format(String),
    #[error("cannot clone: {0}")]
    Library(String),
}

impl From<git2::Error> for CloneFailure {
    fn from(error: git2::Error) -> Self {
        match error.code() {
            ErrorCode::Owner => Self::NotOwned,
            _ if is_full_in_git(&error) => Excess::Full.into(),
            _ => Self::Library(match GitError::from(error) {
                GitError::Library(message) => message.replace(SOURCE, "the source"),
                other => other.to_string(),
            }),
        }
    }
}

impl From<SizeError> for CloneFailure {
    fn from(error: SizeError) -> Self {
        match error {
            SizeError::Excess(excess) => Self::Excess(excess),
            SizeError::Git(error) => error.into(),
            SizeError::Io(error) if is_full(&error) => Excess::Full.into(),
            SizeError::Io(error) => Self::Library(error.to_string()),
        }
    }
}

/// Clones and checks out `revision`, within `most`.
///
/// An empty revision is HEAD of the source. If the source is the repository of the linked work tree `work_tree`, it is HEAD of that
/// work tree.
pub(crate) fn clone(revision: &str, work_tree: &str, most: TreeBounds) -> Result<(), CloneFailure> {
    sys::restrict_libgit2()?;
    if !is_empty() {
        return Err(CloneFailure::NotEmpty);
    }
    let source = source()?;
    check_source(&source)?;
    trust(work_tree, &source)?;
    let mut size = Size::within(most);
    size.add_source(&Repository::open(SOURCE)?)?;
    let mut checkout = CheckoutBuilder::new();
    checkout.dry_run();
    // Objects are copied, not hard-linked: the agent must not reach the source's own files.
    let repository = RepoBuilder::new()
        .clone_local(CloneLocal::NoLinks)
        .with_checkout(checkout)
        .clone(SOURCE, Path::new(WORKSPACE))?;
    copy_shallow(&source, &repository)?;
    if revision.is_empty() && !work_tree.is_empty() {
        check_out(&repository, &head_of(&source, work_tree)?, &mut size)?;
    } else {
        check_out(&repository, revision, &mut size)?;
    }
    encode(&repository, &mut size)?;
    forget_source(&repository)
}

/// Returns true if the workspace is there and empty.
pub(super) fn is_empty() -> bool {
    fs::read_dir(WORKSPACE).is_ok_and(|mut entries| entries.next().is_none())
}

/// Returns a digest of all that determines a clone at `revision`: the branch or commit, the tags, and the end of a shallow history.
pub(crate) fn identity(revision: &str, work_tree: &str) -> Result<String, CloneFailure> {
    sys::restrict_libgit2()?;
    let source = source()?;
    check_source(&source)?;
    trust(work_tree, &source)?;
    let repository = Repository::open(&source)?;
    let revision = match revision {
        "" if !work_tree.is_empty() => head_of(&source, work_tree)?,
        revision => revision.to_owned(),
    };
    let mut digest = Digest::default();
    let mut note = |part: &[u8]| {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    };
    let branch = if revision.is_empty() {
        Some(repository.head()?)
    } else {
        repository.find_branch(&revision, BranchType::Local).ok().map(Branch::into_reference)
    };
    if let Some(branch) = branch {
        note(branch.name_bytes());
        note(branch.peel_to_commit()?.id().as_bytes());
    } else {
        let no_revision = |_| CloneFailure::NoRevision(shown(&revision));
        let commit = repository.revparse_single(&revision).and_then(|found| found.peel(ObjectType::Commit));
        note(commit.map_err(no_revision)?.id().as_bytes());
    }
    let mut tags = Vec::new();
    for tag in repository.references_glob("refs/tags/*")? {
        let tag = tag?;
        let target = tag.target().map_or_else(Vec::new, |target| target.as_bytes().to_vec());
        tags.push((tag.name_bytes().to_vec(), target));
    }
    tags.sort_unstable();
    for (name, target) in &tags {
        note(name);
        note(target);
    }
    note(&read(&source.join("shallow")).unwrap_or_default());
    Ok(digest.hex())
}

/// Has libgit2 open the repository of a linked work tree, which belongs to this user.
fn trust(work_tree: &str, source: &Path) -> Result<(), CloneFailure> {
    if work_tree.is_empty() {
        return Ok(());
    }
    let owner = fs::metadata(source).map_err(|_| CloneFailure::NoRepository)?.uid();
    if owner != geteuid().as_raw() {
        return Err(CloneFailure::NotOwned);
    }
    Ok(sys::trust_owners()?)
}

/// Returns the git directory of the source.
fn source() -> Result<PathBuf, CloneFailure> {
    let is_directory = |path: &str| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    if is_directory("/source/.git") {
        return Ok(PathBuf::from("/source/.git"));
    }
    let bare = Path::new("/source/HEAD").exists() && is_directory("/source/objects");
    match fs::symlink_metadata("/source/.git") {
        _ if bare => Ok(PathBuf::from(SOURCE)),
        Ok(metadata) if metadata.is_file() => Err(CloneFailure::Elsewhere),
        _ => Err(CloneFailure::NoRepository),
    }
}

/// Refuses a source whose clone would be broken.
pub(super) fn check_source(source: &Path) -> Result<(), CloneFailure> {
    if let Ok(config) = Config::open(&source.join("config")) {
        repository::check_extensions(&config).map_err(|error| CloneFailure::Format(error.to_string()))?;
        if repository::is_partial(&config) {
            return Err(CloneFailure::Partial);
        }
    }
    match read(&source.join("objects/info/alternates")) {
        Some(text) if text.split(|byte| *byte == b'\n').any(|line| !line.is_empty() && line[0] != b'#') => {
            Err(CloneFailure::Borrows)
        }
        _ => Ok(()),
    }
}

/// Copies the `shallow` file, so that the clone's history ends where the source's does.
fn copy_shallow(source: &Path, repository: &Repository) -> Result<(), CloneFailure> {
    let Some(text) = read(&source.join("shallow")) else { return Ok(()) };
    let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    if !lines.all(|line| line.len() == 40 && line.iter().all(u8::is_ascii_hexdigit)) {
        return Err(CloneFailure::Shallow);
    }
    fs::write(repository.path().join("shallow"), text).map_err(|error| SizeError::Io(error).into())
}

/// Returns the branch or commit that is checked out in a linked work tree.
fn head_of(source: &Path, work_tree: &str) -> Result<String, CloneFailure> {
    let text =
        read(&source.join("worktrees").join(work_tree).join("HEAD")).ok_or(CloneFailure::NoWorkTree)?;
    let text = String::from_utf8(text).map_err(|_| CloneFailure::NoWorkTree)?;
    let at = text.trim_end();
    Ok(at.strip_prefix("ref: refs/heads/").unwrap_or(at).to_owned())
}

/// Encodes the files that have a `working-tree-encoding`.
pub(super) fn encode(repository: &Repository, size: &mut Size) -> Result<(), CloneFailure> {
    let mut index = repository.index()?;
    let entries: Vec<IndexEntry> = index.iter().filter(|entry| entry.mode & 0o170_000 == 0o100_000).collect();
    let mut changed = false;
    for mut entry in entries {
        let name = conversion::encoding(repository, &entry.path);
        let Some(name) = name.map_err(|error| CloneFailure::Library(error.to_string()))? else { continue };
        let unknown = || CloneFailure::Encoding(quoted(&entry.path), shown(&name));
        let encoding = Encoding::named(&name).ok_or_else(unknown)?;
        let failed = |error: io::Error| CloneFailure::from(SizeError::Io(error));
        let path = Path::new(WORKSPACE).join(as_path(&entry.path));
        // As with git, a file that is not valid text of the encoding is checked out in its stored form.
        let Ok(text) = String::from_utf8(fs::read(&path).map_err(failed)?) else { continue };
        let Some(bytes) = encoding.encode(&text).filter(|_| !text.is_empty()) else { continue };
        size.add(bytes.len().saturating_sub(text.len()) as u64, 0)?;
        fs::write(&path, bytes).map_err(failed)?;
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        conversion::note(&mut entry, &metadata);
        index.add(&entry)?;
        changed = true;
    }
    if changed {
        index.write()?;
    }
    Ok(())
}

fn check_out(repository: &Repository, revision: &str, size: &mut Size) -> Result<(), CloneFailure> {
    let none = || CloneFailure::NoRevision(shown(revision));
    if revision.is_empty() {
        if repository.is_empty()? {
            return Err(CloneFailure::Empty);
        }
    } else if let Ok(branch) = repository.find_branch(&format!("origin/{revision}"), BranchType::Remote) {
        let commit = branch.get().peel_to_commit()?;
        if repository.find_branch(revision, BranchType::Local).is_err() {
            repository.branch(revision, &commit, false)?;
        }
        repository.set_head(&format!("refs/heads/{revision}"))?;
    } else {
        let found = repository.revparse_single(revision).map_err(|_| none())?;
        repository.set_head_detached(found.peel(ObjectType::Commit).map_err(|_| none())?.id())?;
    }
    write_files(repository, size)?;
    // The branch that the clone began with, if another one was asked for.
    let head = repository.head()?;
    for branch in repository.branches(Some(BranchType::Local))? {
        let (mut branch, _) = branch?;
        if branch.get().name_bytes() != head.name_bytes() {
            branch.delete()?;
        }
    }
    Ok(())
}

/// Writes the files of HEAD, within the bounds. Their size is added to that of the clone.
pub(super) fn write_files(repository: &Repository, size: &mut Size) -> Result<(), CloneFailure> {
    let mut expected = *size;
    expected.add_tree(repository, repository.head()?.peel_to_tree()?.id())?;
    let mut checkout = CheckoutBuilder::new();
    checkout.force();
    // A checkout of libgit2 cannot be ended between two files, so the process ends.
    checkout.progress(|path, _, _| {
        let Some(path) = path else { return };
        if let Err(excess) = size.add_written(Path::new(WORKSPACE), path) {
            eprintln!("{excess}");
            sys::exit_now(i32::from(EXCESS));
        }
    });
    Ok(repository.checkout_head(Some(&mut checkout))?)
}

/// Deletes the remote with its references, and the record of the fetch.
fn forget_source(repository: &Repository) -> Result<(), CloneFailure> {
    repository.remote_delete("origin")?;
    match fs::remove_file(repository.path().join("FETCH_HEAD")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CloneFailure::Library(error.to_string()))
        }
        _ => Ok(()),
    }
}
