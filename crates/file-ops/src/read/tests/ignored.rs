//! Compares searches in trees with ignore files, hidden names and nested repositories with ripgrep's own library.

use std::collections::BTreeSet;
use std::fs;

use operations::{Bounds, Glob};
use proptest::prelude::*;

use crate::Cancel;
use crate::glob;
use crate::read::scene::{Scene, expect_result, path};

const NAMES: [&str; 7] = ["a", "b", "b.log", ".h", "x y", "[z]", "\u{fc}"];

/// A line of an ignore file.
fn line() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "a", "b", "b.log", ".h", "x y", "\\[z\\]", "\u{fc}", "*", "*.log", "**", "?", "b*", "[ab]", ".*",
    ]);
    let path = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"));
    let ends = || prop::sample::select(vec!["", "", "/"]);
    let begins = prop::sample::select(vec!["", "", "/", "!", "!/", "**/"]);
    (begins, path, ends()).prop_map(|(begin, path, end)| format!("{begin}{path}{end}"))
}

fn rules() -> impl Strategy<Value = Option<String>> {
    let lines = prop::collection::vec(line(), 1..4).prop_map(|lines| lines.join("\n"));
    prop_oneof![2 => Just(None), 1 => lines.prop_map(Some)]
}

/// A file's path.
fn file() -> impl Strategy<Value = String> {
    let name = || prop::sample::select(NAMES.to_vec());
    prop::collection::vec(name(), 1..5).prop_map(|names| names.join("/"))
}

/// Ignore files and a repository, in one of the directories.
#[derive(Debug, Clone)]
struct Special {
    which: prop::sample::Index,
    ignore: Option<String>,
    gitignore: Option<String>,
    is_repository: bool,
}

fn special() -> impl Strategy<Value = Special> {
    let parts = (any::<prop::sample::Index>(), rules(), rules(), prop::bool::weighted(0.3));
    parts.prop_map(|(which, ignore, gitignore, is_repository)| Special {
        which,
        ignore,
        gitignore,
        is_repository,
    })
}

/// Makes the tree.
fn scene(files: &[String], special: &[Special]) -> Scene {
    let scene = Scene::new();
    // Without a repository the library reads no `.gitignore`.
    fs::create_dir(scene.inside.join(".git")).unwrap();
    let mut directories = BTreeSet::from([scene.inside.clone()]);
    for file in files {
        let at = scene.inside.join(file);
        // A file of this name, or one in the way, may be there.
        if fs::create_dir_all(at.parent().unwrap()).is_ok() {
            let _ = fs::write(&at, "");
            directories.extend(at.ancestors().skip(1).take_while(|at| **at != scene.inside).map(Into::into));
        }
    }
    let directories: Vec<_> = directories.into_iter().collect();
    for Special { which, ignore, gitignore, is_repository } in special {
        let at = which.get(&directories);
        for (name, text) in [(".ignore", ignore), (".gitignore", gitignore)] {
            if let Some(text) = text {
                fs::write(at.join(name), text).unwrap();
            }
        }
        if *is_repository {
            fs::create_dir_all(at.join(".git")).unwrap();
        }
    }
    scene
}

/// The files that the library's walk comes to.
fn theirs(scene: &Scene) -> BTreeSet<String> {
    let walk = ignore::WalkBuilder::new(&scene.inside)
        .parents(false)
        .git_global(false)
        .git_exclude(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build();
    let entries =
        walk.map(Result::unwrap).filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let below = |entry: ignore::DirEntry| {
        entry.path().strip_prefix(&scene.inside).unwrap().to_str().unwrap().to_owned()
    };
    entries.map(below).collect()
}

fn ours(scene: &Scene) -> BTreeSet<String> {
    let request =
        Glob { path: path("@project"), pattern: "**".into(), include_ignored: false, max_results: 10_000 };
    let found = expect_result!(glob(&scene.jail, &request, &Bounds::default(), &Cancel::default()), Glob);
    assert!(!found.truncated);
    let below = |path: String| path.strip_prefix("@project/").unwrap().to_owned();
    found.paths.into_iter().map(below).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn ignored_files_match_ripgrep(
        files in prop::collection::vec(file(), 1..16),
        special in prop::collection::vec(special(), 1..6),
    ) {
        let scene = scene(&files, &special);
        prop_assert_eq!(ours(&scene), theirs(&scene));
    }
}
