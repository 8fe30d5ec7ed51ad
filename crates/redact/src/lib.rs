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

/// Length of the longest text that is examined, in bytes. The rest is dropped, and replaced by its size.
const MAX_TEXT: usize = 64 * 1024;
/// Levels of nesting that are examined. Deeper values are hidden as a whole.
const MAX_DEPTH: usize = 128;
const MARK_OPEN: &str = "[redacted:";

/// A secret in a text, and its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    at: Range<usize>,
    name: &'static str,
}

/// Finds and hides secrets. Its creation is expensive, because it compiles patterns: create it once and share it.
#[derive(Debug, Clone)]
pub struct Redactor {
    shapes: Shapes,
    known: Known,
    /// Values of one owner that are hidden besides texts that look like secrets.
    values: Option<Values>,
}

impl Default for Redactor {
    fn default() -> Self {
        Self { shapes: Shapes::new(), known: Known::default(), values: None }
    }
}

impl Redactor {
    /// Adds the known values of an owner, which remain until [`Self::forget`]. Clones share the known values.
    ///
    /// Values of less than eight bytes are ignored, because they occur in too many harmless words.
    pub fn learn<'v>(&self, owner: &str, values: impl Iterator<Item = &'v str>) {
        self.known.learn(owner, values);
    }

    /// Returns a redactor that also hides the values of `owner`, for records of that owner.
    pub fn of(&self, owner: &str) -> Cow<'_, Self> {
        match self.known.of(owner) {
            None => Cow::Borrowed(self),
            values => Cow::Owned(Self { values, ..self.clone() }),
        }
    }

    /// Removes the known values of `owner`.
    pub fn forget(&self, owner: &str) {
        self.known.forget(owner);
    }

    /// Returns `text` with every secret replaced by `[redacted:WHAT]`, and the number of secrets.
    pub fn text(&self, text: &str) -> (String, usize) {
        let (kept, dropped) = cut(text);
        let (mut clean, count) = self.whole(kept);
        if dropped > 0 {
            clean = format!("{clean}…[{dropped} bytes]");
        }
        (clean, count)
    }

    /// Redacts a text like [`Self::text`] but without a limit of its length. The caller must have limited the length, because the time
    /// grows with it.
    pub fn whole(&self, kept: &str) -> (String, usize) {
        let mut findings = self.shapes.find(kept);
        findings.extend(keys::find(kept));
        findings.extend(entropy::find(kept));
        findings.extend(self.values.iter().flat_map(|values| values.find(kept)));
        let marks = marks(kept);
        findings.retain(|finding| !is_hidden(kept, &finding.at, &marks));
        replace(kept, findings)
    }

    /// Hides every secret in `value`, including keys of objects, and returns the number of secrets.
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
        // `{"name": "DB_PASSWORD", "value": "…"}`, a common form of environment variables.
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
            // Two keys may become the same text, and each value is evidence. The number only grows, so that many equal keys take
            // linear time.
            let mut number = 1;
            for (key, value) in std::mem::take(map) {
                let (clean, count) = self.text(&key);
                hidden += count;
                let mut unique = clean.clone();
                while map.contains_key(&unique) {
                    number += 1;
                    unique = format!("{clean} ({number})");
                }
                map.insert(unique, value);
            }
        }
        hidden
    }
}

/// Hides a value whose name says that it is secret, and returns the number of secrets. Flags and nulls remain, because they are not
/// secrets.
fn hide(value: &mut Value, name: &'static str) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 0,
        Value::String(text) if text.is_empty() || text.starts_with(MARK_OPEN) => 0,
        Value::Array(items) if items.is_empty() => 0,
        Value::Object(map) if map.is_empty() => 0,
        // One mark suffices for a value of any shape. It also avoids a walk of hostile depth.
        Value::String(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            *value = Value::String(mark(name));
            1
        }
    }
}

/// Returns the ranges where secrets were hidden earlier.
fn marks(text: &str) -> Vec<Range<usize>> {
    let mark = |(start, _): (usize, &str)| {
        let name = &text[start + MARK_OPEN.len()..];
        let length = name.find(|c: char| !(c.is_ascii_lowercase() || c == '-'))?;
        name[length..].starts_with(']').then_some(start..start + MARK_OPEN.len() + length + 1)
    };
    text.match_indices(MARK_OPEN).filter_map(mark).collect()
}

/// Returns true if the range contains only marks and punctuation around them, so that there is no text to hide.
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

/// Returns the part that is examined, and the number of bytes that are dropped.
///
/// A cut must not leave the beginning of a token that is too short to be recognised. So the cut is at a space if there is one near.
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
