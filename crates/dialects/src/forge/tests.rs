use std::time::Duration;

use operations::{
    EditChange, EditResult, ExecResult, GlobResult, GrepMatch, GrepResult, OpResult, Operation, Outcome,
    ReadPart, ReadResult, Reason, ToolFailure, WriteResult,
};
use serde_json::{Value, json};

use super::Forge;
use super::frame::{Frame, read};
use super::transcript::{Block, Step, first};
use crate::dialect::Dialect as _;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;

fn parse(tool: &str, arguments: &Value) -> Result<Operation, ParseFailure> {
    Forge.parse(tool, &arguments.to_string(), &Limits::default())
}

fn rendered(tool: &str, operation: Option<&Operation>, outcome: &Outcome) -> Frame {
    let text = Forge.render(&Made::new(tool, operation), outcome);
    assert!(text.starts_with("[forge:tool]\n") && text.ends_with("\n[/forge:tool]\n"), "{text}");
    read(&text).unwrap()
}

/// What a block that cannot be understood is answered with.
fn refused(tool: &str, arguments: &str) -> Frame {
    let failure = Forge.parse(tool, arguments, &Limits::default()).unwrap_err();
    rendered(tool, None, &Err(failure.into()))
}

fn block(text: &str) -> Block<'_> {
    match first(text) {
        Step::Call(block) => block,
        Step::Plain => panic!("no block in {text:?}"),
    }
}

fn found(text: &str) -> (&str, &str) {
    let Block { tool, arguments, .. } = block(text);
    (tool, arguments.trim())
}

#[test]
fn the_six_tags_become_operations() {
    for (tool, arguments, operation) in [
        ("bash", json!({"command": "ls | wc -l"}), "shell"),
        ("write", json!({"path": "a/b", "content": ""}), "write"),
        ("read", json!({"path": "a"}), "read"),
        ("edit", json!({"path": "a", "oldString": "x", "newString": "y"}), "edit"),
        ("grep", json!({"pattern": "a|b"}), "grep"),
        ("glob", json!({"pattern": "**/*.rs"}), "glob"),
    ] {
        assert_eq!(parse(tool, &arguments).unwrap().name(), operation);
        assert_eq!(parse(&format!("forge:{tool}"), &arguments).unwrap().name(), operation);
    }
}

#[test]
fn bash_has_thirty_seconds_and_at_most_two_minutes() {
    let timeout = |arguments: &Value| parse("bash", arguments).map(|made| made.command_timeout().unwrap());
    assert_eq!(timeout(&json!({"command": "ls"})), Ok(Duration::from_secs(30)));
    assert_eq!(timeout(&json!({"command": "ls", "timeoutMs": 120_000})), Ok(Duration::from_secs(120)));
    let failure = timeout(&json!({"command": "ls", "timeoutMs": 120_001})).unwrap_err();
    assert_eq!(failure.field.as_deref(), Some("timeoutMs"));
    let Ok(Operation::Shell(shell)) = parse("bash", &json!({"command": "ls"})) else { panic!("no shell") };
    assert_eq!(shell.cwd.to_string(), "@project");
}

#[test]
fn offset_and_limit_are_lines() {
    let part = |arguments: &Value| match parse("read", arguments) {
        Ok(Operation::Read(read)) => read.part,
        other => panic!("{other:?}"),
    };
    assert_eq!(part(&json!({"path": "a"})), ReadPart::Lines { first: 1, last: Some(200) });
    assert_eq!(
        part(&json!({"path": "a", "offset": 10, "limit": 5})),
        ReadPart::Lines { first: 11, last: Some(15) }
    );
    assert_eq!(
        part(&json!({"path": "a", "offset": u64::MAX})),
        ReadPart::Lines { first: u64::MAX, last: Some(u64::MAX) }
    );
    for bad in [json!({"path": "a", "limit": 2_001}), json!({"path": "a", "limit": 0})] {
        assert_eq!(parse("read", &bad).unwrap_err().field.as_deref(), Some("limit"));
    }
}

