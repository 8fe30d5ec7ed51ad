//! Reports the changes to the API: bounded, in the order of the paths.

use std::time::{Duration, Instant};

use jail::{Dir, OpenError};
use wire::v1::{DiffRunResponse, FileChange, file_change};

use super::judge::Kind;
use super::patch;
use super::walk::{Change, Visitor, walk};
use host_launch::args::Since;

/// Most changes that a report names.
const MOST_CHANGES: usize = 10_000;
/// Most bytes that the paths in a report may have.
const MOST_PATH_BYTES: usize = 1024 * 1024;
/// Diffs that did not fit, after which no further one is tried.
const MOST_LEFT_OUT: u32 = 100;
/// Time after which files are only named.
const TIME: Duration = Duration::from_secs(20);

/// Returns all changes, with a diff of at most `most` bytes.
pub(super) fn report(
    changes: &Dir,
    beneath: &Dir,
    since: Since,
    most: u32,
) -> Result<DiffRunResponse, OpenError> {
    let mut report = Report {
        response: DiffRunResponse::default(),
        most: usize::try_from(most).unwrap_or(usize::MAX),
        path_bytes: 0,
        left_out: 0,
        began: Instant::now(),
    };
    walk(changes, beneath, since, &mut report)?;
    Ok(report.response)
}

struct Report {
    response: DiffRunResponse,
    most: usize,
    path_bytes: usize,
    left_out: u32,
    began: Instant,
}

impl Visitor for Report {
    fn change(&mut self, change: &Change<'_>) -> Result<bool, OpenError> {
        self.response.total += 1;
        let path = change.shown();
        self.path_bytes += path.len();
        if self.response.changes.len() >= MOST_CHANGES || self.path_bytes > MOST_PATH_BYTES {
            self.response.truncated = true;
            return Ok(true);
        }
        self.response.changes.push(named(change, path));
        if self.left_out >= MOST_LEFT_OUT || self.began.elapsed() > TIME {
            self.response.truncated = true;
            return Ok(true);
        }
        // Whole or not at all: a truncated diff cannot be applied.
        let text = patch::of(change);
        if self.response.unified_diff.len() + text.len() <= self.most {
            self.response.unified_diff.push_str(&text);
        } else {
            self.response.truncated = true;
            self.left_out += 1;
        }
        Ok(true)
    }
}

fn named(change: &Change<'_>, path: String) -> FileChange {
    let deleted = change.kind == Kind::Deleted;
    FileChange {
        path,
        kind: match change.kind {
            Kind::Added => file_change::Kind::Added,
            Kind::Modified => file_change::Kind::Modified,
            Kind::Deleted => file_change::Kind::Deleted,
        }
        .into(),
        file_type: change.meta.kind.to_string(),
        mode: if deleted { 0 } else { change.meta.mode & 0o777 },
        size_bytes: if deleted { 0 } else { change.meta.size },
        objection: change.judgement.objection.unwrap_or_default().to_owned(),
        obstacle: change.judgement.obstacle.unwrap_or_default().to_owned(),
    }
}
