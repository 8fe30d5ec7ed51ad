//! The book in `docs/`: every page is in its summary, and every file that a page links to exists.

use std::collections::BTreeSet;

use super::root;

/// Returns the targets of the inline links of Markdown, without their anchors.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let files = targets.map(|target| target.split_once('#').map_or(target, |(file, _)| file));
    files.filter(|file| !file.is_empty() && !file.contains("://"))
}

#[test]
fn every_page_is_in_the_summary_and_every_linked_file_exists() {
    let source = root().join("docs/src");
    let summary = std::fs::read_to_string(source.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<String> = links(&summary).map(str::to_owned).collect();
    let mut pages = BTreeSet::new();
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(&source).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = std::fs::read_to_string(source.join(&name)).unwrap();
        let absent = links(&text).filter(|file| !source.join(file).exists());
        let included = text.split("{{#include ").skip(1).filter_map(|rest| rest.split(['}', ':']).next());
        let absent = absent.chain(included.filter(|file| !source.join(file).exists()));
        missing.extend(absent.map(|file| format!("docs/src/{name}: {file}")));
        if name != "SUMMARY.md" {
            pages.insert(name);
        }
    }
    assert_eq!(listed, pages);
    assert!(missing.is_empty(), "these links lead nowhere:\n{}", missing.join("\n"));
}

#[test]
fn links_are_found_without_anchors_and_addresses() {
    let text = "[a](b.md#c), [d](#e), [f](https://example.org/g) and [h](../i.md)";
    assert_eq!(links(text).collect::<Vec<_>>(), ["b.md", "../i.md"]);
}
