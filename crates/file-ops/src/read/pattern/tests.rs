use super::*;

pub(super) fn compiled(pattern: &str) -> Result<Pattern, ToolFailure> {
    Pattern::compile(pattern, &SandboxPath::parse("@project").unwrap())
}

/// Matches a path from the root, as the search does that begins in the pattern's own directory.
pub(super) fn matches(pattern: &Pattern, path: &str) -> bool {
    let start = pattern.start().rel().as_str();
    match path.strip_prefix(start) {
        Some(rest) if start.is_empty() => pattern.matches(rest),
        Some(rest) => rest.strip_prefix('/').is_some_and(|rest| pattern.matches(rest)),
        None => false,
    }
}

#[test]
fn a_pattern_matches_as_the_paths_of_answers_are_written() {
    for (pattern, path, expected) in [
        ("*.rs", "a.rs", true),
        ("*.rs", "src/deep/a.rs", true),
        ("src/*.rs", "src/a.rs", true),
        ("src/*.rs", "src/deep/a.rs", false),
        ("src/*.rs", "other/src/a.rs", false),
        ("src/**/*.rs", "src/a.rs", true),
        ("src/**/*.rs", "src/x/y/a.rs", true),
        ("**/a.rs", "a.rs", true),
        ("/a.rs", "a.rs", true),
        ("/a.rs", "src/a.rs", false),
        ("./src/a.rs", "src/a.rs", true),
        ("./a.rs", "src/a.rs", false),
        ("src//./a.rs", "src/a.rs", true),
        ("src/", "src/deep/a.rs", true),
        ("**/", "src/a.rs", true),
        ("*/", "src/a.rs", true),
        ("*/", "a.rs", false),
        ("*.{rs,toml}", "x/Cargo.toml", true),
        ("a{,.bak}", "a", true),
        ("{src,tests}/**/*.rs", "tests/a.rs", true),
        ("{src/x,y}/*.rs", "src/x/a.rs", true),
        ("[ab].rs", "b.rs", true),
        ("[!a].rs", "b.rs", true),
        ("x[!a]y", "x/y", false),
        ("[^]a]", "]", false),
        ("[!a-c]x", "dx", true),
        ("[!-a]x", "-x", false),
        ("[!-a]x", "bx", true),
        ("a**b", "axb", true),
        ("a**b", "a/b", false),
        ("a?b", "a/b", false),
        ("??.rs", "é.rs", true),
        ("*.rs", "a.RS", false),
        ("\\[slug\\].tsx", "app/[slug].tsx", true),
        ("\\!a", "!a", true),
        (".github/**", ".github/workflows/a.yml", true),
        ("@types/*.ts", "@types/a.ts", true),
        // As answers have it.
        ("@project/src/*.rs", "src/a.rs", true),
        ("@project/*.rs", "src/a.rs", false),
        ("./@project/**/*.rs", "src/a.rs", true),
        ("/workspace/src/**", "src/deep/a.rs", true),
        ("/workspace/", "src/a.rs", true),
        ("@project", "src/a.rs", true),
        ("/workspaces/a", "workspaces/a", true),
    ] {
        assert_eq!(matches(&compiled(pattern).unwrap(), path), expected, "{pattern} {path}");
    }
}

#[test]
fn a_pattern_is_for_paths_below_the_search_or_from_a_mount_s_root() {
    for (pattern, within, path, expected) in [
        ("*.rs", "src", "src/a.rs", Ok(true)),
        ("x/*.rs", "src", "src/x/a.rs", Ok(true)),
        ("src/*.rs", "src", "src/a.rs", Ok(false)),
        ("/workspace/src/*.rs", "src", "src/a.rs", Ok(true)),
        ("/workspace/src/*.rs", "src/x", "src/x/a.rs", Ok(false)),
        ("/workspace/src/**/*.rs", "src/x", "src/x/a.rs", Ok(true)),
        ("@project/**/*.rs", "src/x", "src/x/y/a.rs", Ok(true)),
        ("@project/src/x/y/*.rs", "src", "src/x/y/a.rs", Ok(true)),
        ("@project/tests/*.rs", "src", "", Err("search in @project/tests")),
        ("@project/srcs/*.rs", "src", "", Err("search in @project/srcs")),
        ("@state/*.rs", "src", "", Err("search in @state")),
    ] {
        let compiled = Pattern::compile(pattern, &SandboxPath::parse(within).unwrap());
        match (compiled, expected) {
            (Ok(pattern), Ok(expected)) => {
                assert_eq!(matches(&pattern, path), expected, "{pattern:?} {within}");
            }
            (Err(failure), Err(why)) => assert!(failure.message.contains(why), "{failure:?}"),
            other => panic!("{pattern} {within}: {other:?}"),
        }
    }
}

