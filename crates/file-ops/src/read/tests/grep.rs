use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use operations::{Bounds, Grep, GrepMatch, GrepResult, LeftOut, Outcome, Reason};

use crate::read::scene::{Scene, expect_result, path};
use crate::{Cancel, grep};

fn request(pattern: &str) -> Grep {
    Grep { before: 0, after: 0, ..Grep::new(path("@project"), pattern) }
}

fn attempt(scene: &Scene, request: &Grep) -> Outcome {
    grep(&scene.jail, request, &Bounds { max_output_bytes: 1 << 20, ..Bounds::default() }, &Cancel::default())
}

fn found(scene: &Scene, request: &Grep) -> GrepResult {
    expect_result!(attempt(scene, request), Grep)
}

/// `path:line` of every match.
fn places(scene: &Scene, request: &Grep) -> Vec<String> {
    let place = |found: &GrepMatch| format!("{}:{}", found.path.trim_start_matches("@project/"), found.line);
    found(scene, request).matches.iter().map(place).collect()
}

fn one(path: &str, line: u64, text: &str, before: &[&str], after: &[&str]) -> GrepMatch {
    let owned = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
    GrepMatch {
        path: path.to_owned(),
        line,
        text: text.to_owned(),
        before: owned(before),
        after: owned(after),
    }
}

fn tree() -> Scene {
    let scene = Scene::new();
    scene.file("a.rs", "fn main() {}\nlet a = f(x.y);\n");
    scene.file("b/c.rs", "f(xzy)\nF(X.Y)\n");
    scene.file("b-c.rs", "f(x.y)");
    scene.file("binary", b"f(x.y)\n\0");
    scene.file(".hidden", "f(x.y)");
    scene.file(".git/HEAD", "f(x.y)");
    scene.file("node_modules/m.js", "f(x.y)");
    scene.file("ignored.txt", "f(x.y)");
    scene.file(".gitignore", "ignored.txt");
    scene.fifo("pipe");
    scene
}

#[test]
fn literal_text_in_path_order_with_numbers() {
    let result = found(&tree(), &request("f(x.y)"));
    assert_eq!(
        result,
        GrepResult {
            matches: vec![
                one("@project/a.rs", 2, "let a = f(x.y);", &[], &[]),
                one("@project/b-c.rs", 1, "f(x.y)", &[], &[]),
            ],
            files_searched: 3,
            files_matched: 2,
            files_skipped: 1,
            hint: "1 file or directory not searched: 1 binary".to_owned(),
            left_out: Some(LeftOut { ignored: 2, hidden: 2, special: 1, binary: 1, ..LeftOut::default() }),
            ..GrepResult::default()
        }
    );
}

#[test]
fn an_empty_search_reports_its_omissions() {
    let scene = tree();
    scene.file("many.rs", "x");
    symlink("a.rs", scene.inside.join("link")).unwrap();
    let nothing = found(&scene, &request("nowhere"));
    assert_eq!(
        nothing.hint,
        "7 files or directories not searched: 2 ignored, 2 hidden, 1 symbolic links, 1 special files, 1 binary; set \
         include_ignored for hidden and ignored ones"
    );
    // Files that do not match the glob are not counted.
    let filtered = Grep { glob: Some("*.rs".to_owned()), ..request("nowhere") };
    assert_eq!(
        found(&scene, &filtered).hint,
        "2 files or directories not searched: 1 ignored, 1 symbolic links; set include_ignored for hidden and ignored ones"
    );
    let all = Grep { include_ignored: true, ..request("nowhere") };
    assert_eq!(
        found(&scene, &all).hint,
        "3 files or directories not searched: 1 symbolic links, 1 special files, 1 binary"
    );
    let true_nothing = Grep { path: path("a.rs"), ..request("nowhere") };
    assert_eq!(found(&scene, &true_nothing).hint, "");
}

