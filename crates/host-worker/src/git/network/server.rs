//! The server of one call: what it lists, gives and takes.

use git_remote::{Fetched, Outcome, Refspec, RemoteUrl};
use git2::{Oid, Repository};
use operations::{Bounds, GitRefName};

use super::super::error::GitError;
use super::address::Address;
use crate::way_out::WayOut;

/// Most references that a server may list.
const MOST_REFS: u32 = 50_000;

/// Branch or tag of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: GitRefName,
    pub(super) id: Oid,
}

/// Update of a reference of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) name: GitRefName,
    /// Id that the server must have; `None`: the reference must not exist.
    pub(super) old: Option<Oid>,
    /// Id that it gets; `None` deletes the reference.
    pub(super) new: Option<Oid>,
}

pub(super) struct Server<'w> {
    url: &'w RemoteUrl,
    way: &'w WayOut,
    max_bytes: u64,
}

impl<'w> Server<'w> {
    pub(super) fn new(address: &'w Address, bounds: &Bounds, way: &'w WayOut) -> Self {
        Self { url: &address.url, way, max_bytes: bounds.max_transfer_bytes }
    }

    fn bounds(&self) -> git_remote::Bounds {
        git_remote::Bounds { max_bytes: self.max_bytes, deadline: self.way.deadline, max_refs: MOST_REFS }
    }

    /// Returns the branches and tags. Leaves out names that no call can have.
    pub(super) fn list(&self) -> Result<Vec<Listed>, GitError> {
        let list = git_remote::list(self.url, self.way, self.bounds()).map_err(GitError::Remote)?;
        let listed = |known: git_remote::RemoteRef| {
            let name = known.name.starts_with("refs/").then(|| GitRefName::parse(&known.name)).flatten();
            Some(Listed { name: name?, id: known.id })
        };
        Ok(list.refs.into_iter().filter_map(listed).collect())
    }

    /// Downloads references of the server with their history, each to a name of the repository. A `+` before the pair replaces a
    /// reference whose commits the new one lacks.
    pub(super) fn download(
        &self,
        repository: &Repository,
        pairs: impl IntoIterator<Item = String>,
        depth: Option<u32>,
    ) -> Result<Fetched, GitError> {
        let pairs = pairs
            .into_iter()
            .map(|pair| Refspec::parse(&pair).map_err(|error| GitError::Library(error.to_string())));
        let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
        git_remote::fetch(repository, self.url, &pairs, depth, self.way, self.bounds())
            .map_err(GitError::Remote)
    }

    /// Pushes. Returns the references that the server did not update, each with the reason.
    pub(super) fn push(
        &self,
        repository: &Repository,
        updates: &[Update],
    ) -> Result<Vec<(GitRefName, String)>, GitError> {
        let wanted: Vec<git_remote::Update> = updates
            .iter()
            .map(|Update { name, old, new }| git_remote::Update {
                ref_name: name.to_string(),
                expected_old: *old,
                new: *new,
            })
            .collect();
        let outcomes = git_remote::push(repository, self.url, &wanted, self.way, self.bounds())
            .map_err(GitError::of_push)?;
        let refused = updates.iter().zip(outcomes).filter_map(|(update, ended)| match ended.outcome {
            Outcome::Updated | Outcome::UpToDate => None,
            Outcome::Rejected(why) => Some((update.name.clone(), why)),
        });
        Ok(refused.collect())
    }
}
