//! Fetches a repository of a server into its mirror, the bare repository in the workspace.
//!
//! Afterwards the mirror has exactly the branches and tags that the server has listed for this fetch, and HEAD names the branch that the
//! server's names. Objects of earlier fetches stay: they are what need not be fetched again. A clone takes only those that the references
//! reach ([`mirrored`](super::mirrored)).
//!
//! A fetch adds one pack. A mirror with many is begun anew.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::Path;

use git_remote::{Bounds, Refspec, RemoteError, RemoteRef, RemoteUrl};
use git2::{Oid, Repository, RepositoryInitOptions};
use thiserror::Error;

use super::error::shown;
use super::excess::EXCESS;
use super::repository::WORKSPACE;
use crate::sys;
use crate::way_out::WayOut;

/// Most references that a server may list, and most branches and tags of a mirror.
const LISTED: u32 = 200_000;
const KEPT: usize = 20_000;
/// Packs with which a mirror is begun anew.
const PACKS: usize = 64;
/// The branch of HEAD if the server names none. It never exists.
const NONE: &str = "refs/cofferdam/none";
const HEAD: &str = "HEAD";

/// The reason why a mirror was not refreshed.
#[derive(Debug, Error)]
pub(crate) enum MirrorFailure {
    /// The mirror is as complete as its references say.
    #[error(transparent)]
    Remote(RemoteError),
    #[error("the server lists more than {KEPT} branches and tags")]
    References,
    #[error("the server's `{name}` cannot be kept: {why}")]
    Rejected { name: String, why: String },
    #[error("cannot write the mirror: {0}")]
    Git(#[from] git2::Error),
    #[error("cannot write the mirror: {0}")]
    Io(#[from] io::Error),
}

impl From<RemoteError> for MirrorFailure {
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::Repository(why) => Self::Io(io::Error::other(why)),
            error => Self::Remote(error),
        }
    }
}

impl MirrorFailure {
    /// Returns the exit code, by which the daemon knows if the mirror can be used again.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Remote(RemoteError::TooMuch(_)) => EXCESS,
            Self::Remote(_) | Self::References | Self::Rejected { .. } => 4,
            Self::Git(_) | Self::Io(_) => 1,
        }
    }
}

/// Refreshes the mirror of the repository at `url`, which is made if the workspace is empty. The server may send `most` bytes.
pub(crate) fn refresh(url: &str, most: u64, way_out: &WayOut) -> Result<(), MirrorFailure> {
    sys::restrict_libgit2()?;
    let url = RemoteUrl::parse(url).map_err(RemoteError::from)?;
    let bounds = Bounds { max_bytes: most, deadline: way_out.deadline, max_refs: LISTED };
    let list = git_remote::list(&url, way_out, bounds)?;
    let listed: BTreeMap<&str, Oid> = list
        .refs
        .iter()
        .filter(|known| is_wanted(known))
        .map(|known| (known.name.as_str(), known.id))
        .collect();
    if listed.len() > KEPT {
        return Err(MirrorFailure::References);
    }
    let top = Path::new(WORKSPACE);
    if count_packs(top)? >= PACKS {
        empty(top)?;
    }
    let mirror = open(top)?;
    set_head(&mirror, (list.head.as_deref(), list.head_id), &listed)?;
    let missing = keep(&mirror, &listed)?;
    if !missing.is_empty() {
        // One by one: the server lists its references again, and could list any number of others by now.
        let wanted = missing.into_iter().map(|name| Refspec::parse(&format!("+{name}:{name}")));
        let wanted = wanted.collect::<Result<Vec<_>, _>>();
        let wanted = wanted.map_err(|error| io::Error::other(error.to_string()))?;
        let fetched = git_remote::fetch(&mirror, &url, &wanted, None, way_out, bounds)?;
        // A clone would lack it, or have an older one.
        if let Some(rejected) = fetched.rejected.into_iter().next() {
            return Err(MirrorFailure::Rejected { name: shown(&rejected.name), why: rejected.why });
        }
    }
    Ok(())
}

fn is_wanted(known: &RemoteRef) -> bool {
    known.name.starts_with("refs/heads/") || known.name.starts_with("refs/tags/")
}

fn open(top: &Path) -> Result<Repository, git2::Error> {
    if top.join(HEAD).exists() {
        return Repository::open_bare(top);
    }
    let mut options = RepositoryInitOptions::new();
    Repository::init_opts(top, options.bare(true).external_template(false).no_reinit(true))
}