#[test]
fn explicit_paths_are_searched_though_ignored_hidden_or_linked() {
    let scene = Scene::new();
    let rules = "scripts/*\nbuilt/\n*.log\n/config/secret.yml\n/deep/**\n";
    scene.file(".gitignore", rules);
    for file in [
        "scripts/a.sh",
        "scripts/sub/b.sh",
        "built/c.sh",
        "built/d.log",
        "config/secret.yml",
        "deep/x/e.sh",
        ".github/f.sh",
        "node_modules/m/g.sh",
        "src/h.sh",
    ] {
        scene.file(file, "needle\n");
    }
    symlink("src", scene.inside.join("linked")).unwrap();
    for (at, glob, expected) in [
        ("scripts", "", &["scripts/a.sh:1", "scripts/sub/b.sh:1"][..]),
        ("scripts/sub", "", &["scripts/sub/b.sh:1"]),
        ("built", "", &["built/c.sh:1"]),
        ("deep", "", &["deep/x/e.sh:1"]),
        ("built/d.log", "", &["built/d.log:1"]),
        ("", "scripts/*.sh", &["scripts/a.sh:1"]),
        ("", "@project/scripts/**", &["scripts/a.sh:1", "scripts/sub/b.sh:1"]),
        ("", "built/*", &["built/c.sh:1"]),
        ("", "built/d.log", &["built/d.log:1"]),
        ("", "/workspace/config/secret.yml", &["config/secret.yml:1"]),
        ("", ".github/**", &[".github/f.sh:1"]),
        ("", "node_modules/m/**", &["node_modules/m/g.sh:1"]),
        ("", "linked/*.sh", &["linked/h.sh:1"]),
        ("", "linked/h.sh", &["linked/h.sh:1"]),
        ("src", "@project/src/*.sh", &["src/h.sh:1"]),
        ("", "*.sh", &["src/h.sh:1"]),
    ] {
        let at = if at.is_empty() { "@project" } else { at };
        let glob = Some(glob.to_owned()).filter(|glob| !glob.is_empty());
        assert_eq!(places(&scene, &Grep { path: path(at), glob, ..request("needle") }), expected, "{at}");
    }
    for (glob, hint) in [
        ("src/src/*.sh", "there is no directory @project/src/src"),
        ("src", "1 directories have that name, such as @project/src: end the pattern in /**"),
        ("/src", "@project/src is a directory: end the pattern in /**"),
        ("*.sh,*.py", "a comma outside of braces"),
    ] {
        let result = found(&scene, &Grep { glob: Some(glob.to_owned()), ..request("needle") });
        assert!(result.matches.is_empty() && result.hint.contains(hint), "{glob}: {}", result.hint);
    }
}

#[test]
fn lines_end_where_they_are_shown_to_end() {
    let scene = Scene::new();
    let text = "\u{feff}one\r\ntwo \r\n\r\nTh\u{df}\rE \u{1f600}\r\nlast";
    let utf16 = |to: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(to).collect::<Vec<u8>>();
    let large = format!("{text}\r\n{}", "other\r\n".repeat(30_000));
    let files = [
        ("utf8", text.as_bytes().to_vec()),
        ("utf16le", utf16(u16::to_le_bytes)),
        ("utf16be", utf16(u16::to_be_bytes)),
        ("large", large.into_bytes()),
    ];
    for (name, content) in files {
        scene.file("f", content);
        for (pattern, lines) in [
            ("^one$", &[1][..]),
            ("one$", &[1]),
            (r"^one\s*$", &[1]),
            (r"two\s*$", &[2]),
            (r"two\s$", &[2]),
            ("^two $", &[2]),
            ("^$", &[3]),
            (r"^\s*$", &[3]),
            (r"one\r$", &[1]),
            (r"one\r?$", &[1]),
            (r"ß\rE", &[4]),
            ("(?i)th.*\u{1f600}$", &[4]),
            ("last$", &[5]),
            (r"last\z", &[5]),
            (r"\Atwo", &[2]),
            (r"two \z", &[2]),
            ("o.e$", &[1]),
            ("[^x]ne$", &[1]),
        ] {
            let regex = Grep { regex: true, ..request(pattern) };
            let found: Vec<u64> = found(&scene, &regex).matches.iter().map(|found| found.line).collect();
            assert_eq!(found, lines, "{name} {pattern}");
        }
        let folded = Grep { case_insensitive: true, ..request("\u{1e9e}\re") };
        assert_eq!(places(&scene, &folded), ["f:4"], "{name}");
        assert_eq!(places(&scene, &request("e\r")), ["f:1"], "{name}");
        for pattern in ["one\ntwo", "one\r\ntwo", "one\n"] {
            for regex in [true, false] {
                let failure = attempt(&scene, &Grep { regex, ..request(pattern) }).unwrap_err();
                assert_eq!(failure.reason, Reason::InvalidArgument, "{failure:?}");
                assert!(failure.message.contains("line by line"), "{failure:?}");
            }
        }
    }
}

