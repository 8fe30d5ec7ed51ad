use std::fs::File;

use operations::{Bounds, Edit, EditChange, EditResult, OpResult, Outcome, Reason, ToolFailure, sha256};

use super::{Scene, path};
use crate::{edit, preview_edit};

fn request(at: &str, change: EditChange) -> Edit {
    Edit { path: path(at), change, if_match_sha256: None }
}

fn replace(at: &str, old: &str, new: &str) -> Edit {
    request(at, EditChange::StrReplace { old: old.to_owned(), new: new.to_owned(), replace_all: false })
}

fn insert(at: &str, after_line: u64, text: &str) -> Edit {
    request(at, EditChange::Insert { after_line, text: text.to_owned() })
}

fn create(at: &str, content: &str) -> Edit {
    request(at, EditChange::Create { content: content.to_owned() })
}

fn attempt(scene: &Scene, request: &Edit) -> Outcome {
    edit(&scene.jail, request, &Bounds::default(), None)
}

/// The result, which the preview has to foretell without changing anything.
fn done(scene: &Scene, request: &Edit) -> EditResult {
    let names = scene.names();
    let foretold = preview_edit(&scene.jail, request, &Bounds::default()).map(|preview| preview.result);
    assert_eq!(scene.names(), names);
    match (attempt(scene, request), foretold) {
        (Ok(OpResult::Edit(result)), Ok(OpResult::Edit(foretold))) => {
            assert_eq!(result, foretold);
            result
        }
        other => panic!("unexpected: {other:?}"),
    }
}

fn failure(scene: &Scene, request: &Edit) -> ToolFailure {
    let foretold = preview_edit(&scene.jail, request, &Bounds::default()).unwrap_err();
    assert_eq!(attempt(scene, request).unwrap_err(), foretold);
    foretold
}

#[test]
fn a_unique_text_is_replaced_and_the_diff_shows_it() {
    let scene = Scene::new();
    scene.put("a.rs", "fn main() {\n    one();\n    two();\n}\n");
    let result = done(&scene, &replace("a.rs", "    one();\n    two();", "    three();"));
    assert_eq!(
        result,
        EditResult {
            path: "@project/a.rs".to_owned(),
            diff: "--- @project/a.rs\n+++ @project/a.rs\n@@ -1,4 +1,3 @@\n fn main() {\n-    one();\n-    two();\n+    three();\n }\n".to_owned(),
            diff_truncated: false,
            sha256_before: sha256(b"fn main() {\n    one();\n    two();\n}\n"),
            sha256_after: sha256(b"fn main() {\n    three();\n}\n"),
            replacements: 1,
        }
    );
    assert_eq!(scene.get("a.rs"), b"fn main() {\n    three();\n}\n");
}

#[test]
fn an_ambiguous_text_names_all_its_lines() {
    let scene = Scene::new();
    scene.put("a", "x = 1;\ny = 1;\nx = 1;\n\nx = 1;\n");
    let refused = failure(&scene, &replace("a", "x = 1;", "x = 2;"));
    assert_eq!(refused.reason, Reason::PreconditionFailed);
    assert_eq!(
        refused.message,
        "the text to replace occurs 3 times in @project/a (lines 1, 3, 5): include lines around it until it is unique"
    );
    assert_eq!((refused.details["count"].as_str(), refused.details["lines"].as_str()), ("3", "1, 3, 5"));
    let mut all = replace("a", "x = 1;", "x = 2;");
    if let EditChange::StrReplace { replace_all, .. } = &mut all.change {
        *replace_all = true;
    }
    assert_eq!(done(&scene, &all).replacements, 3);
    assert_eq!(scene.get("a"), b"x = 2;\ny = 1;\nx = 2;\n\nx = 2;\n");
}

#[test]
fn a_missing_text_names_the_nearest_lines() {
    let scene = Scene::new();
    scene.put("a", "fn alpha() {\n\tlet beta = gamma(1);\n\n    delta();\n}\n");
    let refused = failure(&scene, &replace("a", "let beta = gamma(2);", "x"));
    assert_eq!(refused.reason, Reason::PreconditionFailed);
    assert_eq!(
        refused.message,
        "the text to replace is not found in @project/a; the nearest is line 2 `let beta = gamma(1);`: read the file again and copy the text exactly"
    );
    assert_eq!(refused.details["candidates"], "2: \tlet beta = gamma(1);");
    let refused = failure(&scene, &replace("a", "    let beta = gamma(1);\n    delta();", "x"));
    assert!(
        refused.message.starts_with(
            "the text to replace is not found in @project/a; lines 2-4 differ from it in white space only"
        ),
        "{refused:?}"
    );
    assert_eq!(refused.details["candidates"], "2-4");
    let refused = failure(&scene, &replace("a", "zzzzzz", "x"));
    assert_eq!(
        refused.message,
        "the text to replace is not found in @project/a, nor anything like it: read the file again"
    );
}

