#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod argv;
mod entropy;
mod keys;
mod known;
mod shapes;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Value};
use text::floor;

use known::{Known, Values};
use shapes::Shapes;

/// The longest text that is looked at, in bytes; the rest is dropped, and its size said.
const MAX_TEXT: usize = 64 * 1024;
/// How deep a value is followed; deeper values are hidden as a whole.
const MAX_DEPTH: usize = 128;
const MARK_OPEN: &str = "[redacted:";

/// A secret in a text, and what it looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    at: Range<usize>,
    name: &'static str,
}

/// Finds and hides secrets. Making one compiles its patterns: make it once and share it.
#[derive(Debug, Clone)]
pub struct Redactor {
    shapes: Shapes,
    known: Known,
    /// Values that are hidden beside what looks like a secret.
    values: Option<Values>,
}

impl Default for Redactor {
    fn default() -> Self {
        Self { shapes: Shapes::new(), known: Known::default(), values: None }
    }
}

impl Redactor {
    /// Knows these values of an owner from now on, until [`Self::forget`]. Shorter ones than eight bytes are in too many
    /// harmless words. Clones share what they know.
    pub fn learn<'v>(&self, owner: &str, values: impl Iterator<Item = &'v str>) {
        self.known.learn(owner, values);
    }

    /// One that hides the values of `owner`, too: for what is about that owner.
    pub fn of(&self, owner: &str) -> Cow<'_, Self> {
        match self.known.of(owner) {
            None => Cow::Borrowed(self),
            values => Cow::Owned(Self { values, ..self.clone() }),
        }
    }

    /// No longer knows the values of `owner`.
    pub fn forget(&self, owner: &str) {
        self.known.forget(owner);
    }

    /// `text` with every secret replaced by `[redacted:WHAT]`, and how many were.
    pub fn text(&self, text: &str) -> (String, usize) {
        let (kept, dropped) = cut(text);
        let (mut clean, count) = self.whole(kept);
        if dropped > 0 {
            clean = format!("{clean}…[{dropped} bytes]");
        }
        (clean, count)
    }

    /// The same of a text of any length, none of which is dropped: for what somebody bounded already. Takes time in
    /// proportion to it.
    pub fn whole(&self, kept: &str) -> (String, usize) {
        let mut findings = self.shapes.find(kept);
        findings.extend(keys::find(kept));
        findings.extend(entropy::find(kept));
        findings.extend(self.values.iter().flat_map(|values| values.find(kept)));
        let marks = marks(kept);
        findings.retain(|finding| !is_hidden(kept, &finding.at, &marks));
        replace(kept, findings)
    }

    /// Hides every secret in `value`, keys of objects included, and says how many there were.
    pub fn value(&self, value: &mut Value) -> usize {
        self.walk(value, MAX_DEPTH)
    }

    fn walk(&self, value: &mut Value, depth: usize) -> usize {
        let Some(depth) = depth.checked_sub(1) else { return hide(value, "depth") };
        match value {
            Value::String(text) => self.string(text),
            Value::Array(items) => {
                let hidden = argv::hide(items.iter_mut(), None);
                hidden + items.iter_mut().map(|item| self.walk(item, depth)).sum::<usize>()
            }
            Value::Object(map) => self.object(map, depth),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
    }

    fn string(&self, text: &mut String) -> usize {
        let (clean, hidden) = self.text(text);
        if clean != *text {
            *text = clean;
        }
        hidden
    }

    fn object(&self, map: &mut Map<String, Value>, depth: usize) -> usize {
        let mut hidden = 0;
        let command = map.get("command").and_then(Value::as_str).map(str::to_owned);
        if let Some(Value::Array(items)) = map.get_mut("args") {
            hidden += argv::hide(items.iter_mut(), command.as_deref());
        }
        // `{"name": "DB_PASSWORD", "value": "…"}`, as environments are often written.
        let named =
            ["name", "key"].iter().find_map(|key| map.get(*key)?.as_str()).is_some_and(keys::is_secret);
        for (key, value) in map.iter_mut() {
            hidden += if keys::is_secret(key) || (named && key == "value") {
                hide(value, "field")
            } else {
                self.walk(value, depth)
            };
        }
        if map.keys().any(|key| self.text(key).1 > 0) {
            for (key, value) in std::mem::take(map) {
                let (clean, count) = self.text(&key);
                hidden += count;
                map.insert(clean, value);
            }
        }
        hidden
    }
}

/// Hides every leaf of a value whose name says that it is secret. Flags and absences stay: they are no secrets.
fn hide(value: &mut Value, name: &'static str) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 0,
        Value::String(text) if text.is_empty() || text.starts_with(MARK_OPEN) => 0,
        Value::Array(items) if items.is_empty() => 0,
        Value::Object(map) if map.is_empty() => 0,
        // Whatever the shape below, one mark says enough; it also ends the walk of a hostile depth.
        Value::String(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            *value = Value::String(mark(name));
            1
        }
    }
}

/// Where secrets were hidden before.
fn marks(text: &str) -> Vec<Range<usize>> {
    let mark = |(start, _): (usize, &str)| {
        let name = &text[start + MARK_OPEN.len()..];
        let length = name.find(|c: char| !(c.is_ascii_lowercase() || c == '-'))?;
        name[length..].starts_with(']').then_some(start..start + MARK_OPEN.len() + length + 1)
    };
    text.match_indices(MARK_OPEN).filter_map(mark).collect()
}

/// Whether nothing is left to hide: what is not inside a mark is punctuation around it.
fn is_hidden(text: &str, at: &Range<usize>, marks: &[Range<usize>]) -> bool {
    let first = marks.partition_point(|mark| mark.end <= at.start);
    let mut rest = at.start;
    let mut bare = true;
    for mark in marks[first..].iter().take_while(|mark| mark.start < at.end) {
        bare &= is_punctuation(&text[rest..mark.start.max(rest)]);
        rest = mark.end.min(at.end);
    }
    rest > at.start && bare && is_punctuation(&text[rest..at.end])
}

fn is_punctuation(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_punctuation() || c.is_whitespace())
}

fn mark(name: &str) -> String {
    format!("{MARK_OPEN}{name}]")
}

/// The part that is looked at and how many bytes are dropped. A cut must not leave a beginning of a token that is too
/// short to be known, so the cut is after a space if there is one near.
fn cut(text: &str) -> (&str, usize) {
    if text.len() <= MAX_TEXT {
        return (text, 0);
    }
    let kept = &text[..floor(text, MAX_TEXT)];
    let near = &kept[floor(kept, kept.len() - 4096)..];
    let kept = match near.rfind(char::is_whitespace) {
        Some(space) => &kept[..kept.len() - near.len() + space],
        None => &kept[..kept.len() - near.len()],
    };
    (kept, text.len() - kept.len())
}

fn replace(text: &str, mut findings: Vec<Finding>) -> (String, usize) {
    findings.sort_by_key(|finding| (finding.at.start, std::cmp::Reverse(finding.at.end)));
    let mut clean = String::with_capacity(text.len());
    let (mut done, mut count) = (0, 0);
    for Finding { at, name } in findings {
        if at.start >= done {
            clean.push_str(&text[done..at.start]);
            clean.push_str(&mark(name));
            count += 1;
        }
        done = done.max(at.end);
    }
    clean.push_str(&text[done..]);
    (clean, count)
}

#[cfg(test)]
mod tests;