#[test]
fn patterns_case_globs_and_default_omissions() {
    let scene = tree();
    let regex = Grep { regex: true, ..request(r"^f\(x.y\)$") };
    assert_eq!(places(&scene, &regex), ["b-c.rs:1", "b/c.rs:1"]);
    let insensitive = Grep { case_insensitive: true, ..request("f(x.y)") };
    assert_eq!(places(&scene, &insensitive), ["a.rs:2", "b-c.rs:1", "b/c.rs:2"]);
    let filtered = Grep { glob: Some("b/*.rs".to_owned()), ..insensitive };
    assert_eq!(places(&scene, &filtered), ["b/c.rs:2"]);
    let all = Grep { include_ignored: true, ..request("f(x.y)") };
    assert_eq!(
        places(&scene, &all),
        [".hidden:1", "a.rs:2", "b-c.rs:1", "ignored.txt:1", "node_modules/m.js:1"]
    );
}

#[test]
fn contexts_overlap_and_stop_at_gaps() {
    let scene = Scene::new();
    scene.file("a", "1\nx2\nx3\n4\n5\n6\n7\nx8\r\n9");
    let result = found(&scene, &Grep { before: 2, after: 2, ..request("x") });
    assert_eq!(
        result.matches,
        [
            one("@project/a", 2, "x2", &["1"], &["x3", "4"]),
            one("@project/a", 3, "x3", &["1", "x2"], &["4", "5"]),
            one("@project/a", 8, "x8", &["6", "7"], &["9"]),
        ]
    );
    let result = found(&scene, &Grep { before: 1, after: 1, ..request("x") });
    assert_eq!(result.matches[2], one("@project/a", 8, "x8", &["7"], &["9"]));
}

#[test]
fn the_last_wanted_match_keeps_its_context() {
    let scene = Scene::new();
    scene.file("a", "x1\nx2\n3\nx4\n");
    let result = found(&scene, &Grep { after: 2, max_matches: 1, ..request("x") });
    assert_eq!(result.matches, [one("@project/a", 1, "x1", &[], &["x2", "3"])]);
    assert!(result.truncated && result.hint.starts_with("stopped after 1 matches: "), "{}", result.hint);
    let result = found(&scene, &Grep { max_matches: 3, ..request("x") });
    assert_eq!((result.matches.len(), result.truncated, result.hint.as_str()), (3, false, ""));
}

#[test]
fn the_answer_is_bounded_in_bytes() {
    let scene = Scene::new();
    scene.file("a", format!("{}\n", "x".repeat(1000)).repeat(100));
    let bounds = Bounds { max_output_bytes: 1000, ..Bounds::default() };
    let result = expect_result!(grep(&scene.jail, &request("x"), &bounds, &Cancel::default()), Grep);
    assert_eq!((result.matches.len(), result.truncated), (3, true));
    assert_eq!(result.matches[0].text, "x".repeat(400) + "…");
}

