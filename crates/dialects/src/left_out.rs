//! Tests every empty answer in every dialect: it names the left-out files, and how to see them in the caller's own names.

use operations::{GlobResult, GrepResult, LeftOut, ListResult, OpResult};

use super::arguments::parameters;
use super::{Made, find, names};

#[test]
fn an_empty_answer_lists_omissions_and_how_to_see_them() {
    let left_out = Some(LeftOut { ignored: 9, hidden: 1, binary: 2, ..LeftOut::default() });
    let canonical = "set include_ignored for hidden and ignored ones";
    let of_list = "set include_hidden, or include_symlinks for links";
    let hint = |verb: &str, how: &str| {
        format!("12 files or directories not {verb}: 9 ignored, 1 hidden, 2 binary; {how}")
    };
    for dialect in names().into_iter().map(|name| find(name).unwrap()) {
        for tool in dialect.tools() {
            let results = [
                (
                    "grep",
                    OpResult::Grep(GrepResult {
                        hint: hint("searched", canonical),
                        left_out,
                        ..Default::default()
                    }),
                ),
                (
                    "glob",
                    OpResult::Glob(GlobResult {
                        hint: hint("looked at", canonical),
                        left_out,
                        ..Default::default()
                    }),
                ),
                (
                    "list",
                    OpResult::List(ListResult {
                        hint: hint("shown", of_list),
                        left_out,
                        ..Default::default()
                    }),
                ),
            ];
            for (operation, result) in results {
                if !tool.operations.contains(&operation) {
                    continue;
                }
                let text = dialect.render(&Made::new(tool.name, None), &Ok(result));
                let what = format!("{} {} {operation}: {text}", dialect.name(), tool.name);
                assert!(text.contains("9 ignored, 1 hidden, 2 binary; to see one, "), "{what}");
                assert!(!text.contains("include_") && !text.contains("(empty directory)"), "{what}");
                let own = parameters(&tool.schema).map(|parameter| parameter.name);
                let own: Vec<&str> = own.filter(|name| text.contains(&format!(" {name}"))).collect();
                assert!(!own.is_empty(), "{what}");
            }
        }
    }
}

#[test]
fn answer_with_matches_keeps_unintended_omissions() {
    let matches = vec![operations::GrepMatch {
        path: "@project/a".into(),
        line: 1,
        text: "x".into(),
        ..Default::default()
    }];
    let hint = "2 files or directories not searched: 2 unreadable".to_owned();
    let left_out = Some(LeftOut { unreadable: 2, ..LeftOut::default() });
    let result = Ok(OpResult::Grep(GrepResult { matches, hint, left_out, ..Default::default() }));
    for dialect in names().into_iter().map(|name| find(name).unwrap()) {
        for tool in dialect.tools().iter().filter(|tool| tool.operations.contains(&"grep")) {
            let text = dialect.render(&Made::new(tool.name, None), &result);
            assert!(text.contains("2 unreadable"), "{} {}: {text}", dialect.name(), tool.name);
        }
    }
}
