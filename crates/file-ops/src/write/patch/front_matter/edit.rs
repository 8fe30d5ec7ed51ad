//! Ways to write a change into the text, from the one that keeps most. Every result is verified: see [`super`].

use serde_yaml::Value;

use super::change::{Change, What};
use super::entry::{Entry, find};
use super::yaml::{emit, emit_entry, emit_items, is_ambiguous};

/// Returns candidate texts, the best first.
pub(super) fn in_place(yaml: &str, change: &Change) -> Vec<String> {
    let text = Text::of(yaml);
    let entry = find(yaml, &[&change.key]);
    let ways = match (&change.what, entry) {
        (What::Append(items), None) => vec![text.append(&change.key, &Value::Sequence(items.clone()))],
        (What::Append(items), Some(entry)) => {
            vec![text.append_to_block(&entry, items), text.append_to_brackets(&entry, items)]
        }
        (What::Set(value), None) => vec![text.append(&change.key, value)],
        (What::Set(value), Some(entry)) => vec![text.set_scalar(&entry, value)],
        (What::SetMember(name, value), None) => {
            let mapping = [(Value::from(name.as_str()), value.clone())].into_iter().collect();
            vec![text.append(&change.key, &Value::Mapping(mapping))]
        }
        (What::SetMember(name, value), Some(entry)) => match find(yaml, &[&change.key, name]) {
            Some(member) => vec![text.set_scalar(&member, value), text.anew(&member, name, value)],
            None => vec![text.add_member(&entry, name, value)],
        },
    };
    ways.into_iter().flatten().collect()
}

/// Rewrites the whole entry.
pub(super) fn entry_anew(yaml: &str, change: &Change, wanted: &Value) -> Option<String> {
    let entry = find(yaml, &[&change.key])?;
    Text::of(yaml).anew(&entry, &change.key, wanted.get(change.key.as_str())?)
}

/// Returns true if an entry may contain comments.
pub(super) fn has_comment(yaml: &str, key: &str) -> bool {
    find(yaml, &[key])
        .is_some_and(|entry| Text::of(yaml).lines[entry.lines].iter().any(|line| line.contains('#')))
}

struct Text<'y> {
    lines: Vec<&'y str>,
}

impl<'y> Text<'y> {
    fn of(yaml: &'y str) -> Self {
        Self { lines: yaml.split_inclusive('\n').collect() }
    }

    /// Replaces the lines `at`.
    fn replace(&self, at: std::ops::Range<usize>, with: &str) -> Option<String> {
        let before = self.lines.get(..at.start)?.concat();
        let behind = self.lines.get(at.end..)?.concat();
        let newline = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
        Some([&before, newline, with, &behind].concat())
    }

    /// Appends a new entry after all others.
    fn append(&self, key: &str, value: &Value) -> Option<String> {
        let end = self.lines.len();
        self.replace(end..end, &emit_entry(key, value, "")?)
    }

    fn anew(&self, entry: &Entry, key: &str, value: &Value) -> Option<String> {
        self.replace(entry.lines.clone(), &emit_entry(key, value, &entry.indent)?)
    }

    /// Adds items after the last one of a block list, with the indentation of the first one.
    fn append_to_block(&self, entry: &Entry, items: &[Value]) -> Option<String> {
        let end = entry.lines.end;
        let behind_key = self.lines.get(entry.lines.start + 1..end)?;
        let first = behind_key.iter().find(|line| line.trim_start().starts_with('-'))?;
        let indent = &first[..first.len() - first.trim_start_matches(' ').len()];
        self.replace(end..end, &emit_items(items, indent)?)
    }