#[test]
fn one_file_is_searched_whatever_its_name() {
    let scene = tree();
    let of = |at: &str| Grep { path: path(at), ..request("f(x.y)") };
    assert_eq!(places(&scene, &of("ignored.txt")), ["ignored.txt:1"]);
    let result = found(&scene, &of("binary"));
    assert_eq!(
        (result.files_skipped, result.hint.as_str()),
        (1, "1 file or directory not searched: 1 binary")
    );
    assert_eq!(attempt(&scene, &of("pipe")).unwrap_err().reason, Reason::SandboxViolation);
    assert_eq!(attempt(&scene, &of("none")).unwrap_err().reason, Reason::NotFound);
}

#[test]
fn an_endless_line_and_a_sparse_file_cost_no_memory() {
    let scene = Scene::new();
    let mut content = b"needle\n".to_vec();
    content.resize(64 << 20, b'x');
    scene.file("a", &content);
    let result = found(&scene, &request("needle"));
    assert_eq!((result.matches.len(), result.files_searched), (1, 1));
    assert!(result.hint.starts_with("1 files were not searched to their end"), "{}", result.hint);

    fs::File::create(scene.inside.join("a")).unwrap().set_len(100 << 30).unwrap();
    assert_eq!(found(&scene, &request("needle")).files_skipped, 1);
}

#[test]
fn a_pattern_cannot_hang_it() {
    let scene = Scene::new();
    scene.file("a", "a".repeat(100_000) + "b\n");
    let hard = Grep { regex: true, ..request("(a+a+)+$|(a|a)*c|([a-z]{0,40}){10}d") };
    assert_eq!(places(&scene, &hard), [""; 0]);
    for pattern in ["(", "a{1000}{1000}", "x\ny", "(?P<a>"] {
        let failure = attempt(&scene, &Grep { regex: true, ..request(pattern) }).unwrap_err();
        assert_eq!(failure.reason, Reason::InvalidArgument, "{pattern}: {failure:?}");
    }
}

#[test]
fn a_costly_pattern_ends_by_the_deadline() {
    let scene = Scene::new();
    scene.file("a", ("ab".repeat(100) + "\n").repeat(10_000));
    let costly = Grep { regex: true, ..request("(?:[ab]{1,40}){30}z?[^ab]c") };
    let cancel = Cancel::new(Some(Instant::now() + Duration::from_millis(20)));
    let failure = grep(&scene.jail, &costly, &Bounds::default(), &cancel).unwrap_err();
    assert_eq!(failure.reason, Reason::TimedOut);
}

#[test]
fn a_pattern_of_many_unicode_classes_is_searched_for() {
    let scene = Scene::new();
    scene.file("a", "größe_1 = länge\n");
    assert_eq!(places(&scene, &Grep { regex: true, ..request(r"^\w{2,30}\s=\s\w{2,30}$") }), ["a:1"]);
}

#[test]
fn grep_stops_within_a_file() {
    let scene = Scene::new();
    scene.file("a", "text\n".repeat(1 << 20));
    let cancel = Cancel::new(Some(Instant::now()));
    let failure = grep(&scene.jail, &Grep { path: path("a"), ..request("x") }, &Bounds::default(), &cancel)
        .unwrap_err();
    assert_eq!((failure.reason, failure.details["files_searched"].as_str()), (Reason::TimedOut, "0"));
}

#[test]
fn link_to_git_does_not_reach_its_configuration() {
    let scene = Scene::new();
    scene.file(".git/config", "secret");
    scene.file(".git/HEAD", "secret");
    symlink(".git", scene.inside.join("innocent")).unwrap();
    symlink(scene.outside.join("canary"), scene.inside.join("out")).unwrap();
    assert_eq!(places(&scene, &Grep { path: path("innocent"), ..request("secret") }), ["innocent/HEAD:1"]);
    assert_eq!(found(&scene, &request("canary")).files_searched, 0);
}

