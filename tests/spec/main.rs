//! `tests/SPEC.md` and `crates/dialects/CONFORMANCE.md` against the source: every test that they name exists, every threat
//! has a line, and every line of the second has a test. The invariants of `crates/ARCHITECTURE.md` are among them.
//!
//! No engine and no daemon: this is about the document alone.

#![allow(clippy::unwrap_used)] // what cannot be read fails its test

mod bench;
mod blocks;
mod circles;
mod crates;
mod docs;
mod hardening;
mod prose;
mod readme;
mod reasons;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The threats by their groups, and how many each has.
const THREATS: [(char, u32); 7] = [('P', 5), ('G', 9), ('X', 7), ('C', 5), ('A', 5), ('R', 6), ('V', 5)];
/// What the dialects' originals say, and what holds here.
const CONFORMANCE: &str = "crates/dialects/CONFORMANCE.md";
/// How a line says that nothing shows what it promises.
const EXCUSE: &str = "not covered: ";

/// A line of one of the tables.
struct Line<'a> {
    number: usize,
    id: &'a str,
    shown_by: &'a str,
}

fn lines(text: &str) -> Vec<Line<'_>> {
    cells(text)
        .map(|(number, cells)| {
            let [id, _, shown_by] = cells[..] else { panic!("line {number} has not three cells: {cells:?}") };
            Line { number, id, shown_by }
        })
        .filter(|line| !["id", "operation"].contains(&line.id))
        .collect()
}

/// The cells of the tables' rows, with the number of each line.
fn cells(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    let rows = text.lines().zip(1..).filter(|(line, _)| line.starts_with('|') && !line.starts_with("|---"));
    rows.map(|(line, number)| {
        let cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('|'));
        (number, cells.collect())
    })
}

/// The rows of the conformance table: what the original says, what holds here, what shows it.
fn conformance(text: &str) -> Vec<(Line<'_>, &str, &str)> {
    cells(text)
        .map(|(number, cells)| {
            let [id, says, holds, shown_by] = cells[..] else {
                panic!("line {number} has not four cells: {cells:?}")
            };
            (Line { number, id, shown_by }, says, holds)
        })
        .filter(|(line, ..)| line.id != "id")
        .collect()
}

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// What is wrong with what a line names.
fn wrong(line: &Line<'_>, read: &mut impl FnMut(&str) -> Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(why) = line.shown_by.strip_prefix(EXCUSE) {
        if why.len() < 10 {
            wrong.push("it does not say why".to_owned());
        }
        return wrong;
    }
    let mut tests = 0;
    for named in quoted(line.shown_by) {
        tests += 1;
        let Some((file, test)) = named.split_once("::") else {
            wrong.push(format!("{named} is not `file::name`"));
            continue;
        };
        match read(file) {
            None => wrong.push(format!("there is no {file}")),
            Some(source) if !has_test(&source, test) => wrong.push(format!("{file} has no test {test}")),
            Some(_) => {}
        }
    }
    if tests == 0 {
        wrong.push(format!("it names no test and does not say `{EXCUSE}`"));
    }
    wrong
}

