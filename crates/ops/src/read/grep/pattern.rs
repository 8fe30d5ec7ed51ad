//! The pattern, compiled, and what may be searched with it before somebody asks whether to stop.

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
}

impl Compiled {
    /// Fails when the pattern is none, is too large, or could match across lines.
    pub(super) fn new(grep: &Grep) -> Result<Self, ToolFailure> {
        let mut problem = String::new();
        for (size, block) in SIZES {
            match compile(grep, size) {
                Ok(matcher) => return Ok(Self { matcher, block }),
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

fn compile(grep: &Grep, size: usize) -> Result<RegexMatcher, grep_regex::Error> {
    RegexMatcherBuilder::new()
        .fixed_strings(!grep.regex)
        .case_insensitive(grep.case_insensitive)
        .multi_line(true)
        .size_limit(size)
        .dfa_size_limit(MAX_CACHE_BYTES)
        // Twice as fast as without, and a pattern that could match across lines is an error instead of a surprise.
        .line_terminator(Some(b'\n'))
        .build(&grep.pattern)
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
