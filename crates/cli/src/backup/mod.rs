//! `coffer backup`: backups of a living daemon, verified, and restored into an empty state directory.

mod create;
mod restore;
mod verify;

use std::path::Path;

use ::backup::Checked;

use crate::failure::Failure;

crate::verbs::verbs! {
    Create(create::Create),
    Verify(verify::Verify),
    Restore(restore::Restore),
}

/// Files and directories of a state directory that no backup has, for people.
const LEFT_BEHIND: &str = "not in it: containers, workspaces, bases, checkpoints, mirrors, output of commands and recordings. Runs that \
                           were alive end when it is restored. The configuration and the policy are files of their own";

/// Verifies a backup on the disk. Its log is unpacked beside it meanwhile.
fn check(file: &Path, key_file: Option<&Path>) -> Result<Checked, Failure> {
    let unusable = |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", file.display()));
    let archive = ::backup::open(file, key_file).map_err(|error| unusable(&error))?;
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = tempfile::tempdir_in(parent).map_err(|error| {
        Failure::failed(format!("cannot unpack the log beside {}: {error}", file.display()))
    })?;
    ::backup::check(archive, place.path()).map_err(|error| unusable(&chain(&error)))
}

/// Returns an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
