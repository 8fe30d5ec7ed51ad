//! Builds the review of a call: the facts that a reviewer sees, and the file states that consent is bound to, from one reading.
//!
//! Secrets are hidden before anything is shown. A review is complete in kind: the whole argument vector, the whole script, the diff
//! of every file. A diff is cut after [`SHOWN`] bytes, and its last line says to the byte how much is missing.
//!
//! An unreadable file is not treated as an absent one: a program that can make it unreadable, before and after, could change it in
//! between.

mod describe;

use std::fmt::Write as _;

use executor::Lanes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use gateway::{Review, Ticket};
use jail::SandboxPath;
use operations::{
    Bound, Bounds, DeleteResult, EntryType, FileChange, FileState, FileStates, GitResult, Lane, OpResult,
    Operation, Part, PatchResult, Preview, Reason, ToolFailure,
};
use redact::Redactor;
use refusal::Refusal;

use super::input;
use crate::quote::{quote, visible};
use describe::describe;

/// Most bytes of a diff that a reviewer is shown, unless the profile gives agents more.
const SHOWN: u64 = 256 * 1024;
/// Most bytes of a diff that a reviewer is shown under any profile.
const MOST_SHOWN: u64 = 768 * 1024;
/// The remark of a review in which only the words of the call are bound.
const WORDS_ALONE: &str = "consent covers only these words: the run is not frozen, and its other commands can change the files that this call uses, before and after";
/// Most files that a call can name and be bound to.
const FILES: usize = 256;
/// Most names that are checked to find those files: most words of a script name none.
const NAMES: usize = 4_096;
/// Files that are read at the same time.
const AT_ONCE: usize = 8;

/// Makes the review of a call that needs consent. Refuses a host operation that would fail anyway before a reviewer is asked.
pub(super) async fn of(lanes: &Lanes, ticket: &Ticket, redactor: &Redactor) -> Result<Review, Refusal> {
    let operation = ticket.operation();
    let (bound, result) = look(lanes, ticket).await.map_err(|failure| match operation.lane() {
        Lane::Host => would_fail(failure),
        Lane::Container | Lane::Upstream | Lane::Daemon => failure,
    })?;
    let hidden = |text: &str| redactor.whole(text).0;
    let preview = match result {
        Some(OpResult::Edit(edit)) => hidden(&edit.diff),
        Some(OpResult::Patch(patch)) => hidden(&patch_preview(&patch)),
        Some(OpResult::Delete(delete)) => delete_preview(&delete),
        Some(OpResult::Git(git)) => hidden(&git_preview(operation, &git, &bound)),
        _ => describe(operation, &bound, redactor),
    };
    let mut value = input::json(operation);
    redactor.value(&mut value);
    Ok(Review { operation_json: value.to_string(), preview, bound, ..Review::default() })
}

/// Returns the states that consent to the call is bound to, as they are now.
pub(super) async fn bound(lanes: &Lanes, ticket: &Ticket) -> Result<Bound, Refusal> {
    Ok(look(lanes, ticket).await?.0)
}

/// Previews the call once, for both the bound states and the preview.
async fn look(lanes: &Lanes, ticket: &Ticket) -> Result<(Bound, Option<OpResult>), Refusal> {
    let most = ticket.bounds().max_output_bytes.clamp(SHOWN, MOST_SHOWN);
    let bounds = Bounds { max_output_bytes: most, ..ticket.bounds().clone() };
    let Some(Preview { result, mut bound }) = lanes.preview(ticket.call_id(), ticket.operation(), &bounds).await? else {
        let remarks =
            if ticket.operation().binds_words() { vec![WORDS_ALONE.to_owned()] } else { Vec::new() };
        return Ok((Bound { remarks, ..Bound::default() }, None));
    };
    // The preview has bound its files already. The other files are hashed after it. If one of them changes later, the call is
    // refused.
    bound.files.extend(files(lanes, ticket.operation()).await?);
    Ok((bound, Some(result)))
}

/// Returns the states of the files that a command names.
async fn files(lanes: &Lanes, operation: &Operation) -> Result<FileStates, Refusal> {
    let named = command_rules::named_files(operation);
    if named.len() > NAMES {
        return Err(Refusal::new(
            Reason::InvalidArgument,
            format!(
                "the call has {} words that may be names of files, and at most {NAMES} can be checked \
                 before a reviewer is asked: move a part of it into a file",
                named.len()
            ),
        ));
    }
    let states = stream::iter(named).map(|path| async move {
        let state = state(&path, lanes.hash(&path).await)?;
        Ok::<_, Refusal>((path, state))
    });
    let mut states = states.buffered(AT_ONCE);
    let (mut found, mut files) = (0, FileStates::new());
    while let Some((path, state)) = states.try_next().await? {
        found += usize::from(state != FileState::Absent);
        if found > FILES {
            let message =
                format!("the call names more files than the {FILES} that a reviewer can consent to");
            return Err(Refusal::new(Reason::InvalidArgument, message));
        }
        files.insert(path, state);
    }
    Ok(files)
}

