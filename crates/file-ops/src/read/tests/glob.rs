use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::time::Instant;

use operations::{Bounds, Glob, GlobResult, Reason};

use crate::read::scene::{Scene, expect_result, path};
use crate::{Cancel, glob};

fn request(at: &str, pattern: &str) -> Glob {
    Glob { path: path(at), pattern: pattern.to_owned(), include_ignored: false, max_results: 200 }
}

fn found(scene: &Scene, request: &Glob) -> GlobResult {
    let bounds = Bounds { max_output_bytes: 1 << 20, ..Bounds::default() };
    expect_result!(glob(&scene.jail, request, &bounds, &Cancel::default()), Glob)
}

fn paths(scene: &Scene, at: &str, pattern: &str) -> Vec<String> {
    found(scene, &request(at, pattern)).paths
}

fn tree() -> Scene {
    let scene = Scene::new();
    for file in [
        "a.rs",
        "src/b.rs",
        "src/b.txt",
        "src-c.rs",
        "src/deep/d.rs",
        ".github/e.yml",
        "target/f.rs",
        "sub/keep.log",
        "sub/g.log",
        "sub/own.rs",
    ] {
        scene.file(file, "");
    }
    scene.file(".gitignore", "\u{feff}/target/\n*.log\n[\n");
    scene.file("sub/.gitignore", "!keep.log\n");
    scene.file("sub/.ignore", "own.rs\n");
    symlink("src", scene.inside.join("linked")).unwrap();
    symlink("a.rs", scene.inside.join("link.rs")).unwrap();
    scene
}

#[test]
fn files_are_sorted_by_path_and_ignore_files_count() {
    let scene = tree();
    assert_eq!(
        paths(&scene, "@project", "*.rs"),
        ["@project/a.rs", "@project/src-c.rs", "@project/src/b.rs", "@project/src/deep/d.rs"]
    );
    assert_eq!(paths(&scene, "@project", "*.log"), ["@project/sub/keep.log"]);
    assert_eq!(paths(&scene, "@project/src", "*.rs"), ["@project/src/b.rs", "@project/src/deep/d.rs"]);
    assert_eq!(paths(&scene, "@project/src", "/*.rs"), ["@project/src/b.rs"]);
    assert_eq!(paths(&scene, "@project", ".github/*"), ["@project/.github/e.yml"]);
    // Ignore files above the start count, a start that is ignored itself is searched.
    assert_eq!(paths(&scene, "@project/sub", "*.log"), ["@project/sub/keep.log"]);
    assert_eq!(paths(&scene, "@project/target", "*"), ["@project/target/f.rs"]);
}

#[test]
fn paths_of_answers_and_names_in_full_are_patterns_that_find_them() {
    let scene = tree();
    let answers = found(&scene, &Glob { include_ignored: true, ..request("@project", "**") }).paths;
    assert_eq!(answers.len(), 13);
    for path in &answers {
        assert_eq!(&paths(&scene, "@project", path), std::slice::from_ref(path));
        let in_container = path.replacen("@project", "/workspace", 1);
        assert_eq!(paths(&scene, "@project", &in_container), [path.as_str()]);
    }
    assert_eq!(paths(&scene, "@project", "target/**"), ["@project/target/f.rs"]);
    assert_eq!(paths(&scene, "@project", "linked/*.rs"), ["@project/linked/b.rs"]);
    assert_eq!(paths(&scene, "@project/src", "/workspace/**/d.rs"), ["@project/src/deep/d.rs"]);
    for (pattern, hint) in [
        ("none/*.rs", "there is no directory @project/none: a pattern is relative to @project"),
        ("deep", "1 directories have that name, such as @project/src/deep: end the pattern in /**"),
        ("src/deep", "@project/src/deep is a directory"),
        ("g.log", "2 ignored"),
        ("[src]/*.rs", "[…] stands for one character"),
    ] {
        let result = found(&scene, &request("@project", pattern));
        assert!(result.paths.is_empty() && result.hint.contains(hint), "{pattern}: {}", result.hint);
    }
    assert_eq!(found(&scene, &request("@project", "none.rs")).left_out.unwrap().links, 2);
}