/// Files with 0 to 4 matches each, in several directories, many more than one thread takes at once.
fn many(scene: &Scene) -> Vec<(String, usize)> {
    let mut files: Vec<_> =
        (0..300).map(|n| (format!("{}/{}{n}.txt", n % 7, "d/".repeat(n % 3)), n * 7 % 5)).collect();
    files.sort();
    for (path, matches) in &files {
        scene.file(path, format!("other\n{}", "x needle\n".repeat(*matches)));
    }
    files
}

#[test]
fn the_answer_is_that_of_a_search_file_by_file_however_many_search() {
    let scene = Scene::new();
    let files = many(&scene);
    for wanted in [1, 7, 50, 500, 1000] {
        let all =
            files.iter().flat_map(|(path, matches)| (0..*matches).map(move |n| format!("{path}:{}", n + 2)));
        let expected: Vec<_> = all.take(wanted).collect();
        // The file with the first match that is not wanted is the last one that counts.
        let mut left = wanted;
        let full =
            files.iter().position(|(_, matches)| left.checked_sub(*matches).map(|now| left = now).is_none());
        let counted = full.map_or(files.len(), |last| last + 1);
        for _ in 0..20 {
            let request = Grep { max_matches: u32::try_from(wanted).unwrap(), ..request("needle") };
            let result = found(&scene, &request);
            assert_eq!(places(&scene, &request), expected);
            assert_eq!((result.files_searched, result.truncated), (counted as u64, full.is_some()));
        }
    }
}

#[test]
fn a_file_is_searched_alike_within_and_beyond_a_block() {
    let scene = Scene::new();
    for size in [65_535, 65_536, 65_537, 300_000] {
        let mut content = "line\n".repeat(size / 5);
        content.truncate(size - 12);
        content.push_str("\nneedle\nlast");
        scene.file("a", &content);
        let line = content.lines().count() as u64 - 1;
        let result = found(&scene, &Grep { before: 1, after: 1, ..request("needle") });
        assert_eq!(result.matches.len(), 1, "{size}");
        assert_eq!(
            (result.matches[0].line, result.matches[0].after.as_slice()),
            (line, &["last".to_owned()][..])
        );

        content.push('\0');
        scene.file("a", &content);
        assert_eq!(found(&scene, &request("needle")).files_skipped, 1, "{size}");
    }
}

#[test]
fn text_in_utf16_is_text() {
    let scene = Scene::new();
    for lines in [1, 20_000] {
        let text = "\u{feff}größe\n".to_owned() + &"füllt\n".repeat(lines);
        scene.file("a", text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>());
        assert_eq!(places(&scene, &request("größe")), ["a:1"]);
    }
}

#[test]
fn the_deadline_ends_every_thread() {
    let scene = Scene::new();
    for n in 0..64 {
        scene.file(format!("{n}"), ("ab".repeat(100) + "\n").repeat(1_000));
    }
    let costly = Grep { regex: true, ..request("(?:[ab]{1,40}){30}z?[^ab]c") };
    let cancel = Cancel::new(Some(Instant::now() + Duration::from_millis(100)));
    let failure = grep(&scene.jail, &costly, &Bounds::default(), &cancel).unwrap_err();
    assert_eq!(failure.reason, Reason::TimedOut);
    // What a thread was made for has ended; the kernel may still be taking the thread itself down.
    let searching = || {
        let mut tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks.any(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "grep\n"))
    };
    while searching() {
        std::thread::yield_now();
    }
}

#[test]
fn one_match_a_file_lists_the_files_with_matches() {
    let scene = Scene::new();
    scene.file("a", "x\n".repeat(100));
    scene.file("b", "y\nx 1\nx 2\n");
    scene.file("c", "y");
    scene.file("d", "x");
    let files = Grep { one_per_file: true, ..request("x") };
    assert_eq!(places(&scene, &files), ["a:1", "b:2", "d:1"]);
    assert!(!found(&scene, &files).truncated);
    let two = found(&scene, &Grep { max_matches: 2, ..files });
    assert_eq!((two.matches.len(), two.truncated), (2, true));
}
