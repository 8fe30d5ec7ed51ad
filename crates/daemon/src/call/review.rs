//! What a reviewer sees, and what the consent is bound to: the state of the files that the call names.
//!
//! Secrets are hidden before anything is shown. What is shown is complete in kind: the whole argument vector, the whole
//! diff up to the profile's bound, which says when it was cut.

use audit::Redactor;
use gateway::{FileState, FileStates, Review, Ticket};
use jail::SandboxPath;
use ops::{Git, OpResult, Operation, ToolFailure};

use crate::executor::Lanes;
use crate::status::Refusal;

/// Files that a command can name and be bound to; more are not looked at.
const FILES: usize = 32;

/// Makes the review of a call that needs consent. A host operation that would fail anyway is refused here, before
/// anybody is asked.
pub(super) async fn of(lanes: &Lanes, ticket: &Ticket, redactor: &Redactor) -> Result<Review, Refusal> {
    let operation = ticket.operation();
    let files = files(lanes, operation).await;
    let preview = match lanes.preview(operation, ticket.bounds()).await {
        Some(Ok(OpResult::Edit(edit))) => edit.diff,
        Some(Ok(OpResult::Git(git))) => git_preview(operation, &git.output),
        Some(Ok(_)) => String::new(),
        Some(Err(failure)) => return Err(would_fail(&failure)),
        None => describe(operation, &files),
    };
    let request = worker::convert::operation_to_wire(operation);
    let mut value = serde_json::to_value(&request).unwrap_or_default();
    redactor.value(&mut value);
    let (preview, _) = redactor.text(&preview);
    Ok(Review { operation_json: value.to_string(), preview, files })
}

/// The files that the call names, as they are now.
pub(super) async fn files(lanes: &Lanes, operation: &Operation) -> FileStates {
    let mut states = FileStates::new();
    for path in named(operation).into_iter().take(FILES) {
        let state = match lanes.hash(&path).await {
            Some(hash) => FileState::Sha256(hash),
            None => FileState::Absent,
        };
        states.insert(path, state);
    }
    states
}

fn named(operation: &Operation) -> Vec<SandboxPath> {
    match operation {
        Operation::Write(write) => vec![write.path.clone()],
        Operation::Edit(edit) => vec![edit.path.clone()],
        Operation::Git(Git::Add { paths }) => paths.clone(),
        // A script that is swapped while the reviewer reads must not run: every argument that can be a path is taken
        // for one, as it is and relative to the working directory.
        Operation::Exec(exec) => std::iter::once(&exec.command)
            .chain(&exec.args)
            .filter(|text| !text.starts_with('-'))
            .filter_map(|text| {
                let relative = !text.starts_with(['/', '@']);
                let text = if relative { format!("{}/{text}", exec.cwd) } else { text.clone() };
                SandboxPath::parse(&text).ok()
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn would_fail(failure: &ToolFailure) -> Refusal {
    Refusal::new(
        failure.reason,
        format!("nobody was asked, because the call would fail: {}", failure.message),
    )
}

fn git_preview(operation: &Operation, output: &str) -> String {
    match operation {
        Operation::Git(Git::Commit { message }) => {
            format!("commit message:\n{message}\n\nto be committed:\n{output}")
        }
        _ => output.to_owned(),
    }
}

/// A command as its reviewer sees it, a line for each thing that matters.
fn describe(operation: &Operation, files: &FileStates) -> String {
    let Operation::Exec(exec) = operation else { return String::new() };
    let mut lines = vec!["argv:".to_owned()];
    lines.extend(std::iter::once(&exec.command).chain(&exec.args).map(|word| format!("  {word:?}")));
    lines.push(format!("cwd: {}", exec.cwd));
    lines.push(format!("timeout: {} s", exec.timeout.as_secs_f64()));
    lines.extend(exec.env.iter().map(|(name, value)| format!("env: {name}={value:?}")));
    if !exec.stdin.is_empty() {
        lines.push(format!("stdin: {} bytes", exec.stdin.len()));
        lines.push(String::from_utf8_lossy(&exec.stdin).into_owned());
    }
    lines.extend(files.iter().filter_map(|(path, state)| match state {
        FileState::Sha256(hash) => Some(format!("file: {path} sha256 {hash}")),
        FileState::Absent => None,
    }));
    lines.join("\n") + "\n"
}
