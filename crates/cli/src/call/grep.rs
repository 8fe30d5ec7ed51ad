//! `coffer call grep`.

use clap::Args;
use wire::v1::operation::Kind as Operation;
use wire::v1::{GrepRequest, GrepResult};

use super::grep_lines::{GrepLine, LineKind, lines};
use super::{CallOptions, Target, make};
use crate::client::Context;
use crate::failure::Ended;
use crate::output::{Output, Style};
use crate::quantity::count;

/// Find text in files.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call grep 3f2a9c01 'fn main' src -i -C 2")]
pub(crate) struct Grep {
    #[command(flatten)]
    target: Target,
    /// Literal text; a regular expression with -E.
    pattern: String,
    /// Directory or file. Default: @project.
    path: Option<String>,
    /// Ignore case.
    #[arg(short, long)]
    ignore_case: bool,
    /// The pattern is a regular expression (Rust's syntax).
    #[arg(short = 'E', long)]
    regex: bool,
    /// Lines of context after a match, up to 20. Default: 1.
    #[arg(short = 'A', long, value_name = "N")]
    after: Option<u32>,
    /// Lines of context before a match, up to 20. Default: 1.
    #[arg(short = 'B', long, value_name = "N")]
    before: Option<u32>,
    /// Lines of context on both sides.
    #[arg(short = 'C', long, value_name = "N", conflicts_with_all = ["after", "before"])]
    context: Option<u32>,
    /// Only files whose path matches this pattern.
    #[arg(long, value_name = "GLOB")]
    glob: Option<String>,
    /// Maximum number of matches, up to 1000. Default: 50.
    #[arg(short, long, value_name = "N")]
    max: Option<u32>,
    /// Include hidden files, node_modules and what ignore files exclude.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    options: CallOptions,
}

impl Grep {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let operation = GrepRequest {
            path: self.path.unwrap_or_default(),
            pattern: self.pattern,
            regex: self.regex,
            case_insensitive: self.ignore_case,
            before: self.before.or(self.context),
            after: self.after.or(self.context),
            glob: self.glob.unwrap_or_default(),
            max_matches: self.max,
            include_ignored: self.all,
            ..Default::default()
        };
        make(context, &self.target, self.options, Operation::Grep(operation)).await
    }
}

/// Prints matches like grep and rg: `path:line:match`, `path-line-context`, `--` between groups.
pub(super) fn render(result: &GrepResult, data: &mut Output, talk: &mut Output) {
    for line in lines(&result.matches) {
        match line {
            GrepLine::Gap => data.styled(Style::Dim, "--").own("\n"),
            GrepLine::Text { path, number, text, kind } => {
                let separator = if kind == LineKind::Match { ":" } else { "-" };
                data.styled(Style::Cyan, path)
                    .own(separator)
                    .styled(Style::Green, &number.to_string())
                    .own(separator);
                data.raw(text).own("\n")
            }
        };
    }
    if result.matches.is_empty() {
        talk.own("no match in ").word(&count(result.files_searched, "file", "files")).own("\n");
    }
    talk.remark(result.truncated, &result.hint);
}

#[cfg(test)]
mod tests {
    use wire::v1::GrepMatch;

    use super::*;
    use crate::output::Look;

    #[test]
    fn reads_like_grep() {
        let result = GrepResult {
            matches: vec![GrepMatch {
                path: "@project/a".into(),
                line: 2,
                text: "fn main\x1b".into(),
                before: vec!["one".into()],
                after: vec!["three".into()],
            }],
            hint: "set include_ignored for hidden and ignored ones".into(),
            ..Default::default()
        };
        let (mut data, mut talk) = (Output::new(Look::TERMINAL), Output::new(Look::PIPE));
        render(&result, &mut data, &mut talk);
        assert_eq!(data.as_str(), "@project/a-1-one\n@project/a:2:fn main␛\n@project/a-3-three\n");
        assert_eq!(talk.as_str(), "--all adds hidden and ignored ones\n");
    }

    #[test]
    fn no_match_is_reported() {
        let result = GrepResult { files_searched: 3, ..Default::default() };
        let (mut data, mut talk) = (Output::new(Look::PIPE), Output::new(Look::PIPE));
        render(&result, &mut data, &mut talk);
        assert_eq!((data.as_str(), talk.as_str()), ("", "no match in 3 files\n"));
    }
}
