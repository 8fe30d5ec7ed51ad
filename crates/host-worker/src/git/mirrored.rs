//! Clones a repository of a server from its mirror, mounted read-only at `/source`, into the empty workspace.
//!
//! The references of the mirror are those that the server advertised for this clone a moment ago. The mirror may have further
//! objects, which were fetched for others. A clone has only the objects that the references reach: if these are all, the packs are
//! copied as they are, and otherwise a new one is made.
//!
//! The clone has the server as `origin`, with its branches and tags. A clone of a part of the history has only the branch or tag that
//! is checked out.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use git2::{ErrorClass, ErrorCode, ObjectType, Oid, Reference, Repository, RepositoryInitOptions};
use host_launch::TreeBounds;

use super::clone::{CloneFailure, SOURCE, check_source, encode, is_empty, write_files};
use super::error::shown;
use super::excess::{Size, SizeError};
use super::repository::WORKSPACE;
use crate::sys;

const HEADS: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";
const TRACKED: &str = "refs/remotes/origin/";

/// The reference or the commit that is checked out.
struct Target {
    /// Name of a branch or tag; `None` for a commit that was named by its id.
    name: Option<String>,
    /// Object of the reference, which may be an annotated tag.
    object: Oid,
    commit: Oid,
}

/// The objects that references reach, and the commits at which a part of the history ends.
#[derive(Default)]
struct Reached {
    objects: HashSet<Oid>,
    ends: Vec<Oid>,
}

/// Clones the mirror of the repository at `url`, and checks out `revision`, within `most`. Returns the commit.
///
/// An empty revision is the server's HEAD. A `depth` of 0 is all of the history.
pub(crate) fn clone_mirror(
    url: &str,
    revision: &str,
    depth: u32,
    most: TreeBounds,
) -> Result<Oid, CloneFailure> {
    sys::restrict_libgit2()?;
    if !is_empty() {
        return Err(CloneFailure::NotEmpty);
    }
    // The mirror belongs to the daemon's own user, who may be another than the owner of the clone.
    sys::trust_owners()?;
    check_source(Path::new(SOURCE))?;
    let mirror = Repository::open_bare(SOURCE)?;
    let target = Target::find(&mirror, revision)?;
    let references = if depth == 0 { references(&mirror)? } else { target.references() };
    let mut reached = Reached::default();
    let within = if depth == 0 { u32::MAX } else { depth };
    reached.add_history(&mirror, &references, &target, within)?;
    let options = &mut RepositoryInitOptions::new();
    let repository = Repository::init_opts(WORKSPACE, options.external_template(false).no_reinit(true))?;
    let mut size = Size::within(most);
    reached.copy(&mirror, &repository, size)?;
    reached.end_history(&repository)?;
    set_up(&repository, url, references, &target, depth)?;
    if depth == 0
        && let Some(head) = default_branch(&mirror)
    {
        let head = format!("{TRACKED}{head}");
        if repository.find_reference(&head).is_ok() {
            repository.reference_symbolic(&format!("{TRACKED}HEAD"), &head, true, "clone")?;
        }
    }
    size.add_source(&repository)?;
    write_files(&repository, &mut size)?;
    encode(&repository, &mut size)?;
    Ok(target.commit)
}

impl Target {
    /// Finds a branch, a tag, or a commit by its full id.
    fn find(mirror: &Repository, revision: &str) -> Result<Self, CloneFailure> {
        let none = || CloneFailure::NoRevision(shown(revision));
        let named = |name: &str| mirror.find_reference(name).ok().filter(|found| found.target().is_some());
        if revision.is_empty() {
            if mirror.references_glob("refs/*")?.names().next().is_none() {
                return Err(CloneFailure::Empty);
            }
            let head = default_branch(mirror).and_then(|head| named(&format!("{HEADS}{head}")));
            return Self::of(&head.ok_or(CloneFailure::NoDefault)?).ok_or_else(none);
        }
        let found = [HEADS, TAGS].into_iter().find_map(|kind| named(&format!("{kind}{revision}")));
        if let Some(found) = found {
            return Self::of(&found).ok_or_else(none);
        }
        let is_id = revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = Oid::from_str(revision).ok().filter(|_| is_id).ok_or_else(none)?;
        if mirror.find_commit(id).is_ok() && is_reached(mirror, id)? {
            return Ok(Self { name: None, object: id, commit: id });
        }
        Err(CloneFailure::NotReached(shown(revision)))
    }

