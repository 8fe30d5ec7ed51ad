//! Hunks and one file's bytes.

use operations::patch::{Action, Hunk};
use operations::{Patch, PatchChange};

use super::super::apply::{Mismatch, MismatchKind, Moved, apply};

fn hunks(patch: &Patch) -> &[Hunk] {
    match &patch.files()[0].action {
        Action::Update { hunks, .. } => hunks,
        other => panic!("{other:?}"),
    }
}

fn unified(file: &str, body: &str) -> Result<(String, Vec<Moved>), Mismatch> {
    let text = format!("--- a/f\n+++ b/f\n{body}");
    let patch = Patch::new(PatchChange::Unified(text)).unwrap();
    apply(file.as_bytes(), hunks(&patch))
        .map(|applied| (String::from_utf8(applied.content).unwrap(), applied.moved))
}

fn envelope(file: &str, body: &str) -> Result<String, MismatchKind> {
    let text = format!("*** Begin Patch\n*** Update File: f\n{body}*** End Patch\n");
    let patch = Patch::new(PatchChange::Envelope(text)).unwrap();
    apply(file.as_bytes(), hunks(&patch))
        .map(|applied| String::from_utf8(applied.content).unwrap())
        .map_err(|mismatch| mismatch.kind)
}

#[test]
fn a_hunk_applies_at_its_line_or_at_the_only_other_match() {
    let file = "a\nb\nc\nd\ne\nf\n";
    assert_eq!(unified(file, "@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n"), Ok(("a\nb\nC\nd\ne\nf\n".into(), vec![])));
    assert_eq!(
        unified(file, "@@ -4,3 +4,3 @@\n b\n-c\n+C\n d\n"),
        Ok(("a\nb\nC\nd\ne\nf\n".into(), vec![Moved { hunk: 1, said: 4, found: 2 }]))
    );
    let twice = "a\nx\nb\na\nx\nb\n";
    assert_eq!(unified(twice, "@@ -4,3 +4,3 @@\n a\n-x\n+y\n b\n").unwrap().0, "a\nx\nb\na\ny\nb\n");
    let ambiguous = |mismatch: Mismatch| mismatch.kind == MismatchKind::Ambiguous(vec![1, 4]);
    assert!(unified(twice, "@@ -2,3 +2,3 @@\n a\n-x\n+y\n b\n").is_err_and(ambiguous));
    // The two numbers name different lines, and both would do.
    assert!(unified(twice, "@@ -1,3 +4,3 @@\n a\n-x\n+y\n b\n").is_err_and(ambiguous));
    assert!(
        unified(file, "@@ -2,2 +2,2 @@\n b\n-x\n+y\n")
            .is_err_and(|mismatch| mismatch.kind == MismatchKind::Absent)
    );
    assert!(
        unified(file, "@@ -2,0 +3 @@\n+y\n").is_err_and(|mismatch| mismatch.kind == MismatchKind::NoContext)
    );
}

#[test]
fn several_hunks_go_in_order() {
    let file: String = (1..=20).map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
    let (changed, moved) = unified(
        &file,
        "@@ -1,2 +1,4 @@\n+0\n+0\n 1\n 2\n@@ -10,3 +12,2 @@\n 10\n-11\n 12\n@@ -19,2 +20,3 @@\n 19\n 20\n+21\n",
    )
    .unwrap();
    let expected: String = ["0", "0"]
        .map(str::to_owned)
        .into_iter()
        .chain((1..=21).map(|n| n.to_string()))
        .filter(|n| n != "11")
        .fold(String::new(), |text, n| text + &n + "\n");
    assert_eq!((changed, moved), (expected, vec![]));
    let turned = "@@ -10,3 +10,2 @@\n 10\n-11\n 12\n@@ -1,2 +1,3 @@\n 1\n+x\n 2\n";
    assert_eq!(unified(&file, turned), Err(Mismatch { hunk: 2, kind: MismatchKind::OutOfOrder(1) }));
}

#[test]
fn the_last_newline_is_a_part_of_the_last_line() {
    let body = "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n";
    assert_eq!(unified("a\nb", body).unwrap().0, "a\nc\n");
    assert!(unified("a\nb\n", body).is_err());
    let body = "@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n";
    assert_eq!(unified("a\nb\n", body).unwrap().0, "a\nc");
    assert!(unified("a\nb", body).is_err());
}

