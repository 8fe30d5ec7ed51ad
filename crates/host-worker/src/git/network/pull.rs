//! Implements `git pull`: a fast-forward or a merge, without hooks, or no change.
//!
//! ```text
//! list ─► download ─► plan (merge in the objects) ─► consent ─► files ─► branch
//! ```
//!
//! The branch moves last, and only from the commit that the plan was made for.

use git_remote::Fetched;
use git2::{Commit, ErrorCode, Oid, Repository, Signature};
use jail::Jail;
use operations::{Bound, Bounds, GitPull, GitRefName, GitResult};

use super::super::error::{GitError, shown};
use super::super::output::Output;
use super::super::repository::plain;
use super::super::withheld::Withheld;
use super::super::{commit, diff, formats};
use super::address::Address;
use super::history::{Commits, digits};
use super::merge::{Planned, Step};
use super::server::Server;
use super::{checkout, dirty, tracking};
use crate::way_out::WayOut;

/// Name that the commits have during a preview. It is deleted, and they stay without a name until the pull.
const PREVIEWED: &str = "refs/fetched/previewed";

/// The branch of the remote, and its commits in the repository.
struct Downloaded {
    address: Address,
    branch: GitRefName,
    id: Oid,
    fetched: Fetched,
}

/// Shows all of the changes, because a reviewer consents to all of them.
pub(super) fn preview(
    repository: &Repository,
    jail: &Jail,
    pull: &GitPull,
    (bounds, way): (&Bounds, &WayOut),
    output: &mut Output,
) -> Result<Bound, GitError> {
    let downloaded = download(repository, pull, (bounds, way), |_, branch| format!("+{branch}:{PREVIEWED}"))?;
    if let Ok(mut previewed) = repository.find_reference(PREVIEWED) {
        previewed.delete()?;
    }
    // From here on, new objects are made in memory.
    repository.odb()?.add_new_mempack_backend(diff::FIRST)?;
    let planned = Planned::of(repository, pull.mode, downloaded.id)?;
    prepare(repository, jail, &planned, bounds)?;
    output.push_str(&format!(
        "pull {} of {} into {}\n",
        shown(downloaded.branch.as_str()),
        downloaded.address.place(),
        shown(&planned.reference)
    ));
    let commits = commits(repository, &planned)?;
    output.push_str(&format!("{}, {}\n", words(&planned.step), commits.counted()));
    commits.write(repository, output)?;
    let plain = plain(repository)?;
    let diffs = [planned.shown_diff(&plain)?];
    formats::summary(&formats::rows(&diffs, |_| true)?, output);
    formats::patches(&diffs, |_| true, output)?;
    let old = planned.old.as_ref().map_or_else(|| "nothing".to_owned(), |old| old.id().to_string());
    let remarks = vec![format!("from {old}"), format!("to {}", planned.theirs.id())];
    Ok(Bound { remarks, ..planned.bound(&downloaded.address.url.to_string())? })
}

pub(super) fn pull(
    repository: &Repository,
    jail: &Jail,
    pull: &GitPull,
    (bounds, way): (&Bounds, &WayOut),
    output: &mut Output,
) -> Result<GitResult, GitError> {
    let held_to = bounds.held_to.as_ref();
    let downloaded = download(repository, pull, (bounds, way), tracking::pair)?;
    let planned =
        Planned::of(repository, pull.mode, downloaded.id).map_err(|error| error.before_effect(held_to))?;
    planned.bound(&downloaded.address.url.to_string())?.demand(held_to).map_err(GitError::Consent)?;
    let paths = prepare(repository, jail, &planned, bounds).map_err(|error| error.before_effect(held_to))?;
    let commits = commits(repository, &planned)?;
    let mut result = GitResult {
        remote: downloaded.address.place(),
        received_bytes: downloaded.fetched.bytes,
        commits: commits.count(),
        ..GitResult::default()
    };
    output.push_str(&format!("From {}\n", downloaded.address.place()));
    result.updates = tracking::write_fetched(&downloaded.fetched, output);
    if matches!(planned.step, Step::None) {
        output.push_str("Already up to date.\n");
        return Ok(result);
    }
    let id = match &planned.step {
        Step::Merge(_) => merge_commit(repository, &planned, &downloaded, bounds)?,
        _ => planned.theirs.id(),
    };
    checkout::check_out(repository, &planned.tree()?, &paths)?;
    move_branch(repository, &planned, id)?;
    let old = planned.old.as_ref().map(Commit::id);
    result.updates.push(tracking::update(&planned.reference, old, Some(id)));
    result.commit = id.to_string();
    tracking::write(&planned.reference, old, Some(id), output);
    output.push_str(&format!("{}, {}\n", words(&planned.step), commits.counted()));
    let diffs = [planned.shown_diff(repository)?];
    let withheld = Withheld::new(jail);
    formats::summary(&formats::rows(&diffs, |delta| withheld.shows(delta))?, output);
    // The summary has counted them.
    formats::modes(&diffs, |delta| withheld.permits(delta), output);
    withheld.note(output);
    Ok(result)
}

