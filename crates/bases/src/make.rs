//! Makes the tree of a base: in a staging directory first, which becomes the base by one rename.

use std::path::Path;

use atomic_file::tree as complete;
use disk_quotas::Disk;
use executor::{CloneBounds, Directory, layer};
use host_launch::TreeBounds;
use identity::{BaseId, Principal};
use operations::Reason;
use refusal::Refusal;
use runs::{
    Launcher, Purpose, Runs, linked_repository, make_directory, open_directory, owner_for, remove_tree,
};
use tokio::task::{block_in_place, spawn_blocking};
use wire::v1;

use crate::record::{Source, only_imported};
use crate::socket::{self, Pieces};

/// Bounds of a tree that is only read.
pub(crate) const ALL: TreeBounds = TreeBounds { bytes: u64::MAX, files: u64::MAX };

/// A complete tree, at its final path.
pub(crate) struct Tree {
    pub(crate) digest: String,
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    pub(crate) left_out: u64,
}

impl From<v1::Base> for Tree {
    fn from(found: v1::Base) -> Self {
        let v1::Base { digest, size_bytes: bytes, files, left_out, .. } = found;
        Self { digest, bytes, files, left_out }
    }
}

/// Makes the tree of the base `id` within `most`, durably. After an error nothing of it is left.
pub(crate) async fn tree(
    runs: &Runs,
    id: BaseId,
    source: &Source,
    principal: &Principal,
    most: TreeBounds,
) -> Result<Tree, Refusal> {
    let path = runs.launcher.directories.base(id);
    let staging = complete::staging(&path);
    let made = staged(runs, (&staging, &path), source, principal, most).await;
    if made.is_err() {
        remove_tree(staging).await;
        remove_tree(path).await;
    }
    made
}

/// Makes the tree of the base `id` of what another daemon sends, durably. After an error nothing of it is left.
///
/// The files must have the digest `wanted`, and `disk` is where they are written.
pub(crate) async fn received(
    runs: &Runs,
    id: BaseId,
    (pieces, wanted, disk): (Pieces, &str, &Disk),
    principal: &Principal,
    most: TreeBounds,
) -> Result<Tree, Refusal> {
    let path = runs.launcher.directories.base(id);
    let staging = complete::staging(&path);
    let filled = async {
        let into = block_in_place(|| make_directory(&staging, owner_for(principal)))
            .map_err(|error| Refusal::internal("making the directory of a base", &error))?;
        let tree = Tree::from(socket::receive(&into, (pieces, disk), most).await?);
        if tree.digest != wanted {
            let found = &tree.digest;
            let message = format!("digest: the files that came have {found}, and {wanted} was announced");
            return Err(Refusal::new(Reason::InvalidArgument, message).with("field", "digest"));
        }
        place(&path).await?;
        Ok(tree)
    };
    let made = filled.await;
    if made.is_err() {
        remove_tree(staging).await;
        remove_tree(path).await;
    }
    made
}

async fn staged(
    runs: &Runs,
    (staging, path): (&Path, &Path),
    source: &Source,
    principal: &Principal,
    most: TreeBounds,
) -> Result<Tree, Refusal> {
    let tree = fill(runs, staging, source, principal, most).await?;
    place(path).await?;
    Ok(tree)
}

/// Gives a complete tree its final name.
async fn place(path: &Path) -> Result<(), Refusal> {
    let path = path.to_owned();
    let placed = spawn_blocking(move || complete::place(&path)).await;
    let placed = placed.map_err(|error| Refusal::internal("placing a base", &error))?;
    placed.map_err(|error| Refusal::internal("placing a base", &error))
}

