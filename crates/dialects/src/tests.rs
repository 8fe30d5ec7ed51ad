use operations::{Operation, Reason, ToolFailure};
use serde_json::{Value, json};

use super::arguments::parameters;
use super::tool::RENAMED;
use super::{
    Consent, DEFAULT, Denied, Dialect, Effect, Format, Limits, Offer, Policy, Tool, find, names,
    render_canonical, render_canonical_pending,
};

fn dialects() -> impl Iterator<Item = &'static dyn Dialect> {
    names().into_iter().map(|name| find(name).unwrap())
}

/// The arguments that a tool's description shows.
fn example(tool: &Tool) -> &str {
    tool.description.split_once("Example: ").unwrap().1
}

#[test]
fn dialects_are_found_by_their_exact_name() {
    assert_eq!(names(), ["code", "native", "fs", "exec", "gateway", "forge", "editor"]);
    assert!(find(DEFAULT).is_some());
    for name in names() {
        assert_eq!(find(name).unwrap().name(), name);
    }
    for unknown in ["", "FS", "native ", "mcp"] {
        assert!(find(unknown).is_none(), "{unknown}");
    }
}

#[test]
fn the_example_of_every_tool_becomes_one_of_its_operations() {
    for dialect in dialects() {
        for tool in dialect.tools() {
            for name in [tool.name, &tool.undotted_name()] {
                let operation = dialect.parse(name, example(tool), &Limits::default()).unwrap();
                assert!(tool.operations.contains(&operation.name()), "{name}: {operation:?}");
                assert!(
                    operation.has_effect()
                        || tool.effect == Effect::Reads
                        || matches!(tool.name, "git_operation" | "git")
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
        let failure = dialect.parse("rm\u{1b}[2J", "{}", &Limits::default()).unwrap_err();
        assert_eq!(failure.reason, Reason::NotFound);
        assert!(!failure.message.contains('\u{1b}'));
        for tool in dialect.tools() {
            assert!(failure.message.contains(tool.name), "{}", failure.message);
        }
    }
}

#[test]
fn arguments_that_are_not_objects_are_refused_briefly() {
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
            let failure = dialect.parse(tool, json, &Limits::default()).unwrap_err();
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
            for parameter in parameters(&tool.schema) {
                let mut wrong = good.clone();
                wrong[parameter.name] = json!({"an": "object"});
                let failure = dialect.parse(tool.name, &wrong.to_string(), &Limits::default()).unwrap_err();
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
            for parameter in parameters(&tool.schema).filter(|parameter| parameter.required) {
                for absent in [false, true] {
                    let mut wrong = good.clone();
                    if absent {
                        wrong.as_object_mut().unwrap().remove(parameter.name);
                    } else {
                        wrong[parameter.name] = Value::Null;
                    }
                    let failure =
                        dialect.parse(tool.name, &wrong.to_string(), &Limits::default()).unwrap_err();
                    assert_eq!(failure.field.as_deref(), Some(parameter.name), "{}", tool.name);
                }
            }
            let mut wrong = good;
            wrong["force"] = true.into();
            let failure = dialect.parse(tool.name, &wrong.to_string(), &Limits::default()).unwrap_err();
            assert_eq!(failure.field.as_deref(), Some("force"), "{}", tool.name);
            assert!(failure.message.contains("it takes "), "{}", failure.message);
        }
    }
}

#[test]
fn every_renamed_argument_belongs_to_a_tool_of_its_operation() {
    for (field, name) in RENAMED {
        let leads = |tool: &Tool| {
            let operation = field.split('.').next().unwrap();
            tool.operations.iter().any(|known| known.split('.').next() == Some(operation))
        };
        let takes = |tool: &Tool| parameters(&tool.schema).any(|parameter| parameter.name == name);
        assert!(dialects().flat_map(Dialect::tools).any(|tool| leads(tool) && takes(tool)), "{field} {name}");
    }
}

#[test]
fn null_counts_as_a_missing_optional_argument() {
    for dialect in dialects() {
        for tool in dialect.tools() {
            let good: Value = serde_json::from_str(example(tool)).unwrap();
            let mut with_nulls = good.clone();
            for parameter in parameters(&tool.schema).filter(|parameter| good.get(parameter.name).is_none()) {
                with_nulls[parameter.name] = Value::Null;
            }
            assert_eq!(
                dialect.parse(tool.name, &with_nulls.to_string(), &Limits::default()),
                dialect.parse(tool.name, &good.to_string(), &Limits::default())
            );
        }
    }
}

static NOTHING_DENIED: Denied = Denied { builtin: false, names: Vec::new() };

/// Nothing asks.
fn offer<'a>(dialect: &'static dyn Dialect, permitted: &'a dyn Fn(&str) -> bool) -> Offer<'a> {
    let policy = Policy { permitted, consent: &|_| Consent::Free, denied: &NOTHING_DENIED, network: None };
    Offer { dialect, policy, limits: Limits::default() }
}

#[test]
fn tools_are_listed_in_every_format() {
    for dialect in dialects() {
        for (format, name) in
            [(Format::OpenAi, "openai"), (Format::Anthropic, "anthropic"), (Format::Mcp, "mcp")]
        {
            let tools = offer(dialect, &|_| true).list(format);
            insta::assert_json_snapshot!(format!("{}_{name}", dialect.name()), tools);
        }
        if let Some(prompt) = offer(dialect, &|_| true).prompt() {
            insta::assert_snapshot!(format!("{}_prompt", dialect.name()), prompt);
        }
    }
}

#[test]
fn names_fit_the_vendors() {
    for dialect in dialects() {
        for (format, pointer) in [(Format::OpenAi, "/function/name"), (Format::Anthropic, "/name")] {
            for tool in offer(dialect, &|_| true).list(format).as_array().unwrap() {
                let name = tool.pointer(pointer).unwrap().as_str().unwrap();
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
                assert!((1..=64).contains(&name.len()) && name.bytes().all(fits), "{name}");
            }
        }
    }
}

#[test]
fn descriptions_state_the_limits_of_the_run() {
    let limits = Limits {
        max_read_bytes: 7_001,
        max_write_bytes: 7_002,
        max_edit_bytes: 7_004,
        max_output_bytes: 7_003,
        default_timeout_s: 17,
        max_timeout_s: 18,
        ..Limits::default()
    };
    let mut all = String::new();
    for dialect in dialects() {
        let offer = Offer { limits, ..offer(dialect, &|_| true) };
        let said = offer.list(Format::Mcp).to_string() + &offer.prompt().unwrap_or_default();
        for name in ["{max_", "{default_", "50,000", "100,000"] {
            assert!(!said.contains(name), "{}: {name}", dialect.name());
        }
        all += &said;
    }
    for value in ["7,001 bytes", "7,002 bytes", "7,003 bytes", "7,004 bytes", "17 seconds", "18 seconds"] {
        assert!(all.contains(value), "{value}");
    }
}

#[test]
fn the_first_tool_that_runs_commands_has_the_network_in_words() {
    let words = "You can reach: files.example.org over HTTPS. `evil`\u{202e}\nUDP does not leave the run.";
    let said =
        "Network: You can reach: files.example.org over HTTPS. `evil`\\u{202e}\\nUDP does not leave the run.";
    for dialect in dialects() {
        let mut offer = offer(dialect, &|_| true);
        let count = |text: &str, part: &str| text.matches(part).count();
        let (closed, prompt) = (offer.list(Format::OpenAi).to_string(), offer.prompt());
        offer.policy.network = Some(words);
        let open = offer.list(Format::Anthropic);
        let descriptions: Vec<&str> =
            open.as_array().unwrap().iter().map(|tool| tool["description"].as_str().unwrap()).collect();
        let open = descriptions.join("\n");
        let runs = dialect.tools().iter().filter(|tool| crate::network::runs_commands(tool)).count();
        let (name, some) = (dialect.name(), runs.min(1));
        assert_eq!(count(&closed, "There is no network."), runs, "{name}");
        assert_eq!(count(&open, said), some, "{name}: {open}");
        assert_eq!(count(&open, "The network is that of `"), runs - some, "{name}");
        if let Some(prompt) = prompt {
            assert_eq!(count(&prompt, "There is no network."), 1, "{name}");
            assert_eq!(count(&offer.prompt().unwrap(), said), 1, "{name}");
        }
        let hints = offer.list(Format::Mcp);
        let hints =
            hints.as_array().unwrap().iter().filter(|tool| tool["annotations"]["openWorldHint"] == true);
        assert_eq!(hints.count(), runs, "{name}");
    }
}

#[test]
fn strict_is_set_if_nothing_is_optional_or_open() {
    let strict: Vec<String> = dialects()
        .flat_map(|dialect| offer(dialect, &|_| true).list(Format::OpenAi).as_array().unwrap().clone())
        .filter(|tool| tool["function"]["strict"] == true)
        .map(|tool| {
            let parameters = &tool["function"]["parameters"];
            let properties: Vec<&String> = parameters["properties"].as_object().unwrap().keys().collect();
            assert_eq!(parameters["additionalProperties"], false);
            assert_eq!(parameters["required"].as_array().unwrap().len(), properties.len());
            tool["function"]["name"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(strict, ["write", "patch", "fs_list", "write_file", "delete_file", "write", "glob", "create"]);
}

#[test]
fn annotations_tell_readers_from_writers() {
    for dialect in dialects() {
        for tool in offer(dialect, &|_| true).list(Format::Mcp).as_array().unwrap() {
            let hints = &tool["annotations"];
            for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
                assert!(hints[hint].is_boolean(), "{tool}");
            }
            let reads = dialect.tool(tool["name"].as_str().unwrap()).unwrap().effect == Effect::Reads;
            assert_eq!(hints["readOnlyHint"], reads, "{tool}");
            assert!(
                !reads || (hints["destructiveHint"] == false && hints["idempotentHint"] == true),
                "{tool}"
            );
            assert_eq!(hints["openWorldHint"], false);
        }
    }
}

#[test]
fn json_dialects_declare_their_result_schemas() {
    let with: Vec<&str> = dialects()
        .filter(|dialect| dialect.tools().iter().all(|tool| dialect.output_schema(tool).is_some()))
        .map(Dialect::name)
        .collect();
    assert_eq!(with, ["fs", "exec", "gateway"]);
}

#[test]
fn only_usable_tools_are_listed() {
    let offered = |dialect: &str, permitted: &[&str]| {
        let permitted = |operation: &str| permitted.contains(&operation);
        let tools = offer(find(dialect).unwrap(), &permitted).list(Format::Mcp);
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.as_array().unwrap().iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(offered("fs", &["read", "grep"]), ["fs.read", "fs.search"]);
    assert_eq!(offered("native", &["git.status", "exec.read_only"]), ["git_operation", "bash_command"]);
    assert_eq!(offered("native", &["exec"]), ["bash_command"]);
    assert_eq!(offered("native", &[]), Vec::<String>::new());
}

#[test]
fn a_refused_path_is_rendered_with_mount_path_and_reason() {
    let failure =
        find("fs").unwrap().parse("fs.read", r#"{"path":"@pkg/a/../../x"}"#, &Limits::default()).unwrap_err();
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
    let write = operations::WriteResult {
        path: "@project/a".into(),
        bytes_written: 3,
        sha256_before: String::new(),
        sha256_after: "ab".into(),
        created: true,
        entries: 0,
    };
    assert_eq!(
        render_canonical(&Ok(operations::OpResult::Write(write))),
        r#"{"ok":true,"path":"@project/a","bytes_written":3,"sha256_before":"","sha256_after":"ab","created":true}"#
    );
    let ended = || operations::ExecResult { stdout: "hi\n".into(), exit_code: Some(3), ..Default::default() };
    let script = render_canonical(&Ok(operations::OpResult::Shell(ended())));
    assert_eq!(
        script,
        render_canonical(&Ok(operations::OpResult::Exec(ended()))),
        "a script reads like a command"
    );
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

#[test]
fn a_command_that_is_given_no_time_has_the_profile_s() {
    let within = |default_timeout_s: u64, dialect: &str, tool: &str, arguments: Value| {
        let limits = Limits { default_timeout_s, ..Limits::default() };
        let made = find(dialect).unwrap().parse(tool, &arguments.to_string(), &limits).unwrap();
        made.command_timeout().unwrap().as_millis()
    };
    // Where the dialect's own document says thirty seconds, a profile that gives more changes nothing.
    assert_eq!(within(60, "exec", "exec", json!({"command": "ls", "args": []})), 60_000);
    assert_eq!(within(60, "native", "bash_command", json!({"command": "wc"})), 30_000);
    assert_eq!(within(60, "gateway", "run_command", json!({"command": "ls"})), 30_000);
    assert_eq!(within(60, "gateway", "run_command", json!({"command": "ls", "timeout_ms": 60_000})), 60_000);
    assert_eq!(within(60, "forge", "bash", json!({"command": "ls"})), 30_000);
    assert_eq!(within(60, "forge", "bash", json!({"command": "ls", "timeoutMs": 120_000})), 120_000);
    let of_sixty = Limits { default_timeout_s: 60, ..Limits::default() };
    for dialect in ["native", "gateway", "forge"] {
        let offer = Offer { limits: of_sixty, ..offer(find(dialect).unwrap(), &|_| true) };
        let listed = offer.list(Format::Mcp).to_string() + &offer.prompt().unwrap_or_default();
        assert!(listed.contains("after 30 seconds") && !listed.contains("after 60 seconds"), "{dialect}");
    }
    let timeout = |dialect: &str, tool: &str, arguments: Value| within(17, dialect, tool, arguments);
    assert_eq!(timeout("exec", "exec", json!({"command": "ls", "args": []})), 17_000);
    assert_eq!(timeout("native", "bash_command", json!({"command": "wc"})), 17_000);
    assert_eq!(timeout("gateway", "run_command", json!({"command": "ls"})), 17_000);
    assert_eq!(timeout("forge", "bash", json!({"command": "ls"})), 17_000);
    assert_eq!(timeout("forge", "bash", json!({"command": "ls", "timeoutMs": 5})), 5);
    assert_eq!(timeout("gateway", "run_command", json!({"command": "ls", "timeout_ms": 5})), 5);
}
