//! The entries of a directory, a line each.

use std::fmt::Write as _;

use operations::{EntryType, ListResult};
use text::one_line;

use crate::remark::remark;

/// Renders the entries, and a remark if there are more. Returns true if the remark is there.
///
/// `symlink` marks symbolic links. `advice` says how to see the other entries.
pub(crate) fn entries(result: &ListResult, symlink: &str, advice: &str) -> (String, bool) {
    let mut text = String::new();
    if result.entries.is_empty() {
        text.push_str(empty_directory(result));
    }
    for entry in &result.entries {
        let mark = match entry.r#type() {
            EntryType::Directory => "/",
            EntryType::Symlink => symlink,
            EntryType::File | EntryType::Other | EntryType::Unspecified => "",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}{mark}", one_line(&entry.name));
    }
    let more = result.truncated.then(|| {
        let (shown, all) = (result.entries.len(), result.total_entries);
        format!("[truncated: {shown} of {all} or more entries; {advice}]")
    });
    let remarked = remark(&mut text, &result.hint, result.entries.is_empty(), more);
    (text, remarked)
}

/// Returns the text for a directory without visible entries, which says if it has others.
fn empty_directory(result: &ListResult) -> &'static str {
    if result.left_out.is_some() { "(no entries to show)" } else { "(empty directory)" }
}