    fn of(reference: &Reference<'_>) -> Option<Self> {
        let commit = reference.peel_to_commit().ok()?.id();
        Some(Self { name: Some(reference.name().ok()?.to_owned()), object: reference.target()?, commit })
    }

    /// Returns the reference that is checked out alone.
    fn references(&self) -> Vec<(Vec<u8>, Oid)> {
        self.name.iter().map(|name| (name.as_bytes().to_vec(), self.object)).collect()
    }

    fn branch(&self) -> Option<&str> {
        self.name.as_deref().and_then(|name| name.strip_prefix(HEADS))
    }
}

impl Reached {
    /// Adds the objects of the references and of the target, with `depth` commits down each line of the history.
    fn add_history(
        &mut self,
        mirror: &Repository,
        references: &[(Vec<u8>, Oid)],
        target: &Target,
        depth: u32,
    ) -> Result<(), CloneFailure> {
        let mut commits = vec![target.commit];
        for (_, id) in references {
            commits.extend(self.add_tags(mirror, *id)?);
        }
        let mut level: Vec<Oid> = commits.into_iter().filter(|id| self.objects.insert(*id)).collect();
        for distance in 1..=depth {
            let mut next = Vec::new();
            for id in level {
                let commit = mirror.find_commit(id)?;
                self.add_tree(mirror, commit.tree_id())?;
                if distance < depth {
                    next.extend(commit.parent_ids().filter(|parent| self.objects.insert(*parent)));
                } else if commit.parent_count() > 0 {
                    self.ends.push(id);
                }
            }
            if next.is_empty() {
                break;
            }
            level = next;
        }
        Ok(())
    }

    /// Adds the annotated tags that begin with `id`. Returns the commit at their end; a tree or a blob is added.
    fn add_tags(&mut self, mirror: &Repository, mut id: Oid) -> Result<Option<Oid>, CloneFailure> {
        loop {
            match mirror.odb()?.read_header(id)?.1 {
                ObjectType::Commit => return Ok(Some(id)),
                ObjectType::Tag if self.objects.insert(id) => id = mirror.find_tag(id)?.target_id(),
                ObjectType::Tree => {
                    self.add_tree(mirror, id)?;
                    return Ok(None);
                }
                _ => {
                    self.objects.insert(id);
                    return Ok(None);
                }
            }
        }
    }

