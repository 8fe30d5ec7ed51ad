//! Exchanges commits with a server: `git fetch`, `pull` and `push`.
//!
//! The server and the repository are both hostile. The URL comes from the call or from `remote.NAME.url`, and no other key of a
//! configuration has an effect. Credentials are not here: the run's egress adds them to the requests.
//!
//! References are written here, one by one and by name, not by the transport. Each name is one that [`GitRefName`] permits.

mod address;
mod checkout;
mod dirty;
mod fetch;
mod history;
mod lfs;
mod merge;
mod pull;
mod push;
mod server;
#[cfg(test)]
mod testing;
mod tracking;

use git2::Repository;
use jail::Jail;
use operations::{Bound, Bounds, Git, GitResult};

use super::error::GitError;
use super::output::Output;
use crate::way_out::WayOut;

/// Executes the command. Returns the facts of its result; the output has them for people.
pub(super) fn run(
    repository: &Repository,
    jail: &Jail,
    command: &Git,
    (bounds, way): (&Bounds, &WayOut),
    output: &mut Output,
) -> Result<GitResult, GitError> {
    match command {
        Git::Fetch(fetch) => fetch::fetch(repository, fetch, (bounds, way), output),
        Git::Pull(pull) => pull::pull(repository, jail, pull, (bounds, way), output),
        Git::Push(push) => push::push(repository, push, (bounds, way), output),
        _ => Err(GitError::Library("the command exchanges nothing".to_owned())),
    }
}

/// Shows the effect of the command, and the state that consent to it is bound to.
///
/// The preview of a pull downloads the commits, which stay without a reference until the pull itself.
pub(super) fn preview(
    repository: &Repository,
    jail: &Jail,
    command: &Git,
    (bounds, way): (&Bounds, &WayOut),
    output: &mut Output,
) -> Result<Bound, GitError> {
    match command {
        Git::Fetch(fetch) => fetch::preview(repository, fetch, output),
        Git::Pull(pull) => pull::preview(repository, jail, pull, (bounds, way), output),
        Git::Push(push) => push::preview(repository, push, (bounds, way), output),
        _ => Err(GitError::Library("the command exchanges nothing".to_owned())),
    }
}
