//! Paths of the daemon's host, as users type them.

use std::path::Path;

use crate::failure::Failure;

/// Returns a repository as a path in the form that the daemon requires, or as the address of a server; one of the two is empty.
pub(crate) fn repository_or_url(named: &Path) -> Result<(String, String), Failure> {
    match named.to_str().filter(|text| text.contains("://")) {
        Some(url) => Ok((String::new(), url.to_owned())),
        None => Ok((absolute(named)?, String::new())),
    }
}

/// Returns the path in the form that the daemon requires: absolute, and without `.`, `..` and links.
pub(crate) fn absolute(path: &Path) -> Result<String, Failure> {
    // If the client has no access to the path, or shares no file system with the daemon, the daemon checks the path itself.
    let path = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path))?;
    path.into_os_string()
        .into_string()
        .map_err(|path| Failure::usage(format!("the path {} is not UTF-8", path.display())))
}
