//! Matches paths against one ignore file without compiling it.
//!
//! The files are hostile. An automaton for 64 KiB of costly patterns takes 15 MiB, before its cache, and there may be two such files in
//! each of 64 levels. So the patterns stay text and are tried one after the other, the last first. That takes no memory beyond the text,
//! and time at most proportional to the pattern bytes times the name bytes.
//!
//! The semantics are those of gitignore(5) and git itself: braces are ordinary characters.

mod wild;

use std::ops::Range;

use wild::matches;

/// Longest line that counts: no path is longer.
const MAX_LINE: usize = 4_096;

/// Lines of one ignore file.
#[derive(Debug)]
pub(super) struct Gitignore {
    text: Box<[u8]>,
    rules: Box<[Rule]>,
}

/// One line. Its pattern is stored without `!`, and without slashes at both ends.
#[derive(Debug)]
struct Rule {
    pattern: Range<u32>,
    shape: Shape,
    /// Begins with `!`: a matching path is not ignored after all.
    negated: bool,
    /// Ends in a slash: matches directories only.
    dirs_only: bool,
    /// Has a slash elsewhere: matches the path from the file's directory, and otherwise only the last component.
    path: bool,
}

/// Kind of comparison that a pattern needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// No special character: compare the whole.
    Literal,
    /// `*` followed by no special character: compare the end of a component.
    Ending,
    /// Any other pattern.
    Wild,
}

impl Gitignore {
    /// Parses the lines of a file and skips lines that are no pattern.
    pub(super) fn parse(text: Vec<u8>) -> Self {
        let start = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let mut rules = Vec::new();
        let mut at = start;
        for line in text[start..].split(|&byte| byte == b'\n') {
            rules.extend(rule(line, at));
            at += line.len() + 1;
        }
        Self { text: text.into(), rules: rules.into() }
    }

    /// Returns true if the file or directory at `path`, relative to the file's directory, is ignored; `None` if no line matches it.
    pub(super) fn matched(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let decides = |rule: &&Rule| {
            let subject = if rule.path { path } else { name };
            (is_dir || !rule.dirs_only) && self.applies(rule, subject)
        };
        self.rules.iter().rev().find(decides).map(|rule| !rule.negated)
    }

    /// Returns true if a rule with a path, relative to the ignore file's directory, excludes the file at `path`.
    pub(super) fn excludes_by_path(&self, path: &[u8]) -> bool {
        let decides = |rule: &&Rule| rule.path && !rule.dirs_only && self.applies(rule, path);
        self.rules.iter().rev().find(decides).is_some_and(|rule| !rule.negated)
    }

    /// Returns the number of bytes that the rules take.
    pub(super) fn size(&self) -> usize {
        self.text.len() + size_of_val(&*self.rules)
    }

    fn applies(&self, rule: &Rule, subject: &[u8]) -> bool {
        let pattern = &self.text[rule.pattern.start as usize..rule.pattern.end as usize];
        match rule.shape {
            Shape::Literal => subject == pattern,
            Shape::Ending => subject.ends_with(&pattern[1..]),
            Shape::Wild => matches(pattern, subject),
        }
    }
}

/// Parses a line that begins at `at`. Returns `None` for an empty line, a comment, and a pattern without a name.
fn rule(line: &[u8], at: usize) -> Option<Rule> {
    let line = trimmed(line.strip_suffix(b"\r").unwrap_or(line));
    if line.len() > MAX_LINE || line.starts_with(b"#") {
        return None;
    }
    let (negated, pattern) = line.strip_prefix(b"!").map_or((false, line), |rest| (true, rest));
    let (dirs_only, pattern) = pattern.strip_suffix(b"/").map_or((false, pattern), |rest| (true, rest));
    let path = pattern.contains(&b'/');
    let pattern = pattern.strip_prefix(b"/").unwrap_or(pattern);
    if pattern.is_empty() {
        return None;
    }
    let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    let shape = match pattern.iter().position(special) {
        None => Shape::Literal,
        Some(0) if !path && pattern[0] == b'*' && !pattern[1..].iter().any(special) => Shape::Ending,
        Some(_) => Shape::Wild,
    };
    // Cannot overflow: all of it is within the line.
    let start = at + usize::from(negated) + usize::from(line[usize::from(negated)..].starts_with(b"/"));
    let start = u32::try_from(start).ok()?;
    let end = start.checked_add(u32::try_from(pattern.len()).ok()?)?;
    Some(Rule { pattern: start..end, shape, negated, dirs_only, path })
}

/// Returns the line without spaces at its end, unless a backslash escapes one.
fn trimmed(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    let escapes = line[..end].iter().rev().take_while(|&&byte| byte == b'\\').count();
    // With an odd number of backslashes, the last one escapes the space.
    if escapes % 2 == 1 && end < line.len() { &line[..=end] } else { &line[..end] }
}

#[cfg(test)]
mod tests;
