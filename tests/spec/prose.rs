//! The language of comments and documents: phrases that make a reader read twice are counted, and each crate and each document may
//! have a few. The form of a comment is in DESIGN's style: the subject first, the noun named, the active voice.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use regex::Regex;

use super::crates::{Module, directory, manifests, sources};
use super::root;

/// Largest number of such phrases in a thousand lines of comment of a crate, or in a thousand lines of a document.
const MOST: usize = 10;

/// Smallest number of such phrases that fails a document, so that a single one does not fail a short document.
const FEWEST: usize = 3;

/// First words of a sentence or a doc comment that have it begin with no noun.
static BEGINS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(?:What|Whether|Of|Those|Who|Whoever|Nothing|As it)\b").unwrap());

/// Phrases, and the words after them that make them good English.
static PHRASES: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let phrase = |pattern, unless| (Regex::new(&format!("(?i){pattern}")).unwrap(), unless);
    vec![
        phrase(r"\bnobody\b", ""),
        phrase(r"\b(?:is|are) told\b", ""),
        phrase(r"\bof (?:ours|its own|their own)\b", ""),
        phrase(r"\bnot\b[^.;:]*\bany more\b", ""),
        phrase(r"\bno more\b(?: than\b)?", "than"),
        phrase(r"\b(?:stands|lies|whoever)\b", ""),
        phrase(r"\bbehind\b(?: [\w-]+){0,3}", "proxy"),
        phrase(r"\bwhat is to be\b", ""),
        phrase(r"\bthat which\b", ""),
    ]
});

static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`[^`]*`").unwrap());

/// The paragraphs of comments, and how many lines they have.
fn paragraphs(source: &str) -> (Vec<String>, usize) {
    let (mut paragraphs, mut lines) = (vec![String::new()], 0);
    let mut is_code = false;
    for line in source.lines() {
        let comment =
            line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']).trim());
        match comment {
            Some(text) if text.starts_with("```") => is_code = !is_code,
            Some(text) if !text.is_empty() && !is_code => {
                lines += 1;
                let paragraph = paragraphs.last_mut().unwrap();
                if !paragraph.is_empty() {
                    paragraph.push(' ');
                }
                paragraph.push_str(text);
            }
            _ => paragraphs.push(String::new()),
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    (paragraphs, lines)
}

