//! Files of a balancer, each replaced as a whole.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use presentation::failure::Failure;

/// Mode of the files. The user of a balancer reads them, and they hold no secret.
const MODE: u32 = 0o644;

/// Replaces the file.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let written = atomic_file::replace(path, |file| {
        file.set_permissions(std::fs::Permissions::from_mode(MODE))?;
        file.write_all(text.as_bytes())
    });
    written.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}
