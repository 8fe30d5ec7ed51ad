//! Opening the workspace's repository, and no other.

use std::fs::{self, FileType};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use git2::{Config, Repository, RepositoryOpenFlags};

use super::error::{GitError, shown};

pub(super) const WORKSPACE: &str = "/workspace";
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
/// A linked work tree has such a file, and a submodule.
const FILE: &str = "a file instead of a directory, as in a work tree of `git worktree` or a submodule, whose repository is \
                    elsewhere (a run on a clone of it has git)";
/// Extensions of the format that need nothing of a reader, or that the library knows.
const KNOWN: [&str; 6] =
    ["noop", "noop-v1", "partialclone", "preciousobjects", "relativeworktrees", "worktreeconfig"];
/// Files that make a repository a part of another.
const REDIRECTIONS: [&str; 2] = [".git/commondir", ".git/gitdir"];

/// Opens it, or says what is wrong with it.
pub(super) fn open() -> Result<Repository, GitError> {
    check_places(Path::new(WORKSPACE))?;
    // Before libgit2 acts on it, for the sake of the message.
    let config = |place| Config::open(&Path::new(WORKSPACE).join(place)).ok();
    if let Some(own) = config(".git/config") {
        check_config(&own, ".git/config")?;
        let more = own.get_bool("extensions.worktreeconfig").unwrap_or(false);
        if let Some(more) = more.then(|| config(".git/config.worktree")).flatten() {
            check_config(&more, ".git/config.worktree")?;
        }
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
            Some(kind) if kind.is_file() => return Err(refuse(place, FILE)),
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
    check_config(&repository.config()?, ".git/config")?;
    let here = Path::new(DOT_GIT);
    let in_place = repository.path() == here
        && repository.commondir() == here
        && repository.workdir() == Some(Path::new(WORKSPACE))
        && !repository.is_worktree();
    if in_place { Ok(()) } else { Err(refuse(".git", "a redirection to another repository")) }
}

fn check_config(config: &Config, place: &str) -> Result<(), GitError> {
    check_extensions(config)?;
    if config.get_entry("core.worktree").is_ok() {
        return Err(refuse(place, "set to another work tree (core.worktree)"));
    }
    if config.get_bool("core.bare").unwrap_or(false) {
        return Err(refuse(place, "set to a bare repository (core.bare)"));
    }
    Ok(())
}

/// Refuses a format that the library would misread or does not know, with what to do.
pub(super) fn check_extensions(config: &Config) -> Result<(), GitError> {
    // As for git, an older format has none.
    if config.get_i32("core.repositoryformatversion").unwrap_or(0) < 1 {
        return Ok(());
    }
    let mut found = Vec::new();
    config.entries(Some("^extensions\\."))?.for_each(|entry| {
        let value = if entry.has_value() { entry.value_bytes() } else { b"true" };
        let value = String::from_utf8_lossy(value).to_ascii_lowercase();
        found.push((String::from_utf8_lossy(entry.name_bytes()).to_ascii_lowercase(), value));
    })?;
    for (name, value) in found {
        let name = name.strip_prefix("extensions.").unwrap_or(&name);
        let (what, remedy) = match (name, value.as_str()) {
            _ if KNOWN.contains(&name) => continue,
            ("objectformat", "sha1") | ("refstorage", "files") => continue,
            ("objectformat", _) => (
                "object ids other than SHA-1 (extensions.objectFormat)".to_owned(),
                "use the git command in the container, or a repository made with `git init --object-format=sha1`",
            ),
            ("refstorage", _) => (
                "another storage of references (extensions.refStorage)".to_owned(),
                "run `git refs migrate --ref-format=files`, or use the git command in the container",
            ),
            _ => (
                format!("the extension '{}'", shown(name)),
                "use the git command in the container, or unset the extension if nothing needs it",
            ),
        };
        return Err(GitError::Unsupported { what, remedy });
    }
    Ok(())
}

/// Returns whether the repository is a partial clone, which may lack objects that another repository has.
pub(super) fn is_partial(config: &Config) -> bool {
    let mut partial = config.get_entry("extensions.partialclone").is_ok();
    if let Ok(entries) = config.entries(Some("^remote\\..*\\.promisor$")) {
        let _ = entries.for_each(|entry| partial |= !entry.has_value() || entry.value_bytes() != b"false");
    }
    partial
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
