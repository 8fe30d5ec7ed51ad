//! The result of a patch, made or previewed, for its caller and its reviewer.

use operations::{Bounds, FileChange, PatchResult, PatchedFile, sha256};

use super::plan::Planned;
use crate::write::diff::{Diff, between, sizes};
use crate::write::file::as_text;

/// Returns the result, with one diff over all files.
pub(super) fn report(planned: &[Planned<'_>], bounds: &Bounds) -> PatchResult {
    let mut result = PatchResult::default();
    let mut whole = Diff { text: String::new(), left_out: 0 };
    for file in planned {
        result.files.push(describe(file));
        result.notes.extend(file.notes.iter().cloned());
        // After a cut no further diff may follow.
        let most = if whole.is_cut() { 0 } else { bounds.max_output_bytes };
        let diff = diff(file, most.saturating_sub(whole.text.len() as u64));
        whole.text.push_str(&diff.text);
        whole.left_out += diff.left_out;
    }
    result.diff_truncated = whole.is_cut();
    result.diff = whole.noted();
    result
}

fn describe(file: &Planned<'_>) -> PatchedFile {
    let change = match (&file.location.before, &file.content, &file.moved_to) {
        (_, None, _) => FileChange::Deleted,
        (_, _, Some(_)) => FileChange::Moved,
        (None, ..) => FileChange::Created,
        (Some(_), ..) => FileChange::Updated,
    };
    let moved_to = file.moved_to.as_ref().map(|(to, _)| to.to_string());
    PatchedFile {
        moved_from: if moved_to.is_some() { file.path.to_string() } else { String::new() },
        path: moved_to.unwrap_or_else(|| file.path.to_string()),
        change: change.into(),
        sha256_before: file.location.sha256_before(),
        sha256_after: file.content.as_deref().map(sha256).unwrap_or_default(),
        bytes_written: file.content.as_ref().map_or(0, |content| content.len() as u64),
        trash_entry: String::new(),
    }
}

fn diff(file: &Planned<'_>, most: u64) -> Diff {
    let to = file.moved_to.as_ref().map_or(file.path, |(to, _)| to);
    let old = file.location.before.as_ref().map(|before| before.content.as_deref().and_then(as_text));
    let new = file.content.as_deref().map(as_text);
    match (old, new) {
        (None, Some(Some(new))) => between(None, Some((to, new)), most),
        (Some(Some(old)), Some(Some(new))) => between(Some((file.path, old)), Some((to, new)), most),
        (Some(Some(old)), None) => between(Some((file.path, old)), None, most),
        _ => {
            let old = file.location.before.as_ref().map(|before| before.size);
            sizes(to, old, file.content.as_ref().map(|content| content.len() as u64))
        }
    }
}
