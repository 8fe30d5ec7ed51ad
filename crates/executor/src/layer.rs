//! Operations of the host worker on directories that no run uses: an overlay's changes, the size of a workspace, and trees of bases.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use host_launch::{LayerError, LayerSpec, Marks, TreeBounds};
use operations::Reason;
use refusal::{Refusal, chain};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use wire::v1::{AcceptRunResponse, Base, DiffRunResponse};

use crate::directory::Directory;
use crate::launcher::launcher;

/// Time limit for reading all changes.
const DIFF: Duration = Duration::from_secs(60);
/// Time limit for applying all changes.
const ACCEPT: Duration = Duration::from_secs(600);
/// Time limit for measuring one workspace.
const MEASURE: Duration = Duration::from_secs(10);

/// Time limit for copying or digesting a tree.
const TREE: Duration = Duration::from_secs(600);

pub async fn diff(layer: LayerSpec, most: u32) -> Result<DiffRunResponse, Refusal> {
    blocking("looking at the changes", move || launcher().diff(&layer, most, DIFF)).await
}

pub async fn accept(layer: LayerSpec, force: bool) -> Result<AcceptRunResponse, Refusal> {
    blocking("applying the changes", move || launcher().accept(&layer, force, ACCEPT)).await
}

/// Returns the total length of all files in a directory, in bytes.
pub async fn measure(directory: &Directory) -> Result<u64, Refusal> {
    let owner = (directory.owner.uid, directory.owner.gid);
    let handle = handle(directory, "measuring a workspace")?;
    blocking("measuring a workspace", move || launcher().measure(handle.as_fd(), owner, MEASURE)).await
}

/// Returns a digest of all that determines a clone of a repository: the branch or commit, the tags, and the end of the history.
pub async fn identify(source: &Directory, revision: &str, work_tree: &str) -> Result<String, Refusal> {
    let owner = (source.owner.uid, source.owner.gid);
    let (revision, work_tree) = (revision.to_owned(), work_tree.to_owned());
    let handle = handle(source, "reading a repository")?;
    blocking("reading a repository", move || {
        launcher().identify(handle.as_fd(), (&revision, &work_tree), owner, DIFF)
    })
    .await
}

/// Copies a directory into an empty one of the same owner. Returns the copy's digest and size.
pub async fn copy(from: &Directory, into: &Directory, most: TreeBounds) -> Result<Base, Refusal> {
    const WHAT: &str = "copying a directory";
    let owner = (into.owner.uid, into.owner.gid);
    let (from, into) = (handle(from, WHAT)?, handle(into, WHAT)?);
    blocking(WHAT, move || launcher().copy(from.as_fd(), into.as_fd(), owner, most, TREE))
        .await
        .and_then(|found| with_digest(WHAT, found))
}

/// Copies a directory into `files` of an empty one of the same owner, and lists an overlay's marks. Returns the copy's digest and size.
pub async fn save(
    from: &Directory,
    into: &Directory,
    most: TreeBounds,
    marks: Marks,
) -> Result<Base, Refusal> {
    const WHAT: &str = "saving a directory";
    let owner = (into.owner.uid, into.owner.gid);
    let (from, into) = (handle(from, WHAT)?, handle(into, WHAT)?);
    blocking(WHAT, move || launcher().save((from.as_fd(), into.as_fd()), owner, (most, marks), TREE))
        .await
        .and_then(|found| with_digest(WHAT, found))
}

/// Puts a tree that [`save`] made into a directory that no process uses. Both appear as files of the directory's owner.
pub async fn fill(from: &Directory, into: &Directory) -> Result<(), Refusal> {
    const WHAT: &str = "filling a directory";
    let owner = (into.owner.uid, into.owner.gid);
    let (from, into) = (handle(from, WHAT)?, handle(into, WHAT)?);
    blocking(WHAT, move || launcher().fill(from.as_fd(), into.as_fd(), owner, TREE)).await
}

/// Returns true if [`fill`] would change nothing: the tree has no names and no marks, and the directory has its mode.
///
/// It looks at names alone and reads no file. A tree that cannot be read is not empty.
pub fn adds_nothing(from: &Directory, into: &Directory) -> bool {
    is_empty(from.handle.as_fd(), into.handle.as_fd()).unwrap_or(false)
}