/// Where `git apply --unidiff-zero` takes the line that the hunk says, though its newline was not to be there.
#[test]
fn a_line_without_its_newline_is_the_last() {
    let hunk = |line: usize| format!("@@ -{line} +{line} @@\n-x\n\\ No newline at end of file\n+y\n");
    let moved = |said, found| vec![Moved { hunk: 1, said, found }];
    assert_eq!(unified("q\nx\nx", &hunk(2)), Ok(("q\nx\ny\n".into(), moved(2, 3))));
    assert_eq!(unified("q\nx\nx", &hunk(3)), Ok(("q\nx\ny\n".into(), vec![])));
    assert!(unified("q\nx\nz", &hunk(2)).is_err_and(|mismatch| mismatch.kind == MismatchKind::Absent));
}

#[test]
fn line_endings_and_marks_are_kept() {
    let body = "@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d\n";
    assert_eq!(unified("a\r\nb\r\n", body).unwrap().0, "a\r\nc\r\nd\r\n");
    assert_eq!(unified("\u{feff}a\nb\n", body).unwrap().0, "\u{feff}a\nc\nd\n");
    assert!(unified("a\nb\r\n", body).is_err(), "mixed: nothing is guessed");
    let exact = "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\n";
    assert_eq!(unified("a\r\nb\r\n", exact).unwrap().0, "a\r\nc\n");
    let marked = "@@ -1 +1 @@\n-\u{feff}a\n+a\n";
    assert!(unified("a\n", marked).is_err());
    assert_eq!(unified("\u{feff}a\n", marked).unwrap().0, "a\n");
}

#[test]
fn the_envelope_finds_its_position_by_context_and_anchors() {
    let file = "class A:\n    def f():\n        x = 1\n    def g():\n        x = 1\nclass B:\n    def f():\n        x = 1\n";
    let change = "-        x = 1\n+        x = 2\n";
    let at = |line: usize| {
        let mut lines: Vec<&str> = file.lines().collect();
        lines[line - 1] = "        x = 2";
        Ok(lines.join("\n") + "\n")
    };
    assert_eq!(envelope(file, change), Err(MismatchKind::Ambiguous(vec![3, 5, 8])));
    assert_eq!(envelope(file, &format!("@@ def g():\n{change}")), at(5));
    assert_eq!(envelope(file, &format!("@@ class B:\n@@     def f():\n{change}")), at(8));
    assert_eq!(envelope(file, &format!("@@ class A:\n{change}")), at(3));
    assert_eq!(
        envelope(file, &format!("@@ def f():\n{change}")),
        Err(MismatchKind::AmbiguousAnchor("def f():".into(), vec![2, 7]))
    );
    assert_eq!(
        envelope(file, &format!("@@ def h():\n{change}")),
        Err(MismatchKind::NoAnchor("def h():".into()))
    );
    assert_eq!(envelope(file, &format!("     def g():\n{change}")), at(5));
    assert_eq!(envelope(file, &format!("{change}*** End of File\n")), at(8));
    assert_eq!(envelope(file, " class A:\n-    def f():\n*** End of File\n"), Err(MismatchKind::Absent));
    assert_eq!(envelope(file, "+x\n"), Err(MismatchKind::NoContext));
    assert_eq!(envelope("a\nb\n", "@@ a\n+x\n").unwrap(), "a\nx\nb\n");
    assert_eq!(envelope("a\n", "+x\n*** End of File\n").unwrap(), "a\nx\n");
    assert_eq!(envelope("", "+x\n").unwrap(), "x\n");
    assert_eq!(
        envelope("a\nb\nc\n", "@@ -1,1 +1,1 @@\n-c\n+d\n@@\n-a\n+b\n"),
        Err(MismatchKind::OutOfOrder(1))
    );
}

#[test]
fn the_envelope_leaves_the_last_newline_as_it_is() {
    assert_eq!(envelope("a\nb", "-b\n+c\n").unwrap(), "a\nc");
    assert_eq!(envelope("a\r\nb", " a\n-b\n+c\n+d\n").unwrap(), "a\r\nc\r\nd");
    assert_eq!(envelope("a\nb", " b\n+c\n").unwrap(), "a\nb\nc");
    assert_eq!(envelope("b", "-b\n").unwrap(), "");
}

#[test]
fn a_search_in_a_long_file_of_equal_lines_ends() {
    let input = |size: usize| ("\n".repeat(size), " \n".repeat(size / 400));
    effort::assert_linear(2_000_000, input, |(file, context)| {
        assert_eq!(envelope(file, &format!("{context}-x\n")), Err(MismatchKind::Absent));
        assert!(matches!(envelope(file, &format!("{context}+x\n")), Err(MismatchKind::Ambiguous(_))));
    });
}