async fn fill(
    runs: &Runs,
    staging: &Path,
    source: &Source,
    principal: &Principal,
    most: TreeBounds,
) -> Result<Tree, Refusal> {
    let launcher: &Launcher = &runs.launcher;
    let answer = match source {
        Source::Directory { path } => {
            let field = "source.directory.path";
            let from = block_in_place(|| launcher.roots.open(field, path, Purpose::Own, principal))?;
            let into = block_in_place(|| make_directory(staging, from.owner))
                .map_err(|error| Refusal::internal("making the directory of a base", &error))?;
            layer::copy(&from, &into, most).await.map_err(|refusal| at(field, refusal))?
        }
        Source::Clone { repository, revision } => {
            let make = |owner| make_directory(staging, owner);
            let field = "source.clone.repository";
            let settings = "bases.max_bytes of the daemon's configuration, and the space on its disk";
            let bounds = CloneBounds { most, limit: "bases", settings };
            let from = (field, repository.as_path());
            let tree = launcher.clone_into(make, from, revision.as_deref(), bounds, principal).await?;
            layer::digest(&tree, most).await.map_err(|refusal| at(field, refusal))?
        }
        Source::Copy { .. } => return Err(only_imported()),
        Source::Checkpoint { checkpoint } => {
            let make = |owner| make_directory(staging, owner);
            let tree = runs.copy_checkpoint(make, *checkpoint, most, principal).await;
            tree.map_err(|refusal| at("source.checkpoint.checkpoint_id", refusal))?
        }
    };
    Ok(answer.into())
}

/// Returns the identity of a clone: the repository by device and inode, and a digest of what it is cloned at. `None` for a directory.
pub(crate) async fn identity(
    launcher: &Launcher,
    source: &Source,
    principal: &Principal,
) -> Result<Option<String>, Refusal> {
    let Source::Clone { repository, revision } = source else { return Ok(None) };
    let field = "source.clone.repository";
    let from = block_in_place(|| launcher.roots.open(field, repository, Purpose::Own, principal))?;
    let linked = linked_repository(&launcher.roots, field, &from, principal).await?;
    let (from, work_tree) = match &linked {
        Some(linked) => (&linked.directory, linked.work_tree.as_str()),
        None => (&from, ""),
    };
    let stat = rustix::fs::fstat(&from.handle)
        .map_err(|error| Refusal::internal("looking at a repository", &error))?;
    let digest = layer::identify(from, revision.as_deref().unwrap_or_default(), work_tree).await;
    let digest = digest.map_err(|refusal| match refusal.reason {
        Reason::PreconditionFailed => Refusal::invalid("source.clone", refusal.message),
        _ => refusal,
    })?;
    Ok(Some(format!("{}:{}:{work_tree}:{digest}", stat.st_dev, stat.st_ino)))
}

/// Names the field of a source that cannot be a base.
fn at(field: &'static str, refusal: Refusal) -> Refusal {
    match refusal.reason {
        Reason::PreconditionFailed => {
            Refusal { message: format!("{field}: {}", refusal.message), ..refusal }.with("field", field)
        }
        _ => refusal,
    }
}

/// Computes the digest of a base's tree anew.
pub(crate) async fn digest(launcher: &Launcher, id: BaseId) -> Result<Tree, Refusal> {
    Ok(layer::digest(&opened(launcher, id)?, ALL).await?.into())
}

/// Opens the tree of a base.
pub(crate) fn opened(launcher: &Launcher, id: BaseId) -> Result<Directory, Refusal> {
    let path = launcher.directories.base(id);
    block_in_place(|| open_directory(&path))
        .map_err(|_| Refusal::new(Reason::PreconditionFailed, "the directory of the base no longer exists"))
}

/// Returns the id of the base whose tree, complete or not, has this name.
pub(crate) fn id_of(name: &str) -> Option<BaseId> {
    BaseId::parse(complete::final_name(name)).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_tree_has_its_final_name_alone_when_it_is_placed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(BaseId::new().to_string());
        let staging = complete::staging(&path);
        fs::create_dir(&staging).unwrap();
        fs::write(staging.join("file"), "x").unwrap();
        complete::place(&path).unwrap();
        assert!(!staging.exists());
        assert_eq!(fs::read(path.join("file")).unwrap(), b"x");
    }

    #[test]
    fn names_of_trees_have_the_ids_of_their_bases() {
        let id = BaseId::new();
        assert_eq!((id_of(&id.to_string()), id_of(&format!("{id}.part"))), (Some(id), Some(id)));
        assert_eq!((id_of("x"), id_of(".part"), id_of("")), (None, None, None));
    }
}
