//! The pattern, compiled, and what may be searched with it before somebody asks whether to stop.

use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use crate::{Grep, Reason, ToolFailure};

const KIB: usize = 1024;
/// Memory of a compiled pattern, and bytes of text that are searched with it at once. In the worst case a byte of text
/// costs a look at every part of the pattern, so that the product of the two is what can pass before a stop is heard: a
/// fraction of a second. Nearly every pattern fits into the first.
const SIZES: [(usize, usize); 3] = [(64 * KIB, 64 * KIB), (256 * KIB, 16 * KIB), (4 * 1024 * KIB, 4 * KIB)];
/// Memory of the automaton's cache, on each thread.
const MAX_CACHE_BYTES: usize = 4 * 1024 * KIB;

/// A pattern to search for.
pub(super) struct Compiled {
    pub(super) matcher: RegexMatcher,
    /// Bytes of text at once.
    pub(super) block: usize,
    /// The pattern is for lines one by one, without their `\r\n`: it is about the beginning or the end of the text.
    pub(super) by_line: bool,
}

impl Compiled {
    /// Fails when the pattern is none, is too large, or could match across lines.
    pub(super) fn new(grep: &Grep) -> Result<Self, ToolFailure> {
        let mut problem = String::new();
        let crlf = grep.regex && !names_carriage_return(grep);
        for (size, block) in SIZES {
            match builder(grep, size, crlf).build(&grep.pattern) {
                Ok(matcher) => {
                    let by_line = crlf && matcher.line_terminator().is_none();
                    return Ok(Self { matcher, block, by_line });
                }
                Err(error) => problem = error.to_string(),
            }
        }
        // The lines before the last repeat the pattern, whatever is in it.
        let problem = problem.lines().last().unwrap_or_default();
        let problem = problem.strip_prefix("error: ").unwrap_or(problem);
        let message = format!("the pattern cannot be searched for, line by line: {problem}");
        Err(ToolFailure::new(Reason::InvalidArgument, message))
    }
}

/// Returns whether the pattern names `\r`. A line then ends at `\n` alone; otherwise `\r$` would match nothing.
fn names_carriage_return(grep: &Grep) -> bool {
    let (size, _) = SIZES[SIZES.len() - 1];
    // As a part of the line terminator it is an error in the pattern.
    builder(grep, size, true).line_terminator(Some(b'\r')).build(&grep.pattern).is_err()
}

/// `crlf`: the end of a line is before its `\r\n`, as lines are shown.
fn builder(grep: &Grep, size: usize, crlf: bool) -> RegexMatcherBuilder {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .fixed_strings(!grep.regex)
        .case_insensitive(grep.case_insensitive)
        .multi_line(true)
        .size_limit(size)
        .dfa_size_limit(MAX_CACHE_BYTES)
        .crlf(crlf)
        // A `\r` within a line is a character like any other.
        .dot_matches_new_line(true)
        // Twice as fast as without, and a pattern that could match across lines is an error instead of a surprise.
        .line_terminator(Some(b'\n'));
    builder
}

#[cfg(test)]
mod tests {
    use jail::SandboxPath;

    use super::*;

    fn block(pattern: &str) -> usize {
        let grep = Grep {
            path: SandboxPath::parse("@project").unwrap(),
            pattern: pattern.to_owned(),
            regex: true,
            case_insensitive: false,
            before: 0,
            after: 0,
            glob: None,
            max_matches: 1,
            include_ignored: false,
            one_per_file: false,
        };
        Compiled::new(&grep).unwrap().block
    }

    #[test]
    fn the_larger_a_pattern_the_less_is_searched_at_once() {
        for (pattern, expected) in [
            ("fn main", 64),
            (r"^\s*(pub\s+)?fn\s+\w+", 64),
            (r"^\w+\s\w+\s=\s\w+$", 16),
            (r"^\w{2,30}\s=\s\w{2,30}$", 4),
        ] {
            assert_eq!(block(pattern) / KIB, expected, "{pattern}");
        }
    }
}
