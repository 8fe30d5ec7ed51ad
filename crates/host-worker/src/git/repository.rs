//! Opening the workspace's repository, and no other.

use std::fs::{self, FileType};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use git2::{Config, Repository, RepositoryOpenFlags};

use super::error::GitError;

pub(super) const WORKSPACE: &str = "/workspace";
pub(super) const INDEX: &str = "/workspace/.git/index";
const DOT_GIT: &str = "/workspace/.git";

/// Files that git reads before it does anything, each a place for a FIFO that hangs it or a link that leads away.
const FILES: [&str; 17] = [
    ".git/HEAD",
    ".git/index",
    ".git/config",
    ".git/config.worktree",
    ".git/shallow",
    ".git/packed-refs",
    ".git/info/exclude",
    ".git/info/attributes",
    ".git/info/grafts",
    ".git/info/sparse-checkout",
    ".git/objects/info/alternates",
    ".git/objects/info/commit-graph",
    ".git/logs/HEAD",
    ".git/COMMIT_EDITMSG",
    ".gitignore",
    ".gitattributes",
    ".gitmodules",
];
const DIRECTORIES: [&str; 7] =
    [".git", ".git/objects", ".git/objects/info", ".git/objects/pack", ".git/refs", ".git/info", ".git/logs"];
/// Files that make a repository a part of another.
const REDIRECTIONS: [&str; 2] = [".git/commondir", ".git/gitdir"];

/// Opens it, or says what is wrong with it.
pub(super) fn open() -> Result<Repository, GitError> {
    check_places(Path::new(WORKSPACE))?;
    // Before libgit2 acts on it, for the sake of the message.
    if let Ok(config) = Config::open(Path::new("/workspace/.git/config")) {
        check_config(&config)?;
    }
    // `.git` itself and nothing above or beside it: with the workspace as start, a bare repository there would do.
    let flags = RepositoryOpenFlags::NO_SEARCH | RepositoryOpenFlags::NO_DOTGIT;
    let repository =
        Repository::open_ext(DOT_GIT, flags, [] as [&Path; 0]).map_err(|error| match error.code() {
            git2::ErrorCode::NotFound => GitError::NoRepository,
            _ => error.into(),
        })?;
    check_opened(&repository)?;
    Ok(repository)
}

/// A courtesy: names what would otherwise end as a hang or as a puzzling error.
fn check_places(workspace: &Path) -> Result<(), GitError> {
    for place in REDIRECTIONS {
        if kind(workspace, place).is_some() {
            return Err(refuse(place, "a redirection to another repository"));
        }
    }
    for place in DIRECTORIES {
        match kind(workspace, place) {
            None if place == ".git" => return Err(GitError::NoRepository),
            None => {}
            Some(kind) if kind.is_dir() => {}
            Some(kind) if kind.is_file() => return Err(refuse(place, "a file instead of a directory")),
            Some(kind) => return Err(refuse(place, special(kind))),
        }
    }
    for place in FILES {
        match kind(workspace, place) {
            None => {}
            Some(kind) if kind.is_file() => {}
            // git ignores a directory in such a place of the work tree.
            Some(kind) if kind.is_dir() && !place.starts_with(".git/") => {}
            Some(kind) if kind.is_dir() => return Err(refuse(place, "a directory instead of a file")),
            Some(kind) => return Err(refuse(place, special(kind))),
        }
    }
    Ok(())
}

fn check_opened(repository: &Repository) -> Result<(), GitError> {
    check_config(&repository.config()?)?;
    let here = Path::new(DOT_GIT);
    let in_place = repository.path() == here
        && repository.commondir() == here
        && repository.workdir() == Some(Path::new(WORKSPACE))
        && !repository.is_worktree();
    if in_place { Ok(()) } else { Err(refuse(".git", "a redirection to another repository")) }
}

fn check_config(config: &Config) -> Result<(), GitError> {
    if config.get_entry("core.worktree").is_ok() {
        return Err(refuse(".git/config", "set to another work tree (core.worktree)"));
    }
    if config.get_bool("extensions.worktreeconfig").unwrap_or(false) {
        return Err(refuse(
            ".git/config",
            "of a repository with several work trees (extensions.worktreeConfig)",
        ));
    }
    if config.get_bool("core.bare").unwrap_or(false) {
        return Err(refuse(".git", "a bare repository"));
    }
    Ok(())
}

fn kind(workspace: &Path, place: &str) -> Option<FileType> {
    fs::symlink_metadata(workspace.join(place)).ok().map(|metadata| metadata.file_type())
}

fn special(kind: FileType) -> &'static str {
    if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

fn refuse(place: &str, what: &'static str) -> GitError {
    GitError::Redirected { place: format!("@project/{place}"), what }
}
