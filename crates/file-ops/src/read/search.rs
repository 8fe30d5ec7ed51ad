//! The start of a search.

use jail::{AccessError, Dir, FileKind, Jail, OpenError, OpenErrorKind, SandboxPath};
use operations::ToolFailure;

use super::pattern::Pattern;

/// Start of a search.
pub(super) enum Begin {
    /// A directory, after its path without links.
    Walk(SandboxPath, Dir),
    /// The one file that the pattern names.
    File(SandboxPath),
    /// The directory that the pattern names does not exist. Holds the message for the caller.
    Nowhere(String),
}

/// Opens the directory `within`, or the directory or file below it that the pattern names.
///
/// A file or directory that is named in full may be hidden, ignored or reached through a link.
pub(super) fn begin(
    jail: &Jail,
    within: &SandboxPath,
    pattern: Option<&Pattern>,
) -> Result<Begin, ToolFailure> {
    let Some(pattern) = pattern.filter(|pattern| pattern.start() != within || pattern.name().is_some())
    else {
        let (start, dir) = jail.readable(within)?.open_dir_resolved()?;
        return Ok(Begin::Walk(start, dir));
    };
    // Reports a missing `within` as the error.
    jail.readable(within)?.open_dir_resolved()?;
    let start = pattern.start();
    let is_absent = |error: &AccessError| {
        let AccessError::Open(OpenError { kind, .. }) = error else { return false };
        matches!(kind, OpenErrorKind::NotFound | OpenErrorKind::NotADirectory)
    };
    if let Some(name) = pattern.name() {
        let file = start.rel().join(name).map(|rel| SandboxPath::new(start.mount(), rel));
        let Some(file) = file else { return Ok(Begin::Nowhere(String::new())) };
        match jail.readable(&file)?.metadata() {
            Ok(meta) if meta.kind == FileKind::File => return Ok(Begin::File(file)),
            Ok(meta) if meta.kind == FileKind::Directory => {
                let hint = format!(
                    "{} is a directory: end the pattern in /** for the files below it",
                    file.excerpt()
                );
                return Ok(Begin::Nowhere(hint));
            }
            Ok(_) => return Ok(Begin::Nowhere(format!("{} is not a regular file", file.excerpt()))),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match jail.readable(start)?.open_dir_resolved() {
        Ok(_) if pattern.name().is_some() => Ok(Begin::Nowhere(String::new())),
        Ok((start, dir)) => Ok(Begin::Walk(start, dir)),
        Err(error) if is_absent(&error) => Ok(Begin::Nowhere(format!(
            "there is no directory {}: a pattern is relative to {}, unless it begins with a mount such as @project/",
            start.excerpt(),
            within.excerpt()
        ))),
        Err(error) => Err(error.into()),
    }
}
