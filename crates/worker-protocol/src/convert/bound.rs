//! What a consent is bound to, worker → daemon. Hostile in this direction: what it names must be a place, and bounded.

use ops::{Bound, FileState, Preview, ToolFailure};
use wire::v1;
use wire::worker::v1 as worker;

use super::outcome_to_wire;

/// Files that a call can name.
const FILES: usize = 4_096;
/// Remarks, and their bytes.
const REMARKS: usize = 64;
const REMARK: usize = 1_024;

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

/// A file as reviewers see it.
pub fn file_to_wire(path: String, state: FileState) -> v1::BoundFile {
    let (sha256, unreadable) = match state {
        FileState::Absent => (String::new(), String::new()),
        FileState::Sha256(hash) => (hash, String::new()),
        FileState::Unreadable(why) => (String::new(), why),
    };
    v1::BoundFile { path, sha256, unreadable }
}

/// What came. `None`: a worker of ours does not say that.
pub(crate) fn bound_from_wire(bound: worker::Bound) -> Option<Bound> {
    let worker::Bound { digest, since_ns: since, files, remarks } = bound;
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    let remarks_fit = remarks.len() <= REMARKS && remarks.iter().all(|remark| remark.len() <= REMARK);
    if !(digest.is_empty() || is_digest) || files.len() > FILES || !remarks_fit {
        return None;
    }
    let files = files.into_iter().map(|v1::BoundFile { path, sha256, unreadable }| {
        let state = match (sha256.is_empty(), unreadable.is_empty()) {
            (true, true) => FileState::Absent,
            (false, true) => FileState::Sha256(sha256),
            (_, false) => FileState::Unreadable(unreadable),
        };
        Some((jail::SandboxPath::parse(&path).ok()?, state))
    });
    Some(Bound { digest, since, files: files.collect::<Option<_>>()?, remarks })
}
