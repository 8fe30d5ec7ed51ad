//! The book's page of reasons, which is generated from the enumeration. `COFFERDAM_UPDATE_BOOK=1` writes it again.

use super::root;

const INTRO: &str = "# Reasons\n\nA refused or failed call has one of these reasons. The names are stable.\n\n| reason | meaning |\n|---|---|\n";

/// Returns the name in upper case that the API shows: `ReadLimit` is `READ_LIMIT`.
fn shown(variant: &str) -> String {
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// Returns the page for the source of the enumeration.
fn page(source: &str) -> String {
    let body = source.split_once("pub enum Reason {\n").unwrap().1.split_once("\n}").unwrap().0;
    let (mut page, mut meaning) = (INTRO.to_owned(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            meaning.push(comment.trim());
        } else if let Some(variant) = line.strip_suffix(',') {
            let row = ["| `", &shown(variant), "` | ", &meaning.join(" "), " |\n"].concat();
            page.push_str(&row);
            meaning.clear();
        }
    }
    page
}

#[test]
fn the_page_of_reasons_is_what_the_enumeration_gives() {
    let path = root().join("docs/src/reasons.md");
    let source = std::fs::read_to_string(root().join("crates/operations/src/reason.rs")).unwrap();
    let page = page(&source);
    if std::env::var_os("COFFERDAM_UPDATE_BOOK").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page);
    assert!(page.contains("| `COMMAND_NOT_ALLOWED` |") && page.contains("| `INTERNAL` |"), "{page}");
}