#[test]
fn line_endings_mark_and_last_line_stay() {
    let scene = Scene::new();
    for (before, edit, after) in [
        ("\u{feff}a\r\nb\r\nc", replace("f", "a\nb", "x\ny\nz"), "\u{feff}x\r\ny\r\nz\r\nc"),
        ("a\r\nb\r\n", replace("f", "a\r\n", "a\n"), "a\nb\r\n"),
        ("a\nb\r\nc\n", replace("f", "b\nc", "d\ne"), "a\nd\r\ne\n"),
        ("a\r\nb", insert("f", 2, "c\nd"), "a\r\nb\r\nc\r\nd"),
        ("\u{feff}a\n", insert("f", 0, "x"), "\u{feff}x\na\n"),
        ("a\nb\n", insert("f", 1, "x\n"), "a\nx\nb\n"),
        ("a\nb", insert("f", 2, "x\n"), "a\nb\nx\n"),
        ("", insert("f", 0, "x"), "x"),
    ] {
        scene.put("f", before);
        done(&scene, &edit);
        assert_eq!(String::from_utf8(scene.get("f")).unwrap(), after, "{edit:?}");
    }
}

#[test]
fn insert_needs_an_existing_line() {
    let scene = Scene::new();
    scene.put("a", "1\n2\n3");
    let refused = failure(&scene, &insert("a", 4, "x"));
    assert_eq!((refused.reason, refused.details["total_lines"].as_str()), (Reason::InvalidArgument, "3"));
    assert_eq!(refused.message, "@project/a has 3 lines: insert after line 0 (the beginning) to 3 (the end)");
    failure(&scene, &insert("a", u64::MAX, "x"));
}

#[test]
fn creating_is_exclusive() {
    let scene = Scene::new();
    let result = done(&scene, &create("d/a", "1\n"));
    assert_eq!(
        (result.sha256_before.as_str(), result.diff.as_str()),
        ("", "--- /dev/null\n+++ @project/d/a\n@@ -0,0 +1 @@\n+1\n")
    );
    let refused = failure(&scene, &create("d/a", "2\n"));
    assert_eq!(refused.reason, Reason::PreconditionFailed);
    assert!(refused.message.starts_with("File already exists: @project/d/a"), "{refused:?}");
    assert_eq!(scene.get("d/a"), b"1\n");
    let outcomes: Vec<_> = std::thread::scope(|threads| {
        let workers: Vec<_> =
            (0..8).map(|_| threads.spawn(|| attempt(&scene, &create("e/b", "x")))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    for lost in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(lost.message.starts_with("File already exists: "), "{lost:?}");
    }
}

#[test]
fn uneditable_files_are_refused() {
    let scene = Scene::new();
    scene.put("latin", b"caf\xe9");
    scene.put("nul", b"a\0b");
    File::create(scene.inside.join("huge")).unwrap().set_len(Bounds::LARGEST_EDIT + 1).unwrap();
    for (at, reason) in [
        ("latin", Reason::PreconditionFailed),
        ("nul", Reason::PreconditionFailed),
        ("huge", Reason::ReadLimit),
        ("none", Reason::NotFound),
        ("none/deeper", Reason::NotFound),
        (".git/config", Reason::SandboxViolation),
    ] {
        assert_eq!(failure(&scene, &replace(at, "a", "b")).reason, reason, "{at}");
    }
    assert_eq!(scene.names(), ["huge", "latin", "nul"]);
}

#[test]
fn a_result_that_is_too_long_is_refused_before_it_is_made() {
    let scene = Scene::new();
    scene.put("a", "x".repeat(1 << 20));
    let bomb = EditChange::StrReplace { old: "x".to_owned(), new: "y".repeat(1 << 20), replace_all: true };
    let refused = failure(&scene, &request("a", bomb));
    assert_eq!(
        (refused.reason, refused.details["size_bytes"].as_str()),
        (Reason::WriteLimit, (1_u64 << 40).to_string().as_str())
    );
}

#[test]
fn edited_files_and_new_content_have_separate_bounds() {
    let scene = Scene::new();
    let bounds = Bounds { max_write_bytes: 10, max_edit_bytes: 1_000, ..Bounds::default() };
    let attempt = |change: &Edit| edit(&scene.jail, change, &bounds, None);
    scene.put("a", "x".repeat(990) + "\nend\n");
    attempt(&replace("a", "end", "done")).unwrap();
    attempt(&insert("a", 1, "...")).unwrap();
    assert_eq!(scene.get("a").len(), 1_000);
    for more in [replace("a", "done", "done."), insert("a", 0, "")] {
        let refused = attempt(&more).unwrap_err();
        assert_eq!(
            (refused.reason, refused.details["max_edit_bytes"].as_str()),
            (Reason::WriteLimit, "1000")
        );
    }
    let refused = attempt(&create("b", "12345678901")).unwrap_err();
    assert_eq!((refused.reason, refused.details["max_write_bytes"].as_str()), (Reason::WriteLimit, "10"));
}

#[test]
fn a_file_of_very_many_lines_is_edited_and_its_diff_is_sizes() {
    let scene = Scene::new();
    let bounds = Bounds { max_edit_bytes: Bounds::LARGEST_EDIT, ..Bounds::default() };
    scene.put("a", "\n".repeat(1 << 22) + "end");
    let Ok(OpResult::Edit(result)) = edit(&scene.jail, &replace("a", "end", "ends"), &bounds, None) else {
        panic!("no result")
    };
    assert_eq!(result.diff, "Binary or very long: @project/a from 4194307 bytes to 4194308 bytes\n");
}

#[test]
fn a_hash_has_to_match_the_present_content() {
    let scene = Scene::new();
    scene.put("a", "now");
    let with = |hash: String| Edit { if_match_sha256: Some(hash), ..replace("a", "now", "next") };
    assert_eq!(failure(&scene, &with(sha256(b"then"))).details["sha256"], sha256(b"now"));
    done(&scene, &with(sha256(b"now")));
}
