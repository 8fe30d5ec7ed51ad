//! Reads a directory that may change meanwhile.

use jail::{Dir, EntryName, Metadata, OpenError, OpenErrorKind};

/// Returns the sorted names in a directory, without temporary files, which were never complete.
pub(super) fn names(dir: &Dir) -> Result<Vec<EntryName>, OpenError> {
    let names = dir.entries()?.map(|entry| Ok(entry?.name));
    let mut names = names.collect::<Result<Vec<_>, OpenError>>()?;
    names.retain(|name| !name.is_temporary());
    names.sort_unstable();
    Ok(names)
}

/// Returns the file of a name, if there is one.
pub(super) fn found(dir: &Dir, name: &EntryName) -> Result<Option<Metadata>, OpenError> {
    match dir.metadata(name) {
        Ok(meta) => Ok(Some(meta)),
        Err(OpenError { kind: OpenErrorKind::NotFound, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
