use ops::{Operation, Reason, ToolFailure};
use serde_json::{Value, json};

use super::{Dialect, Effect, Format, Tool, find, list, names, render_canonical, render_canonical_pending};

fn dialects() -> impl Iterator<Item = &'static dyn Dialect> {
    names().into_iter().map(|name| find(name).unwrap())
}

/// The arguments that a tool's description shows.
fn example(tool: &Tool) -> &str {
    tool.description.split_once("Example: ").unwrap().1
}

#[test]
fn dialects_are_found_by_their_exact_name() {
    assert_eq!(names(), ["native", "fs"]);
    for name in names() {
        assert_eq!(find(name).unwrap().name(), name);
    }
    for unknown in ["", "FS", "native ", "forge"] {
        assert!(find(unknown).is_none(), "{unknown}");
    }
}

#[test]
fn the_example_of_every_tool_becomes_one_of_its_operations() {
    for dialect in dialects() {
        for tool in dialect.tools() {
            for name in [tool.name, &tool.undotted_name()] {
                let operation = dialect.parse(name, example(tool)).unwrap();
                assert!(tool.operations.contains(&operation.name()), "{name}: {operation:?}");
                assert!(
                    operation.has_effect() || tool.effect == Effect::Reads || tool.name == "git_operation"
                );
            }
        }
    }
}

#[test]
fn tools_lead_to_operations_that_exist() {
    for tool in dialects().flat_map(Dialect::tools) {
        for operation in tool.operations {
            assert!(Operation::NAMES.contains(operation) || *operation == "exec.read_only", "{operation}");
        }
    }
}

#[test]
fn an_unknown_tool_is_answered_with_the_names() {
    for dialect in dialects() {
        let failure = dialect.parse("rm\u{1b}[2J", "{}").unwrap_err();
        assert_eq!(failure.reason, Reason::NotFound);
        assert!(!failure.message.contains('\u{1b}'));
        for tool in dialect.tools() {
            assert!(failure.message.contains(tool.name), "{}", failure.message);
        }
    }
}

