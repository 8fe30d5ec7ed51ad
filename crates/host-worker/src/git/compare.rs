//! How things are compared.

use git2::DiffOptions;

/// Larger files are shown as binary, bytes.
const LARGEST: i64 = 64 * 1024 * 1024;

/// For what is said of each path: one change a path, also where a file became a link.
pub(super) fn changes() -> DiffOptions {
    let mut options = DiffOptions::new();
    // The configuration of a repository is not asked for any of these.
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

/// For what is in the files: where a file became a link, one is removed and the other made.
pub(super) fn contents() -> DiffOptions {
    let mut options = changes();
    options.include_typechange(false);
    options
}

/// Only these paths and what is beneath them. Without any, or with the work tree itself among them, all.
pub(super) fn limit(options: &mut DiffOptions, paths: &[&str]) {
    if !paths.contains(&"") {
        for path in paths {
            options.pathspec(*path);
        }
    }
}