/// Downloads the commits of the branch to the name that `pair` gives them.
///
/// The id is that of the server's list. The repository is the agent's, so no reference in it is believed to be the server's.
fn download(
    repository: &Repository,
    pull: &GitPull,
    (bounds, way): (&Bounds, &WayOut),
    pair: impl Fn(&Address, &GitRefName) -> String,
) -> Result<Downloaded, GitError> {
    let address = Address::of(repository, &pull.remote)?;
    let branch = match &pull.branch {
        Some(branch) => branch.clone(),
        None => current(repository)?,
    };
    let server = Server::new(&address, bounds, way);
    let listed = server.list()?.into_iter().find(|listed| listed.name == branch);
    let id = listed.ok_or_else(|| GitError::NotAtRemote(shown(branch.as_str())))?.id;
    let fetched = server.download(repository, [pair(&address, &branch)], None)?;
    if repository.find_commit(id).is_err() {
        return Err(GitError::MovedAtRemote(shown(branch.as_str())));
    }
    Ok(Downloaded { address, branch, id, fetched })
}

/// Returns the branch that is checked out.
pub(super) fn current(repository: &Repository) -> Result<GitRefName, GitError> {
    let (reference, _) = commit::head(repository)?;
    match GitRefName::parse(&reference) {
        Some(name) if reference.starts_with("refs/") => Ok(name),
        _ => Err(GitError::NoBranch),
    }
}

/// Checks all that could keep the files from being written. Returns the paths that change.
fn prepare(
    repository: &Repository,
    jail: &Jail,
    planned: &Planned<'_>,
    bounds: &Bounds,
) -> Result<Vec<Vec<u8>>, GitError> {
    let diff = planned.diff(repository)?;
    let paths = checkout::check(repository, jail, &diff, bounds)?;
    let old = planned.old.as_ref().map(Commit::tree).transpose()?;
    dirty::demand_clean(repository, old.as_ref(), &diff)?;
    Ok(paths)
}

/// Returns the commits that the branch gets.
fn commits(repository: &Repository, planned: &Planned<'_>) -> Result<Commits, GitError> {
    Commits::between(repository, &[planned.theirs.id()], planned.old.as_ref().map(Commit::id))
}

fn merge_commit(
    repository: &Repository,
    planned: &Planned<'_>,
    downloaded: &Downloaded,
    bounds: &Bounds,
) -> Result<Oid, GitError> {
    let author = Signature::now(&bounds.author_name, &bounds.author_email)?;
    let branch = downloaded.branch.branch().unwrap_or_default();
    let message = format!("Merge branch '{branch}' of {}\n", downloaded.address.place());
    let parents: Vec<&Commit<'_>> = planned.old.iter().chain([&planned.theirs]).collect();
    Ok(repository.commit(None, &author, &author, &message, &planned.tree()?, &parents)?)
}

/// Moves the branch, if it is still where it was.
fn move_branch(repository: &Repository, planned: &Planned<'_>, id: Oid) -> Result<(), GitError> {
    let log = format!("pull: {}", words(&planned.step));
    let moved = match &planned.old {
        Some(old) => repository.reference_matching(&planned.reference, id, true, old.id(), &log),
        None => repository.reference(&planned.reference, id, false, &log),
    };
    match moved {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.code(), ErrorCode::Modified | ErrorCode::Exists) => {
            Err(GitError::MovedAfterCheckout(digits(id)))
        }
        Err(error) => Err(error.into()),
    }
}

fn words(step: &Step<'_>) -> &'static str {
    match step {
        Step::None => "nothing to do",
        Step::FastForward => "fast-forward",
        Step::Merge(_) => "merge",
    }
}
