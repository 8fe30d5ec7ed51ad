//! Opens the workspace's repository, and no other.

use std::fs::{self, FileType};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use git2::{Config, Repository, RepositoryOpenFlags};
use rustix::process::geteuid;

use super::error::{GitError, shown};
use crate::{location, sys};

pub(super) const WORKSPACE: &str = "/workspace";
const DOT_GIT: &str = "/workspace/.git";

const REDIRECTED: &str = "a redirection to another repository";
/// Largest file of git that is read, bytes.
const LARGEST: u64 = 4 * 1024 * 1024;
const REPOSITORY: &str = "/repository";

/// Files that git reads first. In place of each, an agent could put a FIFO that blocks it or a link that leads away.
const FILES: [&str; 14] = [
    "HEAD",
    "index",
    "config",
    "config.worktree",
    "shallow",
    "packed-refs",
    "info/exclude",
    "info/attributes",
    "info/grafts",
    "info/sparse-checkout",
    "objects/info/alternates",
    "objects/info/commit-graph",
    "logs/HEAD",
    "COMMIT_EDITMSG",
];
const DIRECTORIES: [&str; 6] = ["objects", "objects/info", "objects/pack", "refs", "info", "logs"];
const IN_WORK_TREE: [&str; 3] = [".gitignore", ".gitattributes", ".gitmodules"];
/// A linked work tree and a submodule have such a file.
const FILE: &str = "a file instead of a directory, as in a work tree of `git worktree` or a submodule, whose repository is \
                    elsewhere (a run on a clone of it has git)";
/// Extensions of the format that a reader may ignore, or that the library knows.
const KNOWN: [&str; 6] =
    ["noop", "noop-v1", "partialclone", "preciousobjects", "relativeworktrees", "worktreeconfig"];
/// Files that make a repository a part of another.
const REDIRECTIONS: [&str; 2] = ["commondir", "gitdir"];

/// The location of the repository.
struct Location {
    /// Directory of HEAD and index.
    own: PathBuf,
    /// Directory of all else; differs from `own` only for a linked work tree.
    common: PathBuf,
}

/// Opens the repository, or returns what is wrong with it.
pub(super) fn open() -> Result<Repository, GitError> {
    let location = Location::find();
    location.check()?;
    // Before libgit2 acts on it, for the sake of the message.
    let (common, own) = (location.common.join("config"), location.own.join("config.worktree"));
    if let Ok(config) = Config::open(&common) {
        location.check_config(&config, &common)?;
        if config.get_bool("extensions.worktreeconfig").unwrap_or(false)
            && let Ok(config) = Config::open(&own)
        {
            location.check_config(&config, &own)?;
            location.check_bare(&config, &own)?;
        }
    }
    // Opens exactly this directory: with the workspace as start, libgit2 would accept a bare repository there.
    let flags = RepositoryOpenFlags::NO_SEARCH | RepositoryOpenFlags::NO_DOTGIT;
    let repository =
        Repository::open_ext(&location.own, flags, [] as [&Path; 0]).map_err(|error| match error.code() {
            git2::ErrorCode::NotFound => GitError::NoRepository,
            _ => error.into(),
        })?;
    location.check_opened(&repository)?;
    Ok(repository)
}

/// Opens the objects of the repository alone, to show changes to a reviewer.
///
/// The attributes in the repository and in its files are the agent's, and could have no text of a file be shown.
pub(super) fn plain(repository: &Repository) -> Result<Repository, GitError> {
    Ok(Repository::from_odb(repository.odb()?)?)
}

impl Location {
    /// Finds the linked work tree's repository, if the run began with one, or the workspace's own.
    fn find() -> Self {
        match location::linked() {
            Some(name) => Self {
                own: Path::new(REPOSITORY).join("worktrees").join(name),
                common: PathBuf::from(REPOSITORY),
            },
            None => Self { own: PathBuf::from(DOT_GIT), common: PathBuf::from(DOT_GIT) },
        }
    }

    fn is_linked(&self) -> bool {
        self.own != self.common
    }

