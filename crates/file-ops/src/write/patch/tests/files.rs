//! Patches of several files, in the jail.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use operations::FrontMatter;
use serde_json::json;

use super::*;

fn changes(result: &PatchResult) -> Vec<(&str, FileChange)> {
    result.files.iter().map(|file| (file.path.as_str(), file.change())).collect()
}

const SEVERAL: &str = "\
*** Update File: a
-one
+eins
*** Add File: n/e/new
+new
*** Delete File: gone
*** Update File: m
*** Move to: n/m
@@
-emm
+EMM
";

fn several() -> Scene {
    let scene = Scene::new();
    for (name, content) in [("a", "one\ntwo\n"), ("gone", "going\n"), ("m", "emm\n"), ("x/other", "x\n")] {
        scene.put(name, content);
    }
    scene
}

#[test]
fn several_files_at_once() {
    let scene = several();
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(scene.inside.join("m"), executable.clone()).unwrap();
    let result = scene.envelope(SEVERAL).unwrap();
    assert_eq!(
        changes(&result),
        [
            ("@project/a", FileChange::Updated),
            ("@project/n/e/new", FileChange::Created),
            ("@project/gone", FileChange::Deleted),
            ("@project/n/m", FileChange::Moved),
        ]
    );
    assert_eq!(result.files[3].moved_from, "@project/m");
    assert_eq!(fs::metadata(scene.inside.join("n/m")).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(!result.files[2].trash_entry.is_empty() && result.files[0].trash_entry.is_empty());
    assert_eq!((result.files[0].bytes_written, result.files[2].sha256_after.as_str()), (9, ""));
    let contents = ["a", "n/e/new", "gone", "m", "n/m", "x/other"].map(|name| scene.get(name));
    let expected = [Some("eins\ntwo\n"), Some("new\n"), None, None, Some("EMM\n"), Some("x\n")];
    assert_eq!(contents, expected.map(|content| content.map(str::to_owned)));
    assert_eq!(
        result.diff,
        "--- @project/a\n+++ @project/a\n@@ -1,2 +1,2 @@\n-one\n+eins\n two\n\
         --- /dev/null\n+++ @project/n/e/new\n@@ -0,0 +1 @@\n+new\n\
         --- @project/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-going\n\
         --- @project/m\n+++ @project/n/m\n@@ -1 +1 @@\n-emm\n+EMM\n"
    );
    let trash = scene.top.path().join("private/trash");
    let kept: Vec<_> =
        walk(&trash).into_iter().filter(|path| fs::read(path).unwrap() == b"going\n").collect();
    assert_eq!(kept.len(), 1);
    assert!(Private::open(&scene.top.path().join("private"), 1).unwrap().is_clean().unwrap());
}

fn walk(top: &std::path::Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(top) else { return Vec::new() };
    entries
        .flat_map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { walk(&path) } else { vec![path] }
        })
        .collect()
}

