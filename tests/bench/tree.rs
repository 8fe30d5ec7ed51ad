//! A real tree to search: sources of crates as cargo has unpacked them, whole crates in alphabetical order until there
//! are enough files.

use std::fs;
use std::path::{Path, PathBuf};

/// At least so many files.
const FILES: u64 = 6_000;

/// The word that is in three files of the tree and nowhere else.
pub(crate) const NEEDLE: &str = "cofferdam_needle_in_a_haystack";

/// What the tree is.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Copies the tree to `into`, from `given` or from cargo's registry, and puts the needle in.
pub(crate) fn copy(given: Option<&Path>, into: &Path) -> Tree {
    let mut tree = Tree::default();
    let mut copied = Vec::new();
    for source in sources(given) {
        if tree.files >= FILES && given.is_none() {
            break;
        }
        copy_directory(&source, &into.join(source.file_name().unwrap()), &mut tree, &mut copied);
    }
    assert!(given.is_some() || tree.files >= FILES, "cargo's registry has too few files: give --tree");
    for quarter in 1..4 {
        let file = &copied[copied.len() * quarter / 4];
        let mut text = fs::read(file).unwrap();
        text.extend_from_slice(format!("\n// {NEEDLE}\n").as_bytes());
        fs::write(file, text).unwrap();
    }
    tree
}

fn sources(given: Option<&Path>) -> Vec<PathBuf> {
    if let Some(given) = given {
        return vec![given.canonicalize().unwrap()];
    }
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registries = home.expect("HOME is set").join("registry/src");
    let registry = entries(&registries).into_iter().next().expect("cargo has unpacked crates");
    entries(&registry).into_iter().filter(|made| !shows_hidden(made)).collect()
}

/// Whether the ignore file of a crate takes hidden files back in, which ripgrep searches then, and we do not.
fn shows_hidden(made: &Path) -> bool {
    let rules = fs::read_to_string(made.join(".gitignore")).unwrap_or_default();
    rules.lines().any(|rule| rule.starts_with("!."))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
}

/// Regular files and directories; what is a Rust source that may get the needle goes to `copied`.
fn copy_directory(from: &Path, to: &Path, tree: &mut Tree, copied: &mut Vec<PathBuf>) {
    fs::create_dir_all(to).unwrap();
    for path in entries(from) {
        let (kind, target) =
            (path.symlink_metadata().unwrap().file_type(), to.join(path.file_name().unwrap()));
        if kind.is_dir() {
            copy_directory(&path, &target, tree, copied);
        } else if kind.is_file() {
            tree.bytes += fs::copy(&path, &target).unwrap();
            tree.files += 1;
            if target
                .extension()
                .is_some_and(|extension| ["rs", "c", "h", "py", "md"].iter().any(|known| extension == *known))
            {
                copied.push(target);
            }
        }
    }
}
