//! Finds the first tool call in a model's text.
//!
//! Tolerant where models differ, strict where it matters: a fence may be indented, longer than three marks, made of
//! tildes, ended by CRLF, never closed; its info string may have other words. A block that is *shown* inside of another
//! fence is no call. The JSON may stand in a fence of its own within the block. Everything takes one pass.

use serde::de::IgnoredAny;

use super::PREFIX;

/// Bytes of a text that is looked at.
pub const MAX_TEXT: usize = 4 * 1024 * 1024;

/// What a model's text asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// Nothing: it is an answer.
    Plain,
    /// The tool of its first block.
    Call(Block<'a>),
}

/// A fenced block that calls a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block<'a> {
    /// What stands before it, untouched.
    pub before: &'a str,
    /// The tool, as written behind `forge:`.
    pub tool: &'a str,
    /// The JSON, or what stands in its place.
    pub arguments: &'a str,
    /// A fence closes it.
    pub closed: bool,
}

/// A line that opens a fence, or closes one.
struct Fence<'a> {
    mark: u8,
    length: usize,
    /// What stands behind the marks.
    info: &'a str,
}

impl<'a> Fence<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let line = line.trim();
        let mark = *line.as_bytes().first().filter(|mark| matches!(mark, b'`' | b'~'))?;
        let length = line.bytes().take_while(|byte| *byte == mark).count();
        let info = line.get(length..)?.trim();
        // A line with ticks further on is text with code in it.
        let is_fence = length >= 3 && !(mark == b'`' && info.contains('`'));
        is_fence.then_some(Self { mark, length, info })
    }

    fn closes(&self, open: &Self) -> bool {
        self.mark == open.mark && self.length >= open.length && self.info.is_empty()
    }

    /// The tool's name, when one of the words names one.
    fn tool(&self) -> Option<&'a str> {
        self.info.split_whitespace().find_map(|word| {
            let prefix = word.get(..PREFIX.len())?;
            prefix.eq_ignore_ascii_case(PREFIX).then(|| &word[PREFIX.len()..])
        })
    }
}

/// The first block of a text.
pub fn first(text: &str) -> Step<'_> {
    let mut open: Option<Fence<'_>> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let begin = at;
        at += line.len();
        let Some(fence) = Fence::of(line) else { continue };
        match &open {
            Some(outer) if fence.closes(outer) => open = None,
            Some(_) => {}
            None => {
                if let Some(tool) = fence.tool() {
                    let (arguments, closed) = content(&text[at..], &fence);
                    return Step::Call(Block { before: &text[..begin], tool, arguments, closed });
                }
                open = Some(fence);
            }
        }
    }
    Step::Plain
}

/// What stands in the block whose content begins here, and whether it is closed.
fn content<'a>(body: &'a str, fence: &Fence<'_>) -> (&'a str, bool) {
    let inner = unwrapped(body);
    // Where the JSON itself ends is where it ends, whatever looks like a fence in its strings.
    let mut values = serde_json::Deserializer::from_str(inner).into_iter::<IgnoredAny>();
    if let Some(Ok(_)) = values.next() {
        let (json, rest) = inner.split_at(values.byte_offset());
        match rest.lines().find(|line| !line.trim().is_empty()).map(Fence::of) {
            None => return (json, false),
            Some(Some(end)) if end.info.is_empty() => return (json, true),
            // Something else follows: let the arguments' own check say so.
            Some(_) => {}
        }
    }
    let mut end = 0;
    for line in body.split_inclusive('\n') {
        if Fence::of(line).is_some_and(|closing| closing.closes(fence)) {
            return (&body[..end], true);
        }
        end += line.len();
    }
    (body, false)
}

/// `body` behind a fence that only wraps the JSON, or behind a line that only names its language.
fn unwrapped(body: &str) -> &str {
    let Some((line, rest)) = body.split_once('\n') else { return body };
    let is_json = |word: &str| word.eq_ignore_ascii_case("json") || word.eq_ignore_ascii_case("jsonc");
    let wraps = match Fence::of(line) {
        Some(inner) => is_json(inner.info),
        None => is_json(line.trim()),
    };
    if wraps { rest } else { body }
}
