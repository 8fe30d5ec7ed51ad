//! `coffer call glob`.

use clap::Args;
use wire::v1::operation::Kind as Operation;
use wire::v1::{GlobRequest, GlobResult};

use super::{CallOptions, Target, make};
use crate::client::Context;
use crate::failure::Ended;
use crate::output::Output;

/// Find files by name.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call glob 3f2a9c01 '**/*.rs' src")]
pub(crate) struct Glob {
    #[command(flatten)]
    target: Target,
    /// `*`, `**`, `?`, `{a,b}`, `[…]`, matched against the path relative to PATH.
    pattern: String,
    /// The directory to search in. Default: @project.
    path: Option<String>,
    /// Include hidden files and what ignore files exclude.
    #[arg(long)]
    all: bool,
    /// Maximum number of results, up to 10000. Default: 200.
    #[arg(long, value_name = "N")]
    max: Option<u32>,
    #[command(flatten)]
    options: CallOptions,
}

impl Glob {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let operation = GlobRequest {
            path: self.path.unwrap_or_default(),
            pattern: self.pattern,
            include_ignored: self.all,
            max_results: self.max,
        };
        make(context, &self.target, self.options, Operation::Glob(operation)).await
    }
}

pub(super) fn render(result: &GlobResult, data: &mut Output, talk: &mut Output) {
    for path in &result.paths {
        data.word(path).own("\n");
    }
    if result.paths.is_empty() {
        talk.own("no file matches\n");
    }
    talk.remark(result.truncated, &result.hint);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_path() {
        let (mut data, mut talk) = (Output::new(Look::PIPE), Output::new(Look::PIPE));
        let result = GlobResult {
            paths: vec!["@project/a".into(), "@project/b\n@project/c".into()],
            ..Default::default()
        };
        render(&result, &mut data, &mut talk);
        assert_eq!((data.as_str(), talk.as_str()), ("@project/a\n@project/b␊@project/c\n", ""));

        let mut data = Output::new(Look::PIPE);
        render(&GlobResult::default(), &mut data, &mut talk);
        assert_eq!((data.as_str(), talk.as_str()), ("", "no file matches\n"));
    }
}
