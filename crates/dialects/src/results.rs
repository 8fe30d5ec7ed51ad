//! Whatever an outcome holds, every dialect renders it in a form that its other side reads, with the content as it was
//! and sizes that are true.

use operations::{
    EditResult, Entry, EntryType, ExecResult, GitResult, GlobResult, GrepMatch, GrepResult, ListResult,
    McpContent, McpResult, OpResult, Outcome, ReadResult, Reason, ToolFailure, WriteResult,
};
use proptest::prelude::*;
use serde_json::Value;
use wire::v1::mcp_content::Type;

use super::limits::grouped;
use super::{Dialect, Facts, Made, find, forge, names};

/// Generates texts of files, with fences and frames among them.
fn hostile() -> impl Strategy<Value = String> {
    let mark = prop::sample::select(vec![
        "[/forge:tool]\n",
        "[forge:tool]\n",
        "[\\/forge:tool]",
        "```\n",
        "</tool>",
        "\"}",
        "\\",
        "\u{0}",
        "\u{1b}[2J",
        "\u{2028}",
        "\u{feff}",
        "--- stderr (0 bytes) ---\n",
        "\r\n",
        "é",
    ]);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300)
            .prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        prop::collection::vec(mark, 0..12).prop_map(|marks| marks.concat()),
        (1..40_000_usize).prop_map(|length| "x".repeat(length)),
        any::<String>(),
    ]
}

