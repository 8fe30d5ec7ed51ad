//! Reads a tree and collects every problem, instead of stopping at the first.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use super::lines::{Step, line_of};
use super::problem::Problem;
use super::suggest::nearest;
use super::tree::Node;

/// Most problems that are reported for one file.
const MAX_PROBLEMS: usize = 100;
/// Most bytes that are scanned to find the lines of one file's problems. Each problem costs a scan of the file.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
struct Found {
    path: Vec<Step>,
    occurrence: usize,
    message: String,
    suggestion: Option<String>,
}

impl Found {
    /// Returns the line of its key. For a missing key, this is the line of the section in which it is missing.
    fn line(&self, text: &str) -> Option<usize> {
        let above = || (1..self.path.len()).rev().find_map(|steps| line_of(text, &self.path[..steps], 0));
        line_of(text, &self.path, self.occurrence).or_else(above)
    }
}

/// The problems of one file, while it is read.
#[derive(Debug, Default)]
pub struct Sink(RefCell<Vec<Found>>);

impl Sink {
    /// Returns the problems, with their lines in `text`.
    pub fn into_problems(self, file: &str, text: &str) -> Vec<Problem> {
        let found = self.0.into_inner();
        let more = found.len().saturating_sub(MAX_PROBLEMS);
        let lines = MAX_LINE_BYTES / text.len().max(1);
        let mut problems: Vec<Problem> = found
            .into_iter()
            .take(MAX_PROBLEMS)
            .enumerate()
            .map(|(count, found)| Problem {
                file: file.to_owned(),
                line: (count < lines).then(|| found.line(text)).flatten(),
                key: key_path(&found.path),
                message: found.message,
                suggestion: found.suggestion,
            })
            .collect();
        problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        if more > 0 {
            problems.push(Problem::in_file(file, format!("and {more} more problems")));
        }
        problems
    }
}

fn key_path(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Key(key) if out.is_empty() => out.push_str(key),
            // Writing to a String cannot fail.
            Step::Key(key) => drop(write!(out, ".{key}")),
            Step::Index(index) => drop(write!(out, "[{index}]")),
        }
    }
    out
}

/// A value and its location.
#[derive(Debug, Clone)]
pub struct At<'t> {
    node: &'t Node,
    path: Vec<Step>,
    sink: &'t Sink,
}

impl<'t> At<'t> {
    pub fn top(node: &'t Node, sink: &'t Sink) -> Self {
        Self { node, path: Vec::new(), sink }
    }

    fn child(&self, node: &'t Node, step: Step) -> Self {
        let mut path = self.path.clone();
        path.push(step);
        Self { node, path, sink: self.sink }
    }

    fn report(&self, occurrence: usize, message: String, suggestion: Option<String>) {
        self.sink.0.borrow_mut().push(Found { path: self.path.clone(), occurrence, message, suggestion });
    }

    /// Reports a problem of this value.
    pub fn problem(&self, message: impl Into<String>) {
        self.report(0, message.into(), None);
    }

    /// Reports a problem of this value, with a suggestion.
    pub fn problem_hint(&self, message: impl Into<String>, suggestion: Option<String>) {
        self.report(0, message.into(), suggestion);
    }

    fn expected(&self, what: &str) {
        self.problem(format!("expected {what}, found {}", self.node.kind()));
    }

    /// Returns the entries of a mapping, each key once. Repeated keys are problems.
    pub fn entries(&self) -> Vec<(&'t str, At<'t>)> {
        let Node::Map(entries) = self.node else {
            self.expected("a mapping");
            return Vec::new();
        };
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let mut unique = Vec::with_capacity(entries.len());
        for (key, node) in entries {
            let value = self.child(node, Step::Key(key.clone()));
            let count = seen.entry(key).or_default();
            if *count == 0 {
                unique.push((key.as_str(), value));
            } else {
                value.report(*count, "given more than once".to_owned(), Some("keep one".to_owned()));
            }
            *count += 1;
        }
        unique
    }

