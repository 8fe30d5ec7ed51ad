//! The book in `docs/`: every page is in its summary, and every link leads to a heading of a page.

use std::collections::{BTreeMap, BTreeSet};

use harness::book;

/// Returns the targets of the inline links of Markdown, with their anchors.
fn links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets
        .filter(|target| !target.contains("://"))
        .map(|target| target.split_once('#').unwrap_or((target, "")))
}

/// Returns the anchors that mdBook makes of the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    anchors
}

/// Returns the path beneath `docs/src` to which a link of a page leads, or nothing if it leads out of the book.
fn target(page: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(page.to_owned());
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[test]
fn every_page_is_in_the_summary_and_every_link_leads_to_a_heading() {
    let pages = book::pages();
    let texts: BTreeMap<&str, &str> =
        pages.iter().map(|page| (page.name.as_str(), page.text.as_str())).collect();
    let leads = |from: &str, link: &str, anchor: &str| {
        // A link out of the book leads nowhere once the book is built.
        let Some(target) = target(from, link) else { return false };
        match texts.get(target.as_str()) {
            Some(text) => anchor.is_empty() || anchors(text).contains(anchor),
            None => !link.ends_with(".md") && book::source().join(target).exists(),
        }
    };
    let mut missing = Vec::new();
    for page in &pages {
        let name = &page.name;
        let dead = links(&page.text).filter(|(link, anchor)| !leads(name, link, anchor));
        missing.extend(dead.map(|(link, anchor)| format!("docs/src/{name}: {link}#{anchor}")));
        let included =
            page.text.split("{{#include ").skip(1).filter_map(|rest| rest.split(['}', ':']).next());
        let absent = included.filter(|file| !page.directory().join(file).exists());
        missing.extend(absent.map(|file| format!("docs/src/{name}: {file}")));
    }
    assert!(missing.is_empty(), "these links lead nowhere:\n{}", missing.join("\n"));
    let listed: BTreeSet<&str> = links(texts["SUMMARY.md"]).map(|(page, _)| page).collect();
    let pages: BTreeSet<&str> = texts.keys().copied().filter(|name| *name != "SUMMARY.md").collect();
    assert_eq!(listed, pages);
}

#[test]
fn links_are_found_with_anchors_and_without_addresses() {
    let text = "[a](b.md#c), [d](#e), [f](https://example.org/g) and [h](../i.md)";
    assert_eq!(links(text).collect::<Vec<_>>(), [("b.md", "c"), ("", "e"), ("../i.md", "")]);
    let page = "# A `b` c\n```\n# no heading\n```\n## It\u{2019}s D-e\n";
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), ["a-b-c", "its-d-e"]);
}

#[test]
fn links_are_relative_to_the_directory_of_their_page() {
    for (page, link, expected) in [
        ("a.md", "b/c.md", Some("b/c.md")),
        ("b/c.md", "d.md", Some("b/d.md")),
        ("b/c.md", "../a.md", Some("a.md")),
        ("b/c.md", "", Some("b/c.md")),
        ("a.md", "../README.md", None),
        ("b/c.md", "../../README.md", None),
    ] {
        assert_eq!(target(page, link).as_deref(), expected, "{page}: {link}");
    }
}