#[test]
fn all_files_but_git_are_found_on_request() {
    let scene = tree();
    scene.file(".git/HEAD", "");
    scene.file("node_modules/m/i.js", "");
    let result = found(&scene, &Glob { include_ignored: true, ..request("@project", "**") });
    assert_eq!(result.paths.len(), 14);
    for expected in
        ["@project/node_modules/m/i.js", "@project/target/f.rs", "@project/.gitignore", "@project/sub/g.log"]
    {
        assert!(result.paths.iter().any(|path| path == expected), "{expected}");
    }
    assert!(!result.paths.iter().any(|path| path.contains(".git/")));
}

#[test]
fn too_many_are_truncated_with_a_hint() {
    let result = found(&tree(), &Glob { max_results: 2, ..request("@project", "*.rs") });
    assert_eq!((result.paths.len(), result.truncated), (2, true));
    assert!(result.hint.starts_with("only the first 2 files: "), "{}", result.hint);
    let result = found(&tree(), &Glob { max_results: 4, ..request("@project", "*.rs") });
    assert_eq!((result.paths.len(), result.truncated, result.hint.as_str()), (4, false, ""));
}

#[test]
fn depth_is_bounded_and_reported() {
    let scene = Scene::new();
    let mut at = scene.inside.clone();
    for _ in 0..100 {
        at.push("d");
    }
    fs::create_dir_all(&at).unwrap();
    fs::write(at.join("x"), "").unwrap();
    let result = found(&scene, &request("@project", "x"));
    assert!(result.paths.is_empty() && result.truncated);
    assert!(result.hint.contains("64 levels"), "{}", result.hint);
}

#[test]
fn names_that_are_not_utf8_are_found_as_shown() {
    let scene = Scene::new();
    fs::write(scene.inside.join(std::ffi::OsStr::from_bytes(b"caf\xe9.rs")), "").unwrap();
    assert_eq!(paths(&scene, "@project", "*.rs"), ["@project/caf\\xe9.rs"]);
}

#[test]
fn link_to_git_does_not_reach_its_hooks() {
    let scene = Scene::new();
    scene.file(".git/hooks/pre-commit", "");
    scene.file(".git/HEAD", "");
    symlink(".git", scene.inside.join("innocent")).unwrap();
    assert_eq!(paths(&scene, "innocent", "**"), ["@project/innocent/HEAD"]);
}

#[test]
fn a_bad_pattern_and_a_passed_deadline_fail() {
    let scene = tree();
    let now = Cancel::new(Some(Instant::now()));
    for (pattern, cancel, reason) in
        [("[", Cancel::default(), Reason::InvalidArgument), ("*", now, Reason::TimedOut)]
    {
        let failure =
            glob(&scene.jail, &request("@project", pattern), &Bounds::default(), &cancel).unwrap_err();
        assert_eq!(failure.reason, reason, "{failure:?}");
    }
}

#[test]
fn an_ignore_file_counts_up_to_its_bound_and_the_rest_is_reported() {
    let scene = Scene::new();
    for name in ["a.first", "b.last"] {
        scene.file(name, "");
    }
    // Cut in the middle of its last line, which would exclude everything if it were taken as it is.
    let mut rules = b"*.first\n".to_vec();
    rules.resize(64 * 1024 - 1, b'#');
    rules.extend(b"\n*.last\n");
    scene.file(".gitignore", &rules);
    let result = found(&scene, &request("@project", "*"));
    assert_eq!(result.paths, ["@project/b.last"]);
    assert!(result.hint.starts_with("ignore files are too large"), "{}", result.hint);

    scene.file(".gitignore", "*.first\n*.last\n");
    let result = found(&scene, &request("@project", "*"));
    let hint = "3 files or directories not looked at: 2 ignored, 1 hidden; set include_ignored for hidden and ignored ones";
    assert_eq!((result.paths.len(), result.hint.as_str()), (0, hint));
}
