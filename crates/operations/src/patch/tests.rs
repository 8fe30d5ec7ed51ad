//! What the two forms of a patch say, and what is refused by its name.

use super::script::{Action, FilePatch, Hunk, HunkPosition, Kind};
use super::{Patch, PatchChange};
use crate::Reason;

fn unified(text: &str) -> Result<Patch, String> {
    Patch::new(PatchChange::Unified(text.to_owned())).map_err(|malformed| malformed.to_string())
}

fn envelope(text: &str) -> Result<Patch, String> {
    Patch::new(PatchChange::Envelope(text.to_owned())).map_err(|malformed| malformed.to_string())
}

/// `PATH what`, one a file.
fn summary(patch: &Patch) -> Vec<String> {
    let hunks = |hunks: &[Hunk]| hunks.iter().map(sketch).collect::<Vec<_>>().join(" ");
    let one = |file: &FilePatch| match &file.action {
        Action::Create { content } => format!("{} created {content:?}", file.path),
        Action::Delete { content } => format!("{} deleted {content:?}", file.path),
        Action::Update { moved_to: Some(to), hunks: of } => format!("{} to {to} {}", file.path, hunks(of)),
        Action::Update { moved_to: None, hunks: of } => format!("{} {}", file.path, hunks(of)),
    };
    patch.files().iter().map(one).collect()
}

fn sketch(hunk: &Hunk) -> String {
    let lines: Vec<String> = hunk
        .lines
        .iter()
        .map(|line| {
            let sign = match line.kind {
                Kind::Context => '=',
                Kind::Removed => '-',
                Kind::Added => '+',
            };
            format!("{sign}{}{}", line.text, if line.newline { "" } else { "!" })
        })
        .collect();
    let lines = lines.concat();
    match &hunk.place {
        HunkPosition::Stated { old, new } => format!("{old}>{new}[{lines}]"),
        HunkPosition::Anchored { anchors, at_end } => {
            format!("{}{}[{lines}]", anchors.join("/"), if *at_end { "$" } else { "" })
        }
    }
}

