//! Parses what a consent is bound to. The worker is hostile: its paths must parse, and everything is limited.

use ops::{Bound, FileState};
use wire::v1;
use wire::worker::v1 as worker;

/// Files that a call can name.
const FILES: usize = 4_096;
/// Remarks that a bound can have, and the bytes of each.
const REMARKS: usize = 64;
const REMARK: usize = 1_024;

/// `None`: no worker of ours sends that.
pub(super) fn bound_from_wire(bound: worker::Bound) -> Option<Bound> {
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