#[test]
fn one_file_that_does_not_fit_stops_all() {
    for (what, spoil, reason, part) in [
        ("absent", "*** Update File: nowhere\n-a\n+b\n", Reason::NotFound, "@project/nowhere: no such file"),
        ("exists", "*** Add File: x/other\n+a\n", Reason::PreconditionFailed, "already exists"),
        (
            "context",
            "*** Update File: x/other\n-y\n+z\n",
            Reason::PreconditionFailed,
            "hunk 1 (line 14 of the patch)",
        ),
        (
            "to",
            "*** Update File: x/other\n*** Move to: big\n",
            Reason::PreconditionFailed,
            "@project/big already exists",
        ),
        ("git", "*** Add File: .git/hooks/x\n+a\n", Reason::SandboxViolation, "git's own files"),
        ("bin", "*** Delete File: node_modules/.bin/x\n", Reason::SandboxViolation, "node_modules/.bin"),
        ("mount", "*** Add File: @pkg/x\n+a\n", Reason::SandboxViolation, "@pkg"),
        ("link", "*** Update File: link\n-canary\n+x\n", Reason::SandboxViolation, "symlink"),
        ("beneath", "*** Add File: out/x\n+x\n", Reason::SandboxViolation, "symlink"),
        ("directory", "*** Delete File: x\n", Reason::InvalidArgument, "is a directory"),
        ("large", "*** Update File: big\n@@ first\n+a\n", Reason::WriteLimit, "more than the 100000"),
    ] {
        let scene = several();
        scene.put("big", format!("first\n{}\n", "x".repeat(100_000)));
        symlink("../outside/canary", scene.inside.join("link")).unwrap();
        symlink("../outside", scene.inside.join("out")).unwrap();
        let failure = scene.envelope(&format!("{SEVERAL}{spoil}")).unwrap_err();
        assert_eq!(failure.reason, reason, "{what}: {failure:?}");
        assert!(failure.message.contains(part) && !failure.message.contains('\n'), "{what}: {failure:?}");
        let contents = ["a", "n/e/new", "gone", "m"].map(|name| scene.get(name));
        assert_eq!(
            contents,
            ["one\ntwo\n", "", "going\n", "emm\n"]
                .map(|content| (!content.is_empty()).then(|| content.to_owned()))
        );
        assert!(!scene.inside.join("n").exists());
        assert_eq!(walk(&scene.top.path().join("private")), [] as [PathBuf; 0], "{what}");
        assert_eq!(fs::read(scene.top.path().join("outside/canary")).unwrap(), b"canary\n");
    }
}

#[test]
fn a_mismatch_names_the_expected_and_the_nearest_lines() {
    let scene = Scene::new();
    scene.put("f.py", "def f():\n    return 1\n\ndef g():\n    return 2\n");
    let failure = scene
        .unified("--- a/f.py\n+++ b/f.py\n@@ -4,2 +4,2 @@\n def g():\n-    return 3\n+    return 4\n")
        .unwrap_err();
    assert_eq!(
        failure.message,
        "@project/f.py: hunk 1 (line 3 of the patch) does not apply: it expects line 5 to be `    return 3`, which is \
         `    return 2`; the nearest is line 2 `return 1`, line 5 `return 2`: read the file again and copy its lines exactly"
    );
    assert_eq!(failure.details["hunk"], "1");
    assert_eq!(failure.details["expected"], "def g():\n    return 3\n");
    let failure = scene.envelope("*** Update File: f.py\n def g():\n-  return 2\n+  return 4\n").unwrap_err();
    assert!(failure.message.contains("lines 4-5 differ in white space only"), "{failure:?}");
    let failure = scene.unified("--- a/f.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-def f():\n").unwrap_err();
    assert!(failure.message.contains("does not have the content that the patch deletes"), "{failure:?}");
    assert_eq!(scene.get("f.py").unwrap().lines().count(), 5);
}

#[test]
fn a_hunk_that_applied_at_another_line_is_noted() {
    let scene = Scene::new();
    scene.put("f", "0\n0\na\nb\nc\n");
    let result = scene.unified("--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n").unwrap();
    assert_eq!(result.notes, ["@project/f: hunk 1 was applied at line 3, 2 lines below where it says"]);
    assert_eq!(scene.get("f").unwrap(), "0\n0\na\nB\nc\n");
}

#[test]
fn a_patch_that_changes_nothing_writes_nothing() {
    let scene = Scene::new();
    scene.put("f", "a\n");
    let before = fs::metadata(scene.inside.join("f")).unwrap().modified().unwrap();
    let result = scene.envelope("*** Update File: f\n-a\n+a\n").unwrap();
    assert_eq!(result.files[0].sha256_before, result.files[0].sha256_after);
    assert_eq!(fs::metadata(scene.inside.join("f")).unwrap().modified().unwrap(), before);
}

#[test]
fn bytes_that_are_not_text_are_preserved() {
    let scene = Scene::new();
    scene.put("f", b"caf\xe9\na\n\0\n");
    scene.envelope("*** Update File: f\n-a\n+b\n").unwrap();
    assert_eq!(fs::read(scene.inside.join("f")).unwrap(), b"caf\xe9\nb\n\0\n");
}

