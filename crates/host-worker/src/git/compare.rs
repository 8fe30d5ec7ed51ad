//! Options for comparisons.

use git2::DiffOptions;

/// Largest file that is shown as text, bytes.
const LARGEST: i64 = 64 * 1024 * 1024;

/// Returns options for reports by path: one change a path, also where a file became a link.
pub(super) fn changes() -> DiffOptions {
    let mut options = DiffOptions::new();
    // The configuration of the repository has no say in these.
    options
        .context_lines(3)
        .interhunk_lines(0)
        .indent_heuristic(true)
        .old_prefix("a")
        .new_prefix("b")
        .include_typechange(true)
        .disable_pathspec_match(true)
        .max_size(LARGEST);
    options
}

/// Returns options for reports of contents: where a file became a link, one is removed and the other created.
pub(super) fn contents() -> DiffOptions {
    let mut options = changes();
    options.include_typechange(false);
    options
}

/// Limits the comparison to these paths and everything beneath them. No paths, or the work tree itself, mean no limit.
pub(super) fn limit(options: &mut DiffOptions, paths: &[&str]) {
    if !paths.contains(&"") {
        for path in paths {
            options.pathspec(*path);
        }
    }
}
