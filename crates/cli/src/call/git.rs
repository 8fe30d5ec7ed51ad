//! `coffer call git`.

use clap::{Args, Subcommand};
use wire::v1::git_request::Command as Wanted;
use wire::v1::operation::Kind as Operation;
use wire::v1::{GitAdd, GitCommit, GitDiff, GitLog, GitRequest, GitResult, GitShow, GitStatus};

use super::exchange::{Fetch, Pull, Push};
use super::{CallOptions, Target, make};
use crate::client::Context;
use crate::failure::Ended;
use crate::output::Output;
use crate::quantity::bytes;

/// Use the workspace's git repository, without hooks and filters.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call git 3f2a9c01 diff --stat")]
pub(crate) struct Git {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    options: CallOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show which files have changed.
    #[command(before_help = "Example: coffer call git 3f2a9c01 status")]
    Status,
    /// Show the changes.
    #[command(before_help = "Example: coffer call git 3f2a9c01 diff --cached -- src")]
    Diff(Diff),
    /// Show the commits, newest first.
    #[command(before_help = "Example: coffer call git 3f2a9c01 log -n 5 --oneline main..HEAD -- src")]
    Log(Log),
    /// Show a commit with its changes, or a file or directory at a revision.
    #[command(before_help = "Example: coffer call git 3f2a9c01 show HEAD~1:README.md")]
    Show(Show),
    /// Add files to the index: new, changed and deleted ones.
    #[command(before_help = "Example: coffer call git 3f2a9c01 add README.md")]
    Add {
        /// Everything in the workspace, or everything at the paths given.
        #[arg(short = 'A', long)]
        all: bool,
        /// Files or directories to add.
        #[arg(value_name = "PATH", required_unless_present = "all")]
        paths: Vec<String>,
    },
    /// Create a commit from the index.
    #[command(before_help = "Example: coffer call git 3f2a9c01 commit -m 'Say hello'")]
    Commit {
        /// The commit message.
        #[arg(short, long)]
        message: String,
    },
    /// Get commits of a remote.
    #[command(before_help = "Example: coffer call git 3f2a9c01 fetch origin main")]
    Fetch(Fetch),
    /// Get a remote's commits, and bring the current branch to them.
    #[command(before_help = "Example: coffer call git 3f2a9c01 pull origin main")]
    Pull(Pull),
    /// Give commits to a remote.
    #[command(before_help = "Example: coffer call git 3f2a9c01 push origin HEAD:agent/fix")]
    Push(Push),
}

#[derive(Args, Debug)]
struct Diff {
    /// Compare the index with the last commit.
    #[arg(long)]
    cached: bool,
    /// The same as --cached.
    #[arg(long)]
    staged: bool,
    #[command(flatten)]
    formats: Formats,
    /// Only changes to these paths.
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<String>,
}

#[derive(Args, Debug)]
struct Log {
    /// Maximum number of commits [default: 100].
    #[arg(short = 'n', long, value_name = "N")]
    max_count: Option<u32>,
    #[command(flatten)]
    style: CommitFormat,
    /// The revision to start from, or `A..B` for the commits in B that are not in A [default: HEAD].
    revision: Option<String>,
    /// Only commits that change these paths.
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<String>,
}

#[derive(Args, Debug)]
struct Show {
    #[command(flatten)]
    style: CommitFormat,
    /// A commit or tag, or `REVISION:PATH` for a file or directory of it [default: HEAD].
    revision: Option<String>,
    /// Only changes to these paths.
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<String>,
}

#[derive(Args, Debug)]
struct CommitFormat {
    /// Print an id and the first line of the message.
    #[arg(long)]
    oneline: bool,
    /// Leave out the changes.
    #[arg(short = 's', long)]
    no_patch: bool,
    #[command(flatten)]
    formats: Formats,
}

#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is one of git's flags
struct Formats {
    /// Print how much has changed in each file.
    #[arg(long)]
    stat: bool,
    /// Print only the last line of --stat.
    #[arg(long)]
    shortstat: bool,
    /// Like --stat, for programs.
    #[arg(long)]
    numstat: bool,
    /// Print only the names of changed files.
    #[arg(long)]
    name_only: bool,
    /// Print the names, and how each file has changed.
    #[arg(long)]
    name_status: bool,
    /// Accepted for compatibility: the output never has colour.
    #[arg(long)]
    no_color: bool,
}

impl Git {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let operation = GitRequest { command: Some(self.command.wanted()) };
        make(context, &self.target, self.options, Operation::Git(operation)).await
    }
}