#[test]
fn unsupported_patterns_are_refused_with_the_reason() {
    let deep = format!("{}a{}", "{".repeat(300), "}".repeat(300));
    for (pattern, why) in [
        ("[a", "unclosed"),
        ("{a", "unclosed"),
        ("", "empty"),
        ("/", "empty"),
        ("./", "empty"),
        ("a\\", "dangling"),
        (deep.as_str(), "nested too deeply"),
        ("!*.rs", "does not exclude"),
        ("!(a|b)", "does not exclude"),
        ("~", "is not expanded"),
        ("~/src/*.rs", "is not expanded"),
        ("../src/*.rs", "`..`"),
        ("src/../*.rs", "`..`"),
        ("src\\main\\*.rs", "write /"),
        ("C:\\src\\*.rs", "drive letter"),
        ("C:/src/*.rs", "drive letter"),
        ("[[:alpha:]]*.rs", "named class"),
        ("a{1..3}.txt", "{1,2,3}"),
        ("{a..c}", "{1,2,3}"),
        ("*.@(ts|js)", "{a,b}"),
        ("{/workspace/src,tests}/*.rs", "whole paths in braces"),
        ("{./src,tests}/*.rs", "whole paths in braces"),
    ] {
        let failure = compiled(pattern).unwrap_err();
        assert_eq!(failure.reason, Reason::InvalidArgument, "{pattern}");
        assert!(failure.message.contains("not valid: ") && failure.message.contains(why), "{failure:?}");
    }
}

#[test]
fn an_ambiguous_pattern_is_noted_if_it_matches_nothing() {
    for (pattern, doubt) in [
        ("app/[slug]/*.tsx", Some("brackets")),
        ("*.ts,*.tsx", Some("comma")),
        ("src\\*.rs", Some("backslash")),
        (".*\\.rs", Some("regular expression")),
        ("^a", Some("regular expression")),
        ("src/**.rs", Some("whole component")),
        ("*.{ts,tsx}", None),
        ("src/**/*.rs", None),
        ("\\[slug\\]", None),
    ] {
        let said = compiled(pattern).unwrap().doubts().join("; ");
        assert_eq!(doubt.is_none(), said.is_empty(), "{pattern}: {said}");
        assert!(said.contains(doubt.unwrap_or_default()), "{pattern}: {said}");
    }
}

#[test]
fn a_dot_in_front_asks_for_hidden_names() {
    for (pattern, expected) in [
        (".*/*", true),
        ("a/*/.b", true),
        ("{.x,y}/z", true),
        ("*.rs", false),
        ("./a", false),
        (".github/*", false),
    ] {
        assert_eq!(compiled(pattern).unwrap().names_hidden(), expected, "{pattern}");
    }
}

#[test]
fn a_search_begins_in_the_last_directory_that_a_pattern_names() {
    for (pattern, start, name) in [
        ("*.rs", "@project", None),
        ("a.rs", "@project", None),
        ("/a.rs", "@project", Some("a.rs")),
        ("node_modules/x/**", "@project/node_modules/x", None),
        ("src/a.rs", "@project/src", Some("a.rs")),
        ("src/*/a.rs", "@project/src", None),
        ("{a,b}/c", "@project", None),
    ] {
        let compiled = compiled(pattern).unwrap();
        assert_eq!(compiled.start().to_string(), start, "{pattern}");
        assert_eq!(compiled.name().and_then(EntryName::as_str), name, "{pattern}");
    }
}
