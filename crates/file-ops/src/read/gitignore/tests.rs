use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::Gitignore;

fn matched(text: &str, path: &str) -> Option<bool> {
    let (path, is_dir) = path.strip_suffix('/').map_or((path, false), |dir| (dir, true));
    Gitignore::parse(text.as_bytes().to_vec()).matched(path.as_bytes(), is_dir)
}

#[test]
fn the_examples_of_the_manual_match() {
    for (pattern, path, expected) in [
        ("hello.*", "hello.txt", true),
        ("hello.*", "a/hello.java", true),
        ("/hello.*", "hello.c", true),
        ("/hello.*", "a/hello.java", false),
        ("foo/", "foo/", true),
        ("foo/", "a/foo/", true),
        ("foo/", "foo", false),
        ("doc/frotz", "doc/frotz", true),
        ("/doc/frotz", "doc/frotz", true),
        ("doc/frotz", "a/doc/frotz", false),
        ("foo/*", "foo/test.json", true),
        ("foo/*", "foo/bar/", true),
        ("foo/*", "foo/bar/hello.c", false),
        ("**/foo", "foo", true),
        ("**/foo", "a/b/foo", true),
        ("**/foo/bar", "a/foo/bar", true),
        ("abc/**", "abc/x/y", true),
        ("abc/**", "abc/", false),
        ("a/**/b", "a/b", true),
        ("a/**/b", "a/x/y/b", true),
        ("a/**/b", "a/x/y/c", false),
    ] {
        assert_eq!(matched(pattern, path), expected.then_some(true), "{pattern} {path}");
    }
}

#[test]
fn lines_as_git_reads_them() {
    for (text, path, expected) in [
        ("# a", "# a", None),
        ("\\# a", "# a", Some(true)),
        ("\\!a", "!a", Some(true)),
        ("\u{feff}a", "a", Some(true)),
        ("a\r\n", "a", Some(true)),
        ("a   ", "a", Some(true)),
        ("a\\ ", "a ", Some(true)),
        ("a\\\\ ", "a\\", Some(true)),
        ("a\n!a", "a", Some(false)),
        ("!a\na", "a", Some(true)),
        ("*.o\n!keep.o", "deep/keep.o", Some(false)),
        ("", "a", None),
        ("/", "a", None),
        ("!", "a", None),
        ("a\\", "a", None),
        ("a\\", "a\\", None),
        ("[a", "[a", None),
        ("[a", "a", None),
        ("{a,b}", "a", None),
        ("{a,b}", "{a,b}", Some(true)),
        ("[]x]", "]", Some(true)),
        ("[!]x]", "]", None),
        ("[!a]b", "xb", Some(true)),
        ("[^a]b", "ab", None),
        ("[a-c-]x", "-x", Some(true)),
        ("[\\]]", "]", Some(true)),
        ("[[:upper:]_]*", "Ab", Some(true)),
        ("[[:upper:]_]*", "ab", None),
        ("[[:none:]]", "a", None),
        ("a?c", "a/c", None),
        ("x/a[!b]c", "x/a/c", None),
        ("a**b", "axyb", Some(true)),
        ("x/a**b", "x/a/b", None),
        ("**", "a", Some(true)),
        ("***", "a", Some(true)),
        ("*", "a", Some(true)),
        ("*.", "a.", Some(true)),
        ("**/", "a/", Some(true)),
        ("**/*.[oa]", "a/b.o", Some(true)),
    ] {
        assert_eq!(matched(text, path), expected, "{text:?} {path:?}");
    }
}

#[test]
fn a_hostile_line_is_tried_in_no_time() {
    let subject = "a".repeat(255) + "/" + &"a/".repeat(1_900);
    for (piece, count, end) in
        [("*a", 2_000, ""), ("**/*a*", 600, "b"), ("**/a/", 800, "b"), ("[!b]*", 800, "b")]
    {
        let text = |count| format!("x/y\n{}{end}", piece.repeat(count));
        effort::assert_linear(count, text, |text| assert_eq!(matched(text, &subject), None, "{piece}"));
    }
}

proptest! {
    /// Whatever there is in a file, it is read, and a name is matched, without a panic.
    #[test]
    fn any_file_is_read(text in proptest::collection::vec(any::<u8>(), 0..200), path in "[a-c/*\\[\\]\\\\ ]{1,40}") {
        let rules = Gitignore::parse(text);
        let _ = rules.matched(path.as_bytes(), false);
        prop_assert!(rules.size() <= 200 * 16);
    }

    /// The library that ripgrep uses says the same, but for stars in a row and negated classes, which take a slash there.
    #[test]
    fn ripgrep_s_library_agrees(
        lines in proptest::collection::vec(
            "(!|)(/|)([ab.?]|\\*[ab.]|\\[ab\\]|a|b){1,4}\\*?(/(\\*\\*/|)([ab?]{1,3}\\*?|\\*)){0,2}(/|)", 1..5,
        ),
        path in "[ab]{1,3}(\\.[ab])?(/[ab]{1,3}){0,3}",
        is_dir in any::<bool>(),
    ) {
        let mut builder = ignore::gitignore::GitignoreBuilder::new("");
        for line in &lines {
            builder.add_line(None, line).unwrap();
        }
        let expected = match builder.build().unwrap().matched(Path::new(&path), is_dir) {
            ignore::Match::None => None,
            ignore::Match::Ignore(_) => Some(true),
            ignore::Match::Whitelist(_) => Some(false),
        };
        let found = Gitignore::parse(lines.join("\n").into_bytes()).matched(path.as_bytes(), is_dir);
        prop_assert_eq!(found, expected, "{:?} {:?}", lines, path);
    }
}

/// And git itself, on every pattern and path of small alphabets.
#[test]
fn git_agrees() {
    let scene = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(arguments)
            .current_dir(scene.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", scene.path());
        command.output().unwrap()
    };
    assert!(git(&["init", "-q"]).status.success());
    let parts = ["a", "b", "*", "?", "**", "[!a]", "a*"];
    let mut patterns: Vec<String> = Vec::new();
    for one in parts {
        patterns.push(one.to_owned());
        for two in parts {
            patterns.extend([format!("{one}{two}"), format!("{one}/{two}"), format!("/{one}/{two}")]);
            patterns.extend(parts.map(|three| format!("{one}/{two}/{three}")));
        }
    }
    let names = ["a", "b", "ab"];
    let mut paths: Vec<String> = names.map(str::to_owned).to_vec();
    for one in names {
        for two in names {
            paths.push(format!("{one}/{two}"));
            paths.extend(names.map(|three| format!("{one}/{two}/{three}")));
        }
    }
    for pattern in patterns {
        std::fs::write(scene.path().join(".gitignore"), format!("{pattern}\n")).unwrap();
        let mut arguments = vec!["check-ignore", "--no-index", "-v", "-n"];
        arguments.extend(paths.iter().map(String::as_str));
        let said = String::from_utf8(git(&arguments).stdout).unwrap();
        for (path, line) in paths.iter().zip(said.lines()) {
            // git also says it of what is in a directory that is ignored; a walk does not come there.
            let above = path
                .match_indices('/')
                .any(|(at, _)| matched(&pattern, &format!("{}/", &path[..at])).is_some());
            let expected = !line.starts_with("::");
            assert_eq!(above || matched(&pattern, path).is_some(), expected, "{pattern} {path}: {line}");
        }
    }
}
