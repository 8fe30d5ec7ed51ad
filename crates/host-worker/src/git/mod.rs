//! Runs git commands by libgit2, for a workspace whose every byte may be an attack.
//!
//! It runs only in the process of one operation, inside the jail, with the owner's uid and a deadline. That makes it safe, not the
//! checks here. The checks are for clear answers: they refuse a repository that is not plainly in `@project/.git` by name, before
//! it fails somewhere inside.
//!
//! libgit2 finds the differences, the renames and the changed lines; this module chooses the questions and the form of the answers.
//! The answers have the same facts as those of the git command (paths, states, modes, lines), not the same bytes.
//!
//! Fetches, pulls and pushes have a way to their server only through the run's egress ([`network`]).
//!
//! libgit2 runs no hooks, filters, textconv, external diff, fsmonitor, editor or signing program. It knows only `crlf` and `ident`.
//! Files with another filter are compared by other evidence ([`conversion`]). Settings of the repository's configuration about
//! formats have no effect.
//!
//! Submodules and repositories within the workspace are never opened: a submodule's commit is read as text ([`gitlink`]), and
//! changes inside of it are ignored.

mod add;
mod ancestry;
mod clone;
mod commit;
mod compare;
mod conversion;
mod diff;
mod encoding;
mod error;
mod excess;
mod formats;
mod gitlink;
mod history;
mod index;
mod log;
mod network;
mod output;
mod paths;
mod quote;
mod repository;
mod show;
mod status;
mod withheld;

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use git2::Repository;
use jail::Jail;
use operations::{Bound, Bounds, Git, GitResult, OpResult, Outcome, Preview, ToolFailure};

use crate::sys;
use crate::way_out::WayOut;

pub(crate) use ancestry::ancestry;
pub(crate) use clone::{CloneFailure, clone, identity};
pub(crate) use excess::EXCESS;
pub(crate) use quote::quoted;

use diff::FIRST;
use error::GitError;
use output::Output;
use withheld::Withheld;

/// Time to wait for another git's lock. A crash probably left a lock that stays longer.
const LOCKED: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(20);

/// Executes the command. Waits a moment for a lock that another git holds.
pub(crate) fn run(jail: &Jail, command: &Git, (bounds, way): (&Bounds, &WayOut)) -> Outcome {
    let until = Instant::now() + LOCKED;
    loop {
        match execute(jail, command, bounds, way) {
            Err(GitError::Locked(_)) if Instant::now() < until => sleep(AGAIN),
            done => return done.map(OpResult::Git).map_err(Into::into),
        }
    }
}

/// Previews the command: its effect, and the states that consent to it is bound to. Changes nothing.
pub(crate) fn preview(
    jail: &Jail,
    command: &Git,
    (bounds, way): (&Bounds, &WayOut),
) -> Result<Preview, ToolFailure> {
    foresee(jail, command, bounds, way).map_err(Into::into)
}

fn execute(jail: &Jail, command: &Git, bounds: &Bounds, way: &WayOut) -> Result<GitResult, GitError> {
    sys::restrict_libgit2()?;
    let repository = repository::open()?;
    let mut output = Output::new(bounds.max_output_bytes);
    let facts = perform(&repository, jail, command, (bounds, way), &mut output)
        .map_err(|error| explained(&repository, error))?;
    Ok(output.into_result(facts))
}

fn perform(
    repository: &Repository,
    jail: &Jail,
    command: &Git,
    (bounds, way): (&Bounds, &WayOut),
    output: &mut Output,
) -> Result<GitResult, GitError> {
    let withheld = &Withheld::new(jail);
    match command {
        Git::Status => status::write(repository, jail, withheld, output)?,
        Git::Diff { flags, paths } => diff::write(repository, (jail, withheld), flags, paths, output)?,
        Git::Log { flags, max_count, revisions, paths } => {
            log::write(repository, withheld, (flags, *max_count), revisions, paths, output)?;
        }
        Git::Show { flags, revision, file, paths } => {
            show::write(repository, withheld, (flags, revision), file.as_ref(), paths, output)?;
        }
        Git::Add { paths } => add::add(repository, jail, paths, bounds, output)?,
        Git::Commit { message } => {
            let commit = commit::commit(repository, message, bounds, output)?.to_string();
            return Ok(GitResult { commit, ..GitResult::default() });
        }
        Git::Fetch(_) | Git::Pull(_) | Git::Push(_) => {
            return network::run(repository, jail, command, (bounds, way), output);
        }
    }
    if output.is_empty() {
        exist(repository, jail, command)?;
    }
    withheld.note(output);
    Ok(GitResult::default())
}

/// Checks that each path of a command without results is in the work tree, the index or HEAD: a misspelled name must not look like
/// a file without changes.
fn exist(repository: &Repository, jail: &Jail, command: &Git) -> Result<(), GitError> {
    let (Git::Diff { paths, .. } | Git::Log { paths, .. } | Git::Show { paths, .. }) = command else {
        return Ok(());
    };
    let head = diff::head_tree(repository)?;
    for path in paths.iter().map(paths::in_work_tree) {
        let path = path?;
        let is_in_head = || head.as_ref().is_some_and(|tree| tree.get_path(Path::new(path)).is_ok());
        if !path.is_empty()
            && !add::is_tracked(&repository.index()?, path)
            && !is_in_head()
            && add::look(jail, path)?.is_none()
        {
            return Err(GitError::NoMatch(path.to_owned()));
        }
    }
    Ok(())
}

/// Returns the error, with its reason if that is a repository without all of its objects.
fn explained(repository: &Repository, error: GitError) -> GitError {
    let is_missing = matches!(&error, GitError::Library(message) if message.starts_with("object not found"));
    let is_partial = || repository.config().is_ok_and(|config| repository::is_partial(&config));
    match error {
        _ if is_missing && is_partial() => GitError::Missing,
        _ if is_missing && repository::is_shallow_elsewhere(repository) => GitError::Shallow,
        error => error,
    }
}

fn foresee(jail: &Jail, command: &Git, bounds: &Bounds, way: &WayOut) -> Result<Preview, GitError> {
    sys::restrict_libgit2()?;
    let repository = repository::open()?;
    let mut output = Output::new(bounds.max_output_bytes);
    if let Git::Fetch(_) | Git::Pull(_) | Git::Push(_) = command {
        let bound = network::preview(&repository, jail, command, (bounds, way), &mut output)
            .map_err(|error| explained(&repository, error))?;
        return Ok(Preview { result: OpResult::Git(output.into_result(GitResult::default())), bound });
    }
    // From here on, new objects are made in memory.
    repository.odb()?.add_new_mempack_backend(FIRST)?;
    let bound = match command {
        Git::Add { paths } => add::preview(&repository, jail, paths, &mut output)?,
        Git::Commit { message } => commit::preview(&repository, message, bounds, &mut output)?,
        _ => {
            return Ok(Preview {
                result: OpResult::Git(execute(jail, command, bounds, way)?),
                bound: Bound::default(),
            });
        }
    };
    Ok(Preview { result: OpResult::Git(output.into_result(GitResult::default())), bound })
}
