//! The path grammar: tables of what is accepted and refused, and properties over arbitrary text.

use cofferdam_jail::{Mount, PathRefusal, SandboxPath};
use proptest::prelude::*;

fn reason(text: &str) -> &'static str {
    match SandboxPath::parse(text) {
        Ok(path) => panic!("{text:?} was accepted as {path}"),
        Err(refusal) => refusal.reason(),
    }
}

#[test]
fn accepted() {
    for (given, expected) in [
        ("@project", "@project"),
        ("@project/", "@project"),
        ("@project/src/a.rs", "@project/src/a.rs"),
        ("@pkg/lib/x.js", "@pkg/lib/x.js"),
        ("@state/notes.md", "@state/notes.md"),
        ("src/a.rs", "@project/src/a.rs"),
        (".", "@project"),
        ("./src//a.rs/", "@project/src/a.rs"),
        ("/workspace", "@project"),
        ("/workspace/", "@project"),
        ("/workspace/src/a.rs", "@project/src/a.rs"),
        ("/workspace//etc/passwd", "@project/etc/passwd"),
        ("/pkg/x", "@pkg/x"),
        ("/state/./x", "@state/x"),
        ("@project//etc/passwd", "@project/etc/passwd"),
        ("a/@pkg/b", "@project/a/@pkg/b"),
        ("...", "@project/..."),
        ("a..b/..c/d..", "@project/a..b/..c/d.."),
        ("~/.ssh", "@project/~/.ssh"),
        ("%2e%2e/%2e%2e", "@project/%2e%2e/%2e%2e"),
        ("trailing. /dots.", "@project/trailing. /dots."),
        ("with space\tand\nlines", "@project/with space\tand\nlines"),
        ("ünïcödé/文件", "@project/ünïcödé/文件"),
        ("a\\b", "@project/a\\b"),
        ("@project/C:\\x", "@project/C:\\x"),
        ("file:///etc/passwd", "@project/file:/etc/passwd"),
    ] {
        assert_eq!(
            SandboxPath::parse(given).map(|path| path.to_string()),
            Ok(expected.to_owned()),
            "{given:?}"
        );
    }
}

#[test]
fn prefix_before_an_alias_is_ignored() {
    for (given, expected) in [
        ("./@project/a.txt", "@project/a.txt"),
        ("/@project/a.txt", "@project/a.txt"),
        ("././/@pkg", "@pkg"),
        ("/./@state/x", "@state/x"),
        ("./a", "@project/a"),
        ("./@types/node", "@project/@types/node"),
        ("a/@pkg/b", "@project/a/@pkg/b"),
        ("./@projects", "@project/@projects"),
        ("@project/./@pkg/b", "@project/@pkg/b"),
    ] {
        let path = SandboxPath::parse_written(given).map(|path| path.to_string());
        assert_eq!(path, Ok(expected.to_owned()), "{given:?}");
    }
    for (given, expected) in [
        ("", "empty_path"),
        ("/@types/node", "absolute_path"),
        ("/@project/../x", "parent_segment"),
        ("../@project/x", "parent_segment"),
        ("./../@project/x", "parent_segment"),
        ("//etc/@project", "absolute_path"),
        ("./@project/a\0", "nul_byte"),
    ] {
        let refusal = SandboxPath::parse_written(given).unwrap_err();
        assert_eq!(refusal.reason(), expected, "{given:?}");
    }
    // On a disk and in a command it is a name.
    assert_eq!(SandboxPath::parse("./@project/a").unwrap().to_string(), "@project/@project/a");
    assert_eq!(reason("/@project/a"), "absolute_path");
}