    /// Returns the fields of a mapping with a fixed set of keys. Unknown keys are problems. A key without a value counts as absent.
    pub fn fields(&self, known: &[&str]) -> Fields<'t> {
        let (mut values, mut empty) = (BTreeMap::new(), BTreeMap::new());
        for (key, value) in self.entries() {
            if !known.contains(&key) {
                // Only the first problems are reported, and a search for near words takes time.
                let has_room = self.sink.0.borrow().len() < MAX_PROBLEMS;
                value.problem_hint("unknown key", has_room.then(|| nearest(key, known)));
            } else if *value.node == Node::Null {
                empty.insert(key, value);
            } else {
                values.insert(key, value);
            }
        }
        Fields { at: self.clone(), values, empty }
    }

    /// Returns the items of a list, or the one text.
    pub fn one_or_more(&self) -> Vec<At<'t>> {
        if self.is_text() { vec![self.clone()] } else { self.items() }
    }

    /// Returns the items of a list.
    pub fn items(&self) -> Vec<At<'t>> {
        let Node::List(items) = self.node else {
            self.expected("a list");
            return Vec::new();
        };
        items.iter().enumerate().map(|(index, node)| self.child(node, Step::Index(index))).collect()
    }

    /// Returns true if it is text.
    pub fn is_text(&self) -> bool {
        matches!(self.node, Node::Text(_))
    }

    /// Returns true if its key has no value.
    pub fn is_absent(&self) -> bool {
        *self.node == Node::Null
    }

    /// Returns true if it is a number of any kind.
    pub fn is_number(&self) -> bool {
        matches!(self.node, Node::Number(_) | Node::Fraction(_) | Node::OtherNumber)
    }

    /// Returns true if it is a list.
    pub fn is_list(&self) -> bool {
        matches!(self.node, Node::List(_))
    }

    /// Returns text that is not blank and has no control characters.
    pub fn text(&self) -> Option<&'t str> {
        let Node::Text(text) = self.node else {
            self.expected("text");
            return None;
        };
        if text.trim().is_empty() {
            self.problem("must not be blank");
            return None;
        }
        if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
            self.problem("contains control characters");
            return None;
        }
        Some(text)
    }

    /// Returns the text of one argument: like [`Self::text`], but numbers and flags count as the text that they look
    /// like.
    pub fn argument(&self) -> Option<String> {
        match self.node {
            Node::Number(number) => Some(number.to_string()),
            Node::Flag(flag) => Some(flag.to_string()),
            _ => self.text().map(str::to_owned),
        }
    }

    /// Returns the text of a decimal number: like [`Self::text`], but numbers count as the shortest text that means them.
    pub fn decimal(&self) -> Option<String> {
        match self.node {
            Node::Number(number) => Some(number.to_string()),
            Node::Fraction(number) => Some(number.to_string()),
            _ => self.text().map(str::to_owned),
        }
    }

    /// Returns text that may be blank, or the shortest text that means a number. Control characters are problems.
    pub fn value(&self) -> Option<String> {
        match self.node {
            Node::Text(text) if text.trim().is_empty() && !text.contains(char::is_control) => {
                Some(text.clone())
            }
            _ => self.decimal(),
        }
    }

    /// Returns `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
        let Node::Flag(flag) = self.node else {
            self.expected("true or false");
            return None;
        };
        Some(*flag)
    }

    /// Returns a whole number of this range.
    pub fn number(&self, range: RangeInclusive<u64>) -> Option<u64> {
        self.number_or_hint(range, |_| None)
    }

    /// Returns a number. If it is out of range, `hint` makes a suggestion from the number, or from `None` if that is
    /// not known.
    pub fn number_or_hint(
        &self,
        range: RangeInclusive<u64>,
        hint: impl FnOnce(Option<u64>) -> Option<String>,
    ) -> Option<u64> {
        match self.node {
            Node::Number(number) if range.contains(number) => Some(*number),
            Node::Number(_) | Node::Fraction(_) | Node::OtherNumber => {
                let given = if let Node::Number(number) = self.node { Some(*number) } else { None };
                let message = format!("must be a whole number from {} to {}", range.start(), range.end());
                self.problem_hint(message, hint(given));
                None
            }
            _ => {
                self.expected("a whole number");
                None
            }
        }
    }

    /// Returns the value of one of a few words.
    pub fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.problem_hint(format!("unknown value `{text}`"), Some(nearest(text, &known)));
        }
        found.map(|(_, value)| *value)
    }
}

/// Value of an absent key.
const NOTHING: &Node = &Node::Null;

/// The fields of a mapping.
#[derive(Debug)]
pub struct Fields<'t> {
    at: At<'t>,
    values: BTreeMap<&'t str, At<'t>>,
    /// Keys without a value.
    empty: BTreeMap<&'t str, At<'t>>,
}

impl<'t> Fields<'t> {
    /// Returns the value of a key, if it exists.
    pub fn get(&self, key: &str) -> Option<&At<'t>> {
        self.values.get(key)
    }

    /// Returns the location of a key, even if it does not exist, so that a problem can be reported there.
    pub fn at(&self, key: &str) -> At<'t> {
        self.get(key).cloned().unwrap_or_else(|| self.at.child(NOTHING, Step::Key(key.to_owned())))
    }

    /// Reports each of these keys that has no value. It is for keys that bound something, which has no bound if they count as absent.
    pub fn need_values(&self, keys: &[&str]) {
        for at in keys.iter().filter_map(|key| self.empty.get(*key)) {
            at.problem("has no value, so it would bound nothing; write the value, or leave the key out");
        }
    }

    /// Returns the fields of a mapping in this one. An absent mapping has none.
    #[must_use]
    pub fn section(&self, key: &str, known: &[&str]) -> Fields<'t> {
        match self.get(key) {
            Some(at) => at.fields(known),
            None => Fields { at: self.at(key), values: BTreeMap::new(), empty: BTreeMap::new() },
        }
    }

    /// Returns the items of a list in this mapping. An absent list has none.
    pub fn items(&self, key: &str) -> Vec<At<'t>> {
        self.get(key).map(At::items).unwrap_or_default()
    }

    /// Returns the value of a required key.
    pub fn required(&self, key: &str) -> Option<&At<'t>> {
        let found = self.values.get(key);
        if found.is_none() {
            self.at.problem(format!("`{key}` is missing"));
        }
        found
    }

    /// Returns the number of an optional key.
    pub fn number_or(&self, key: &str, range: RangeInclusive<u64>, default: u64) -> u64 {
        self.get(key).and_then(|at| at.number(range)).unwrap_or(default)
    }

    /// Returns the text of an optional key.
    pub fn text_or(&self, key: &str, default: &str) -> String {
        self.get(key).and_then(At::text).unwrap_or(default).to_owned()
    }

    /// Returns the flag of an optional key.
    pub fn flag_or(&self, key: &str, default: bool) -> bool {
        self.get(key).and_then(At::flag).unwrap_or(default)
    }
}
