//! The language of comments: phrases that make a reader read twice are counted, and each crate may have a few. The form of a comment
//! is in DESIGN's style: the subject first, the noun named, the active voice.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;

use super::crates::{Module, directory, manifests, sources};

/// Largest number of such phrases in a thousand lines of comment of a crate.
const MOST: usize = 10;

/// Crates whose comments are not rewritten yet, and their phrases. A number may fall, and a crate may leave. The seven of `dialects` are
/// in schemas that models read.
const UNREVISED: &[(&str, usize)] = &[
    ("audit", 59),
    ("bundles", 16),
    ("cli", 111),
    ("daemon", 108),
    ("dialects", 7),
    ("executor", 20),
    ("guest", 142),
    ("listener", 41),
    ("redact", 8),
    ("runs", 218),
    ("terminals", 24),
];

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
    let unrevised: BTreeMap<_, _> = UNREVISED.iter().copied().collect();
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
        let is_good = match unrevised.get(name.as_str()) {
            Some(most) => count <= *most,
            None => count * 1_000 <= MOST * lines.max(1_000 / MOST),
        };
        if !is_good {
            writeln!(report, "{name}: {count} in {lines} lines").unwrap();
            for (module, hits) in found.iter().filter(|(_, hits)| !hits.is_empty()) {
                writeln!(report, "  {}: {}", module.join("::"), hits.join(" | ")).unwrap();
            }
        }
    }
    assert!(report.is_empty(), "comments that have to be read twice; see the form of comments:\n{report}");
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
