//! The tables of settings in `docs/src/security.md`: every id in them has a line in `tests/SPEC.md`.

use std::collections::BTreeSet;

use super::{document, lines, root};

/// Returns the ids in the last column of the tables that call it `tests`.
fn ids(page: &str) -> Vec<&str> {
    let mut is_of_tests = false;
    let mut ids = Vec::new();
    for line in page.lines().filter(|line| !line.starts_with("|---")) {
        let last = line.strip_suffix(" |").and_then(|line| line.rsplit_once("| "));
        match last {
            None => is_of_tests = false,
            Some((_, "tests")) => is_of_tests = true,
            Some((_, cell)) if is_of_tests => ids.extend(cell.split(", ")),
            Some(_) => {}
        }
    }
    ids
}

#[test]
fn every_setting_of_the_security_page_names_lines_of_the_specification() {
    let specification = document();
    let known: BTreeSet<&str> = lines(&specification).iter().map(|line| line.id).collect();
    let page = std::fs::read_to_string(root().join("docs/src/security.md")).unwrap();
    let ids = ids(&page);
    let unknown: Vec<_> = ids.iter().filter(|id| !known.contains(**id)).collect();
    assert!(ids.len() >= 40 && unknown.is_empty(), "{} ids, unknown: {unknown:?}", ids.len());
}

#[test]
fn ids_are_read_from_tables_of_tests_alone() {
    let page = "| a | b |\n|---|---|\n| X9 | Y9 |\n\n| a | tests |\n|---|---|\n| b, c | P1, jail |\n\nx\n| C1 | D1 |\n";
    assert_eq!(ids(page), ["P1", "jail"]);
}
