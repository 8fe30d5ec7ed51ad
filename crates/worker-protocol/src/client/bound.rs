//! Parses the data to which a consent is bound. The worker is hostile: its paths must parse, and all sizes are limited.

use operations::{Bound, FileState};
use wire::v1;
use wire::worker::v1 as worker;

/// Limit on the files that a call can name.
const FILES: usize = 4_096;
/// Limit on the remarks of one message, and on the bytes of each.
const REMARKS: usize = 64;
const REMARK: usize = 1_024;

/// Parses the message. `None` if none of our workers would send it.
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