#[test]
fn refused() {
    for (given, expected) in [
        ("", "empty_path"),
        ("@", "unknown_mount"),
        ("@/x", "unknown_mount"),
        ("@foo/x", "unknown_mount"),
        ("@PROJECT/x", "unknown_mount"),
        ("@projects/x", "unknown_mount"),
        ("@project\\x", "unknown_mount"),
        ("@types/node", "unknown_mount"),
        ("/", "absolute_path"),
        ("//", "absolute_path"),
        ("//workspace/x", "absolute_path"),
        ("/etc/passwd", "absolute_path"),
        ("/workspaces/x", "absolute_path"),
        ("/workspace\0", "absolute_path"),
        ("/proc/self/root/workspace", "absolute_path"),
        ("/project/x", "absolute_path"),
        ("C:\\Windows", "windows_path"),
        ("c:/Windows", "windows_path"),
        ("z:", "windows_path"),
        ("C:relative", "windows_path"),
        ("\\\\server\\share", "windows_path"),
        ("\\\\?\\C:\\x", "windows_path"),
        ("\\etc", "windows_path"),
        ("a\0b", "nul_byte"),
        ("@state/\0", "nul_byte"),
        ("..", "parent_segment"),
        ("../x", "parent_segment"),
        ("a/..", "parent_segment"),
        ("a/../b", "parent_segment"),
        ("a/.././b", "parent_segment"),
        ("@project/..", "parent_segment"),
        ("@project/../pkg", "parent_segment"),
        ("/workspace/../etc/passwd", "parent_segment"),
        ("a\\..\\b", "parent_segment"),
        ("..\\..\\etc", "parent_segment"),
        ("@pkg/a/..\\x", "parent_segment"),
    ] {
        assert_eq!(reason(given), expected, "{given:?}");
    }
    assert_eq!(reason(&"a".repeat(256)), "component_too_long");
    assert_eq!(reason(&"é".repeat(128)), "component_too_long");
    assert_eq!(reason(&"a/".repeat(2049)), "path_too_long");
    assert_eq!(reason(&format!("@project/{}", "a/".repeat(2049))), "path_too_long");
}

#[test]
fn refusals_are_readable() {
    let message = |text: &str| SandboxPath::parse(text).unwrap_err().to_string();
    assert_eq!(message("@foo/x"), "@foo/x: unknown mount; paths begin with @project, @pkg or @state");
    assert_eq!(
        message("/etc/passwd"),
        "/etc/passwd: absolute paths must be beneath /workspace, /pkg or /state"
    );
    assert_eq!(message("a/../b"), "@project: `a/../b` contains a `..` component; write the path without it");
    assert_eq!(
        message("/etc/x\ny\x1b[2J"),
        "/etc/x\\ny\\u{1b}[2J: absolute paths must be beneath /workspace, /pkg or /state"
    );
    assert_eq!(PathRefusal::NotMounted { mount: Mount::Pkg }.to_string(), "@pkg is not mounted in this run");
}

#[test]
fn container_paths() {
    let path = |text: &str| SandboxPath::parse(text).unwrap().container_path();
    assert_eq!(path("src/a.rs"), "/workspace/src/a.rs");
    assert_eq!(path("@pkg"), "/pkg");
}

/// Text that looks like a path, as well as any text at all.
fn pathlike() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("..".to_owned()),
        Just(".".to_owned()),
        Just("/".to_owned()),
        Just("\\".to_owned()),
        Just("@project".to_owned()),
        Just("@state".to_owned()),
        Just("/workspace".to_owned()),
        Just("C:".to_owned()),
        Just("\0".to_owned()),
        "[a-z.\\\\]{0,6}",
        "\\PC{0,4}",
    ];
    prop_oneof![proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat()), any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn accepted_paths_are_normal_and_parse_back(text in pathlike()) {
        let Ok(path) = SandboxPath::parse(&text) else { return Ok(()) };
        for component in path.rel().components() {
            prop_assert!(!matches!(component, "" | "." | ".."));
            prop_assert!(!component.contains(['/', '\0']));
            prop_assert!(component.split('\\').all(|part| part != ".."));
        }
        prop_assert_eq!(path.rel().components().collect::<Vec<_>>().join("/"), path.rel().as_str());
        prop_assert_eq!(SandboxPath::parse(&path.to_string()), Ok(path.clone()));
        prop_assert_eq!(SandboxPath::parse(&path.container_path()), Ok(path));
    }

    #[test]
    fn refusals_stay_on_one_short_line(text in pathlike()) {
        if let Err(refusal) = SandboxPath::parse(&text) {
            let message = refusal.to_string();
            prop_assert!(!message.contains(char::is_control), "{:?}", message);
            prop_assert!(message.chars().count() < 2500);
        }
    }
}