/// Returns true if the source has a test of this name: a function with a test's attribute, or an entry of a table.
fn has_test(source: &str, name: &str) -> bool {
    let heads = [format!("fn {name}("), format!("async fn {name}(")];
    let entry = format!("{name}: ");
    let (mut is_test, mut is_table) = (false, false);
    for line in source.lines().map(str::trim) {
        is_table = matches!(line, "suites! {" | "harness::tests! {") || (is_table && line != "}");
        if is_table && line.starts_with(&entry) {
            return true;
        }
        if heads.iter().any(|head| line.starts_with(head.as_str())) {
            return is_test;
        }
        // Attributes and comments may stand in between.
        let is_attribute = line.starts_with("#[");
        if is_attribute || line.starts_with("//") {
            is_test |= is_attribute && (line.starts_with("#[test") || line.starts_with("#[tokio::test"));
        } else {
            is_test = false;
        }
    }
    false
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn document() -> String {
    std::fs::read_to_string(root().join("tests/SPEC.md")).unwrap()
}

/// Reads sources, each once.
fn reader() -> impl FnMut(&str) -> Option<String> {
    let mut sources: BTreeMap<String, Option<String>> = BTreeMap::new();
    move |file| {
        let source = || std::fs::read_to_string(root().join(file)).ok();
        sources.entry(file.to_owned()).or_insert_with(source).clone()
    }
}

#[test]
fn every_row_of_the_conformance_table_has_tests_that_exist() {
    let document = std::fs::read_to_string(root().join(CONFORMANCE)).unwrap();
    let mut read = reader();
    let mut problems = Vec::new();
    let mut ids = BTreeSet::new();
    for (line, says, holds) in conformance(&document) {
        let mut wrong = wrong(&line, &mut read);
        if line.shown_by.starts_with(EXCUSE) {
            wrong.push("a row without a test".to_owned());
        }
        if says.is_empty() || holds.is_empty() || !ids.insert(line.id) {
            wrong.push("it says nothing, or its id stands twice".to_owned());
        }
        problems.extend(wrong.into_iter().map(|what| format!("{CONFORMANCE}:{}: {what}", line.number)));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    for original in ["0.", "1.", "2.", "3.", "4."] {
        let rows = ids.iter().filter(|id| id.starts_with(original)).count();
        assert!(rows >= 30, "{original}: {rows} rows");
    }
    assert!(ids.len() >= 200, "{} rows", ids.len());
}

#[test]
fn every_test_that_is_named_exists() {
    let document = document();
    let mut read = reader();
    let problems: Vec<String> = lines(&document)
        .iter()
        .flat_map(|line| {
            let wrong = wrong(line, &mut read);
            wrong.into_iter().map(|what| format!("tests/SPEC.md:{}: {what}", line.number))
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Each is in `tests/SPEC.md`, whose tests exist.
#[test]
fn the_architecture_has_ten_invariants_and_their_tests_are_in_the_specification() {
    let page = std::fs::read_to_string(root().join("crates/ARCHITECTURE.md")).unwrap();
    let invariants = page.split("## Invariants").nth(1).expect("a section of invariants");
    let tests: Vec<&str> = cells(invariants).skip(1).flat_map(|(_, cells)| quoted(cells[2])).collect();
    let document = document();
    let unknown: Vec<_> = tests.iter().filter(|test| !document.contains(&format!("::{test}`"))).collect();
    assert!(
        tests.len() == 10 && unknown.is_empty(),
        "{} tests, not in tests/SPEC.md: {unknown:?}",
        tests.len()
    );
}

#[test]
fn every_crate_has_a_line_in_the_architecture_and_a_readme() {
    let page = std::fs::read_to_string(root().join("crates/ARCHITECTURE.md")).unwrap();
    let directories = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut crates = 0;
    for directory in directories.filter(|path| path.join("Cargo.toml").exists()) {
        let name = directory.file_name().unwrap().to_str().unwrap();
        assert!(
            page.contains(&format!("| [`{name}`]({name}) |")),
            "crates/ARCHITECTURE.md does not have {name}"
        );
        assert!(directory.join("README.md").exists(), "crates/{name} has no README.md");
        crates += 1;
    }
    assert!(crates >= 15, "{crates} crates");
}

#[test]
fn every_threat_has_a_line() {
    let document = document();
    let ids: BTreeSet<&str> = lines(&document).iter().map(|line| line.id).collect();
    let threats = THREATS.iter().flat_map(|(group, count)| (1..=*count).map(move |n| format!("{group}{n}")));
    let missing: Vec<_> = threats.filter(|id| !ids.contains(id.as_str())).collect();
    assert!(missing.is_empty(), "tests/SPEC.md has nothing about {missing:?}");
}

#[test]
fn bad_lines_are_reported() {
    let source = "#[test]\nfn there() {}\n\nfn helper() {}\n#[tokio::test]\n#[ignore]\nasync fn later() {}\n\
                  suites! {\n    suite: \"file\",\n}\nno_suite: \"file\"\n";
    let mut read = |file: &str| (file == "a.rs").then(|| source.to_owned());
    for (shown_by, expected) in [
        ("`a.rs::there` `a.rs::later` `a.rs::suite`", None),
        ("not covered: nobody has tried yet", None),
        ("`a.rs::gone`", Some("a.rs has no test gone")),
        ("`a.rs::helper`", Some("a.rs has no test helper")),
        ("`a.rs::no_suite`", Some("a.rs has no test no_suite")),
        ("`b.rs::there`", Some("there is no b.rs")),
        ("`there`", Some("there is not `file::name`")),
        ("", Some("it names no test and does not say `not covered: `")),
        ("not covered: ", Some("it names no test and does not say `not covered: `")),
        ("not covered: no", Some("it does not say why")),
    ] {
        let text = format!("| id | what | shown by |\n|---|---|---|\n| P1 | it holds | {shown_by} |\n");
        let lines = lines(&text);
        assert_eq!((lines.len(), lines[0].id, lines[0].number), (1, "P1", 3), "{shown_by}");
        let found = wrong(&lines[0], &mut read);
        assert_eq!(found.first().map(String::as_str), expected, "{shown_by}");
    }
}
