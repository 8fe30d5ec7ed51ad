//! Compares patches with `git apply`: a diff has the same result as with git, or is refused. A diff always applies to the tree
//! that it was made from.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use operations::PatchResult;
use proptest::prelude::*;

use super::Scene;

/// Content by path.
type Tree = BTreeMap<String, String>;

const NAMES: [&str; 7] = ["f", "d/g", "d/e/h", "with space", "café", "tab\tin it", "b/\"q\""];

fn content() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "a",
        "b",
        "c",
        "",
        "    x = 1",
        "-- dashes",
        "+ plus",
        "@@ -1 +1 @@",
        "\\ x",
    ]);
    (prop::collection::vec(line, 0..14), any::<bool>(), 0..6).prop_map(|(lines, ended, form)| {
        let newline = if form == 0 { "\r\n" } else { "\n" };
        let mut text = lines.join(newline);
        if ended && !text.is_empty() {
            text.push_str(newline);
        }
        if form == 1 { format!("\u{feff}{text}") } else { text }
    })
}

fn tree() -> impl Strategy<Value = Tree> {
    prop::collection::btree_map(prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned), content(), 1..4)
}

/// One change of a tree: which file, how, and where.
type Edit = (usize, u8, usize, String);

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let text = prop::sample::select(vec!["a", "b", "z", "", "-- dashes"]).prop_map(str::to_owned);
    prop::collection::vec((0..4_usize, 0..8_u8, 0..14_usize, text), 0..5)
}

fn edited(mut tree: Tree, edits: &[Edit]) -> Tree {
    for (file, how, line, text) in edits {
        let Some(name) = tree.keys().nth(*file).cloned() else { continue };
        let free = NAMES.iter().copied().find(|name| !tree.contains_key(*name));
        let content = tree.get_mut(&name).unwrap();
        let newline = if content.contains("\r\n") { "\r\n" } else { "\n" };
        let mut lines: Vec<String> = content.split_inclusive('\n').map(str::to_owned).collect();
        let line = *line.min(&lines.len());
        match how {
            0..=2 => lines.insert(line, format!("{text}{newline}")),
            3 | 4 if line < lines.len() => drop(lines.remove(line)),
            5 if line < lines.len() => lines[line] = format!("{text}{newline}"),
            6 => {
                tree.remove(&name);
                continue;
            }
            7 => {
                let content = tree.remove(&name).unwrap();
                tree.insert(free.unwrap_or(&name).to_owned(), content);
                continue;
            }
            _ => continue,
        }
        *content = lines.concat();
    }
    tree
}

fn write(tree: &Tree, top: &Path) {
    for (name, content) in tree {
        let path = top.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

fn read(top: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![top.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
                tree.insert(name, String::from_utf8(fs::read(path).unwrap()).unwrap());
            }
        }
    }
    tree
}

