//! The files and the state to which a consent is bound, worker → daemon.

use operations::{Bound, FileState, Preview, ToolFailure};
use wire::v1;
use wire::worker::v1 as worker;

use super::outcome_to_wire;

pub fn preview_to_wire(preview: Result<Preview, ToolFailure>) -> worker::Outcome {
    match preview {
        Ok(Preview { result, bound }) => {
            worker::Outcome { bound: Some(bound_to_wire(bound)), ..outcome_to_wire(Ok(result)) }
        }
        Err(failure) => outcome_to_wire(Err(failure)),
    }
}

fn bound_to_wire(bound: Bound) -> worker::Bound {
    let files = bound.files.into_iter().map(|(path, state)| file_to_wire(path.to_string(), state));
    worker::Bound {
        digest: bound.digest,
        since_ns: bound.since,
        files: files.collect(),
        remarks: bound.remarks,
    }
}

/// Converts a file to the form that reviewers see.
pub fn file_to_wire(path: String, state: FileState) -> v1::BoundFile {
    let (sha256, unreadable) = match state {
        FileState::Absent => (String::new(), String::new()),
        FileState::Sha256(hash) => (hash, String::new()),
        FileState::Unreadable(why) => (String::new(), why),
    };
    v1::BoundFile { path, sha256, unreadable }
}
