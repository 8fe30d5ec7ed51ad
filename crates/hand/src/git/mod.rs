//! Git by libgit2, for a workspace whose every byte may be an attack.
//!
//! Runs only in the process of one operation, inside the jail, with the owner's uid and a deadline; that is what makes
//! it safe, not the checks here. The checks are for clear answers: a repository that is not plainly in
//! `@project/.git` is refused by name instead of failing somewhere inside.
//!
//! What differs is found by [`staged`] and [`worktree`], and what is said of it by the modules of the formats; libgit2
//! reads objects, references, ignore rules and attributes, and does all that writes.
//!
//! libgit2 runs no hooks, filters, textconv, external diff, fsmonitor, editor or signing program; it knows `crlf` and
//! `ident` and nothing else. Output is that of the `git` command with default settings, whatever the repository's
//! configuration says about format. Submodules and repositories within the workspace are never opened: a submodule's
//! commit is read as text ([`gitlink`]), what is changed inside of it is not looked at.

mod abbrev;
mod add;
mod beneath;
mod clone;
mod combined;
mod commit;
mod contents;
mod delta;
mod diff;
mod difference;
mod error;
mod gitlink;
mod hunks;
mod index;
mod line_endings;
mod names;
mod output;
mod paths;
mod quote;
mod rename;
mod repository;
mod similarity;
mod staged;
mod stat;
mod status;
mod worktree;

use jail::Jail;
use ops::{Bounds, Git, GitResult, OpResult, Outcome};

use crate::sys;
use crate::threads::Threads;

pub(crate) use clone::{CloneFailure, clone};
pub(crate) use quote::quoted_path;
pub(crate) use similarity::is_text;

use error::GitError;
use output::Output;

/// Runs one git operation; with `preview` one that writes only says what it would do.
///
/// The `threads` look at files and know nothing of libgit2.
pub(crate) fn run(jail: &Jail, command: &Git, bounds: &Bounds, preview: bool, threads: &Threads) -> Outcome {
    execute(jail, command, bounds, preview, threads).map(OpResult::Git).map_err(Into::into)
}

fn execute(
    jail: &Jail,
    command: &Git,
    bounds: &Bounds,
    preview: bool,
    threads: &Threads,
) -> Result<GitResult, GitError> {
    sys::restrict_libgit2()?;
    let repository = repository::open()?;
    let mut output = Output::new(bounds.max_output_bytes);
    let commit = match command {
        Git::Status => status::write(&repository, threads, &mut output).map(|()| None),
        Git::Diff { flags, paths } => {
            diff::write(&repository, flags, paths, threads, &mut output).map(|()| None)
        }
        Git::Add { paths } => add::add(&repository, jail, paths, preview, &mut output).map(|()| None),
        Git::Commit { .. } if preview => commit::preview(&repository, &mut output).map(|()| None),
        Git::Commit { message } => commit::commit(&repository, message, bounds, &mut output).map(Some),
    }?;
    Ok(output.into_result(commit.map(|id| id.to_string()).unwrap_or_default()))
}