    /// Checks for files that would otherwise end as a hang or as a puzzling error. Safety does not depend on this.
    fn check(&self) -> Result<(), GitError> {
        match kind(&self.own) {
            None if self.is_linked() => return Err(self.refuse(&self.own, "gone")),
            None => return Err(GitError::NoRepository),
            Some(kind) if kind.is_dir() => {}
            Some(kind) if kind.is_file() => return Err(self.refuse(&self.own, FILE)),
            Some(kind) => return Err(self.refuse(&self.own, special(kind))),
        }
        for place in REDIRECTIONS.map(|name| self.common.join(name)) {
            if kind(&place).is_some() {
                return Err(self.refuse(&place, REDIRECTED));
            }
        }
        self.check_parts(&self.common)?;
        if self.is_linked() {
            self.check_parts(&self.own)?;
            self.check_link()?;
        }
        for place in IN_WORK_TREE.map(|name| Path::new(WORKSPACE).join(name)) {
            match kind(&place) {
                // git ignores a directory at such a path of the work tree.
                Some(kind) if !kind.is_file() && !kind.is_dir() => {
                    return Err(self.refuse(&place, special(kind)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_parts(&self, directory: &Path) -> Result<(), GitError> {
        for place in DIRECTORIES.map(|name| directory.join(name)) {
            match kind(&place) {
                None => {}
                Some(kind) if kind.is_dir() => {}
                Some(kind) if kind.is_file() => {
                    return Err(self.refuse(&place, "a file instead of a directory"));
                }
                Some(kind) => return Err(self.refuse(&place, special(kind))),
            }
        }
        for place in FILES.map(|name| directory.join(name)) {
            match kind(&place) {
                None => {}
                Some(kind) if kind.is_file() => {}
                Some(kind) if kind.is_dir() => {
                    return Err(self.refuse(&place, "a directory instead of a file"));
                }
                Some(kind) => return Err(self.refuse(&place, special(kind))),
            }
        }
        Ok(())
    }

    /// Refuses a work tree whose part of the repository leads to another one.
    ///
    /// libgit2 would trust the name in `gitdir` for the work tree and its owner, so both are set and compared here.
    fn check_link(&self) -> Result<(), GitError> {
        let common = self.own.join("commondir");
        if read(&common).is_none_or(|text| text.trim_ascii_end() != b"../..") {
            return Err(self.refuse(&common, REDIRECTED));
        }
        let back = self.own.join("gitdir");
        if !kind(&back).is_some_and(|kind| kind.is_file()) {
            return Err(self.refuse(&back, "no file"));
        }
        for place in [&self.own, &self.common, Path::new(WORKSPACE)] {
            let owner = fs::symlink_metadata(place).map_err(|_| GitError::NoRepository)?.uid();
            if owner != geteuid().as_raw() {
                return Err(GitError::NotOwned);
            }
        }
        Ok(sys::trust_owners()?)
    }

    fn check_opened(&self, repository: &Repository) -> Result<(), GitError> {
        self.check_config(&repository.config()?, &self.common.join("config"))?;
        if self.is_linked() {
            repository.set_workdir(Path::new(WORKSPACE), false)?;
        }
        let in_place = repository.path() == self.own
            && repository.commondir() == self.common
            && repository.workdir() == Some(Path::new(WORKSPACE))
            && repository.is_worktree() == self.is_linked();
        if in_place { Ok(()) } else { Err(self.refuse(&self.own, REDIRECTED)) }
    }

    fn check_config(&self, config: &Config, place: &Path) -> Result<(), GitError> {
        check_extensions(config)?;
        if config.get_entry("core.worktree").is_ok() {
            return Err(self.refuse(place, "set to another work tree (core.worktree)"));
        }
        // A bare repository may have linked work trees.
        if self.is_linked() { Ok(()) } else { self.check_bare(config, place) }
    }

    fn check_bare(&self, config: &Config, place: &Path) -> Result<(), GitError> {
        if config.get_bool("core.bare").unwrap_or(false) {
            return Err(self.refuse(place, "set to a bare repository (core.bare)"));
        }
        Ok(())
    }

    fn refuse(&self, place: &Path, what: &'static str) -> GitError {
        let place = if let Ok(place) = place.strip_prefix(WORKSPACE) {
            format!("@project/{}", place.display())
        } else if place == self.own {
            "the work tree's part of its repository".to_owned()
        } else {
            // Without the work tree's name, which may be any text.
            let (own, common) = (place.strip_prefix(&self.own), place.strip_prefix(&self.common));
            format!("{} in the work tree's repository", own.or(common).unwrap_or(place).display())
        };
        GitError::Redirected { place, what }
    }
}

/// Refuses a format that the library would misread or does not know, and names a remedy.
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

/// Returns true if the repository is a partial clone, which may lack objects that another repository has.
pub(super) fn is_partial(config: &Config) -> bool {
    let mut partial = config.get_entry("extensions.partialclone").is_ok();
    if let Ok(entries) = config.entries(Some("^remote\\..*\\.promisor$")) {
        let _ = entries.for_each(|entry| partial |= !entry.has_value() || entry.value_bytes() != b"false");
    }
    partial
}

/// Returns true if another work tree of the repository has the branch, which would not follow a commit.
pub(super) fn is_checked_out_elsewhere(branch: &str) -> bool {
    let Some(own) = location::linked() else { return false };
    let common = Path::new(REPOSITORY);
    let is_bare = Config::open(&common.join("config"))
        .is_ok_and(|config| config.get_bool("core.bare").unwrap_or(false));
    let main = (!is_bare).then(|| common.join("HEAD"));
    let linked = fs::read_dir(common.join("worktrees")).into_iter().flatten().filter_map(Result::ok);
    let linked = linked.filter(|entry| entry.file_name() != own).map(|entry| entry.path().join("HEAD"));
    let heads = main.into_iter().chain(linked).filter_map(|place| read(&place));
    heads.into_iter().any(|head| {
        let at = head.strip_prefix(b"ref:").map(<[u8]>::trim_ascii);
        branch != "HEAD" && at == Some(branch.as_bytes())
    })
}

/// Returns true if the history of a linked work tree is shallow without the library's knowledge: libgit2 looks for `shallow` in the
/// work tree's part of the repository.
pub(super) fn is_shallow_elsewhere(repository: &Repository) -> bool {
    repository.is_worktree() && kind(&repository.commondir().join("shallow")).is_some()
}

/// Returns the content of a regular file of git; `None` if there is none.
pub(super) fn read(place: &Path) -> Option<Vec<u8>> {
    let metadata = fs::symlink_metadata(place).ok()?;
    let mut bytes = Vec::new();
    (metadata.is_file() && metadata.len() <= LARGEST).then_some(())?;
    fs::File::open(place).ok()?.take(LARGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn kind(place: &Path) -> Option<FileType> {
    fs::symlink_metadata(place).ok().map(|metadata| metadata.file_type())
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
