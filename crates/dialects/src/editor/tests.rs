use operations::{
    EditChange, EditResult, Entry, EntryType, ListResult, OpResult, Operation, Outcome, ReadPart, ReadResult,
    Reason, ToolFailure,
};
use serde_json::{Value, json};

use super::Editor;
use crate::dialect::Dialect as _;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;

fn parse(tool: &str, arguments: &Value) -> Result<Operation, ParseFailure> {
    Editor.parse(tool, &arguments.to_string(), &Limits::default())
}

fn change(tool: &str, arguments: &Value) -> EditChange {
    match parse(tool, arguments) {
        Ok(Operation::Edit(edit)) => edit.change,
        other => panic!("{other:?}"),
    }
}

fn render(operation: Option<&Operation>, outcome: &Outcome) -> String {
    Editor.render(&Made::new("", operation), outcome)
}

#[test]
fn view_reads_a_file_or_lists_a_directory() {
    let part = |arguments: &Value| match parse("view", arguments) {
        Ok(Operation::Read(read)) => read.part,
        other => panic!("{other:?}"),
    };
    assert_eq!(part(&json!({"path": "a"})), ReadPart::Whole);
    assert_eq!(
        part(&json!({"path": "a", "view_range": [2, 5]})),
        ReadPart::Lines { first: 2, last: Some(5) }
    );
    assert_eq!(part(&json!({"path": "a", "view_range": [2, -1]})), ReadPart::Lines { first: 2, last: None });
    for directory in [".", "src/", "@project", "/workspace/"] {
        assert!(matches!(parse("view", &json!({"path": directory})), Ok(Operation::List(_))), "{directory}");
    }
    for bad in [json!([0, 5]), json!([5, 4]), json!([1, -2]), json!([-1, 1])] {
        let failure = parse("view", &json!({"path": "a", "view_range": bad})).unwrap_err();
        assert_eq!(failure.field.as_deref(), Some("view_range"), "{bad}");
    }
}

#[test]
fn the_other_commands_change_a_file() {
    assert_eq!(
        change("create", &json!({"path": "a", "file_text": "x\n"})),
        EditChange::Create { content: "x\n".into() }
    );
    assert_eq!(
        change("str_replace", &json!({"path": "a", "old_str": "x", "new_str": "y"})),
        EditChange::StrReplace { old: "x".into(), new: "y".into(), replace_all: false }
    );
    assert_eq!(
        change("str_replace", &json!({"path": "a", "old_str": "x"})),
        EditChange::StrReplace { old: "x".into(), new: String::new(), replace_all: false }
    );
    for name in ["insert_text", "new_str"] {
        assert_eq!(
            change("insert", &json!({"path": "a", "insert_line": 0, name: "y"})),
            EditChange::Insert { after_line: 0, text: "y".into() }
        );
    }
    let both = parse("insert", &json!({"path": "a", "insert_line": 0, "new_str": "y", "insert_text": "y"}));
    assert_eq!(both.unwrap_err().field.as_deref(), Some("new_str"));
    let neither = parse("insert", &json!({"path": "a", "insert_line": 0}));
    assert_eq!(neither.unwrap_err().field.as_deref(), Some("insert_text"));
    let same = parse("str_replace", &json!({"path": "a", "old_str": "x", "new_str": "x"}));
    assert_eq!(same.unwrap_err().field.as_deref(), Some("new_str"));
}

#[test]
fn the_vendor_s_one_tool_is_understood() {
    for name in ["str_replace_based_edit_tool", "str_replace_editor"] {
        let arguments = json!({"command": "create", "path": "a", "file_text": "x"});
        assert_eq!(change(name, &arguments), EditChange::Create { content: "x".into() });
        for (bad, field) in [
            (json!({"path": "a"}), "command"),
            (json!({"command": "undo_edit", "path": "a"}), "command"),
            (json!({"command": 1, "path": "a"}), "command"),
            (json!({"command": "view"}), "path"),
        ] {
            let failure = parse(name, &bad).unwrap_err();
            assert_eq!(
                (failure.reason, failure.field.as_deref()),
                (Reason::InvalidArgument, Some(field)),
                "{bad}"
            );
        }
    }
}

#[test]
fn files_are_shown_with_their_line_numbers() {
    let read = ReadResult {
        content: "a\r\n\nb\n".into(),
        size_bytes: 6,
        total_lines: 12,
        start_line: 9,
        end_line: 11,
        ..ReadResult::default()
    };
    assert_eq!(render(None, &Ok(OpResult::Read(read.clone()))), "     9\ta\r\n    10\t\n    11\tb\n");
    let cut = ReadResult { truncated: true, ..read.clone() };
    assert!(
        render(None, &Ok(OpResult::Read(cut)))
            .ends_with("\n[truncated: the file has 6 bytes in 12 lines; go on with view_range [11, -1]]\n")
    );
    let binary = ReadResult { binary: true, size_bytes: 4, sha256: "ab".into(), ..ReadResult::default() };
    assert_eq!(render(None, &Ok(OpResult::Read(binary))), "(binary file: 4 bytes, sha256 ab)");
    assert_eq!(render(None, &Ok(OpResult::Read(ReadResult::default()))), "(empty)");
}

#[test]
fn directories_and_changes_are_rendered() {
    let entry = |name: &str, entry_type: EntryType| Entry {
        path: String::new(),
        name: name.into(),
        r#type: entry_type.into(),
        size_bytes: 0,
        modified_unix_seconds: 0,
    };
    let entries = vec![entry("a\nb", EntryType::File), entry("d", EntryType::Directory)];
    let list = ListResult { entries, truncated: true, total_entries: 9, ..ListResult::default() };
    assert_eq!(
        render(None, &Ok(OpResult::List(list))),
        "a\\nb\nd/\n[truncated: 2 of 9 or more entries; view a subdirectory]\n"
    );
    let result = EditResult { path: "@project/a".into(), diff: "-x\n+y\n".into(), ..EditResult::default() };
    let outcome = Ok(OpResult::Edit(result));
    let created = parse("create", &json!({"path": "a", "file_text": ""})).unwrap();
    assert_eq!(render(Some(&created), &outcome), "File created successfully at: @project/a");
    let replaced = parse("str_replace", &json!({"path": "a", "old_str": "x"})).unwrap();
    assert_eq!(render(Some(&replaced), &outcome), "The text was replaced in @project/a\n-x\n+y\n");
    let failure = ToolFailure::new(Reason::PreconditionFailed, "File already exists");
    assert_eq!(render(None, &Err(failure)), "Error: File already exists");
    assert!(Editor.render_pending(&Made::new("view", None), "a-1").starts_with("Pending approval a-1: "));
}
