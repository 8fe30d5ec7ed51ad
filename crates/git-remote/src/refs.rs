//! Updates of the refs of a repository after a fetch.

use git2::{ErrorCode, Oid, Reference, Repository};

use crate::error::shown;
use crate::refspec::Selected;

/// Message of the reflog.
const MESSAGE: &str = "fetch";

/// A ref that was created or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    pub name: String,
    /// `None` if it is new.
    pub old: Option<Oid>,
    pub new: Oid,
}

/// A ref that stayed as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    pub name: String,
    /// The reason, fit for an agent.
    pub why: String,
}

/// The result of a fetch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The refs that changed. Others are as the server has them.
    pub updates: Vec<RefUpdate>,
    pub rejected: Vec<Rejected>,
    /// The branch that HEAD of the server names.
    pub head: Option<String>,
    /// Bytes that were received.
    pub bytes: u64,
}

impl Fetched {
    /// Makes a ref of the repository what it is on the server.
    pub(crate) fn update(&mut self, repository: &Repository, selected: Selected) {
        let Selected { target: name, id: new, is_forced } = selected;
        match change(repository, &name, new, is_forced) {
            Ok(None) => {}
            Ok(Some(old)) => self.updates.push(RefUpdate { name, old: old.0, new }),
            Err(Unchanged::Because(why)) => self.rejected.push(Rejected { name, why: why.to_owned() }),
            // Such as a ref that is a directory of others, or the lock of another program.
            Err(Unchanged::Failed(error)) => {
                self.rejected.push(Rejected { name, why: shown(error.message()) });
            }
        }
    }
}

/// The value of a ref before.
struct Old(Option<Oid>);

/// The reason why a ref stays.
enum Unchanged {
    Because(&'static str),
    Failed(git2::Error),
}

impl From<git2::Error> for Unchanged {
    fn from(error: git2::Error) -> Self {
        Self::Failed(error)
    }
}

/// Changes a ref if it is not the same. Returns its value before.
fn change(repository: &Repository, name: &str, new: Oid, is_forced: bool) -> Result<Option<Old>, Unchanged> {
    let old = match repository.find_reference(name) {
        Ok(reference) => match reference.target() {
            Some(id) => Some(id),
            None => return Err(Unchanged::Because("it is a symbolic ref")),
        },
        Err(error) if error.code() == ErrorCode::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    if old == Some(new) {
        return Ok(None);
    }
    if is_checked_out(repository, name) {
        return Err(Unchanged::Because("it is checked out, and a fetch changes no files"));
    }
    if let Some(old) = old
        && !is_forced
    {
        if name.starts_with("refs/tags/") {
            return Err(Unchanged::Because("the tag is another one here"));
        }
        // An unknown answer is no.
        if !repository.graph_descendant_of(new, old).unwrap_or(false) {
            return Err(Unchanged::Because("not a fast-forward: it has commits that the server's lacks"));
        }
    }
    // No other value than the one that was judged is replaced.
    repository.reference_matching(name, new, true, old.unwrap_or(Oid::ZERO_SHA1), MESSAGE)?;
    Ok(Some(Old(old)))
}

fn is_checked_out(repository: &Repository, name: &str) -> bool {
    let head = if repository.is_bare() { None } else { repository.find_reference("HEAD").ok() };
    head.as_ref().and_then(Reference::symbolic_target_bytes) == Some(name.as_bytes())
}
