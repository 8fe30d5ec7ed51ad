//! The fenced blocks of the book: each is of a kind in a closed list, so that no block is untested by accident.

use harness::book::{self, Block, Page};

/// Info strings, and what holds such a block to the truth.
const KINDS: [(&str, &str); 13] = [
    ("sh test", "tests/clients/book.rs runs it"),
    ("sh host", "not run: it changes the host, or needs root, systemd, a network or a person"),
    ("console", "not run: it shows an output"),
    ("yaml", "crates/gateway/tests/policy_examples.rs loads it as a policy, or it includes a file"),
    ("calls", "crates/gateway/tests/policy_examples.rs asks the policy before it"),
    ("calls of the shipped policy", "crates/gateway/tests/policy_examples.rs asks the shipped policy"),
    ("python", "it includes a file, which a test runs"),
    ("typescript", "it includes a file, which a test runs"),
    ("rust", "it includes a file, which a test runs"),
    ("json", "this file parses it"),
    ("ini", "not checked: a part of another program's settings"),
    ("yaml config", "not checked: a part of the daemon's configuration"),
    ("text", "not checked: it shows data, or includes a file"),
];

/// Returns the problem of a block, if it has one.
fn problem(page: &Page, block: &Block) -> Option<String> {
    let lines: Vec<&str> = block.content.lines().filter(|line| !line.trim().is_empty()).collect();
    let includes: Vec<&str> = lines.iter().filter_map(|line| book::included(line)).collect();
    let is_file = includes.len() == lines.len();
    match block.info.as_str() {
        info if !KINDS.iter().any(|(kind, _)| *kind == info) => {
            Some(format!("`{info}` is no kind of block; the kinds are in tests/spec/blocks.rs"))
        }
        "python" | "typescript" | "rust" if !is_file => {
            Some("the block has to include a file, such as one of docs/examples, which a test runs".into())
        }
        "json" => {
            serde_json::from_str::<serde_json::Value>(&page.shown(block)).err().map(|error| error.to_string())
        }
        "yaml" if includes.is_empty() && !is_policy(&lines) => {
            Some("the block is no policy; if it is a part of the configuration, write `yaml config`".into())
        }
        _ => None,
    }
}

/// Looks for a key of a policy file at the beginning of a line.
fn is_policy(lines: &[&str]) -> bool {
    lines.iter().any(|line| line.starts_with("profiles:") || line.starts_with("roles:"))
}

#[test]
fn every_block_of_the_book_is_of_a_known_kind() {
    let mut problems = Vec::new();
    for page in book::pages() {
        for block in page.blocks() {
            let problem = problem(&page, &block);
            problems
                .extend(problem.map(|problem| format!("docs/src/{}:{}: {problem}", page.name, block.line)));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn blocks_of_no_kind_and_untested_programs_are_reported() {
    let problem_of = |info: &str, content: &str| {
        let page = Page { name: "a.md".into(), text: format!("# A\n````{info}\n{content}\n````\n") };
        let blocks = page.blocks();
        assert_eq!(blocks, [Block { line: 2, info: info.into(), content: format!("{content}\n") }]);
        problem(&page, &blocks[0])
    };
    for (info, content) in [
        ("sh test", "true"),
        ("python", "{{#include ../examples/loop.py}}"),
        ("json", "{\"a\": 1}"),
        ("yaml", "roles: {}"),
        ("text", "```\nlines of another block\n```"),
    ] {
        assert_eq!(problem_of(info, content), None, "{info}");
    }
    for (info, content) in [
        ("", "true"),
        ("sh", "true"),
        ("python", "print(1)"),
        ("python", "{{#include ../examples/loop.py}}\nprint(1)"),
        ("rust", "fn main() {}"),
        ("json", "{a: 1}"),
        ("yaml", "listen: {}"),
    ] {
        assert!(problem_of(info, content).is_some(), "{info}: {content}");
    }
}
