//! The commit that a submodule is at: its HEAD, read as text.
//!
//! A submodule is never opened as a repository. Its `.git` is a directory, or a file that names one in the workspace's
//! own `.git/modules`; one that leads anywhere else counts as not checked out, as for git one that is not there.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use git2::Oid;

use super::beneath::Beneath;

/// Bytes of a file that is read, at most.
const LARGEST: u64 = 4 * 1024 * 1024;
/// References that lead to references.
const STEPS: usize = 5;

/// The commit at which the repository at `path` is; `None` when there is none that may be looked at.
pub(super) fn head(workspace: &Beneath, path: &[u8]) -> Option<Oid> {
    let place = Path::new(OsStr::from_bytes(path));
    let git = git_directory(workspace, place)?;
    let mut name = PathBuf::from("HEAD");
    for _ in 0..STEPS {
        let Some(text) = read(workspace, &git.join(&name)) else {
            return packed(workspace, &git, &name);
        };
        match text.strip_prefix("ref:") {
            Some(next) => name = normal(Path::new(next.trim()))?,
            None => return Oid::from_str(text.trim()).ok(),
        }
    }
    None
}

/// Where the git directory of the repository at `place` is.
fn git_directory(workspace: &Beneath, place: &Path) -> Option<PathBuf> {
    let dot_git = place.join(".git");
    if workspace.directory(&dot_git).is_ok() {
        return Some(dot_git);
    }
    let text = read(workspace, &dot_git)?;
    let target = normal(&place.join(text.strip_prefix("gitdir:")?.trim()))?;
    target.starts_with(".git/modules").then_some(target)
}

/// The path without `..`; `None` when it is absolute or leads out.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !normal.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}

fn packed(workspace: &Beneath, git: &Path, name: &Path) -> Option<Oid> {
    let text = read(workspace, &git.join("packed-refs"))?;
    let name = name.to_str()?;
    let line = text.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' '));
    Oid::from_str(line?).ok()
}

fn read(workspace: &Beneath, path: &Path) -> Option<String> {
    let mut text = String::new();
    workspace.regular(path).ok()??.take(LARGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_out_is_no_place() {
        for (path, result) in [
            ("sub/../.git/modules/sub", Some(".git/modules/sub")),
            ("a/b/../../.git/modules/a/b", Some(".git/modules/a/b")),
            ("sub/../../outside", None),
            ("/etc", None),
        ] {
            assert_eq!(normal(Path::new(path)), result.map(PathBuf::from), "{path}");
        }
    }
}
