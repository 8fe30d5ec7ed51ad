//! Linked work trees (`git worktree add`): directories whose `.git` is a file that names a directory in another repository.
//!
//! Trust boundary: anyone who could write the directory, such as an agent of an earlier run, could write that file. So the repository is
//! used only if it names this directory as the work tree of that name. Like every workspace, it must be beneath a workspace root and belong
//! to the principal. Its files are read in the jail, never here.

use std::os::fd::AsFd as _;
use std::path::{Component, Path, PathBuf};

use executor::{Directory, LinkedRepository, layer};
use host_launch::Owner;
use identity::Principal;
use operations::Reason;
use refusal::Refusal;
use run_record::{Linked, Place};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2, statat};

use crate::workspace::{Purpose, Roots};

/// Finds the repository of a linked work tree. Returns `None` if the directory is not one.
pub async fn linked(
    roots: &Roots,
    field: &'static str,
    directory: &Directory,
    principal: &Principal,
) -> Result<Option<LinkedRepository>, Refusal> {
    let is_file = statat(&directory.handle, ".git", AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
    if !is_file {
        return Ok(None);
    }
    let text = layer::read(directory, ".git").await?;
    let Some((place, name)) = named_place(&text, &directory.path) else { return Ok(None) };
    let repository = roots.open(field, &place, Purpose::Own, principal).map_err(|refusal| {
        let why = "the directory is a linked work tree, and its repository cannot be used";
        Refusal::new(refusal.reason, format!("{why}: {}", refusal.message))
    })?;
    let within = place.join("worktrees").join(&name);
    let back = layer::read(&repository, &format!("worktrees/{name}/gitdir")).await;
    let back = back.ok().and_then(|text| resolved(&text, &within)).and_then(|file| {
        let tree = file.parent().filter(|_| file.ends_with(".git"))?;
        Place::of(roots.reopen(tree)?.as_fd()).ok()
    });
    let here = Place::of(directory.handle.as_fd())
        .map_err(|error| Refusal::internal("looking at a linked work tree", &error))?;
    if repository.owner.uid != directory.owner.uid || !back.is_some_and(|back| back.is(here)) {
        return Err(Refusal::new(
            Reason::PreconditionFailed,
            format!(
                "{field}: the directory is a linked work tree, but its repository does not name it as one, or belongs to \
                 another user; `git worktree repair` on the host may help"
            ),
        ));
    }
    Ok(Some(LinkedRepository { directory: repository, work_tree: name }))
}

/// The repository for the git operations of a run on a linked work tree, and its identity for a later check.
pub struct InPlace {
    pub repository: LinkedRepository,
    pub kept: Option<Linked>,
}

/// Finds the repository for the git operations of a run on `directory`. Without one, a run on a linked work tree has no git operations.
pub async fn in_place(roots: &Roots, directory: &Directory, principal: &Principal) -> Option<InPlace> {
    match linked(roots, "workspace.path", directory, principal).await {
        Ok(found) => {
            let repository = found?;
            Some(InPlace { kept: kept(&repository), repository })
        }
        Err(refusal) => {
            tracing::info!(why = refusal.message, "a run on a linked work tree has no git operations");
            None
        }
    }
}

impl InPlace {
    /// Makes the directory for reflogs, which a bare repository lacks before the first commit in a work tree.
    pub async fn make_logs(&self) {
        if let Err(refusal) = layer::make_logs(&self.repository.directory).await {
            tracing::warn!(why = refusal.message, "a repository has no directory for reflogs");
        }
    }
}

/// Opens the repository of a run that outlived its daemon, if it is still the same.
pub fn again(roots: &Roots, was: &Linked, owner: Owner) -> Option<InPlace> {
    let (path, work_tree) = (was.path.clone(), was.work_tree.clone());
    let directory = Directory { handle: roots.reopen(&path)?, path, owner, is_mapped: false };
    let repository = LinkedRepository { directory, work_tree };
    let kept = kept(&repository)?;
    (kept == *was).then_some(InPlace { repository, kept: Some(kept) })
}

fn kept(linked: &LinkedRepository) -> Option<Linked> {
    let LinkedRepository { directory, work_tree } = linked;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let own = format!("worktrees/{work_tree}");
    let own = openat2(&directory.handle, own, flags, Mode::empty(), resolve).ok()?;
    Some(Linked {
        path: directory.path.clone(),
        repository: Place::of(&directory.handle).ok()?,
        work_tree: work_tree.clone(),
        own: Place::of(&own).ok()?,
    })
}

/// Returns the repository, and the work tree's name in it, from the text of a `.git` file.
fn named_place(text: &[u8], directory: &Path) -> Option<(PathBuf, String)> {
    let place = resolved(text.strip_prefix(b"gitdir:")?, directory)?;
    let name = place.file_name()?.to_str()?.to_owned();
    let parent = place.parent().filter(|parent| parent.ends_with("worktrees"))?;
    Some((parent.parent()?.to_owned(), name))
}

/// Returns the path in the text of one of git's files. It may be relative to `from`.
fn resolved(text: &[u8], from: &Path) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for component in from.join(std::str::from_utf8(text).ok()?.trim()).components() {
        match component {
            Component::ParentDir => drop(path.pop().then_some(())?),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::named_place;

    #[test]
    fn a_git_file_of_a_linked_work_tree_names_its_repository() {
        let main = Some((PathBuf::from("/r/main/.git"), "t".to_owned()));
        for (text, found) in [
            ("gitdir: /r/main/.git/worktrees/t\n", main.clone()),
            ("gitdir: ../main/.git/worktrees/t\n", main),
            ("gitdir: ../main/.git/modules/t\n", None),
            ("gitdir: ../../../../main/.git/worktrees/t", None),
            ("gitdir: /", None),
            ("gitdir:", None),
            ("/r/main/.git/worktrees/t", None),
        ] {
            assert_eq!(named_place(text.as_bytes(), Path::new("/r/t")), found, "{text}");
        }
    }
}