    /// Adds items before the closing bracket of a list in one line.
    fn append_to_brackets(&self, entry: &Entry, items: &[Value]) -> Option<String> {
        let line = *self.lines.get(entry.lines.start)?;
        let (before, behind) = line.rsplit_once(']')?;
        let (head, inner) = before.split_once('[')?;
        let items: Option<Vec<String>> = items.iter().map(|item| serde_json::to_string(item).ok()).collect();
        let separator = if inner.trim().is_empty() { "" } else { ", " };
        let (inner, items) = (inner.trim_end(), items?.join(", "));
        let line = format!("{head}[{inner}{separator}{items}]{behind}");
        (entry.lines.len() == 1).then(|| self.replace(entry.lines.clone(), &line)).flatten()
    }

    /// Replaces a value in the same line. A comment after it stays, and so do the quotes.
    fn set_scalar(&self, entry: &Entry, value: &Value) -> Option<String> {
        if entry.lines.len() != 1 {
            return None;
        }
        let line = *self.lines.get(entry.lines.start)?;
        let colon = colon(line)?;
        let (head, rest) = line.split_at(colon + 1);
        let old = rest.trim_start_matches(' ');
        let blank = if old.len() < rest.len() { &rest[..rest.len() - old.len()] } else { " " };
        let end = end_of_scalar(old)?;
        let (old, behind) = old.split_at(end);
        self.replace(entry.lines.clone(), &format!("{head}{blank}{}{behind}", scalar(value, old)?))
    }

    /// Adds a member to a mapping, after the last one.
    fn add_member(&self, entry: &Entry, name: &str, value: &Value) -> Option<String> {
        let behind_key = self.lines.get(entry.lines.start + 1..entry.lines.end)?;
        let first = behind_key.iter().find(|line| {
            let line = line.trim_start();
            !line.is_empty() && !line.starts_with('#')
        })?;
        let indent = &first[..first.len() - first.trim_start_matches(' ').len()];
        let end = entry.lines.end;
        self.replace(end..end, &emit_entry(name, value, indent)?)
    }
}

/// Returns the offset of the colon that ends a line's key.
fn colon(line: &str) -> Option<usize> {
    let start = line.len() - line.trim_start_matches(' ').len();
    let key_end = match line.as_bytes().get(start)? {
        b'"' | b'\'' => start + end_of_scalar(&line[start..])?,
        _ => start,
    };
    let at = line[key_end..].match_indices(':').map(|(at, _)| key_end + at);
    at.into_iter().find(|&at| line.as_bytes().get(at + 1).is_none_or(u8::is_ascii_whitespace))
}

/// Returns the end of a scalar that begins here, before a comment or the end of the line. `None` if the value is no scalar in one line.
fn end_of_scalar(text: &str) -> Option<usize> {
    let quoted = |quote: char| {
        let mut escaped = false;
        let inner = text.char_indices().skip(1).find(|&(_, c)| {
            let ends = c == quote && !escaped;
            escaped = quote == '"' && c == '\\' && !escaped;
            ends
        });
        inner.map(|(at, _)| at + 1)
    };
    match text.chars().next() {
        Some('"') => quoted('"'),
        // A doubled quote would be cut too early, and the result then does not parse to the wanted value.
        Some('\'') => quoted('\''),
        Some('[' | '{' | '|' | '>' | '&' | '*' | '!') => None,
        _ => {
            let line = text.trim_end_matches(['\n', '\r']);
            let end = if line.starts_with('#') { 0 } else { line.find(" #").unwrap_or(line.len()) };
            Some(line[..end].trim_end().len())
        }
    }
}

/// Formats a scalar in one line, with the quotes that the old one had.
fn scalar(value: &Value, old: &str) -> Option<String> {
    let plain = match value {
        Value::Sequence(_) | Value::Mapping(_) | Value::Tagged(_) => return None,
        Value::String(text) if old.starts_with('"') => serde_json::to_string(text).ok()?,
        Value::String(text) if old.starts_with('\'') && !text.contains(char::is_control) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        value => {
            let plain = emit(value).ok()?.trim_end_matches('\n').to_owned();
            // A value that was written as a plain date stays plain.
            if is_ambiguous(&plain) && !is_ambiguous(old) { format!("'{plain}'") } else { plain }
        }
    };
    (!plain.contains('\n')).then_some(plain)
}