/// Mark of a heading or of an item of a list in Markdown.
static MARK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(?:#+|[-*]|\d+\.) +").unwrap());

/// Returns the paragraphs of Markdown outside of code blocks. Each heading, item and cell of a table is a paragraph.
fn markdown(source: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut is_code = false;
    for line in source.lines() {
        let text = line.trim();
        if text.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || text.is_empty() || text.starts_with("```") {
            paragraphs.push(String::new());
        } else if let Some(row) = text.strip_prefix('|') {
            paragraphs.extend(row.split('|').map(|cell| cell.trim().to_owned()));
            paragraphs.push(String::new());
        } else {
            let words = MARK.find(text).map_or(text, |mark| &text[mark.end()..]);
            if words.len() < text.len() {
                paragraphs.push(String::new());
            }
            let paragraph = paragraphs.last_mut().unwrap();
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(words);
        }
    }
    // Emphasis would hide the first word of a sentence.
    paragraphs
        .into_iter()
        .map(|paragraph| paragraph.replace('*', ""))
        .filter(|text| !text.is_empty())
        .collect()
}

/// Returns the names of all tracked Markdown and proto files.
fn documents() -> Vec<String> {
    let mut git = Command::new("git");
    let listed = git.arg("-C").arg(root()).args(["ls-files", "-z", "*.md", "*.proto"]).output().unwrap();
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8(listed.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect()
}

/// The phrases of a paragraph, each with the words around it.
fn phrases(paragraph: &str) -> Vec<String> {
    let plain = CODE.replace_all(paragraph, "`x`");
    let mut begins = vec![0];
    begins.extend(plain.match_indices(['.', '!', '?', ':', ';']).map(|(at, mark)| at + mark.len()));
    let sentences = begins.into_iter().map(|at| plain[at..].trim_start());
    let mut found: Vec<String> = sentences
        .filter(|sentence| BEGINS.is_match(sentence))
        .map(|sentence| sentence.chars().take(60).collect())
        .collect();
    for (phrase, unless) in PHRASES.iter() {
        let hits = phrase.find_iter(&plain).filter(|hit| unless.is_empty() || !hit.as_str().contains(unless));
        found.extend(hits.map(|hit| hit.as_str().chars().take(60).collect()));
    }
    found
}

#[test]
fn comments_name_their_subjects_first() {
    let mut report = String::new();
    for name in manifests().keys() {
        let (mut found, mut lines) = (BTreeMap::<Module, Vec<String>>::new(), 0);
        for (module, source) in sources(&directory(name).join("src"), &[]) {
            let (paragraphs, count) = paragraphs(&source);
            lines += count;
            found.insert(module, paragraphs.iter().flat_map(|paragraph| phrases(paragraph)).collect());
        }
        let count: usize = found.values().map(Vec::len).sum();
        println!("{name}: {count} in {lines} lines of comment");
        if count * 1_000 > MOST * lines.max(1_000 / MOST) {
            writeln!(report, "{name}: {count} in {lines} lines").unwrap();
            for (module, hits) in found.iter().filter(|(_, hits)| !hits.is_empty()) {
                writeln!(report, "  {}: {}", module.join("::"), hits.join(" | ")).unwrap();
            }
        }
    }
    assert!(report.is_empty(), "comments that have to be read twice; see the form of comments:\n{report}");
}

#[test]
fn documents_name_their_subjects_first() {
    let names = documents();
    assert!(names.len() > 50, "only these are tracked: {names:?}");
    let mut report = String::new();
    for name in names {
        let source = std::fs::read_to_string(root().join(&name)).unwrap();
        let is_proto = Path::new(&name).extension().is_some_and(|extension| extension == "proto");
        let paragraphs = if is_proto { paragraphs(&source).0 } else { markdown(&source) };
        let found: Vec<String> = paragraphs.iter().flat_map(|paragraph| phrases(paragraph)).collect();
        let (count, lines) = (found.len(), source.lines().count());
        println!("{name}: {count} in {lines} lines");
        if count >= FEWEST && count * 1_000 > MOST * lines {
            writeln!(report, "{name}: {count} in {lines} lines: {}", found.join(" | ")).unwrap();
        }
    }
    assert!(report.is_empty(), "documents that have to be read twice; see the form of comments:\n{report}");
}

#[test]
fn decisions_are_numbered_without_a_gap() {
    let directory = root().join("crates/decisions");
    let entries = std::fs::read_dir(&directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    for (number, name) in (1..).zip(&names) {
        let text = std::fs::read_to_string(directory.join(name)).unwrap();
        assert!(name.starts_with(&format!("{number:04}-")), "{name} should have the number {number}");
        assert!(text.starts_with(&format!("# {number}. ")), "the title of {name} has another number");
    }
}

#[test]
fn paragraphs_of_markdown_have_no_code_and_no_marks() {
    let source = "# Title\n\nOne\n*two*.\n```sh\nwhat is code\n```\n- item\n  goes on\n2. next\n| a | b |\n|---|---|\nlast\n";
    let paragraphs = markdown(source);
    assert_eq!(paragraphs, ["Title", "One two.", "item goes on", "next", "a", "b", "---", "---", "last"]);
    assert_eq!(phrases(&markdown("1. **Nothing happens.** It `stands` alone.\n")[0]).len(), 1);
}

#[test]
fn phrases_are_found_and_good_english_is_not() {
    let found = |text: &str| phrases(text).len();
    for bad in [
        "What is left is read.",
        "It ends. Whether it ended well is known later.",
        "Reads it; nobody else does.",
        "A client is told so.",
        "A file of its own.",
        "It does not live any more.",
        "There are no more of them.",
        "The line stands in the file.",
        "It waits behind the call.",
    ] {
        assert_eq!(found(bad), 1, "{bad}");
    }
    for good in [
        "Returns the digest, no more than once.",
        "Runs behind a TLS proxy.",
        "Reads `What is this` as it is.",
        "The time of the last call.",
    ] {
        assert_eq!(found(good), 0, "{good}");
    }
}
