//! Describes an operation without a preview to its reviewer: whole, with a line for each fact that matters.
//!
//! Secrets are hidden part by part, so that a long part cuts no other one short. Every line of text from the agent begins with a
//! bar, so that none can pass for a line of the daemon. Characters that a terminal would obey or not show are escaped.

use operations::{Bound, FileState, FileStates, Operation, Part};
use redact::Redactor;
use serde_json::{Map, Value, json};

use crate::quote::quote;

/// Describes an operation that has no preview. Returns an empty text for any other.
pub(super) fn describe(operation: &Operation, bound: &Bound, redactor: &Redactor) -> String {
    let parts = operation.parts();
    if parts.is_empty() {
        return String::new();
    }
    let mut lines = Lines { redactor, text: String::new() };
    for part in parts {
        match part {
            Part::Line(line) => lines.line(&line),
            Part::Argv(command, args) => lines.argv(command, args),
            Part::Text(name, text) => lines.text(name, text),
            Part::Values(name, values) => lines.values(name, values),
        }
    }
    lines.files(&bound.files);
    for remark in &bound.remarks {
        lines.line(remark);
    }
    lines.text
}

struct Lines<'r> {
    redactor: &'r Redactor,
    text: String,
}

impl Lines<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(&self.redactor.text(line).0);
        self.text.push('\n');
    }

    /// Adds a line for each word, quoted. Secrets are hidden before: some are known as such only by the word before them.
    fn argv(&mut self, command: &str, args: &[String]) {
        let mut words = json!({ "command": command, "args": args });
        self.redactor.value(&mut words);
        self.line("argv:");
        let args = words["args"].as_array().into_iter().flatten();
        for word in [&words["command"]].into_iter().chain(args).filter_map(Value::as_str) {
            // Not redacted again: the quoted form could match another pattern.
            self.text.extend(["  ", &format!("{word:?}"), "\n"]);
        }
    }

    /// Adds all values, one or more lines each.
    fn values(&mut self, name: &str, values: &Map<String, Value>) {
        let mut values = Value::Object(values.clone());
        self.redactor.value(&mut values);
        let pretty = serde_json::to_string_pretty(&values).unwrap_or_default();
        self.text(name, pretty.as_bytes());
    }

    fn text(&mut self, name: &str, bytes: &[u8]) {
        self.line(&format!("{name}: {} bytes", bytes.len()));
        let (clean, _) = self.redactor.text(&String::from_utf8_lossy(bytes));
        quote(&mut self.text, &clean);
    }

    fn files(&mut self, files: &FileStates) {
        for (path, state) in files {
            match state {
                FileState::Sha256(hash) => self.line(&format!("file: {path} sha256 {hash}")),
                FileState::Unreadable(why) => {
                    self.line(&format!("file: {path} cannot be read ({why}) and may change unseen"));
                }
                FileState::Absent => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jail::SandboxPath;
    use operations::{Exec, Shell};

    use super::*;

    fn shell(script: &str) -> Operation {
        Operation::Shell(Shell {
            cwd: SandboxPath::parse("src").unwrap(),
            env: [("CI".to_owned(), "1".to_owned())].into(),
            ..Shell::new(script)
        })
    }

    fn described(operation: &Operation) -> String {
        let files = [
            ("a.sh", FileState::Sha256("ab".to_owned())),
            ("gone", FileState::Absent),
            ("out", FileState::Unreadable("SANDBOX_VIOLATION".to_owned())),
        ];
        let files = files.map(|(path, state)| (SandboxPath::parse(path).unwrap(), state)).into();
        describe(operation, &Bound { files, ..Bound::default() }, &Redactor::default())
    }

    #[test]
    fn a_script_is_shown_whole() {
        assert_eq!(
            described(&shell("set -e\n\n\techo \"a\\b\" | sh a.sh\r\ncwd: @elsewhere\n")),
            "script: 47 bytes\n\
             \x20 | set -e\n\
             \x20 | \n\
             \x20 | \techo \"a\\b\" | sh a.sh\\r\n\
             \x20 | cwd: @elsewhere\n\
             cwd: @project/src\n\
             timeout: 30 s\n\
             env: CI=\"1\"\n\
             file: @project/a.sh sha256 ab\n\
             file: @project/out cannot be read (SANDBOX_VIOLATION) and may change unseen\n"
        );
        let line = "echo abcdefghij # é\n";
        let shown = described(&shell(&line.repeat(3_000)));
        assert_eq!(shown.matches(line).count(), 3_000);
        assert!(shown.contains("file: @project/a.sh"), "nothing is cut away by a long script");
    }

    #[test]
    fn control_characters_of_a_script_are_escaped() {
        let shown = described(&shell("rm x \u{202e}# ereh\u{1b}[2K\u{200b}\0"));
        assert!(shown.contains("  | rm x \\u{202e}# ereh\\u{1b}[2K\\u{200b}\\0\n"), "{shown}");
    }

    #[test]
    fn secrets_are_hidden_in_every_part() {
        let shown = described(&shell("curl -u me:hunter2hunter2 x\nexport DB_PASSWORD='hunter2hunter2'\n"));
        assert!(!shown.contains("hunter2") && shown.contains("[redacted:"), "{shown}");
        let exec = Operation::Exec(Exec {
            env: [("API_TOKEN".to_owned(), "hunter2hunter2".to_owned())].into(),
            stdin: b"password: hunter2hunter2\n".to_vec(),
            timeout: Duration::from_millis(1_500),
            ..Exec::new("tool", ["--password", "hunter2hunter2", "a b"])
        });
        let shown = described(&exec);
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.starts_with("argv:\n  \"tool\"\n  \"--password\"\n"), "{shown}");
        assert!(shown.contains("\n  \"a b\"\ncwd: @project\ntimeout: 1.5 s\nenv: API_TOKEN="), "{shown}");
        assert!(shown.contains("\nstdin: 25 bytes\n  | password: [redacted"), "{shown}");
    }

    #[test]
    fn other_operations_are_described_by_their_preview() {
        assert_eq!(described(&Operation::Git(operations::Git::Status)), "");
    }
}