fn count_packs(top: &Path) -> io::Result<usize> {
    match fs::read_dir(top.join("objects/pack")) {
        Ok(entries) => Ok(entries
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|end| end == "pack"))
            .count()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Removes everything in the mirror.
fn empty(top: &Path) -> io::Result<()> {
    for entry in fs::read_dir(top)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Has HEAD name the branch of the server's, or one with the same commit.
fn set_head(
    mirror: &Repository,
    (head, id): (Option<&str>, Option<Oid>),
    listed: &BTreeMap<&str, Oid>,
) -> Result<(), git2::Error> {
    let named = head.filter(|name| listed.contains_key(name));
    let same = || {
        let mut branches = listed.iter().filter(|(name, _)| name.starts_with("refs/heads/"));
        branches.find(|(_, known)| Some(**known) == id).map(|(name, _)| *name)
    };
    let head = named.or_else(same).unwrap_or(NONE);
    mirror.reference_symbolic(HEAD, head, true, "mirror").map(drop)
}

/// Makes the references those that are listed, as far as their objects are here. Returns the names of the others.
fn keep<'l>(mirror: &Repository, listed: &BTreeMap<&'l str, Oid>) -> Result<Vec<&'l str>, git2::Error> {
    let mut known = HashMap::new();
    let mut gone = Vec::new();
    for reference in mirror.references_glob("refs/*")? {
        let reference = reference?;
        let found = reference.name().ok().zip(reference.target());
        let found = found.filter(|(name, _)| listed.contains_key(name));
        if let Some((name, id)) = found.map(|(name, id)| (name.to_owned(), id)) {
            known.insert(name, id);
        } else {
            gone.push(reference);
        }
    }
    // First, because one may be where another's directory has to be.
    for mut reference in gone {
        reference.delete()?;
    }
    let odb = mirror.odb()?;
    let mut missing = Vec::new();
    for (name, id) in listed {
        if known.get(*name) == Some(id) {
            continue;
        }
        if odb.exists(*id) {
            mirror.reference(name, *id, true, "mirror")?;
        } else {
            missing.push(*name);
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty mirror, and two commits in it.
    fn mirror() -> (tempfile::TempDir, Repository, [Oid; 2]) {
        let place = tempfile::tempdir().unwrap();
        let mirror = open(place.path()).unwrap();
        let who = git2::Signature::new("A", "a@example.org", &git2::Time::new(0, 0)).unwrap();
        let tree = mirror.treebuilder(None).unwrap().write().unwrap();
        let commit = |message: &str| {
            let tree = mirror.find_tree(tree).unwrap();
            mirror.commit(None, &who, &who, message, &tree, &[]).unwrap()
        };
        let commits = [commit("one"), commit("two")];
        (place, mirror, commits)
    }

    fn names(mirror: &Repository) -> Vec<String> {
        let found = mirror.references_glob("refs/*").unwrap();
        let mut names: Vec<_> = found.map(|one| one.unwrap().name().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_mirror_has_the_references_of_the_last_list_and_no_others() {
        let (_place, mirror, [one, two]) = mirror();
        let missing = |listed: &[(&'static str, Oid)]| {
            let listed = listed.iter().copied().collect();
            keep(&mirror, &listed).unwrap()
        };
        assert!(missing(&[("refs/heads/a", one), ("refs/tags/v1", two)]).is_empty());
        assert_eq!(names(&mirror), ["refs/heads/a", "refs/tags/v1"]);
        // A name becomes a directory of names.
        assert!(missing(&[("refs/heads/a/b", two)]).is_empty());
        assert_eq!(names(&mirror), ["refs/heads/a/b"]);
        assert_eq!(mirror.refname_to_id("refs/heads/a/b").unwrap(), two);
        assert!(missing(&[("refs/heads/a/b", one)]).is_empty());
        assert_eq!(mirror.refname_to_id("refs/heads/a/b").unwrap(), one);
        let unknown = Oid::from_str(&"1".repeat(40)).unwrap();
        assert_eq!(missing(&[("refs/heads/c", unknown), ("refs/heads/d", one)]), ["refs/heads/c"]);
        assert_eq!(names(&mirror), ["refs/heads/d"], "what is missing is fetched");
        assert!(missing(&[]).is_empty());
        assert!(names(&mirror).is_empty());
    }

    #[test]
    fn head_names_the_branch_of_the_server_or_one_with_its_commit_or_none() {
        let (_place, mirror, [one, two]) = mirror();
        let listed = BTreeMap::from([("refs/heads/a", one), ("refs/heads/b", two), ("refs/tags/a", two)]);
        let head = |head: Option<&str>, id: Option<Oid>| {
            set_head(&mirror, (head, id), &listed).unwrap();
            let found = mirror.find_reference(HEAD).unwrap();
            found.symbolic_target().unwrap().unwrap().to_owned()
        };
        assert_eq!(head(Some("refs/heads/b"), Some(two)), "refs/heads/b");
        assert_eq!(head(Some("refs/heads/none"), None), NONE);
        assert_eq!(head(None, Some(two)), "refs/heads/b");
        assert_eq!(head(None, None), NONE);
    }

    #[test]
    fn a_mirror_with_many_packs_is_begun_anew() {
        let (place, mirror, _) = mirror();
        drop(mirror);
        assert_eq!(count_packs(place.path()).unwrap(), 0);
        for number in 0..3 {
            fs::write(place.path().join(format!("objects/pack/pack-{number}.pack")), "").unwrap();
            fs::write(place.path().join(format!("objects/pack/pack-{number}.idx")), "").unwrap();
        }
        assert_eq!(count_packs(place.path()).unwrap(), 3);
        empty(place.path()).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        open(place.path()).unwrap();
        assert_eq!(count_packs(place.path()).unwrap(), 0);
    }

    #[test]
    fn only_errors_of_the_repository_itself_break_a_mirror() {
        let code = |error: RemoteError| MirrorFailure::from(error).code();
        assert_eq!(code(RemoteError::TooMuch(1)), EXCESS);
        assert_eq!(code(RemoteError::Closed), 4);
        assert_eq!(code(RemoteError::Repository("full".to_owned())), 1);
        assert_eq!(MirrorFailure::References.code(), 4);
    }
}
