//! `grep` through the API against ripgrep's own time in the same container, over the same tree.
//!
//! ripgrep is a static binary that a stopwatch beside it runs, so that its time is that of its process and not of the
//! exec that brought it in; ours is what the client waits for. Both find by the same rules (ignore files count, hidden
//! files do not), number lines and show one line of context.

use std::time::Duration;

use harness::v1::result::Kind as Answer;
use harness::v1::{GrepRequest, GrepResult, operation::Kind as Operation};

use crate::args::Args;
use crate::contest::{self, Act, Contender, Parts, hold};
use crate::report::{Goal, Report};
use crate::stage::{INSIDE, Stage, succeeded};
use crate::tree::NEEDLE;

/// A question for both.
struct Question {
    title: &'static str,
    pattern: String,
    regex: bool,
    /// The answer has a bound of ours: ripgrep has none for all files together, and gets the same number for each file.
    bounded: bool,
}

/// Matches that are shown, by default.
const MAX_MATCHES: &str = "50";

pub(crate) async fn run(stage: &Stage, args: &Args, report: &mut Report) {
    same_answer(stage).await;
    let question = |title, pattern: &str, regex, bounded| Question {
        title,
        pattern: pattern.to_owned(),
        regex,
        bounded,
    };
    let questions = [
        question("grep, a rare word, the whole tree", NEEDLE, false, false),
        question("grep, an absent word, the whole tree", &format!("{NEEDLE}_not"), false, false),
        question(
            "grep, an absent regular expression, the whole tree",
            r"impl\s+\w+\s+for\s+Quagga\w+",
            true,
            false,
        ),
        question("grep, a common word, the first 50 matches", "return", false, true),
    ];
    for asked in questions {
        let parts = Parts::default();
        let contenders = vec![
            Contender::new("grep", 1, contest::call(stage, request(&asked), &parts, |_| {}).await),
            Contender::new("rg, its own wall time", 1, rg(stage, &asked)),
        ];
        let [grep, rg] = report.contest(asked.title, hold(contenders, args.rounds).await, &parts);
        if !asked.bounded {
            report.goal(Goal::ratio_at_most(format!("{}, against rg", asked.title), grep, rg, 1.0));
        }
    }
}

fn request(asked: &Question) -> Operation {
    Operation::Grep(GrepRequest {
        path: "tree".to_owned(),
        pattern: asked.pattern.clone(),
        regex: asked.regex,
        ..Default::default()
    })
}

/// The arguments that ask ripgrep the same.
fn arguments(asked: &Question) -> Vec<String> {
    let mut words =
        ["--no-config", "--color=never", "--no-require-git", "--line-number", "--context=1"].to_vec();
    if asked.bounded {
        words.extend(["--max-count", MAX_MATCHES]);
    }
    words.extend([if asked.regex { "--regexp" } else { "--fixed-strings" }]);
    words.push(&asked.pattern);
    words.into_iter().map(str::to_owned).chain([format!("{INSIDE}/tree")]).collect()
}

fn rg<'a>(stage: &'a Stage, asked: &Question) -> Act<'a> {
    let argv: Vec<_> =
        [format!("{INSIDE}/stopwatch"), format!("{INSIDE}/rg")].into_iter().chain(arguments(asked)).collect();
    Box::new(move || {
        let argv = argv.clone();
        Box::pin(async move {
            let words: Vec<_> = argv.iter().map(String::as_str).collect();
            let said = String::from_utf8(stage.exec(&words).await).unwrap();
            let nanos = said.split(' ').next().and_then(|nanos| nanos.parse().ok());
            Duration::from_nanos(nanos.unwrap_or_else(|| panic!("the stopwatch says {said:?}")))
        })
    })
}

/// Both must have looked at the same files and have found the needles.
async fn same_answer(stage: &Stage) {
    let asked = Question { title: "", pattern: NEEDLE.to_owned(), regex: false, bounded: false };
    let response = stage.tools().await.call(stage.call(request(&asked))).await.unwrap();
    let Answer::Grep(GrepResult { matches, files_searched, files_skipped, .. }) =
        succeeded(response.into_inner())
    else {
        panic!("no answer of grep")
    };
    let program = format!("{INSIDE}/rg");
    let arguments = arguments(&asked);
    let words: Vec<_> =
        [program.as_str(), "--stats"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let said = String::from_utf8(stage.exec(&words).await).unwrap();
    let count = |what: &str| {
        let line = said.lines().find_map(|line| line.strip_suffix(what)).unwrap_or_else(|| panic!("{said}"));
        line.trim().parse::<u64>().unwrap()
    };
    assert_eq!((matches.len() as u64, 3), (count(" matches"), 3), "{said}");
    assert_eq!(files_searched + files_skipped, count(" files searched"), "{said}");
}
