//! The compiled pattern, and the size of the blocks that it searches between two checks for cancellation.

use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use operations::{Grep, Reason, ToolFailure};

const KIB: usize = 1024;
/// Memory of a compiled pattern, and bytes of text that are searched with it at once.
///
/// In the worst case a byte of text is compared with every part of the pattern. So the product of the two bounds the time until a
/// cancellation takes effect: a fraction of a second. Nearly every pattern fits into the first size.
const SIZES: [(usize, usize); 3] = [(64 * KIB, 64 * KIB), (256 * KIB, 16 * KIB), (4 * 1024 * KIB, 4 * KIB)];
/// Memory of the automaton's cache on each thread.
const MAX_CACHE_BYTES: usize = 4 * 1024 * KIB;

/// Compiled pattern.
pub(super) struct Compiled {
    pub(super) matcher: RegexMatcher,
    /// Bytes of text that are searched at once.
    pub(super) block: usize,
    /// True if lines are searched one by one, without their `\r\n`, because the pattern has an anchor for the beginning or end
    /// of the text.
    pub(super) by_line: bool,
}

impl Compiled {
    /// Compiles the pattern. Fails if it is invalid, too large, or could match across lines.
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
        // The lines before the last repeat the pattern, whose content is arbitrary.
        let problem = problem.lines().last().unwrap_or_default();
        let problem = problem.strip_prefix("error: ").unwrap_or(problem);
        let message = format!("the pattern cannot be used for a search line by line: {problem}");
        Err(ToolFailure::new(Reason::InvalidArgument, message))
    }
}

/// Returns true if the pattern names `\r`. A line then ends at `\n` alone; otherwise `\r$` would match nothing.
fn names_carriage_return(grep: &Grep) -> bool {
    let (size, _) = SIZES[SIZES.len() - 1];
    // A pattern that names a part of the line terminator is an error.
    builder(grep, size, true).line_terminator(Some(b'\r')).build(&grep.pattern).is_err()
}

/// Returns the builder. With `crlf`, `$` matches before `\r\n`, as lines are shown.
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
        // Twice as fast as without, and a pattern that could match across lines becomes an error.
        .line_terminator(Some(b'\n'));
    builder
}

#[cfg(test)]
mod tests {
    use jail::SandboxPath;

    use super::*;

    fn block(pattern: &str) -> usize {
        let grep = Grep { regex: true, ..Grep::new(SandboxPath::parse("@project").unwrap(), pattern) };
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
