//! Looking at a directory, which may change meanwhile.

use jail::{Dir, EntryName, Metadata, OpenError, OpenErrorKind};

/// The names in a directory, sorted, without those of things that were never complete.
pub(super) fn names(dir: &Dir) -> Result<Vec<EntryName>, OpenError> {
    let names = dir.entries()?.map(|entry| Ok(entry?.name));
    let mut names = names.collect::<Result<Vec<_>, OpenError>>()?;
    names.retain(|name| !name.is_temporary());
    names.sort_unstable();
    Ok(names)
}

/// The meaning of a name, if it has one.
pub(super) fn found(dir: &Dir, name: &EntryName) -> Result<Option<Metadata>, OpenError> {
    match dir.metadata(name) {
        Ok(meta) => Ok(Some(meta)),
        Err(OpenError { kind: OpenErrorKind::NotFound, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