#[test]
fn a_diff_of_git() {
    let text = "\
From 0123 Mon Sep 17 00:00:00 2001
Subject: [PATCH] several

---
 a | 2 +-

diff --git a/src/a.rs b/src/a.rs
index 1111111..2222222 100644
--- a/src/a.rs
+++ b/src/a.rs
@@ -1,3 +1,3 @@ fn main() {
 one
-two
+deux
 three
@@ -9 +9,2 @@
-nine
\\ No newline at end of file
+nine
+ten
\\ No newline at end of file
diff --git a/new b/new
new file mode 100644
index 0000000..e69de29
diff --git a/with space b/with space
new file mode 100644
index 0000000..2222222
--- /dev/null
+++ b/with space\t
@@ -0,0 +1 @@
+hello
diff --git a/gone b/gone
deleted file mode 100755
index 1111111..0000000
--- a/gone
+++ /dev/null
@@ -1,2 +0,0 @@
-x

-y
diff --git a/old b/moved
similarity index 90%
rename from old
rename to moved
--- a/old
+++ b/moved
@@ -1 +1 @@
-a
+b
diff --git \"a/caf\\303\\251\" b/plain
similarity index 100%
rename from \"caf\\303\\251\"
rename to plain
-- 
2.47.3
";
    // The blank line in the middle of a deletion is context, and so one of a side too many.
    assert!(unified(text).unwrap_err().contains("counts of the hunk"), "{:?}", unified(text));
    let patch = unified(&text.replace("-x\n\n-y", "-x\n-y")).unwrap();
    assert_eq!(
        summary(&patch),
        [
            "@project/src/a.rs 1>1[=one-two+deux=three] 9>9[-nine!+nine+ten!]",
            "@project/new created \"\"",
            "@project/with space created \"hello\\n\"",
            "@project/gone deleted Some(\"x\\ny\\n\")",
            "@project/old to @project/moved 1>1[-a+b]",
            "@project/café to @project/plain ",
        ]
    );
    let paths: Vec<String> = patch.paths().iter().map(ToString::to_string).collect();
    assert_eq!(paths.len(), 8);
    assert_eq!(paths[4..6], ["@project/old", "@project/moved"]);
}

#[test]
fn names_with_and_without_prefixes() {
    let body = "@@ -1 +1 @@\n-a\n+b\n";
    for (header, path) in [
        ("--- a/x\n+++ b/x\n", "@project/x"),
        ("--- x\n+++ x\n", "@project/x"),
        ("--- a/x\n+++ a/x\n", "@project/a/x"),
        ("--- old/d/x\t2024-01-01 00:00:00 +0000\n+++ new/d/x\t2024-01-02 00:00:00 +0000\n", "@project/d/x"),
        ("diff --git i/x w/x\n--- i/x\n+++ w/x\n", "@project/x"),
        ("diff --git b/x b/x\n--- b/x\n+++ b/x\n", "@project/b/x"),
        ("--- a/@state/notes.md\n+++ b/@state/notes.md\n", "@state/notes.md"),
        ("--- /workspace/x\n+++ /workspace/x\n", "@project/x"),
        ("Index: x\n=====\n--- a/x\r\n+++ b/x\r\n", "@project/x"),
    ] {
        let patch = unified(&format!("{header}{body}")).unwrap();
        assert_eq!(summary(&patch), [format!("{path} 1>1[-a+b]")], "{header}");
    }
    let created = "@@ -0,0 +1 @@\n+b\n";
    for (header, path) in [
        ("--- /dev/null\n+++ b/x\n", "@project/x"),
        ("diff --git b/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n", "@project/b/x"),
        ("--- old/x\t1970-01-01 00:00:00.000000000 +0000\n+++ x\t2024-01-01 00:00:00 +0000\n", "@project/x"),
    ] {
        let patch = unified(&format!("{header}{created}")).unwrap();
        assert_eq!(summary(&patch), [format!("{path} created \"b\\n\"")], "{header}");
    }
}

#[test]
fn unsupported_patches_are_refused_by_name() {
    let hunk = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
    for (text, part) in [
        (String::new(), "names no file"),
        ("hello\n".into(), "names no file"),
        ("@@ -1 +1 @@\n-a\n+b\n".into(), "line 1: a hunk before any file"),
        ("*** Begin Patch\n".into(), "this is an envelope"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n".into(), "line 2: modes are not changed"),
        ("diff --git a/x b/x\nnew file mode 100755\n".into(), "new files get mode 100644"),
        ("diff --git a/x b/x\nnew file mode 120000\n".into(), "symbolic links"),
        ("diff --git a/x b/x\nindex 1..2 160000\n".into(), "submodules"),
        ("diff --git a/x b/y\ncopy from x\ncopy to y\n".into(), "copies are not made"),
        ("diff --git a/x b/x\nindex 1..2 100644\nGIT binary patch\n".into(), "line 3: binary content"),
        ("diff --git a/x b/x\nBinary files a/x and b/x differ\n".into(), "binary content"),
        ("Binary files a/x and b/x differ\n".into(), "binary content"),
        ("diff --cc x\n".into(), "diffs of merges"),
        ("diff --git a/x b/x\nindex 1..2 100644\n".into(), "line 1: changes nothing"),
        ("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n".into(), "the two names differ"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n".into(), "there is no file on either side"),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-a\n+b\n".into(), "counts of the hunk in line 3"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n+c\n".into(), "counts of the hunk in line 3"),
        ("--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n+b\nc\n".into(), "another line comes before its end"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n a\n".into(), "the hunk changes nothing"),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-a\n\\ No newline\n-b\n+c\n".into(), "only the last line"),
        ("--- a/x\n+++ b/x\n@@ ... @@\n-a\n+b\n".into(), "a hunk begins with"),
        ("--- a/x\n+++ b/x\n@@ -1,99999999999 +1 @@\n-a\n+b\n".into(), "a hunk begins with"),
        ("--- /dev/null\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n".into(), "a new file has one hunk"),
        ("--- a/x\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n".into(), "a deleted file has one hunk"),
        (format!("{hunk}{hunk}"), "@project/x is named twice"),
        (
            format!("{hunk}{}", hunk.replace("/x", "/x/y")),
            "@project/x would be a file and the directory of @project/x/y",
        ),
        (hunk.replace("a/x", "a/../x").replace("b/x", "b/../x"), "`..` component"),
        (hunk.replace("/x", "/\0"), "NUL"),
    ] {
        let message = unified(&text).unwrap_err();
        assert!(message.contains(part), "{text:?}: {message}");
        assert!(message.starts_with("patch.unified_diff: ") && !message.contains('\n'), "{message}");
    }
}

#[test]
fn an_envelope() {
    let text = "\
*** Begin Patch
*** Add File: a/new.txt
+one
+
+two

*** Update File: src/a.rs
@@ impl A
@@ fn f
 context

-old
+new
@@
-x
+y
*** End of File

*** Update File: b
*** Move to: c
@@ -3,4 +3,4 @@
-p

*** Delete File: @state/gone
*** End Patch
";
    let expected = [
        "@project/a/new.txt created \"one\\n\\ntwo\\n\"",
        "@project/src/a.rs impl A/fn f[=context=-old+new] $[-x+y]",
        "@project/b to @project/c [-p]",
        "@state/gone deleted None",
    ];
    assert_eq!(summary(&envelope(text).unwrap()), expected);
    assert_eq!(summary(&envelope(&text.replace('\n', "\r\n")).unwrap()), expected);
    assert_eq!(summary(&envelope(&format!("\n\n{text}\n\n")).unwrap()), expected);
}

#[test]
fn an_invalid_envelope_is_reported_with_its_line() {
    for (text, part) in [
        ("diff --git a/x b/x\n", "line 1: an envelope begins with"),
        ("*** Begin Patch\n", "line 2: `*** End Patch` is missing"),
        ("*** Begin Patch\n*** End Patch\n", "names no file"),
        ("*** Begin Patch\n*** Add File: x\nhello\n*** End Patch\n", "line 3: every line of a new file"),
        ("*** Begin Patch\n*** Update File: x\n*** End Patch\n", "line 2: changes nothing"),
        ("*** Begin Patch\n*** Update File: x\n a\n*** End Patch\n", "the hunk changes nothing"),
        ("*** Begin Patch\n*** Update File: x\nhello\n*** End Patch\n", "line 3: every line of a hunk"),
        ("*** Begin Patch\n*** Remove File: x\n*** End Patch\n", "line 2: expected `*** Add File: PATH`"),
        ("*** Begin Patch\n*** Delete File: x\n*** Delete File: ./x\n*** End Patch\n", "named twice"),
        ("*** Begin Patch\n*** Delete File: x\n*** End Patch\nmore\n", "line 4: there is text after"),
        (
            "*** Begin Patch\n*** Delete File: /etc/passwd\n*** End Patch\n",
            "line 2: /etc/passwd: absolute paths",
        ),
    ] {
        let message = envelope(text).unwrap_err();
        assert!(message.contains(part), "{text:?}: {message}");
    }
    let outside =
        Patch::new(PatchChange::Envelope("*** Begin Patch\n*** Delete File: ../x\n*** End Patch".into()));
    assert_eq!(outside.unwrap_err().reason, Reason::SandboxViolation);
}

#[test]
fn bounds_hold() {
    let many: String = (0..300).map(|n| format!("*** Delete File: f{n}\n")).collect::<Vec<_>>().concat();
    let text = format!("*** Begin Patch\n{many}*** End Patch\n");
    assert!(envelope(&text).unwrap_err().contains("more than 256 files"));
    let long = format!("*** Begin Patch\n*** Add File: x\n{}*** End Patch\n", "+\n".repeat(200_000));
    assert!(envelope(&long).unwrap_err().contains("more than 200000 lines"));
    let spaces = format!("diff --git {}\n", " ".repeat(1_000_000));
    assert!(unified(&spaces.repeat(2)).is_err());
}