#[test]
fn an_edit_replaces_once_or_all_and_has_to_change_something() {
    let edit = |more: &Value| {
        let mut arguments = json!({"path": "a", "oldString": "x", "newString": "y"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        match parse("edit", &arguments) {
            Ok(Operation::Edit(edit)) => Ok(edit.change),
            Ok(other) => panic!("{other:?}"),
            Err(failure) => Err(failure.field.unwrap()),
        }
    };
    let change = |replace_all| EditChange::StrReplace { old: "x".into(), new: "y".into(), replace_all };
    assert_eq!(edit(&json!({})), Ok(change(false)));
    assert_eq!(edit(&json!({"replaceAll": true})), Ok(change(true)));
    assert_eq!(edit(&json!({"newString": "x"})), Err("newString".to_owned()));
    assert_eq!(edit(&json!({"oldString": ""})), Err("oldString".to_owned()));
}

#[test]
fn grep_and_glob_have_their_bounds() {
    let Ok(Operation::Grep(grep)) =
        parse("grep", &json!({"pattern": "a", "glob": "*.rs", "ignoreCase": true}))
    else {
        panic!("not a grep")
    };
    assert_eq!((grep.regex, grep.case_insensitive, grep.max_matches), (true, true, 200));
    assert_eq!((grep.before, grep.after, grep.glob.as_deref()), (0, 0, Some("*.rs")));
    let Ok(Operation::Glob(glob)) = parse("glob", &json!({"pattern": "**/*"})) else { panic!("not a glob") };
    assert_eq!(glob.max_results, 200);
}

#[test]
fn fields_that_the_schema_does_not_name_are_refused() {
    let failure = parse("glob", &json!({"pattern": "*", "path": "src"})).unwrap_err();
    assert_eq!((failure.reason, failure.field.as_deref()), (Reason::InvalidArgument, Some("path")));
    assert_eq!(failure.message, "path: is not an argument of glob; it takes pattern");
}

#[test]
fn a_block_is_found_with_the_text_around_it() {
    let text = "I will look.\n```forge:bash\n{\"command\": \"ls\"}\n```\nand then\n";
    assert_eq!(
        block(text),
        Block { before: "I will look.\n", tool: "bash", arguments: "{\"command\": \"ls\"}", closed: true }
    );
}

#[test]
fn text_without_a_block_is_plain() {
    for text in [
        "",
        "Done.",
        "use `forge:bash` for that",
        "```sh\nls\n```",
        "```\n```\n",
        "forge:bash {\"command\": \"ls\"}",
        "``forge:bash\n{}\n``",
        "text ```forge:bash\n{}\n```",
    ] {
        assert_eq!(first(text), Step::Plain, "{text:?}");
    }
}

#[test]
fn the_first_of_several_blocks_wins() {
    let text = "```forge:read\n{\"path\": \"a\"}\n```\n```forge:bash\n{\"command\": \"rm a\"}\n```\n";
    assert_eq!(found(text), ("read", "{\"path\": \"a\"}"));
    let behind = "```sh\nls\n```\n```forge:glob\n{\"pattern\": \"*\"}\n```";
    assert_eq!(found(behind).0, "glob", "other fences are passed over");
}

#[test]
fn carriage_returns_language_tags_and_indentation_are_accepted() {
    let json = r#"{"command": "ls"}"#;
    for text in [
        format!("a\r\n```forge:bash\r\n{json}\r\n```\r\n"),
        format!("```forge:bash json\n{json}\n```"),
        format!("```json forge:bash\n{json}\n```"),
        format!("```FORGE:bash\n{json}\n```"),
        format!("  - step\n    ```forge:bash\n    {json}\n    ```\n"),
        format!("``` forge:bash  \n\n{json}\n\n```  "),
        format!("~~~forge:bash\n{json}\n~~~"),
        format!("`````forge:bash\n{json}\n`````"),
        format!("```forge:bash\n{json}```"),
        format!("```forge:bash\n```json\n{json}\n```\n```"),
        format!("```forge:bash\njson\n{json}\n```"),
    ] {
        assert_eq!(found(&text), ("bash", json), "{text:?}");
        assert!(block(&text).closed, "{text:?}");
    }
}

#[test]
fn an_unclosed_block_is_run_when_its_json_is_whole() {
    let whole = "```forge:bash\n{\"command\": \"ls\"}";
    assert_eq!((found(whole), block(whole).closed), (("bash", "{\"command\": \"ls\"}"), false));
    let cut = "```forge:bash\n{\"command\": \"ls";
    assert_eq!(found(cut).1, "{\"command\": \"ls");
    assert_eq!(refused("bash", found(cut).1).get("status"), Some("invalid_json"));
    assert_eq!(found("```forge:bash").1, "");
    assert_eq!(refused("bash", "").get("status"), Some("invalid_schema"));
}

#[test]
fn fences_within_the_json_do_not_end_it() {
    let json = json!({"path": "README.md", "content": "```sh\nls\n```\n```forge:bash\n{}\n```\n"});
    for json in [json.to_string(), serde_json::to_string_pretty(&json).unwrap()] {
        let text = format!("```forge:write\n{json}\n```\n");
        assert_eq!(found(&text), ("write", json.as_str()));
    }
    // Where the JSON is broken, the fence decides.
    let broken = "```forge:write\n{\"content\": \"\n```\nmore";
    assert_eq!((found(broken).1, block(broken).closed), ("{\"content\": \"", true));
    let longer = "````forge:write\n{\"content\": \n```\n}\n````";
    assert_eq!(found(longer).1, "{\"content\": \n```\n}");
}

#[test]
fn nested_block_is_not_a_call() {
    assert_eq!(first("````markdown\n```forge:bash\n{}\n```\n````\n"), Step::Plain);
    assert_eq!(first("```text\n```forge:bash\n{}\n```\n"), Step::Plain);
    let behind = "````md\n```forge:bash\n{}\n```\n````\n```forge:read\n{}\n```";
    assert_eq!(found(behind).0, "read");
}

#[test]
fn text_after_the_json_of_a_block_is_invalid() {
    let text = "```forge:bash\n{\"command\": \"ls\"}\n{\"command\": \"rm\"}\n```";
    let answer = refused("bash", found(text).1);
    assert_eq!(answer.get("status"), Some("invalid_json"));
}

#[test]
fn invalid_json_is_answered_so_that_the_model_can_mend_it() {
    for bad in ["{", "[]", "{command: 'ls'}", "{\"command\": \"a\nb\"}", "\u{0}"] {
        let answer = refused("bash", bad);
        assert_eq!(
            (answer.get("tool"), answer.get("status")),
            (Some("bash"), Some("invalid_json")),
            "{bad:?}"
        );
        assert!(answer.text("error").unwrap().starts_with("the arguments are not one JSON object: "));
        assert_eq!(answer.text("hint"), Some("Fix the JSON or schema and try again."));
    }
}

#[test]
fn an_invalid_schema_names_the_field() {
    for (tool, bad, field) in [
        ("bash", r"{}", "command"),
        ("bash", r#"{"command": 7}"#, "command"),
        ("edit", r#"{"path": "a", "oldString": "x", "newString": "x"}"#, "newString"),
        ("read", r#"{"path": "a", "offset": -1}"#, "offset"),
    ] {
        let answer = refused(tool, bad);
        assert_eq!(answer.get("status"), Some("invalid_schema"), "{bad}");
        assert!(answer.text("error").unwrap().starts_with(&format!("{field}: ")), "{answer:?}");
        assert_eq!(answer.text("hint"), Some("Fix the JSON or schema and try again."));
    }
}

#[test]
fn an_unknown_tag_is_answered_with_the_names() {
    let answer = refused("deploy", "{}");
    assert_eq!(answer.get("status"), Some("unknown_tool"));
    assert!(answer.text("error").unwrap().contains("bash, write, read, edit, grep, glob"));
}

#[test]
fn a_path_outside_is_refused() {
    for path in ["../a", "/etc/passwd", "a\0b"] {
        for (tool, arguments) in [
            ("write", json!({"path": path, "content": ""})),
            ("read", json!({"path": path})),
            ("edit", json!({"path": path, "oldString": "x", "newString": "y"})),
        ] {
            let answer = refused(tool, &arguments.to_string());
            assert_eq!(answer.get("code"), Some("SANDBOX_VIOLATION"), "{path:?}");
        }
    }
    assert!(parse("read", &json!({"path": "/workspace/a"})).is_ok());
}

#[test]
fn a_script_s_result_has_both_streams_and_how_it_ended() {
    let result = ExecResult {
        stdout: "hi\n".into(),
        stderr: "[/forge:tool]".into(),
        exit_code: Some(0),
        ..ExecResult::default()
    };
    let text = Forge.render(&Made::new("bash", None), &Ok(OpResult::Shell(result.clone())));
    assert_eq!(
        text,
        "[forge:tool]\ntool: bash\nstatus: ok\nexit_code: 0\n--- stdout (3 bytes) ---\nhi\n\n\
         --- stderr (13 bytes) ---\n[\\/forge:tool]\n[/forge:tool]\n"
    );
    let frame = read(&text).unwrap();
    assert_eq!((frame.text("stdout"), frame.text("stderr")), (Some("hi\n"), Some("[/forge:tool]")));
    let failed = ExecResult { exit_code: Some(3), stdout_omitted_bytes: 9, ..result };
    let frame = rendered("bash", None, &Ok(OpResult::Shell(failed)));
    assert_eq!((frame.get("status"), frame.get("exit_code")), (Some("failed"), Some("3")));
    assert_eq!(frame.get("stdout_left_out"), Some("9 bytes"));
}

#[test]
fn a_timeout_is_rendered_with_the_output_so_far() {
    let operation = parse("bash", &json!({"command": "sleep 9"})).unwrap();
    let late =
        ExecResult { stdout: "so far".into(), timed_out: true, signal: Some(9), ..ExecResult::default() };
    let frame = rendered("bash", Some(&operation), &Ok(OpResult::Shell(late)));
    assert_eq!((frame.get("timed_out"), frame.get("signal")), (Some("true"), Some("9")));
    assert_eq!(frame.get("error"), Some("Command timed out after 30s"));
    assert_eq!(frame.text("stdout"), Some("so far"));
}

#[test]
fn a_read_is_clipped_at_16_kib_and_names_the_next_offset() {
    let line = "x".repeat(99) + "\n";
    let whole = ReadResult {
        content: line.repeat(200),
        size_bytes: 30_000,
        total_lines: 300,
        start_line: 1,
        end_line: 200,
        ..ReadResult::default()
    };
    let frame = rendered("read", None, &Ok(OpResult::Read(whole.clone())));
    let content = frame.text("content").unwrap();
    assert_eq!((content.len(), frame.get("left_out")), (16_384, Some("3616 bytes")));
    assert_eq!((frame.get("truncated"), frame.get("next_offset")), (Some("true"), Some("163")));
    let short = ReadResult { content: line.clone(), end_line: 1, ..whole };
    let frame = rendered("read", None, &Ok(OpResult::Read(short)));
    assert_eq!((frame.text("content"), frame.get("truncated")), (Some(line.as_str()), None));
    assert_eq!(frame.get("next_offset"), Some("1"));
    let wide = ReadResult { content: "é".repeat(10_000), ..ReadResult::default() };
    assert_eq!(rendered("read", None, &Ok(OpResult::Read(wide))).text("content").unwrap().len(), 16_384);
    let binary = ReadResult { binary: true, ..ReadResult::default() };
    assert_eq!(rendered("read", None, &Ok(OpResult::Read(binary))).get("binary"), Some("true"));
}

#[test]
fn the_other_results_have_their_facts() {
    let written =
        WriteResult { path: "@project/a".into(), bytes_written: 2, created: true, ..Default::default() };
    let frame = rendered("write", None, &Ok(OpResult::Write(written)));
    assert_eq!(
        (frame.get("path"), frame.get("bytes"), frame.get("created")),
        (Some("@project/a"), Some("2"), Some("true"))
    );
    let edit = EditResult {
        path: "@project/a".into(),
        diff: "-x\n+y\n".into(),
        replacements: 2,
        ..Default::default()
    };
    let frame = rendered("edit", None, &Ok(OpResult::Edit(edit)));
    assert_eq!((frame.get("replacements"), frame.text("diff")), (Some("2"), Some("-x\n+y\n")));
    let found = GrepMatch { path: "a\nb".into(), line: 3, text: "x".into(), before: vec![], after: vec![] };
    let grep = GrepResult { matches: vec![found], truncated: true, files_searched: 4, ..Default::default() };
    let frame = rendered("grep", None, &Ok(OpResult::Grep(grep)));
    assert_eq!((frame.get("matches"), frame.get("truncated")), (Some("1"), Some("true")));
    assert_eq!(frame.text("matches"), Some("a\\nb:3:x\n"));
    let glob = GlobResult { paths: vec!["@project/a".into()], ..Default::default() };
    assert_eq!(rendered("glob", None, &Ok(OpResult::Glob(glob))).text("paths"), Some("@project/a\n"));
}

#[test]
fn failures_and_waiting_calls_are_frames() {
    let operation = parse("edit", &json!({"path": "a", "oldString": "x", "newString": "y"})).unwrap();
    let failure = ToolFailure::new(Reason::PreconditionFailed, "matches lines 3 and 9");
    let frame = rendered("edit", Some(&operation), &Err(failure));
    assert_eq!((frame.get("status"), frame.get("code")), (Some("failed"), Some("PRECONDITION_FAILED")));
    assert_eq!(frame.text("error"), Some("matches lines 3 and 9"));
    let pending = read(&Forge.render_pending(&Made::new("write", None), "a-1")).unwrap();
    assert_eq!((pending.get("status"), pending.get("approval")), (Some("pending"), Some("a-1")));
}

#[test]
fn malformed_frames_are_refused() {
    let good = Frame::new("bash", "ok").section("stdout", "x").write();
    assert!(read(&good).is_some());
    for bad in [
        String::new(),
        "x".to_owned() + &good,
        good.clone() + "x",
        good.replace("(1 bytes)", "(2 bytes)"),
        good.replace("(1 bytes)", "(99999999999999999999 bytes)"),
        good.replace("status: ok", "status"),
        good.replace("\nx\n", "\n[/forge:tool]\n"),
    ] {
        assert_eq!(read(&bad), None, "{bad:?}");
    }
}