/// Returns the state that consent is bound to, from the result of hashing the file.
fn state(path: &SandboxPath, hashed: Result<String, ToolFailure>) -> Result<FileState, Refusal> {
    let failure = match hashed {
        Ok(hash) => return Ok(FileState::Sha256(hash)),
        Err(failure) => failure,
    };
    match failure.reason {
        // Not a file: absent, a directory, or a word that only looks like a path.
        Reason::NotFound | Reason::InvalidArgument => Ok(FileState::Absent),
        // Refused because of its type or its permissions. The reviewer sees that.
        Reason::SandboxViolation | Reason::PermissionDenied => {
            Ok(FileState::Unreadable(failure.reason.as_str().to_owned()))
        }
        _ => Err(Refusal::new(
            Reason::PreconditionFailed,
            format!(
                "{}: cannot be read, so consent cannot be bound to its content: {}",
                path.excerpt(),
                failure.message
            ),
        )),
    }
}

fn would_fail(failure: Refusal) -> Refusal {
    Refusal {
        message: format!("no reviewer was asked, because the call would fail: {}", failure.message),
        ..failure
    }
}

/// Lists the change of each file, then the diff.
fn patch_preview(patch: &PatchResult) -> String {
    let mut text = String::new();
    for file in &patch.files {
        let what = match file.change() {
            FileChange::Created => "create",
            FileChange::Updated | FileChange::Unspecified => "change",
            FileChange::Deleted => "delete (to the run's trash)",
            FileChange::Moved => "move",
        };
        let from = if file.moved_from.is_empty() {
            String::new()
        } else {
            format!("{} to ", shown(&file.moved_from))
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what}: {from}{}", shown(&file.path));
    }
    for note in &patch.notes {
        let _ = writeln!(text, "note: {}", shown(note));
    }
    text.push('\n');
    text.push_str(&patch.diff);
    text
}

fn delete_preview(delete: &DeleteResult) -> String {
    let path = shown(&delete.path);
    let whereto = if delete.gone_for_good {
        "the run's trash has no space for it, so it will be GONE FOR GOOD"
    } else {
        "to the run's trash"
    };
    let bytes = delete.size_bytes;
    match delete.r#type() {
        EntryType::Directory => format!("{whereto}: the empty directory {path}\n"),
        _ if delete.sha256.is_empty() => {
            format!("{whereto}: the file {path}, {bytes} bytes, too many to be read\n")
        }
        _ => format!("{whereto}: the file {path}, {bytes} bytes, sha256 {}\n", delete.sha256),
    }
}

/// Escapes a name, so that it can neither forge a line nor reverse its direction.
fn shown(path: &str) -> String {
    path.chars().flat_map(visible).collect()
}

fn git_preview(operation: &Operation, git: &GitResult, bound: &Bound) -> String {
    let mut text = String::new();
    for remark in &bound.remarks {
        let _ = writeln!(text, "{}", shown(remark));
    }
    for part in operation.parts() {
        if let Part::Text(name, message) = part {
            let _ = writeln!(text, "{name}:");
            quote(&mut text, &String::from_utf8_lossy(message));
            text.push_str("\nto be committed:\n");
        }
    }
    text.push_str(&git.output);
    if git.truncated {
        let newline = if git.output.is_empty() || git.output.ends_with('\n') { "" } else { "\n" };
        // A line that begins with a backslash is a remark in a unified diff.
        let _ = writeln!(text, "{newline}\\ {} more bytes of this diff are left out", git.omitted_bytes);
    }
    text
}

#[cfg(test)]
mod tests {
    use jail::SandboxPath;
    use operations::{FileState, Reason, ToolFailure};

    use super::state;

    #[test]
    fn only_missing_files_count_as_absent() {
        let path = SandboxPath::parse("run.sh").unwrap();
        let failed = |reason| state(&path, Err(ToolFailure::new(reason, "why")));
        assert_eq!(state(&path, Ok("ab".to_owned())).unwrap(), FileState::Sha256("ab".to_owned()));
        assert_eq!(failed(Reason::NotFound).unwrap(), FileState::Absent);
        let unreadable = FileState::Unreadable("PERMISSION_DENIED".to_owned());
        assert_eq!(failed(Reason::PermissionDenied).unwrap(), unreadable);
        // A worker that was killed, or a file too large to be hashed in time.
        for reason in [Reason::Cancelled, Reason::TimedOut, Reason::Internal, Reason::Overloaded] {
            assert_eq!(failed(reason).unwrap_err().reason, Reason::PreconditionFailed);
        }
    }
}
