//! Reads the commit that a submodule is at, from its HEAD, as text.
//!
//! A submodule is never opened as a repository. Its `.git` is a directory, or a file that names one in the root's own
//! `.git/modules`. A submodule whose `.git` leads anywhere else counts as not checked out, as one without a `.git` does for git.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use git2::Oid;
use jail::{Dir, EntryName, RegularFile, Root};

/// Most bytes of a file that is read.
const LARGEST: u64 = 4 * 1024 * 1024;
/// Most references that lead to other references.
const STEPS: usize = 5;

/// Returns the commit at which the repository at `path` is; `None` if there is none that may be read.
pub(super) fn head(root: &Root, path: &[u8]) -> Option<Oid> {
    let place = Path::new(OsStr::from_bytes(path));
    let git = git_directory(root, place)?;
    let mut name = PathBuf::from("HEAD");
    for _ in 0..STEPS {
        let Some(text) = read(root, &git.join(&name)) else {
            return packed(root, &git, &name);
        };
        match text.strip_prefix("ref:") {
            Some(next) => name = normal(Path::new(next.trim()))?,
            None => return Oid::from_str(text.trim()).ok(),
        }
    }
    None
}

/// Returns the git directory of the repository at `path`.
fn git_directory(root: &Root, path: &Path) -> Option<PathBuf> {
    let dot_git = path.join(".git");
    if directory(root, &dot_git).is_some() {
        return Some(dot_git);
    }
    let text = read(root, &dot_git)?;
    let target = normal(&path.join(text.strip_prefix("gitdir:")?.trim()))?;
    target.starts_with(".git/modules").then_some(target)
}

/// Returns the path without `..`; `None` if it is absolute or leads out.
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

fn packed(root: &Root, git: &Path, name: &Path) -> Option<Oid> {
    let text = read(root, &git.join("packed-refs"))?;
    let name = name.to_str()?;
    let line = text.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' '));
    Oid::from_str(line?).ok()
}

fn read(root: &Root, path: &Path) -> Option<String> {
    let mut text = String::new();
    file(root, path)?.file.take(LARGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

fn file(root: &Root, path: &Path) -> Option<RegularFile> {
    directory(root, path.parent()?)?.open_file(&EntryName::new(path.file_name()?.as_bytes())?).ok()
}

/// Opens the directory step by step from its parent's handle, through no link.
fn directory(root: &Root, path: &Path) -> Option<Dir> {
    let mut directory = root.top().ok()?;
    for component in path.components() {
        directory = directory.open_dir(&EntryName::new(component.as_os_str().as_bytes())?).ok()?;
    }
    Some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gitlink_paths_outside_are_refused() {
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
