//! `coffer call read`.

use std::str::FromStr;

use clap::Args;
use wire::v1::operation::Kind as Operation;
use wire::v1::{ContentEncoding, ReadRequest, ReadResult};

use super::{CallOptions, Target, make};
use crate::client::Context;
use crate::failure::Ended;
use crate::output::{Output, Style};
use crate::quantity::parse_offset;

/// Print a file, or a part of it.
///
/// Without --base64, a file that is not text is not printed, and the exit code is 1.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call read 3f2a9c01 README.md --lines 1-20")]
pub(crate) struct Read {
    #[command(flatten)]
    target: Target,
    /// The file, such as README.md or @project/README.md.
    path: String,
    /// Only these lines, both ends included, as in 1-20, 1:20, 7 or 100-.
    #[arg(long, value_name = "A-B", conflicts_with_all = ["offset", "limit"])]
    lines: Option<Lines>,
    /// Start at this byte, as in 4096 or 64K.
    #[arg(long, value_name = "BYTE", value_parser = parse_offset)]
    offset: Option<u64>,
    /// Number of bytes to print, as in 4096 or 64K.
    #[arg(long, value_name = "SIZE", value_parser = parse_offset)]
    limit: Option<u64>,
    /// Print the bytes as base64, for files that are not text.
    #[arg(long)]
    base64: bool,
    #[command(flatten)]
    options: CallOptions,
}

/// Range of lines from 1, both ends included. A missing end is that of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lines {
    start: Option<u64>,
    end: Option<u64>,
}

impl FromStr for Lines {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a range of lines; write it as in 1-20, 7 or 100-");
        let number = |part: &str| match part {
            "" => Ok(None),
            part => match part.parse() {
                Ok(0) | Err(_) => Err(wrong()),
                Ok(line) => Ok(Some(line)),
            },
        };
        let (start, end) = match text.split_once(['-', ':']) {
            Some((start, end)) => (number(start)?, number(end)?),
            None => (number(text)?, number(text)?),
        };
        match (start, end) {
            (None, None) => Err(wrong()),
            (Some(start), Some(end)) if start > end => Err(wrong()),
            _ => Ok(Self { start, end }),
        }
    }
}

impl Read {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let operation = ReadRequest {
            path: self.path,
            start_line: self.lines.and_then(|lines| lines.start),
            end_line: self.lines.and_then(|lines| lines.end),
            offset: self.offset,
            limit: self.limit,
            encoding: if self.base64 { ContentEncoding::Base64 } else { ContentEncoding::Unspecified }.into(),
            ..Default::default()
        };
        make(context, &self.target, self.options, Operation::Read(operation)).await
    }
}

/// Prints the content unchanged, so that it can be piped.
pub(super) fn render(result: &ReadResult, data: &mut Output, talk: &mut Output) {
    data.raw(&result.content);
    if result.encoding() == ContentEncoding::Base64 {
        data.end_line();
    }
    if result.binary && result.content.is_empty() {
        talk.styled(Style::Yellow, "not text").own(": ").word(&result.hint).end_line();
    } else {
        talk.cut_short(result.truncated, &result.hint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    fn lines(text: &str) -> Option<(Option<u64>, Option<u64>)> {
        text.parse::<Lines>().ok().map(|lines| (lines.start, lines.end))
    }

    #[test]
    fn lines_in_every_form() {
        assert_eq!(lines("1-20"), Some((Some(1), Some(20))));
        assert_eq!(lines("1:20"), Some((Some(1), Some(20))));
        assert_eq!(lines("7"), Some((Some(7), Some(7))));
        assert_eq!(lines("100-"), Some((Some(100), None)));
        assert_eq!(lines(":5"), Some((None, Some(5))));
        for wrong in ["", "-", "0", "0-3", "5-2", "a-b", "1-2-3"] {
            assert_eq!(lines(wrong), None, "{wrong}");
        }
    }

    fn pages(result: &ReadResult, look: Look) -> (String, String) {
        let (mut data, mut talk) = (Output::new(look), Output::new(Look::PIPE));
        render(result, &mut data, &mut talk);
        (data.as_str().into(), talk.as_str().into())
    }

    #[test]
    fn content_is_raw_in_a_pipe_and_harmless_on_a_terminal() {
        let result = ReadResult { content: "a\x1b[2J".into(), ..Default::default() };
        assert_eq!(pages(&result, Look::PIPE).0, "a\x1b[2J");
        assert_eq!(pages(&result, Look::TERMINAL).0, "a␛[2J");
    }

    #[test]
    fn cut_and_binary_content_is_noted() {
        let result = ReadResult {
            content: "a\n".into(),
            truncated: true,
            hint: "ask for lines 2-".into(),
            ..Default::default()
        };
        assert_eq!(pages(&result, Look::PIPE), ("a\n".into(), "cut short: ask for lines 2-\n".into()));
        let result = ReadResult { binary: true, hint: "ask for base64".into(), ..Default::default() };
        assert_eq!(pages(&result, Look::PIPE), (String::new(), "not text: ask for base64\n".into()));
    }
}
