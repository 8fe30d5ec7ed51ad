//! Finds the first tool call in a model's text.
//!
//! The parser is tolerant where models differ, and strict where it matters. A fence may be indented, longer than three marks, made of
//! tildes, ended by CRLF, or never closed. Its info string may have other words. A block that is *shown* inside of another fence is no
//! call. The JSON may have another fence around it within the block. All of this takes one pass.

use serde::de::IgnoredAny;

use super::PREFIX;

/// Most bytes of a text that are parsed.
pub const MAX_TEXT: usize = 4 * 1024 * 1024;

/// Result of parsing a model's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// No call: the text is an answer.
    Plain,
    /// A call of the tool in the first block.
    Call(Block<'a>),
}

/// A fenced block that calls a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block<'a> {
    /// Text before the block, unchanged.
    pub before: &'a str,
    /// Name of the tool, as written after `forge:`.
    pub tool: &'a str,
    /// The JSON, or the text instead of it.
    pub arguments: &'a str,
    /// True if a fence closes the block.
    pub closed: bool,
}

/// Line that opens or closes a fence.
struct Fence<'a> {
    mark: u8,
    length: usize,
    /// Text after the marks.
    info: &'a str,
}

impl<'a> Fence<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let line = line.trim();
        let mark = *line.as_bytes().first().filter(|mark| matches!(mark, b'`' | b'~'))?;
        let length = line.bytes().take_while(|byte| *byte == mark).count();
        let info = line.get(length..)?.trim();
        // A line with more backticks is text that contains code.
        let is_fence = length >= 3 && !(mark == b'`' && info.contains('`'));
        is_fence.then_some(Self { mark, length, info })
    }

    fn closes(&self, open: &Self) -> bool {
        self.mark == open.mark && self.length >= open.length && self.info.is_empty()
    }

    /// Returns the tool's name, if one of the words names one.
    fn tool(&self) -> Option<&'a str> {
        self.info.split_whitespace().find_map(|word| {
            let prefix = word.get(..PREFIX.len())?;
            prefix.eq_ignore_ascii_case(PREFIX).then(|| &word[PREFIX.len()..])
        })
    }
}

/// Returns the first block of a text.
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

/// Returns the content of the block that begins here, and true if it is closed.
fn content<'a>(body: &'a str, fence: &Fence<'_>) -> (&'a str, bool) {
    let inner = unwrapped(body);
    // The JSON determines its own end: text like a fence in its strings does not end it.
    let mut values = serde_json::Deserializer::from_str(inner).into_iter::<IgnoredAny>();
    if let Some(Ok(_)) = values.next() {
        let (json, rest) = inner.split_at(values.byte_offset());
        match rest.lines().find(|line| !line.trim().is_empty()).map(Fence::of) {
            None => return (json, false),
            Some(Some(end)) if end.info.is_empty() => return (json, true),
            // Other text follows: the check of the arguments reports it.
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

/// Returns `body` after a fence that only wraps the JSON, or after a line that only names its language.
fn unwrapped(body: &str) -> &str {
    let Some((line, rest)) = body.split_once('\n') else { return body };
    let is_json = |word: &str| word.eq_ignore_ascii_case("json") || word.eq_ignore_ascii_case("jsonc");
    let wraps = match Fence::of(line) {
        Some(inner) => is_json(inner.info),
        None => is_json(line.trim()),
    };
    if wraps { rest } else { body }
}