impl Command {
    fn wanted(self) -> Wanted {
        match self {
            Self::Status => Wanted::Status(GitStatus {}),
            Self::Diff(diff) => Wanted::Diff(diff.wanted()),
            Self::Log(log) => Wanted::Log(GitLog {
                flags: log.style.flags(),
                max_count: log.max_count,
                revision: log.revision.unwrap_or_default(),
                paths: log.paths,
            }),
            Self::Show(show) => Wanted::Show(GitShow {
                flags: show.style.flags(),
                revision: show.revision.unwrap_or_default(),
                paths: show.paths,
            }),
            Self::Add { paths, .. } if paths.is_empty() => Wanted::Add(GitAdd { paths: vec![".".into()] }),
            Self::Add { paths, .. } => Wanted::Add(GitAdd { paths }),
            Self::Commit { message } => Wanted::Commit(GitCommit { message }),
            Self::Fetch(fetch) => Wanted::Fetch(fetch.wanted()),
            Self::Pull(pull) => Wanted::Pull(pull.wanted()),
            Self::Push(push) => Wanted::Push(push.wanted()),
        }
    }
}

impl Diff {
    fn wanted(self) -> GitDiff {
        let mut flags = given(&[(self.cached, "--cached"), (self.staged, "--staged")]);
        flags.extend(self.formats.flags());
        GitDiff { flags, paths: self.paths }
    }
}

impl CommitFormat {
    fn flags(&self) -> Vec<String> {
        let mut flags = given(&[(self.oneline, "--oneline"), (self.no_patch, "--no-patch")]);
        flags.extend(self.formats.flags());
        flags
    }
}

impl Formats {
    fn flags(&self) -> Vec<String> {
        given(&[
            (self.stat, "--stat"),
            (self.shortstat, "--shortstat"),
            (self.numstat, "--numstat"),
            (self.name_only, "--name-only"),
            (self.name_status, "--name-status"),
            (self.no_color, "--no-color"),
        ])
    }
}

fn given(flags: &[(bool, &str)]) -> Vec<String> {
    flags.iter().filter(|(given, _)| *given).map(|(_, flag)| (*flag).to_owned()).collect()
}

/// Prints the output. A diff is coloured on a terminal.
pub(super) fn render(result: &GitResult, data: &mut Output, talk: &mut Output) {
    if result.output.starts_with("diff --git ") {
        data.raw_diff(&result.output);
    } else {
        data.raw(&result.output).end_line();
    }
    if result.output.is_empty() && !result.commit.is_empty() {
        data.own("commit ").word(&result.commit).own("\n");
    }
    let missing = format!("{} left out; name paths to narrow the output", bytes(result.omitted_bytes));
    talk.cut_short(result.truncated, &missing);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::output::Look;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        git: Git,
    }

    fn wanted(line: &str) -> Option<(bool, Wanted)> {
        let line = Line::try_parse_from(line.split(' ')).ok()?;
        Some((line.git.options.wait, line.git.command.wanted()))
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
        let all = Wanted::Add(GitAdd { paths: vec![".".into()] });
        assert_eq!(wanted("git r add -A"), Some((false, all.clone())));
        assert_eq!(wanted("git r add --all"), Some((false, all)));
        assert_eq!(wanted("git r add -A a"), Some((false, Wanted::Add(GitAdd { paths: vec!["a".into()] }))));
        assert_eq!(
            wanted("git r log -n 5 --oneline --stat main..HEAD -- a"),
            Some((
                false,
                Wanted::Log(GitLog {
                    flags: vec!["--oneline".into(), "--stat".into()],
                    max_count: Some(5),
                    revision: "main..HEAD".into(),
                    paths: vec!["a".into()],
                })
            ))
        );
        assert_eq!(wanted("git r log"), Some((false, Wanted::Log(GitLog::default()))));
        let show = GitShow { flags: vec!["--no-patch".into()], revision: "HEAD:a".into(), paths: Vec::new() };
        assert_eq!(wanted("git r show -s HEAD:a"), Some((false, Wanted::Show(show))));
        assert_eq!(wanted("git r log a b"), None);
        assert_eq!(wanted("git r log --all"), None);
        assert_eq!(wanted("git r show --ext-diff"), None);
        assert_eq!(wanted("git r add"), None);
        assert_eq!(wanted("git r commit"), None);
        assert!(matches!(wanted("git r fetch"), Some((false, Wanted::Fetch(_)))));
        assert!(matches!(wanted("git r pull --wait"), Some((true, Wanted::Pull(_)))));
        assert!(matches!(wanted("git r push origin"), Some((false, Wanted::Push(_)))));
        assert_eq!(wanted("git r push --force"), None);
        assert_eq!(wanted("git r diff --ext-diff"), None);
    }

    fn data(result: &GitResult, look: Look) -> String {
        let (mut data, mut talk) = (Output::new(look), Output::new(Look::PIPE));
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
