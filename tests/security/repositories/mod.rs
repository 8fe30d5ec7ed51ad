//! The corpus of hostile workspaces: each is made by a small script, met by calls through the API, and must end as its
//! line says. Beside the workspace stands a tree of canaries, as open to the run's owner as a tree can be: it must be
//! the same before and after, byte for byte, and nothing of it may be in any answer.
//!
//! The scripts run as root with the variables `W` (the workspace, where they begin: a repository with a commit, a change
//! and a new file) and `OUT` (the canaries). `sings NAME` prints a command that leaves a trace when anybody runs it.
//! What a script defines as `last` is done after the workspace was given to its owner.

mod git;
mod stage;

use self::stage::{Stage, tree};

/// One hostile workspace.
struct Case {
    /// What is wrong with it.
    name: &'static str,
    script: &'static str,
    does: &'static [Does],
    expect: Expect,
}

/// A call.
#[derive(Debug, Clone, Copy)]
enum Does {
    Status,
    Diff,
    Cached,
    /// `git add`
    Add(&'static str),
    Commit,
    Read(&'static str),
    Write(&'static str),
    List(&'static str),
    Grep(&'static str),
}

/// What must come of every call of a case.
#[derive(Debug, Clone, Copy)]
enum Expect {
    /// A refusal with this reason and these words.
    Refused(&'static str, &'static str),
    /// It is done.
    Done,
    /// Either; by its deadline.
    Ends,
}

const GIT: &[Does] =
    &[Does::Status, Does::Diff, Does::Cached, Does::Add("@project"), Does::Add("a"), Does::Commit];

/// Plays the cases of one threat, one after the other, in one run.
async fn play(cases: &[Case]) {
    let mut stage = Stage::set().await;
    for case in cases {
        stage.prepare(case);
        let before = tree(&stage.canaries);
        for does in case.does {
            stage.call(case, *does).await;
        }
        assert_eq!(tree(&stage.canaries), before, "{}: something outside was changed", case.name);
        stage.is_silent(case);
        stage.still_works(case).await;
    }
}