prop_compose! {
    fn texts()(one in hostile(), other in hostile(), name in hostile(), number in any::<u64>(), flags in any::<[bool; 3]>())
        -> Vec<Outcome> {
        let [truncated, binary, timed_out] = flags;
        let exec = ExecResult {
            stdout: one.clone(), stderr: other.clone(), exit_code: (!timed_out).then_some(0), timed_out,
            stdout_bytes: number, stdout_omitted_bytes: number / 2, hint: name.clone(), ..Default::default()
        };
        let found = GrepMatch {
            path: name.clone(), line: number, text: one.clone(), before: vec![other.clone()], after: vec![],
        };
        let entry = Entry {
            path: name.clone(), name: name.clone(), r#type: EntryType::File.into(), size_bytes: number,
            modified_unix_seconds: 0,
        };
        vec![
            Ok(OpResult::Read(ReadResult {
                path: name.clone(), content: if binary { String::new() } else { one.clone() }, size_bytes: number,
                total_lines: number, start_line: number / 2, end_line: number, truncated, binary, ..Default::default()
            })),
            Ok(OpResult::List(ListResult {
                path: name.clone(), entries: vec![entry], truncated, total_entries: number, ..Default::default()
            })),
            Ok(OpResult::Glob(GlobResult { paths: vec![name.clone(), one.clone()], truncated, ..Default::default() })),
            Ok(OpResult::Grep(GrepResult { matches: vec![found], truncated, ..Default::default() })),
            Ok(OpResult::Exec(exec.clone())),
            Ok(OpResult::Shell(exec)),
            Ok(OpResult::Write(WriteResult { path: name.clone(), bytes_written: number, ..Default::default() })),
            Ok(OpResult::Edit(EditResult {
                path: name.clone(), diff: one.clone(), sha256_before: "0".repeat(64), ..Default::default()
            })),
            Ok(OpResult::Git(GitResult { output: one.clone(), truncated, ..Default::default() })),
            Ok(OpResult::Mcp(McpResult {
                server: "s".into(), tool: name.clone(), truncated, omitted_bytes: number,
                content: vec![
                    McpContent { r#type: Type::Text.into(), data: one.clone(), ..Default::default() },
                    McpContent {
                        r#type: Type::ResourceLink.into(), uri: other.clone(), name: name.clone(), mime_type: one.clone(),
                        ..Default::default()
                    },
                ],
                structured_content_json: if binary { serde_json::json!({ &name: one.as_str() }).to_string() } else { String::new() },
                ..Default::default()
            })),
            Err(ToolFailure::new(Reason::Internal, one).with(&name, other)),
        ]
    }
}

/// The file's or command's own text, when the outcome has one that every dialect shows whole.
fn streams(outcome: &Outcome) -> Option<[(&'static str, &str); 2]> {
    let command = outcome.as_ref().ok()?.command()?;
    Some([("stdout", &command.stdout), ("stderr", &command.stderr)])
}

fn check(dialect: &dyn Dialect, tool: &str, outcome: &Outcome) -> Result<(), TestCaseError> {
    let facts = Facts { call_id: "c".into(), agent_id: tool.to_owned(), ..Facts::default() };
    let made = Made::new(tool, None).with(&facts);
    let text = dialect.render(&made, outcome);
    match dialect.name() {
        "fs" | "exec" | "gateway" => {
            let value: Value = serde_json::from_str(&text)
                .map_err(|error| TestCaseError::fail(format!("{}: {error}: {text}", dialect.name())))?;
            let data = if dialect.name() == "gateway" { &value["data"] } else { &value };
            for (name, stream) in streams(outcome).into_iter().flatten() {
                prop_assert_eq!(data[name].as_str(), Some(stream));
            }
            match (outcome, dialect.name()) {
                (Ok(OpResult::Read(read)), "gateway") => {
                    prop_assert_eq!(data["content"].as_str(), Some(read.content.as_str()));
                    prop_assert_eq!(data["size_bytes"].as_u64(), Some(read.size_bytes));
                }
                (Ok(OpResult::Read(read)), "fs") => {
                    let name = if read.truncated || read.binary { "contentPreview" } else { "content" };
                    prop_assert_eq!(data[name].as_str(), Some(read.content.as_str()));
                    prop_assert_eq!(data["bytes"].as_u64(), Some(read.size_bytes));
                }
                (Ok(OpResult::Exec(command)), "exec") => {
                    let left_out = data["stdout_omitted_bytes"].as_u64().unwrap_or_default();
                    prop_assert_eq!(left_out, command.stdout_omitted_bytes);
                }
                _ => {}
            }
        }
        "forge" => {
            let frame = forge::frame::read(&text);
            let Some(frame) = frame else { return Err(TestCaseError::fail(text)) };
            for (name, stream) in streams(outcome).into_iter().flatten() {
                prop_assert_eq!(frame.text(name), Some(stream));
            }
            let left_out: usize =
                frame.get("left_out").map_or(0, |said| said.strip_suffix(" bytes").unwrap().parse().unwrap());
            let shown = |name: &str, whole: &str| {
                frame
                    .text(name)
                    .is_some_and(|text| whole.starts_with(text) && text.len() + left_out == whole.len())
            };
            match outcome {
                Ok(OpResult::Read(read)) => prop_assert!(shown("content", &read.content), "{}", text),
                Ok(OpResult::Edit(edit)) => prop_assert!(shown("diff", &edit.diff), "{}", text),
                Err(failure) => prop_assert!(shown("error", &failure.message), "{}", text),
                _ => {}
            }
        }
        name => plain(name, &text, outcome)?,
    }
    Ok(())
}

/// Plain text: what is said is there with its sizes, and names stay on their lines.
fn plain(dialect: &str, text: &str, outcome: &Outcome) -> Result<(), TestCaseError> {
    match outcome {
        Ok(OpResult::Read(read)) if read.binary => {
            prop_assert!(text.contains(&format!("{} bytes", read.size_bytes)), "{:?}", text);
        }
        Ok(OpResult::Read(read)) if !read.content.is_empty() => {
            let cut =
                format!("[truncated: the file has {} bytes in {} lines; ", read.size_bytes, read.total_lines);
            prop_assert_eq!(
                read.truncated,
                text.contains(&cut) && !read.content.contains(&cut),
                "{:?}",
                text
            );
            if dialect == "native" {
                prop_assert!(text.starts_with(&read.content), "{:?}", text);
                return Ok(());
            }
            // Each line of the file has its number before it, and no other line has one.
            let lines = read.content.strip_suffix('\n').unwrap_or(&read.content).split('\n');
            let numbered: String = (read.start_line.max(1)..)
                .zip(lines)
                .flat_map(|(number, line)| [format!("{number:6}"), "\t".into(), line.into(), "\n".into()])
                .collect();
            prop_assert!(text.starts_with(&numbered), "{:?}", text);
        }
        Ok(OpResult::List(list)) => {
            prop_assert!(text.lines().count() <= 2, "{:?}", text);
            let cut = format!("[truncated: 1 of {} or more entries; ", list.total_entries);
            prop_assert_eq!(list.truncated, text.contains(&cut), "{:?}", text);
        }
        // `code` shows the lines as they are now.
        Ok(OpResult::Edit(edit)) => {
            prop_assert!(dialect == "code" || text.contains(&edit.diff), "{:?}", text);
        }
        Ok(OpResult::Exec(command) | OpResult::Shell(command)) if dialect == "code" => {
            for stream in [&command.stdout, &command.stderr] {
                prop_assert!(text.contains(stream), "{:?}", text);
            }
            let left_out = grouped(command.stdout_omitted_bytes);
            let left_out = format!("[truncated: {left_out} bytes of the middle are left out; ");
            prop_assert_eq!(command.stdout_omitted_bytes > 0, text.contains(&left_out), "{:?}", text);
        }
        Ok(OpResult::Exec(command) | OpResult::Shell(command)) if dialect == "native" => {
            for stream in [&command.stdout, &command.stderr] {
                prop_assert!(text.contains(stream), "{:?}", text);
            }
            let left_out = format!("[{} bytes of stdout left out]", command.stdout_omitted_bytes);
            prop_assert_eq!(command.stdout_omitted_bytes > 0, text.contains(&left_out), "{:?}", text);
        }
        _ => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::cases(100, 400)))]

    #[test]
    fn every_outcome_is_rendered_in_a_form_that_is_read_back(outcomes in texts(), tool in hostile()) {
        for name in names() {
            let dialect = find(name).unwrap();
            for outcome in &outcomes {
                check(dialect, &tool, outcome)?;
                check(dialect, dialect.tools()[0].name, outcome)?;
            }
        }
    }

    #[test]
    fn every_waiting_call_is_rendered_in_a_form_that_is_read_back(approval in hostile(), tool in hostile()) {
        for name in names() {
            let text = find(name).unwrap().render_pending(&Made::new(&tool, None), &approval);
            match name {
                "forge" => prop_assert!(forge::frame::read(&text).is_some(), "{}", text),
                "fs" | "exec" | "gateway" => prop_assert!(serde_json::from_str::<Value>(&text).is_ok(), "{}", text),
                _ => prop_assert!(!text.is_empty()),
            }
        }
    }
}

#[test]
fn a_line_of_ten_megabytes_is_rendered_by_all() {
    let read = ReadResult { content: "\u{fffd}".repeat(10 * 1024 * 1024 / 3), ..ReadResult::default() };
    let outcome = Ok(OpResult::Read(read));
    for name in names() {
        check(find(name).unwrap(), "read", &outcome).unwrap();
    }
}