fn run(program: &str, arguments: &[&str], at: &Path) -> (bool, String) {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(at)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", at.parent().unwrap())
        .env("TZ", "America/New_York")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// The difference between two trees, in one of the ways in which people make them.
fn diff(old: &Tree, new: &Tree, form: usize) -> String {
    let top = tempfile::tempdir().unwrap();
    let [one, two] = ["old", "new"].map(|name| top.path().join(name));
    for (tree, at) in [(old, &one), (new, &two)] {
        fs::create_dir(at).unwrap();
        write(tree, at);
    }
    if form == 0 {
        return run("diff", &["-ruN", "old", "new"], top.path()).1;
    }
    assert!(run("git", &["init", "-q"], &one).0 && run("git", &["add", "-A"], &one).0);
    let (_, before) = run("git", &["write-tree"], &one);
    fs::rename(one.join(".git"), two.join(".git")).unwrap();
    assert!(run("git", &["add", "-A"], &two).0);
    let arguments: &[&str] = match form {
        1 => &["diff", "--cached", "-M"],
        2 => &["-c", "core.quotePath=false", "diff", "--cached", "-U1", "--no-renames"],
        3 => &["diff", "--cached", "--no-prefix", "-M10%"],
        _ => &["diff", "--cached", "--minimal", "-U0"],
    };
    run("git", &[arguments, &[before.trim_end()]].concat(), &two).1
}

/// What git makes of it; `None` where it refuses.
fn by_git(tree: &Tree, text: &str, form: usize) -> Option<Tree> {
    let top = tempfile::tempdir().unwrap();
    let at = top.path().join("tree");
    fs::create_dir(&at).unwrap();
    write(tree, &at);
    let file = top.path().join("patch");
    fs::write(&file, text).unwrap();
    let mut arguments = vec!["apply", file.to_str().unwrap()];
    match form {
        3 => arguments.insert(1, "-p0"),
        4 => arguments.insert(1, "--unidiff-zero"),
        _ => {}
    }
    run("git", &arguments, &at).0.then(|| read(&at))
}

fn by_us(tree: &Tree, text: &str) -> Result<(Tree, PatchResult), String> {
    let scene = Scene::new();
    write(tree, &scene.inside);
    let result = scene.unified(text);
    let after = read(&scene.inside);
    assert_eq!(read(&scene.top.path().join("outside")).len(), 1);
    match result {
        Ok(result) => Ok((after, result)),
        Err(failure) => {
            assert_eq!(&after, tree, "refused, and changed all the same");
            Err(failure.message)
        }
    }
}

/// A diff without a line of context says too little where it only adds.
fn only_adds(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("@@ ") && line.contains(",0 +"))
}

/// Whether git could take a line that the diff says is not ended for one that is. It compares such a line as far as it
/// goes and leaves out the newline (2.47.3), so that it replaces a line in the middle of a file by what was made of the
/// last one: see `apply::a_line_without_its_newline_is_the_last`.
fn is_mistaken_by_git(text: &str, there: &Tree) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let unended = lines.windows(2).filter(|pair| pair[1].starts_with("\\ ") && !pair[0].starts_with('+'));
    let mut ended =
        there.values().flat_map(|content| content.split_inclusive('\n')).filter(|line| line.ends_with('\n'));
    let unended: Vec<&str> = unended.map(|pair| pair[0][1..].trim_end()).collect();
    ended.any(|line| unended.contains(&line.trim_end()))
}

/// Each costs a dozen processes. `PROPTEST_CASES` says how many where there is time for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or_else(|| effort::cases(30, 100))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn a_diff_applies_to_its_original(old in tree(), changes in edits(), form in 0_usize..5) {
        let new = edited(old.clone(), &changes);
        let text = diff(&old, &new, form);
        if text.is_empty() || (form == 4 && only_adds(&text)) {
            return Ok(());
        }
        // For `diff -N` an empty file is none.
        let seen = |mut tree: Tree| {
            tree.retain(|_, content| form != 0 || !content.is_empty());
            tree
        };
        match by_us(&old, &text) {
            Ok((after, result)) => {
                prop_assert_eq!(seen(after), seen(new), "{}", text);
                prop_assert!(result.notes.is_empty(), "{:?}\n{}", result.notes, text);
            }
            // In equal lines, git's place for lines at the end can be another one.
            Err(message) => prop_assert!(message.contains("occur several times"), "{}\n{}", message, text),
        }
    }

    #[test]
    fn a_diff_for_another_tree_has_the_effect_of_git_or_none(
        old in tree(),
        changes in edits(),
        others in edits(),
        form in 0_usize..5,
    ) {
        let new = edited(old.clone(), &changes);
        let text = diff(&old, &new, form);
        if text.is_empty() {
            return Ok(());
        }
        // Names stay: a missing file is refused by both.
        let others: Vec<Edit> = others.into_iter().filter(|(_, how, ..)| *how < 6).collect();
        let there = edited(old, &others);
        if is_mistaken_by_git(&text, &there) {
            return Ok(());
        }
        if let (Some(git), Ok((ours, _))) = (by_git(&there, &text, form), by_us(&there, &text)) {
            prop_assert_eq!(ours, git, "{}\n{:?}", text, there);
        }
    }
}
