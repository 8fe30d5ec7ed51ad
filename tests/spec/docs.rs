//! The book in `docs/`: every page is in its summary, and every link leads to a heading of a page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::root;

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

/// Adds the pages of a directory, and of the directories in it, by their paths in the book.
fn read_pages(source: &Path, directory: &str, pages: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(source.join(directory)).unwrap() {
        let entry = entry.unwrap();
        let name = resolve(directory, entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            read_pages(source, &name, pages);
        } else {
            pages.insert(name, std::fs::read_to_string(entry.path()).unwrap());
        }
    }
}

/// Returns the path that a link in a page of this directory leads to.
fn resolve(directory: &str, link: &str) -> String {
    let mut path: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        // A path out of the book stays as it is, and no page has it.
        if part == ".." && path.last().is_some_and(|last| *last != "..") {
            path.pop();
        } else {
            path.push(part);
        }
    }
    path.join("/")
}

#[test]
fn every_page_is_in_the_summary_and_every_link_leads_to_a_heading() {
    let source = root().join("docs/src");
    let mut texts = BTreeMap::new();
    read_pages(&source, "", &mut texts);
    // A link out of the book leads nowhere once it is built.
    let leads = |of: &str, page: &str, anchor: &str| {
        let directory = of.rsplit_once('/').map_or("", |(directory, _)| directory);
        let page = if page.is_empty() { of.to_owned() } else { resolve(directory, page) };
        texts.get(&page).is_some_and(|text| anchor.is_empty() || anchors(text).contains(anchor))
    };
    let mut missing = Vec::new();
    for (name, text) in &texts {
        let dead = links(text).filter(|(page, anchor)| !leads(name, page, anchor));
        missing.extend(dead.map(|(page, anchor)| format!("docs/src/{name}: {page}#{anchor}")));
        let beside = source.join(name).parent().unwrap().to_owned();
        let included = text.split("{{#include ").skip(1).filter_map(|rest| rest.split(['}', ':']).next());
        let absent = included.filter(|file| !beside.join(file).exists());
        missing.extend(absent.map(|file| format!("docs/src/{name}: {file}")));
    }
    assert!(missing.is_empty(), "these links lead nowhere:\n{}", missing.join("\n"));
    let listed: BTreeSet<&str> = links(&texts["SUMMARY.md"]).map(|(page, _)| page).collect();
    let pages: BTreeSet<&str> =
        texts.keys().map(String::as_str).filter(|name| *name != "SUMMARY.md").collect();
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
fn links_are_resolved_from_the_directory_of_their_page() {
    assert_eq!(resolve("", "a.md"), "a.md");
    assert_eq!(resolve("operating", "tls.md"), "operating/tls.md");
    assert_eq!(resolve("operating", "../compose.md"), "compose.md");
    assert_eq!(resolve("operating", "../../deploy/README.md"), "../deploy/README.md");
}
