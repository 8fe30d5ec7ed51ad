//! `coffer call git`.

use clap::{Args, Subcommand};
use wire::v1::call_request::Operation;
use wire::v1::git_request::Command as Wanted;
use wire::v1::{GitAdd, GitCommit, GitDiff, GitRequest, GitResult, GitStatus};

use super::{Manner, Target, make, outcome};
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::page::Page;
use crate::quantity::bytes;

/// Look at, or add to, the workspace's git repository: no hooks, no filters, no network.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call git 3f2a9c01 diff --stat")]
pub(crate) struct Git {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    manner: Manner,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What has changed.
    #[command(before_help = "Example: coffer call git 3f2a9c01 status")]
    Status,
    /// The changes themselves.
    #[command(before_help = "Example: coffer call git 3f2a9c01 diff --cached -- src")]
    Diff(Diff),
    /// Put files into the index.
    #[command(before_help = "Example: coffer call git 3f2a9c01 add README.md")]
    Add {
        /// Files or directories.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<String>,
    },
    /// Make a commit from the index.
    #[command(before_help = "Example: coffer call git 3f2a9c01 commit -m 'Say hello'")]
    Commit {
        /// The message.
        #[arg(short, long)]
        message: String,
    },
}

#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is one flag of git's own
struct Diff {
    /// The index against the last commit.
    #[arg(long)]
    cached: bool,
    /// The same as --cached.
    #[arg(long)]
    staged: bool,
    /// How much has changed in which files.
    #[arg(long)]
    stat: bool,
    /// Only the last line of --stat.
    #[arg(long)]
    shortstat: bool,
    /// As --stat, for programs.
    #[arg(long)]
    numstat: bool,
    /// Only the names of changed files.
    #[arg(long)]
    name_only: bool,
    /// Names, and how each has changed.
    #[arg(long)]
    name_status: bool,
    /// No colour; nor is there otherwise.
    #[arg(long)]
    no_color: bool,
    /// Only these paths.
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<String>,
}

impl Git {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let operation = GitRequest { command: Some(self.command.wanted()) };
        make(context, &self.target, self.manner, Operation::Git(operation)).await
    }
}

impl Command {
    fn wanted(self) -> Wanted {
        match self {
            Self::Status => Wanted::Status(GitStatus {}),
            Self::Diff(diff) => Wanted::Diff(diff.wanted()),
            Self::Add { paths } => Wanted::Add(GitAdd { paths }),
            Self::Commit { message } => Wanted::Commit(GitCommit { message }),
        }
    }
}

impl Diff {
    fn wanted(self) -> GitDiff {
        let flags = [
            (self.cached, "--cached"),
            (self.staged, "--staged"),
            (self.stat, "--stat"),
            (self.shortstat, "--shortstat"),
            (self.numstat, "--numstat"),
            (self.name_only, "--name-only"),
            (self.name_status, "--name-status"),
            (self.no_color, "--no-color"),
        ];
        let flags = flags.into_iter().filter(|(given, _)| *given).map(|(_, flag)| flag.into()).collect();
        GitDiff { flags, paths: self.paths }
    }
}

/// The output; a diff is coloured on a terminal.
pub(super) fn render(result: &GitResult, data: &mut Page, talk: &mut Page) {
    if result.output.starts_with("diff --git ") {
        data.raw_diff(&result.output);
    } else {
        data.raw(&result.output).end_line();
    }
    if result.output.is_empty() && !result.commit.is_empty() {
        data.own("commit ").word(&result.commit).own("\n");
    }
    let missing = format!("{} left out; name paths to see less at once", bytes(result.omitted_bytes));
    outcome::truncated(result.truncated, &missing, talk);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::page::Look;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        git: Git,
    }

    fn wanted(line: &str) -> Option<(bool, Wanted)> {
        let line = Line::try_parse_from(line.split(' ')).ok()?;
        Some((line.git.manner.wait, line.git.command.wanted()))
    }

    #[test]
    fn each_command_arrives() {
        assert_eq!(wanted("git r status"), Some((false, Wanted::Status(GitStatus {}))));
        assert_eq!(
            wanted("git r diff --cached --stat -- a b"),
            Some((
                false,
                Wanted::Diff(GitDiff {
                    flags: vec!["--cached".into(), "--stat".into()],
                    paths: vec!["a".into(), "b".into()]
                })
            ))
        );
        assert_eq!(wanted("git r add a"), Some((false, Wanted::Add(GitAdd { paths: vec!["a".into()] }))));
        let commit = Wanted::Commit(GitCommit { message: "hi".into() });
        assert_eq!(wanted("git r commit -m hi --wait"), Some((true, commit.clone())));
        assert_eq!(wanted("git r --wait commit -m hi"), Some((true, commit)));
        assert_eq!(wanted("git r add"), None);
        assert_eq!(wanted("git r commit"), None);
        assert_eq!(wanted("git r push"), None);
        assert_eq!(wanted("git r diff --ext-diff"), None);
    }

    fn data(result: &GitResult, look: Look) -> String {
        let (mut data, mut talk) = (Page::new(look), Page::new(Look::PIPE));
        render(result, &mut data, &mut talk);
        data.as_str().into()
    }

    #[test]
    fn a_diff_can_be_piped_into_patch() {
        let output = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\r\n+b\x1b\n";
        let result = GitResult { output: output.into(), ..Default::default() };
        assert_eq!(data(&result, Look::PIPE), output);
        assert!(data(&result, Look::COLOUR).contains("\x1b[31m-a␍\x1b[0m\n\x1b[32m+b␛\x1b[0m\n"));
    }

    #[test]
    fn a_commit_without_words_gives_its_id() {
        let result = GitResult { commit: "c0ffee".into(), ..Default::default() };
        assert_eq!(data(&result, Look::PIPE), "commit c0ffee\n");
    }
}
