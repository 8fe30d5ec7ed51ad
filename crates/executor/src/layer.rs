//! Operations of the host worker on directories that no run uses: an overlay's changes, the size of a workspace, and trees of bases.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use host_launch::{LayerError, LayerSpec, Marks, TreeBounds};
use operations::Reason;
use refusal::{Refusal, chain};
use wire::v1::{AcceptRunResponse, Base, DiffRunResponse};

use crate::directory::Directory;
use crate::launcher::launcher;
pub use crate::saved_tree::adds_nothing;

/// Time limit for reading all changes.
const DIFF: Duration = Duration::from_secs(60);
/// Time limit for applying all changes.
const ACCEPT: Duration = Duration::from_secs(600);
/// Time limit for measuring one workspace.
const MEASURE: Duration = Duration::from_secs(10);

/// Time limit for copying or digesting a tree.
const TREE: Duration = Duration::from_secs(600);
/// Time limit for sending a tree to another daemon, or for receiving one.
const TRANSFER: Duration = Duration::from_secs(1_800);

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

/// Sends a tree over `stream`, read as its owner. Returns its digest and size.
pub async fn export(tree: &Directory, stream: OwnedFd, most: TreeBounds) -> Result<Base, Refusal> {
    const WHAT: &str = "sending a tree";
    let owner = (tree.owner.uid, tree.owner.gid);
    let handle = handle(tree, WHAT)?;
    blocking(WHAT, move || launcher().export((handle.as_fd(), stream), owner, most, TRANSFER))
        .await
        .and_then(|found| with_digest(WHAT, found))
}

/// Fills an empty directory with the tree that comes over `stream`. Returns the tree's digest and size.
pub async fn import(into: &Directory, stream: OwnedFd, most: TreeBounds) -> Result<Base, Refusal> {
    const WHAT: &str = "receiving a tree";
    let owner = (into.owner.uid, into.owner.gid);
    let handle = handle(into, WHAT)?;
    blocking(WHAT, move || launcher().import((handle.as_fd(), stream), owner, most, TRANSFER))
        .await
        .and_then(|found| with_digest(WHAT, found))
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
    use super::*;

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