    /// Adds a tree with everything in it. The commit of a submodule is in another repository.
    fn add_tree(&mut self, mirror: &Repository, top: Oid) -> Result<(), CloneFailure> {
        let mut pending = vec![top];
        while let Some(id) = pending.pop() {
            if !self.objects.insert(id) {
                continue;
            }
            for entry in &mirror.find_tree(id)? {
                match entry.kind() {
                    Some(ObjectType::Tree) => pending.push(entry.id()),
                    Some(ObjectType::Blob) => {
                        self.objects.insert(entry.id());
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Copies the objects. They may not take more than the bounds.
    fn copy(&self, mirror: &Repository, into: &Repository, mut size: Size) -> Result<(), CloneFailure> {
        let mut all = HashSet::new();
        mirror.odb()?.foreach(|id| {
            all.insert(*id);
            true
        })?;
        let packs = into.path().join("objects/pack");
        if all == self.objects {
            return copy_packs(&mirror.path().join("objects/pack"), &packs, &mut size);
        }
        if let Some(lost) = self.objects.difference(&all).next() {
            return Err(CloneFailure::Library(format!("the object {lost} is missing")));
        }
        let mut builder = into_pack(mirror, &self.objects)?;
        builder.write(&packs, 0o444).map_err(|error| match error.class() {
            // No file may be larger than the bounds.
            ErrorClass::Os => CloneFailure::Excess(size.full()),
            _ => error.into(),
        })
    }

    /// Writes the file that says where the history ends.
    fn end_history(&mut self, repository: &Repository) -> Result<(), CloneFailure> {
        if self.ends.is_empty() {
            return Ok(());
        }
        self.ends.sort_unstable();
        let mut lines = String::new();
        for id in &self.ends {
            lines.push_str(&id.to_string());
            lines.push('\n');
        }
        fs::write(repository.path().join("shallow"), lines).map_err(failed)
    }
}

/// Returns the branches and tags of the mirror, with the objects that they name.
fn references(mirror: &Repository) -> Result<Vec<(Vec<u8>, Oid)>, CloneFailure> {
    let mut found = Vec::new();
    for names in ["refs/heads/*", "refs/tags/*"] {
        for reference in mirror.references_glob(names)? {
            let reference = reference?;
            if let Some(id) = reference.target() {
                found.push((reference.name_bytes().to_vec(), id));
            }
        }
    }
    Ok(found)
}

/// Returns the branch that HEAD of the server names.
fn default_branch(mirror: &Repository) -> Option<String> {
    let head = mirror.find_reference("HEAD").ok()?;
    head.symbolic_target().ok()??.strip_prefix(HEADS).map(str::to_owned)
}

/// Returns true if a branch or tag reaches the commit.
fn is_reached(mirror: &Repository, id: Oid) -> Result<bool, CloneFailure> {
    let mut walk = mirror.revwalk()?;
    for (_, tip) in references(mirror)? {
        let end = mirror.find_object(tip, None)?.peel(ObjectType::Commit);
        match end {
            Ok(commit) => walk.push(commit.id())?,
            // A tag of a tree or a blob.
            Err(error) if matches!(error.code(), ErrorCode::Peel | ErrorCode::InvalidSpec) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for found in walk {
        if found? == id {
            return Ok(true);
        }
    }
    Ok(false)
}

fn copy_packs(from: &Path, into: &Path, size: &mut Size) -> Result<(), CloneFailure> {
    let is_pack = |path: &Path| path.extension().is_some_and(|end| end == "pack" || end == "idx");
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let metadata = entry.metadata().map_err(failed)?;
        if metadata.is_file() && is_pack(&entry.path()) {
            size.add(metadata.len(), 1)?;
            fs::copy(entry.path(), into.join(entry.file_name())).map_err(failed)?;
        }
    }
    Ok(())
}

fn into_pack<'r>(
    mirror: &'r Repository,
    objects: &HashSet<Oid>,
) -> Result<git2::PackBuilder<'r>, CloneFailure> {
    let mut builder = mirror.packbuilder()?;
    builder.set_threads(1);
    for id in objects {
        builder.insert_object(*id, None)?;
    }
    Ok(builder)
}

/// Writes the references, the remote and HEAD.
fn set_up(
    repository: &Repository,
    url: &str,
    references: Vec<(Vec<u8>, Oid)>,
    target: &Target,
    depth: u32,
) -> Result<(), CloneFailure> {
    let mut lines: Vec<(Vec<u8>, Oid)> = references
        .into_iter()
        .map(|(name, id)| match name.strip_prefix(HEADS.as_bytes()) {
            Some(branch) => ([TRACKED.as_bytes(), branch].concat(), id),
            None => (name, id),
        })
        .collect();
    if let Some(branch) = target.branch() {
        lines.push(([HEADS, branch].concat().into_bytes(), target.commit));
    }
    lines.sort_unstable();
    let mut packed = Vec::new();
    for (name, id) in lines {
        packed.extend([id.to_string().as_bytes(), b" ", &name, b"\n"].concat());
    }
    fs::write(repository.path().join("packed-refs"), packed).map_err(failed)?;
    match target.name.as_deref().filter(|_| depth > 0) {
        None => repository.remote("origin", url)?,
        Some(name) => {
            let tracked =
                name.strip_prefix(HEADS).map_or_else(|| name.to_owned(), |name| [TRACKED, name].concat());
            repository.remote_with_fetch("origin", url, &format!("+{name}:{tracked}"))?
        }
    };
    match target.branch() {
        Some(branch) => {
            repository.set_head(&[HEADS, branch].concat())?;
            let mut config = repository.config()?;
            config.set_str(&format!("branch.{branch}.remote"), "origin")?;
            config.set_str(&format!("branch.{branch}.merge"), &[HEADS, branch].concat())?;
        }
        None => repository.set_head_detached(target.commit)?,
    }
    Ok(())
}

/// Returns the failure of an access to a file. A workspace without space says nothing against the mirror.
fn failed(error: io::Error) -> CloneFailure {
    SizeError::Io(error).into()
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::super::excess::Excess;
    use super::*;

    #[test]
    fn a_workspace_without_space_is_no_damage_of_the_mirror() {
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::FBIG] {
            let failure = failed(errno.into());
            assert!(matches!(failure, CloneFailure::Excess(Excess::Full)), "{failure:?}");
        }
        assert!(matches!(failed(Errno::IO.into()), CloneFailure::Library(_)));
    }
}