#[test]
fn a_long_diff_is_cut() {
    let scene = Scene::new();
    let files: String = (0..5)
        .map(|n| format!("*** Add File: f{n}\n{}", "+line of text\n".repeat(600)))
        .collect::<Vec<_>>()
        .concat();
    let result = scene.envelope(&files).unwrap();
    assert!(result.diff_truncated && result.diff.len() < 17_000, "{}", result.diff.len());
    let whole: usize = (0..5)
        .map(|n| format!("--- /dev/null\n+++ @project/f{n}\n@@ -0,0 +1,600 @@\n").len() + 600 * 14)
        .sum();
    let left_out = whole - 16 * 1024;
    let said = format!("\n\\ {left_out} more bytes of this diff are left out\n");
    assert!(result.diff.ends_with(&said), "{said} of {}", result.diff);
    assert_eq!(result.files.len(), 5);
}

#[test]
fn patched_files_and_new_content_have_separate_bounds() {
    let scene = Scene::new();
    let bounds = Bounds { max_write_bytes: 10, max_edit_bytes: 1_000, ..Bounds::default() };
    let attempt = |change: PatchChange| patch(&scene.jail, &Patch::new(change).unwrap(), &bounds);
    let envelope = |text: &str| PatchChange::Envelope(format!("*** Begin Patch\n{text}*** End Patch\n"));
    scene.put("a", "---\nartifacts: []\n---\n".to_owned() + &"x".repeat(900) + "\nend\n");
    attempt(envelope("*** Update File: a\n@@\n-end\n+done\n")).unwrap();
    let artifacts = |artifact: &str| {
        PatchChange::FrontMatter(FrontMatter {
            artifacts_append: vec![artifact.to_owned()],
            ..FrontMatter::new("a".parse().unwrap())
        })
    };
    attempt(artifacts("b")).unwrap();
    let much = "y".repeat(1_000);
    for more in [artifacts(&much), envelope(&format!("*** Update File: a\n@@\n-done\n+{much}\n"))] {
        let refused = attempt(more).unwrap_err();
        assert_eq!(
            (refused.reason, refused.details["max_edit_bytes"].as_str()),
            (Reason::WriteLimit, "1000")
        );
    }
    let refused = attempt(envelope("*** Add File: b\n+1234567890\n")).unwrap_err();
    assert_eq!((refused.reason, refused.details["max_write_bytes"].as_str()), (Reason::WriteLimit, "10"));

    scene.put("many", "\n".repeat(1 << 21));
    let refused = attempt(envelope("*** Update File: many\n@@\n-end\n+done\n")).unwrap_err();
    assert!(refused.message.contains("lines, more than the"), "{refused:?}");
}

#[test]
fn front_matter_of_a_file() {
    let scene = Scene::new();
    scene.put("w.md", "---\nvariables: {}\n---\nbody\n");
    let change = |hash: Option<&str>| {
        PatchChange::FrontMatter(FrontMatter {
            if_match_sha256: hash.map(str::to_owned),
            steps_completed_append: vec!["one".to_owned()],
            variables_set: BTreeMap::from([("a".to_owned(), json!([1, "x"]))]),
            ..FrontMatter::new("w.md".parse().unwrap())
        })
    };
    let failure = scene.patch(change(Some(&"0".repeat(64)))).unwrap_err();
    assert_eq!(failure.reason, Reason::PreconditionFailed);
    let hash = failure.details["sha256"].clone();
    let result = scene.patch(change(Some(&hash))).unwrap();
    assert_eq!(
        scene.get("w.md").unwrap(),
        "---\nvariables:\n  a:\n  - 1\n  - x\nstepsCompleted:\n- one\n---\nbody\n"
    );
    assert_eq!(result.files[0].sha256_before, hash);
    scene.put("w.md", "---\na: [\n---\n");
    let failure = scene.patch(change(None)).unwrap_err();
    assert_eq!(failure.reason, Reason::InvalidFrontmatter);
    assert!(failure.message.starts_with("@project/w.md: line "), "{failure:?}");
    fs::remove_file(scene.inside.join("w.md")).unwrap();
    assert_eq!(scene.patch(change(None)).unwrap_err().reason, Reason::NotFound);
}
