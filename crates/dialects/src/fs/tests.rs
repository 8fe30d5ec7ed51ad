use jail::SandboxPath;
use operations::{
    Entry, EntryType, FileChange, GrepMatch, GrepResult, ListResult, OpResult, Operation, Outcome,
    PatchResult, PatchedFile, ReadPart, ReadResult, Reason, ToolFailure, WriteResult,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Fs;
use crate::dialect::Dialect as _;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;

fn parse(tool: &str, arguments: &Value) -> Result<Operation, ParseFailure> {
    Fs.parse(tool, &arguments.to_string(), &Limits::default())
}

fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

fn render(outcome: &Outcome) -> Value {
    serde_json::from_str(&Fs.render(&Made::new("", None), outcome)).unwrap()
}

fn refused(tool: &str, arguments: &Value) -> Value {
    let failure = parse(tool, arguments).unwrap_err();
    render(&Err(failure.into()))["error"].clone()
}

#[test]
fn arguments_become_operations() {
    for written in ["@project/a.txt", "./@project/a.txt", "/@project/a.txt", "a.txt"] {
        let Ok(Operation::Read(read)) = parse("fs.read", &json!({"path": written})) else {
            panic!("{written}")
        };
        assert_eq!(read.path, path("@project/a.txt"), "{written}");
    }
    let Ok(Operation::Read(read)) = parse("fs.read", &json!({"path": "@pkg/a", "endLine": 9})) else {
        panic!("not a read")
    };
    assert_eq!((read.path, read.part), (path("@pkg/a"), ReadPart::Lines { first: 1, last: Some(9) }));
    let Ok(Operation::Read(read)) = parse("fs_read", &json!({"path": "/workspace/a"})) else {
        panic!("not a read")
    };
    assert_eq!((read.path, read.part), (path("@project/a"), ReadPart::Whole));
    let Ok(Operation::List(list)) = parse("fs.list", &json!({"path": "@state"})) else {
        panic!("not a list")
    };
    assert_eq!(
        (list.path, list.depth, list.include_hidden, list.max_entries),
        (path("@state"), 1, false, 200)
    );
    let arguments =
        json!({"path": "@project", "pattern": "/a.c/i", "before": 0, "after": 2, "maxMatches": 7});
    let Ok(Operation::Grep(grep)) = parse("fs.search", &arguments) else { panic!("not a grep") };
    assert_eq!((grep.pattern.as_str(), grep.regex, grep.case_insensitive), ("a.c", true, true));
    assert_eq!((grep.before, grep.after, grep.max_matches), (0, 2, 7));
    let Ok(Operation::Grep(grep)) = parse("fs.search", &json!({"path": "@project", "pattern": "a.c"})) else {
        panic!("not a grep")
    };
    assert_eq!((grep.regex, grep.before, grep.after, grep.max_matches), (false, 1, 1, 50));
    let arguments = json!({"path": "@state/a", "content": "ä\0", "ifMatchSha256": "0f".repeat(32)});
    let Ok(Operation::Write(write)) = parse("fs.write", &arguments) else { panic!("not a write") };
    assert_eq!((write.path, write.content), (path("@state/a"), "ä\0".as_bytes().to_vec()));
    assert_eq!((write.if_match_sha256, write.create_only), (Some("0f".repeat(32)), false));
}

#[test]
fn a_patch_of_front_matter_becomes_an_operation() {
    let arguments = json!({"path": "@state/workflow.md", "patch": {
        "operation": "updateFrontmatter",
        "update": {
            "stepsCompleted": {"append": ["a", "b"]},
            "variables": {"set": {"n": 3, "deep": {"x": [null]}}},
            "decisionLog": {"append": [{"why": "because"}]},
            "artifacts": null,
            "currentNodeId": {"set": "next"},
        },
        "ifMatchSha256": "0f".repeat(32),
    }});
    let Ok(Operation::Patch(patch)) = parse("fs.apply_patch", &arguments) else { panic!("not a patch") };
    assert_eq!(patch.paths(), [path("@state/workflow.md")]);
    let operations::PatchChange::FrontMatter(update) = patch.change() else { panic!("no front matter") };
    assert_eq!(update.steps_completed_append, ["a", "b"]);
    assert_eq!(update.variables_json(), r#"{"deep":{"x":[null]},"n":3}"#);
    assert_eq!(update.decisions_json(), [r#"{"why":"because"}"#]);
    assert!(update.artifacts_append.is_empty() && update.updated_at.is_none());
    assert_eq!(update.current_node_id.as_deref(), Some("next"));
    assert_eq!(update.if_match_sha256, Some("0f".repeat(32)));
}

#[test]
fn invalid_patch_argument_is_explained() {
    let refusal = |patch: Value| {
        let error = refused("fs.apply_patch", &json!({"path": "@state/a.md", "patch": patch}));
        assert_eq!(
            (error["code"].as_str(), error["details"]["field"].as_str()),
            (Some("E_SCHEMA_VALIDATION"), Some("patch"))
        );
        error["message"].as_str().unwrap().to_owned()
    };
    let update = |update: Value| refusal(json!({"operation": "updateFrontmatter", "update": update}));
    for (message, expected) in [
        (
            refusal(json!({"operation": "replaceAll", "update": {}})),
            "operation: must be one of updateFrontmatter",
        ),
        (refusal(json!({"operation": "updateFrontmatter"})), "update: is missing"),
        (
            refusal(json!({"operation": "updateFrontmatter", "update": {}, "comment": "x"})),
            "comment: is not an argument of patch; it takes operation, update, ifMatchSha256",
        ),
        (update(json!({"title": {"set": "x"}})), "title: is not an argument of update; it takes "),
        (update(json!({"stepsCompleted": ["a"]})), "stepsCompleted: must be an object"),
        (update(json!({"stepsCompleted": {"append": [1]}})), "append: must be an array of strings"),
        (
            update(json!({"stepsCompleted": {"append": [], "remove": []}})),
            "remove: is not an argument of stepsCompleted; it takes append",
        ),
        (update(json!({"decisionLog": {"append": ["a"]}})), "append: must be an array of objects"),
        (update(json!({"variables": {"set": 1}})), "set: must be an object"),
        (update(json!({})), "changes nothing"),
    ] {
        assert!(message.starts_with("patch: ") && message.contains(expected), "{message}");
    }
    let elsewhere = json!({"path": "@pkg/../a", "patch": {"operation": "updateFrontmatter", "update": {"updatedAt": {"set": "x"}}}});
    assert_eq!(refused("fs.apply_patch", &elsewhere)["details"]["field"], "path");
}

#[test]
fn bad_arguments_are_answered_with_code_and_field() {
    let cases = [
        ("fs.read", json!({"path": "@project/../a"}), "E_SANDBOX_VIOLATION", "path"),
        ("fs.read", json!({"path": "@foo/a"}), "E_SANDBOX_VIOLATION", "path"),
        ("fs.read", json!({"path": "/etc/passwd"}), "E_SANDBOX_VIOLATION", "path"),
        ("fs.read", json!({"path": "C:\\a"}), "E_SANDBOX_VIOLATION", "path"),
        ("fs.read", json!({"path": "@project/\0"}), "E_SANDBOX_VIOLATION", "path"),
        ("fs.list", json!({"path": ""}), "E_SANDBOX_VIOLATION", "path"),
        ("fs.read", json!({"path": "a", "startLine": 5, "endLine": 4}), "E_INTERNAL", "endLine"),
        ("fs.read", json!({"path": "a", "startLine": 0}), "E_SCHEMA_VALIDATION", "startLine"),
        ("fs.read", json!({"path": "a", "endLine": "4"}), "E_SCHEMA_VALIDATION", "endLine"),
        ("fs.search", json!({"path": "a", "pattern": ""}), "E_SCHEMA_VALIDATION", "pattern"),
        ("fs.search", json!({"path": "a", "pattern": "x", "before": -1}), "E_SCHEMA_VALIDATION", "before"),
        ("fs.search", json!({"path": "a", "pattern": "x", "after": 21}), "E_SCHEMA_VALIDATION", "after"),
        (
            "fs.search",
            json!({"path": "a", "pattern": "x", "maxMatches": u64::MAX}),
            "E_SCHEMA_VALIDATION",
            "maxMatches",
        ),
        (
            "fs.write",
            json!({"path": "a", "content": "", "ifMatchSha256": ""}),
            "E_SCHEMA_VALIDATION",
            "ifMatchSha256",
        ),
        (
            "fs.write",
            json!({"path": "a", "content": "", "ifMatchSha256": "0F"}),
            "E_SCHEMA_VALIDATION",
            "ifMatchSha256",
        ),
        ("fs.write", json!({"path": "a", "content": "", "mode": 7}), "E_SCHEMA_VALIDATION", "mode"),
    ];
    for (tool, arguments, code, field) in cases {
        let error = refused(tool, &arguments);
        assert_eq!(
            (&error["code"], &error["details"]["field"]),
            (&json!(code), &json!(field)),
            "{arguments}"
        );
    }
    assert_eq!(refused("fs.delete", &json!({}))["code"], "ENOENT");
}

#[test]
fn a_file_is_content_or_a_preview() {
    let whole = ReadResult {
        path: "@project/a".into(),
        content: "one\ntwo\n".into(),
        size_bytes: 8,
        sha256: "ab".into(),
        total_lines: 2,
        start_line: 1,
        end_line: 2,
        ..ReadResult::default()
    };
    assert_eq!(
        Fs.render(&Made::new("fs.read", None), &Ok(OpResult::Read(whole.clone()))),
        r#"{"ok":true,"path":"@project/a","content":"one\ntwo\n","bytes":8,"sha256":"ab","startLine":1,"endLine":2}"#
    );
    let cut = ReadResult { truncated: true, total_lines: 900, ..whole.clone() };
    assert_eq!(
        render(&Ok(OpResult::Read(cut))),
        json!({
            "ok": true, "path": "@project/a", "contentPreview": "one\ntwo\n", "truncated": true,
            "hint": "the file has 900 lines; read on with startLine=2 and an endLine, or search the file with fs.search",
            "bytes": 8, "sha256": "ab", "startLine": 1, "endLine": 2,
        })
    );
    let one_line = ReadResult { truncated: true, end_line: 1, ..whole.clone() };
    assert_eq!(
        render(&Ok(OpResult::Read(one_line)))["hint"],
        "the file has 2 lines; this line alone is too long to be shown whole; search the file with fs.search"
    );
    let beyond = ReadResult { content: String::new(), start_line: 0, end_line: 0, ..whole.clone() };
    assert_eq!(
        render(&Ok(OpResult::Read(beyond))),
        json!({
            "ok": true, "path": "@project/a", "content": "", "hint": "the file has 2 lines; nothing is there",
            "bytes": 8, "sha256": "ab",
        })
    );
    let binary = ReadResult { binary: true, content: String::new(), start_line: 0, end_line: 0, ..whole };
    assert_eq!(
        render(&Ok(OpResult::Read(binary))),
        json!({
            "ok": true, "path": "@project/a", "contentPreview": "", "truncated": true,
            "hint": "the file is not UTF-8 text, so its content is not shown", "bytes": 8, "sha256": "ab",
        })
    );
}

#[test]
fn a_directory_is_entries_or_a_preview() {
    let entry = |name: &str, entry_type: EntryType| Entry {
        path: format!("@project/{name}"),
        name: name.into(),
        r#type: entry_type.into(),
        size_bytes: 5,
        modified_unix_seconds: 1,
    };
    let entries = vec![entry("a", EntryType::File), entry("b", EntryType::Directory)];
    let list = ListResult {
        path: "@project".into(),
        entries,
        truncated: false,
        total_entries: 2,
        hint: String::new(),
        left_out: None,
    };
    let shown = json!([
        {"name": "a", "path": "@project/a", "type": "file", "bytes": 5},
        {"name": "b", "path": "@project/b", "type": "directory"},
    ]);
    assert_eq!(
        render(&Ok(OpResult::List(list.clone()))),
        json!({"ok": true, "path": "@project", "entries": shown})
    );
    let cut = ListResult { truncated: true, total_entries: 300, ..list };
    assert_eq!(
        render(&Ok(OpResult::List(cut))),
        json!({
            "ok": true, "path": "@project", "entriesPreview": shown, "truncated": true,
            "hint": "the directory has 300 entries or more, of which 2 are shown; list its subdirectories or use \
                     fs.search",
        })
    );
}

#[test]
fn matches_have_the_requested_context() {
    let found = GrepMatch {
        path: "@project/a".into(),
        line: 2,
        text: "two".into(),
        before: vec!["one".into()],
        after: vec![],
    };
    let result =
        GrepResult { matches: vec![found], files_searched: 3, files_matched: 1, ..GrepResult::default() };
    let outcome = Ok(OpResult::Grep(result));
    let stats = json!({"matches": 1, "filesSearched": 3, "filesMatched": 1, "filesSkipped": 0});
    let mut expected = json!({
        "ok": true, "truncated": false, "stats": stats,
        "matches": [{"path": "@project/a", "line": 2, "text": "two", "before": ["one"], "after": []}],
    });
    assert_eq!(render(&outcome), expected);
    let operation = parse("fs.search", &json!({"path": "a", "pattern": "two", "after": 0})).unwrap();
    let text = Fs.render(&Made::new("fs.search", Some(&operation)), &outcome);
    expected["matches"][0].as_object_mut().unwrap().remove("after");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    let cut = GrepResult { truncated: true, ..GrepResult::default() };
    let cut = render(&Ok(OpResult::Grep(cut)));
    assert_eq!(cut["truncated"], true);
    assert!(cut["hint"].as_str().unwrap().contains("maxMatches"));
}

#[test]
fn a_write_reports_size_and_hash() {
    let result = WriteResult {
        path: "@state/a".into(),
        bytes_written: 3,
        sha256_before: "x".into(),
        sha256_after: "ab".into(),
        created: false,
        entries: 0,
    };
    assert_eq!(
        render(&Ok(OpResult::Write(result))),
        json!({"ok": true, "path": "@state/a", "bytesWritten": 3, "sha256After": "ab"})
    );
}

#[test]
fn a_patch_reports_the_hashes_of_all_its_files() {
    let file = |path: &str| PatchedFile {
        path: path.into(),
        change: FileChange::Updated.into(),
        moved_from: String::new(),
        sha256_before: "x".into(),
        sha256_after: "ab".into(),
        bytes_written: 3,
        trash_entry: String::new(),
    };
    let mut result = PatchResult { files: vec![file("@state/a.md")], ..PatchResult::default() };
    let rendered = |result: &PatchResult| render(&Ok(OpResult::Patch(result.clone())));
    assert_eq!(
        rendered(&result),
        json!({"ok": true, "path": "@state/a.md", "sha256Before": "x", "sha256After": "ab"})
    );
    result.notes = vec!["a comment is lost".into()];
    assert_eq!(rendered(&result)["notes"], json!(["a comment is lost"]));
    result.files.push(file("@state/b.md"));
    assert_eq!(rendered(&result)["files"][1]["change"], "updated");
}

#[test]
fn every_reason_has_a_code() {
    let code = |reason| {
        let rendered = render(&Err(ToolFailure::new(reason, "why")));
        assert_eq!((&rendered["ok"], &rendered["error"]["message"]), (&json!(false), &json!("why")));
        assert_eq!(rendered["error"].get("details"), None);
        rendered["error"]["code"].as_str().unwrap().to_owned()
    };
    let codes: Vec<String> = Reason::ALL.into_iter().map(code).collect();
    assert_eq!(
        codes,
        [
            "E_SANDBOX_VIOLATION",
            "E_PERMISSION_DENIED",
            "E_COMMAND_NOT_ALLOWED",
            "E_RATE_LIMITED",
            "E_APPROVAL_DENIED",
            "E_APPROVAL_EXPIRED",
            "E_AWAITING_APPROVAL",
            "E_READ_LIMIT",
            "E_WRITE_LIMIT",
            "E_MEMORY_LIMIT",
            "E_TENANT_LIMIT",
            "E_PRECONDITION_FAILED",
            "E_INVALID_FRONTMATTER",
            "E_SCHEMA_VALIDATION",
            "ENOENT",
            "E_WRONG_NODE",
            "E_PRECONDITION_FAILED",
            "E_IMAGE_MISSING",
            "E_IMAGE_NOT_ALLOWED",
            "E_IMAGE_UNUSABLE",
            "E_TIMED_OUT",
            "E_CANCELLED",
            "E_RUN_NOT_READY",
            "E_RUN_LOST",
            "E_OVERLOADED",
            "E_DAEMON_STOPPING",
            "E_NODE_DRAINED",
            "E_AUDIT_UNAVAILABLE",
            "E_ENGINE_UNAVAILABLE",
            "E_UPSTREAM_FAILED",
            "E_INTERNAL",
        ]
    );
}

#[test]
fn details_are_in_camel_case() {
    let failure =
        ToolFailure::new(Reason::RateLimited, "later").with("retry_after_ms", "9").with("window", "1m");
    assert_eq!(render(&Err(failure))["error"]["details"], json!({"retryAfterMs": "9", "window": "1m"}));
    let pending: Value = serde_json::from_str(&Fs.render_pending(&Made::new("", None), "a-1")).unwrap();
    assert_eq!(pending["error"]["code"], "E_APPROVAL_REQUIRED");
    assert_eq!(pending["error"]["details"], json!({"approvalId": "a-1"}));
}

#[test]
fn results_of_foreign_operations_are_valid() {
    let exec = operations::ExecResult {
        stdout: "hi".into(),
        exit_code: Some(0),
        ..operations::ExecResult::default()
    };
    let rendered = render(&Ok(OpResult::Exec(exec)));
    assert_eq!((&rendered["ok"], &rendered["stdout"]), (&json!(true), &json!("hi")));
}

prop_compose! {
    /// What a file's bytes become on their way here: any text.
    fn hostile()(bytes in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,80}") -> String {
        String::from_utf8_lossy(&bytes).into_owned() + &text
    }
}

proptest! {
    #[test]
    fn any_content_makes_valid_json(
        content in hostile(), name in hostile(), lines in prop::collection::vec(hostile(), 0..4),
        number in any::<u64>(), truncated in any::<bool>(), binary in any::<bool>(),
    ) {
        let read = ReadResult {
            path: name.clone(), content: content.clone(), size_bytes: number, end_line: number, truncated, binary,
            ..ReadResult::default()
        };
        let rendered = render(&Ok(OpResult::Read(read)));
        let key = if truncated || binary { "contentPreview" } else { "content" };
        prop_assert_eq!(&rendered[key], &json!(content));
        prop_assert_eq!(&rendered["bytes"], &json!(number));

        let found = GrepMatch {
            path: name.clone(), line: number, text: content.clone(), before: lines.clone(), after: lines.clone(),
        };
        let grep = GrepResult { matches: vec![found], truncated, ..GrepResult::default() };
        let rendered = render(&Ok(OpResult::Grep(grep)));
        prop_assert_eq!(&rendered["matches"][0]["text"], &json!(content));
        prop_assert_eq!(&rendered["matches"][0]["before"], &json!(lines));

        let entry = Entry {
            path: name.clone(), name: name.clone(), r#type: EntryType::Other.into(), size_bytes: number,
            modified_unix_seconds: 0,
        };
        let list = ListResult { path: name.clone(), entries: vec![entry], truncated, ..ListResult::default() };
        let rendered = render(&Ok(OpResult::List(list)));
        prop_assert_eq!(&rendered[if truncated { "entriesPreview" } else { "entries" }][0]["name"], &json!(name));

        let failure = ToolFailure::new(Reason::Internal, content.clone()).with(&name, content.clone());
        prop_assert_eq!(&render(&Err(failure))["error"]["message"], &json!(content));
    }

    #[test]
    fn any_arguments_are_an_operation_or_a_failure_that_renders(tool in 0..4usize, json in hostile(), path in hostile()) {
        let tool = Fs.tools()[tool].name;
        for json in [json, json!({"path": path, "pattern": path, "content": path}).to_string(), json!({"path": path}).to_string()] {
            if let Err(failure) = Fs.parse(tool, &json, &Limits::default()) {
                prop_assert!(failure.reason != Reason::Internal);
                prop_assert_eq!(&render(&Err(failure.into()))["ok"], &json!(false));
            }
        }
    }
}