fn is_empty(from: BorrowedFd<'_>, into: BorrowedFd<'_>) -> Result<bool, Errno> {
    for list in ["marks", "opaque"] {
        match statat(from, list, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.st_size > 0 => return Ok(false),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let files = openat(from, "files", flags, Mode::empty())?;
    if (fstat(&files)?.st_mode ^ fstat(into)?.st_mode) & 0o777 != 0 {
        return Ok(false);
    }
    for entry in Dir::read_from(&files)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes a directory that no process uses what it was when [`save`] made `from` of it. All appear as files of the directory's owner.
///
/// For an overlay, `changed` has the directory beneath, and a saved tree that names what is changed now.
pub async fn restore(
    from: &Directory,
    into: &Directory,
    changed: Option<(&Directory, &Directory)>,
) -> Result<(), Refusal> {
    const WHAT: &str = "putting files back";
    let owner = (into.owner.uid, into.owner.gid);
    let both = (handle(from, WHAT)?, handle(into, WHAT)?);
    let changed = changed
        .map(|(beneath, before)| Ok::<_, Refusal>((handle(beneath, WHAT)?, handle(before, WHAT)?)))
        .transpose()?;
    blocking(WHAT, move || {
        let changed = changed.as_ref().map(|(beneath, before)| (beneath.as_fd(), before.as_fd()));
        launcher().restore((both.0.as_fd(), both.1.as_fd()), changed, owner, TREE)
    })
    .await
}

/// Returns the digest and the size of a tree, read as its owner.
pub async fn digest(tree: &Directory, most: TreeBounds) -> Result<Base, Refusal> {
    const WHAT: &str = "reading a tree";
    let owner = (tree.owner.uid, tree.owner.gid);
    let handle = handle(tree, WHAT)?;
    let found = blocking(WHAT, move || launcher().digest(handle.as_fd(), owner, most, TREE)).await?;
    with_digest(WHAT, found)
}

/// Returns the content of a small file beneath a directory. It is read as the directory's owner, and no link is followed.
pub async fn read(directory: &Directory, path: &str) -> Result<Vec<u8>, Refusal> {
    let (owner, path) = ((directory.owner.uid, directory.owner.gid), path.to_owned());
    let handle = handle(directory, "reading a file")?;
    blocking("reading a file", move || launcher().read(handle.as_fd(), &path, owner, MEASURE)).await
}

/// Makes the directory for reflogs in a git directory if it is missing, as the git directory's owner.
pub async fn make_logs(directory: &Directory) -> Result<(), Refusal> {
    let owner = (directory.owner.uid, directory.owner.gid);
    let handle = handle(directory, "preparing a repository for reflogs")?;
    blocking("preparing a repository for reflogs", move || {
        launcher().make_logs(handle.as_fd(), owner, MEASURE)
    })
    .await
}

/// Returns a handle for the thread that waits for the host worker.
fn handle(directory: &Directory, what: &'static str) -> Result<OwnedFd, Refusal> {
    directory.handle.try_clone().map_err(|error| Refusal::internal(what, &error))
}

/// Checks the answer of a host worker, whose process has read files of an agent.
fn with_digest(what: &'static str, found: Base) -> Result<Base, Refusal> {
    if found.digest.len() == 64 && found.digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(found);
    }
    Err(Refusal::internal(what, &"the host worker answered without a digest"))
}

async fn blocking<T: Send + 'static>(
    what: &'static str,
    job: impl FnOnce() -> Result<T, LayerError> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(job).await.map_err(|error| Refusal::internal(what, &error))?;
    done.map_err(|error| match error {
        LayerError::Refused(why) => Refusal::new(Reason::PreconditionFailed, why),
        LayerError::TimedOut(_) => Refusal::new(Reason::TimedOut, format!("{what}: {error}")),
        error => Refusal::internal(what, &chain(&error)),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_saved_tree_adds_nothing_without_names_marks_and_another_mode() {
        let place = tempfile::tempdir().unwrap();
        let (from, into) = (place.path().join("from"), place.path().join("into"));
        fs::create_dir_all(from.join("files")).unwrap();
        fs::create_dir(&into).unwrap();
        fs::write(from.join("marks"), "").unwrap();
        for directory in [from.join("files"), into.clone()] {
            fs::set_permissions(directory, Permissions::from_mode(0o750)).unwrap();
        }
        let adds_nothing = || {
            let open = |path| fs::File::open(path).unwrap();
            is_empty(open(&from).as_fd(), open(&into).as_fd())
        };
        assert_eq!(adds_nothing(), Ok(true));
        fs::set_permissions(&into, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(adds_nothing(), Ok(false), "another mode");
        fs::set_permissions(&into, Permissions::from_mode(0o750)).unwrap();
        for list in ["marks", "opaque"] {
            fs::write(from.join(list), "wgone\0").unwrap();
            assert_eq!(adds_nothing(), Ok(false), "{list}");
            fs::write(from.join(list), "").unwrap();
        }
        assert_eq!(adds_nothing(), Ok(true));
        fs::create_dir(from.join("files/d")).unwrap();
        assert_eq!(adds_nothing(), Ok(false), "a name");
        fs::rename(from.join("files"), from.join("other")).unwrap();
        std::os::unix::fs::symlink("other", from.join("files")).unwrap();
        assert!(adds_nothing().is_err(), "no link is followed");
    }

    #[test]
    fn an_answer_without_a_digest_is_no_tree() {
        let answer = |digest: &str| {
            with_digest("reading a tree", Base { digest: digest.to_owned(), ..Base::default() })
        };
        for digest in ["", "ab", &"g".repeat(64), &"ab".repeat(33)] {
            assert!(answer(digest).is_err(), "{digest}");
        }
        assert!(answer(&"ab".repeat(32)).is_ok());
    }
}
