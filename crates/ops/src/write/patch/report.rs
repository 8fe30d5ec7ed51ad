//! What a patch did or would do, for its caller and its reviewer.

use super::plan::Planned;
use crate::digest::sha256;
use crate::write::diff::{between, sizes};
use crate::write::file::as_text;
use crate::{Bounds, FileChange, PatchResult, PatchedFile};

/// The result, with one diff over all files.
pub(super) fn report(planned: &[Planned<'_>], bounds: &Bounds) -> PatchResult {
    let mut result = PatchResult::default();
    for file in planned {
        result.files.push(describe(file));
        result.notes.extend(file.notes.iter().cloned());
        let room = bounds.max_output_bytes.saturating_sub(result.diff.len() as u64);
        if room == 0 {
            result.diff_truncated = true;
            continue;
        }
        let (text, truncated) = diff(file, room);
        result.diff.push_str(&text);
        result.diff_truncated |= truncated;
    }
    result
}

fn describe(file: &Planned<'_>) -> PatchedFile {
    let change = match (&file.place.before, &file.content, &file.moved_to) {
        (_, None, _) => FileChange::Deleted,
        (_, _, Some(_)) => FileChange::Moved,
        (None, ..) => FileChange::Created,
        (Some(_), ..) => FileChange::Updated,
    };
    let moved_to = file.moved_to.as_ref().map(|(to, _)| to.to_string());
    PatchedFile {
        moved_from: if moved_to.is_some() { file.path.to_string() } else { String::new() },
        path: moved_to.unwrap_or_else(|| file.path.to_string()),
        change,
        sha256_before: file.place.sha256_before(),
        sha256_after: file.content.as_deref().map(sha256).unwrap_or_default(),
        bytes_written: file.content.as_ref().map_or(0, |content| content.len() as u64),
        trash_entry: String::new(),
    }
}

fn diff(file: &Planned<'_>, most: u64) -> (String, bool) {
    let to = file.moved_to.as_ref().map_or(file.path, |(to, _)| to);
    let old = file.place.before.as_ref().map(|before| before.content.as_deref().and_then(as_text));
    let new = file.content.as_deref().map(as_text);
    let diff = match (old, new) {
        (None, Some(Some(new))) => between(None, Some((to, new)), most),
        (Some(Some(old)), Some(Some(new))) => between(Some((file.path, old)), Some((to, new)), most),
        (Some(Some(old)), None) => between(Some((file.path, old)), None, most),
        _ => {
            let old = file.place.before.as_ref().map(|before| before.size);
            sizes(to, old, file.content.as_ref().map(|content| content.len() as u64))
        }
    };
    (diff.text, diff.truncated)
}
