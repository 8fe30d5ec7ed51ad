//! P1: a tree that is changed from inside of the run while it is looked at.

use std::fs;

use harness::v1::operation::Kind as Operation;
use harness::v1::{self, result::Kind as Answer};
use harness::{Daemon, calls};

use crate::inside::exec;
use crate::looking::{ask, assert_modest, enter, look};

/// What the files of the tree consist of.
const LINE: &str = "all lines are alike";
/// Looks of each kind.
const ROUNDS: usize = 100;

/// How a look under changes may end without an answer: beaten, never broken.
const BEATEN: [&str; 4] = ["NOT_FOUND", "SANDBOX_VIOLATION", "INVALID_ARGUMENT", "OVERLOADED"];

#[tokio::test]
async fn p1_a_tree_that_changes_all_the_time_gives_answers_that_were_true() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("tree/still", "all lines are alike\n")]);
    let mut inside = enter(&daemon, &workspace).await;
    fs::set_permissions(&workspace, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mut ready = inside.gate("ready");
    let mut churning = inside.again(&daemon).await;
    let file = workspace.join("tree/file");
    let churn = tokio::spawn(async move {
        let mut request = exec(&["churn", "/workspace/tree", "/workspace/ready", "/workspace/stop"]);
        request.timeout_ms = Some(120_000);
        // All looks together may take longer than a command may.
        loop {
            let result = churning.exec(request.clone()).await;
            if !result.timed_out {
                return result;
            }
            // It may end in the middle of a line.
            fs::remove_file(&file).unwrap();
        }
    });
    ready.passed().await;

    let deep = v1::ListRequest { depth: Some(8), include_symlinks: true, ..ask::list("tree") };
    let operations = [
        calls::read("tree/file"),
        calls::read("tree/changing"),
        calls::read("tree/left/moved/leaf"),
        calls::list("tree/directory/below"),
        calls::grep("tree/changing", "alike"),
        Operation::List(deep),
        Operation::Glob(ask::glob("tree/**/*")),
        calls::grep("tree", "alike"),
    ];
    let (mut answers, mut beaten) = (vec![0; operations.len()], vec![0; operations.len()]);
    for _ in 0..ROUNDS {
        for (kind, operation) in operations.iter().enumerate() {
            match look(&mut inside.run, operation.clone()).await {
                Ok(answer) => {
                    answers[kind] += 1;
                    check(&answer);
                }
                Err(failure) => {
                    beaten[kind] += 1;
                    assert!(BEATEN.contains(&failure.reason.as_str()), "{operation:?}: {failure:?}");
                }
            }
        }
    }
    assert!(!churn.is_finished(), "the tree stood still: {:?}", churn.await);
    fs::write(workspace.join("stop"), "").unwrap();
    let result = churn.await.unwrap();
    assert_eq!(result.exit_code, Some(0), "{}", result.stderr);
    // Walks pass over what has gone: they always have an answer. The others met both.
    assert_eq!(beaten[5..], [0, 0, 0], "{answers:?}");
    assert!(answers[0] > 0 && beaten[1..5].iter().sum::<usize>() > 0, "{answers:?} {beaten:?}");
    assert_modest(&inside);
}

/// Nothing is in an answer that was at no time in the tree.
fn check(answer: &Answer) {
    let alike = |text: &str| text.lines().all(|line| LINE.starts_with(line));
    match answer {
        Answer::Read(read) => {
            assert!(alike(&read.content), "{:?}", read.content.lines().find(|line| *line != LINE));
        }
        Answer::Grep(found) => {
            assert!(found.matches.iter().all(|found| alike(&found.text)), "{:?}", found.matches);
        }
        Answer::List(listed) => {
            assert!(
                listed.entries.iter().all(|entry| entry.path.starts_with("@project/tree/")),
                "{listed:?}"
            );
        }
        Answer::Glob(found) => {
            assert!(found.paths.iter().any(|path| path == "@project/tree/still"), "{found:?}");
        }
        other => panic!("{other:?}"),
    }
}
