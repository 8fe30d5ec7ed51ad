//! Patterns made to be costly, and a search that ends all the same.

use std::fs;
use std::time::Duration;

use harness::Daemon;
use harness::v1::operation::Kind as Operation;
use harness::v1::{self, result::Kind as Answer};

use crate::looking::{ask, assert_modest, enter, look, look_for};

/// What a pattern may come to.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// An answer, or the deadline.
    Ends,
    /// A refusal that says what is wrong with it.
    Refused,
}
use Expected::{Ends, Refused};

#[tokio::test]
async fn p2_a_catastrophic_regular_expression_hangs_nothing() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("other/file", "needle\n")]);
    fs::write(workspace.join("a"), "a".repeat(1 << 20) + "\n").unwrap();
    fs::write(workspace.join("b"), ("ab".repeat(200) + "\n").repeat(20_000)).unwrap();
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;
    let many_words = (0..400).map(|number| format!("w{number}")).collect::<Vec<_>>().join("|");
    let nested = "(".repeat(250) + "a" + &")*".repeat(250);
    let deeper = "(".repeat(2_000) + &")".repeat(2_000);
    for (pattern, expected) in [
        ("(a+)+$b", Ends),
        ("(a|a)*b", Ends),
        ("(a|aa)+c", Ends),
        ("(.*)(.*)(.*)(.*)(.*)[^a]", Ends),
        ("(?:[ab]{1,40}){30}z?[^ab]c", Ends),
        (r"(\w+\s?)+!", Ends),
        (r"\pL{20}\pN{20}\d", Ends),
        (many_words.as_str(), Ends),
        ("a{1000}{1000}", Refused),
        (r"\pL{100}\pN{100}\d", Refused),
        (r"(?:\pL{500}){50}", Refused),
        (nested.as_str(), Refused),
        (deeper.as_str(), Refused),
        ("(", Refused),
        ("a\nb", Refused),
        ("(?=a)", Refused),
        (r"(a)\1", Refused),
        ("[", Refused),
        ("\u{1b}[2J(", Refused),
    ] {
        for case_insensitive in [false, true] {
            let request = v1::GrepRequest {
                regex: true,
                case_insensitive,
                max_matches: Some(1_000),
                ..ask::grep("@project", pattern)
            };
            let came = look_for(run, Duration::from_secs(4), Operation::Grep(request)).await;
            let name: String = pattern.chars().take(40).collect();
            match (came, expected) {
                (Ok(Answer::Grep(_)), Ends) => {}
                (Err(failure), Ends) => {
                    assert_eq!(failure.reason, "TIMED_OUT", "{name}: {failure:?}");
                    assert!(failure.message.contains("give a path further down or a glob"), "{failure:?}");
                }
                (Err(failure), Refused) => {
                    assert_eq!(failure.reason, "INVALID_ARGUMENT", "{name}: {failure:?}");
                    assert!(failure.message.contains("cannot be used for a search"), "{failure:?}");
                    assert!(failure.message.len() < 2_000, "{} bytes of words", failure.message.len());
                }
                (came, _) => panic!("{name}: {came:?}"),
            }
        }
    }
    assert_modest(&inside);
}

#[tokio::test]
async fn p2_a_catastrophic_glob_hangs_nothing() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let deep = workspace.join(format!("{}d", format!("{}/", "a".repeat(200)).repeat(12)));
    fs::create_dir_all(&deep).unwrap();
    for number in 0..500 {
        fs::write(deep.join(format!("{}{number}", "a".repeat(240))), "").unwrap();
    }
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;
    let stars = "*a".repeat(300) + "b";
    let trees = "**/".repeat(300) + "b";
    let choices = "{a,b}".repeat(200);
    let nested = "{".repeat(300) + "a" + &"}".repeat(300);
    let classes = "[!b]".repeat(250);
    for (pattern, expected) in [
        (stars.as_str(), Ends),
        (trees.as_str(), Ends),
        (choices.as_str(), Ends),
        (nested.as_str(), Ends),
        (classes.as_str(), Ends),
        ("{a,b", Refused),
        ("[a", Refused),
        ("a\\", Refused),
        ("/", Refused),
        ("[\u{1b}[2J-\u{1}]", Refused),
    ] {
        let asked = [
            Operation::Glob(ask::glob(pattern)),
            Operation::Grep(v1::GrepRequest { glob: pattern.to_owned(), ..ask::grep("@project", "x") }),
        ];
        for operation in asked {
            match (look(run, operation.clone()).await, expected) {
                (Ok(_), Ends) => {}
                (Err(failure), Ends) => {
                    let known = ["TIMED_OUT", "INVALID_ARGUMENT"].contains(&failure.reason.as_str());
                    assert!(known, "{failure:?}");
                }
                (Err(failure), Refused) => {
                    assert_eq!(failure.reason, "INVALID_ARGUMENT", "{failure:?}");
                    assert!(failure.message.contains("the glob pattern is not valid: "), "{failure:?}");
                }
                (came, _) => panic!("{operation:?}: {came:?}"),
            }
        }
    }
    assert_modest(&inside);
}