#[test]
fn what_is_no_object_is_refused_briefly() {
    let deep = format!(r#"{{"path":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let long_string = format!(r#""{}""#, "x".repeat(1024 * 1024));
    let too_long = format!(r#"{{"path":"{}"}}"#, "x".repeat(4 * 1024 * 1024));
    let bad: [&str; 10] = [
        "[]",
        "null",
        "7",
        "{",
        r#"{"path":"a"} {}"#,
        r#"{"path":"a","path":"b"}"#,
        r#"{path:"a"}"#,
        &deep,
        &long_string,
        &too_long,
    ];
    for dialect in dialects() {
        let tool = dialect.tools()[0].name;
        for json in bad {
            let failure = dialect.parse(tool, json).unwrap_err();
            let start: String = json.chars().take(40).collect();
            assert_eq!((failure.reason, failure.field), (Reason::InvalidArgument, None), "{start}");
            assert!(failure.message.len() < 400, "{}", failure.message);
        }
    }
}

#[test]
fn every_argument_is_checked_for_its_kind() {
    for dialect in dialects() {
        for tool in dialect.tools() {
            let good: Value = serde_json::from_str(example(tool)).unwrap();
            for parameter in tool.parameters {
                let mut wrong = good.clone();
                wrong[parameter.name] = json!({"an": "object"});
                let failure = dialect.parse(tool.name, &wrong.to_string()).unwrap_err();
                let expected = (Reason::InvalidArgument, Some(parameter.name));
                assert_eq!((failure.reason, failure.field.as_deref()), expected);
                assert!(failure.message.starts_with(&format!("{}: must be ", parameter.name)));
            }
        }
    }
}

#[test]
fn a_missing_or_an_unknown_argument_is_named() {
    for dialect in dialects() {
        for tool in dialect.tools() {
            let good: Value = serde_json::from_str(example(tool)).unwrap();
            for parameter in tool.parameters.iter().filter(|parameter| parameter.required) {
                for absent in [false, true] {
                    let mut wrong = good.clone();
                    if absent {
                        wrong.as_object_mut().unwrap().remove(parameter.name);
                    } else {
                        wrong[parameter.name] = Value::Null;
                    }
                    let failure = dialect.parse(tool.name, &wrong.to_string()).unwrap_err();
                    assert_eq!(failure.field.as_deref(), Some(parameter.name), "{}", tool.name);
                }
            }
            let mut wrong = good;
            wrong["force"] = true.into();
            let failure = dialect.parse(tool.name, &wrong.to_string()).unwrap_err();
            assert_eq!(failure.field.as_deref(), Some("force"), "{}", tool.name);
            assert!(failure.message.contains("it takes "), "{}", failure.message);
        }
    }
}

#[test]
fn null_stands_for_an_optional_argument_that_is_not_there() {
    for dialect in dialects() {
        for tool in dialect.tools() {
            let good: Value = serde_json::from_str(example(tool)).unwrap();
            let mut with_nulls = good.clone();
            for parameter in tool.parameters.iter().filter(|parameter| good.get(parameter.name).is_none()) {
                with_nulls[parameter.name] = Value::Null;
            }
            assert_eq!(
                dialect.parse(tool.name, &with_nulls.to_string()),
                dialect.parse(tool.name, &good.to_string())
            );
        }
    }
}

#[test]
fn tools_are_listed_in_every_format() {
    for dialect in dialects() {
        for (format, name) in
            [(Format::OpenAi, "openai"), (Format::Anthropic, "anthropic"), (Format::Mcp, "mcp")]
        {
            let tools = list(dialect, format, &|_| true);
            insta::assert_json_snapshot!(format!("{}_{name}", dialect.name()), tools);
        }
    }
}

#[test]
fn names_fit_the_vendors() {
    for dialect in dialects() {
        for (format, pointer) in [(Format::OpenAi, "/function/name"), (Format::Anthropic, "/name")] {
            for tool in list(dialect, format, &|_| true).as_array().unwrap() {
                let name = tool.pointer(pointer).unwrap().as_str().unwrap();
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
                assert!((1..=64).contains(&name.len()) && name.bytes().all(fits), "{name}");
            }
        }
    }
}

#[test]
fn only_what_can_be_of_use_is_listed() {
    let offered = |dialect: &str, permitted: &[&str]| {
        let tools = list(find(dialect).unwrap(), Format::Mcp, &|operation| permitted.contains(&operation));
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.as_array().unwrap().iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(offered("fs", &["read", "grep"]), ["fs.read", "fs.search"]);
    assert_eq!(offered("native", &["git.status", "exec.read_only"]), ["git_operation", "bash_command"]);
    assert_eq!(offered("native", &["exec"]), ["bash_command"]);
    assert_eq!(offered("native", &[]), Vec::<String>::new());
}

#[test]
fn a_refused_path_is_told_with_mount_path_and_reason() {
    let failure = find("fs").unwrap().parse("fs.read", r#"{"path":"@pkg/a/../../x"}"#).unwrap_err();
    let failure = ToolFailure::from(failure);
    assert_eq!(failure.reason, Reason::SandboxViolation);
    let details: Vec<_> =
        failure.details.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        details,
        [("field", "path"), ("mount", "@pkg"), ("path", "a/../../x"), ("refusal", "parent_segment")]
    );
}

#[test]
fn canonical_results_are_the_fields_beside_ok() {
    let write = ops::WriteResult {
        path: "@project/a".into(),
        bytes_written: 3,
        sha256_before: String::new(),
        sha256_after: "ab".into(),
        created: true,
    };
    assert_eq!(
        render_canonical(&Ok(ops::OpResult::Write(write))),
        r#"{"ok":true,"path":"@project/a","bytes_written":3,"sha256_before":"","sha256_after":"ab","created":true}"#
    );
    let ended = || ops::ExecResult { stdout: "hi\n".into(), exit_code: Some(3), ..Default::default() };
    let script = render_canonical(&Ok(ops::OpResult::Shell(ended())));
    assert_eq!(script, render_canonical(&Ok(ops::OpResult::Exec(ended()))), "a script reads like a command");
    assert!(script.starts_with(r#"{"ok":true,"stdout":"hi\n","stderr":"","exit_code":3,"#), "{script}");
    let failure = ToolFailure::new(Reason::NotFound, "no \"such\" file").with("path", "@project/a\n");
    assert_eq!(
        render_canonical(&Err(failure)),
        r#"{"ok":false,"error":{"code":"NOT_FOUND","message":"no \"such\" file","details":{"path":"@project/a\n"}}}"#
    );
    let pending: Value = serde_json::from_str(&render_canonical_pending("0192\"")).unwrap();
    assert_eq!(pending["error"]["code"], "PENDING_APPROVAL");
    assert_eq!(pending["error"]["details"]["approval_id"], "0192\"");
}
