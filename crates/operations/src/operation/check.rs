//! The checks that several operations share.

use jail::SandboxPath;

use crate::Malformed;

/// Most bytes of a glob pattern.
pub(super) const MAX_GLOB: usize = 1_024;
/// Most bytes of file content in one request, whatever the profile allows.
const MAX_CONTENT: usize = 3 * 1024 * 1024;

pub(super) fn required_path(field: &str, path: &str) -> Result<SandboxPath, Malformed> {
    if path.is_empty() {
        return Err(Malformed::new(field, "is missing: give a path such as @project/src/main.rs"));
    }
    SandboxPath::parse_written(path).map_err(|refusal| Malformed::refused(field, refusal))
}

/// Parses like [`required_path`], but accepts a file outside of the mounts, for profiles with `container_paths: allow`.
pub(super) fn any_path(field: &str, path: &str) -> Result<SandboxPath, Malformed> {
    match required_path(field, path) {
        Err(malformed) => SandboxPath::parse_anywhere(path).map_err(|_| malformed),
        path => path,
    }
}

pub(super) fn any_path_or_root(field: &str, path: &str) -> Result<SandboxPath, Malformed> {
    any_path(field, if path.is_empty() { "@project" } else { path })
}

/// Returns the directory to search. Without a path it is the mount that the pattern begins with, or else the project.
pub(super) fn searched(field: &str, path: &str, pattern: &str) -> Result<SandboxPath, Malformed> {
    match SandboxPath::split_written(pattern).filter(|_| matches!(path, "" | ".")) {
        Some((mount, _)) => any_path_or_root(field, mount.alias()),
        None => any_path_or_root(field, path),
    }
}

pub(super) fn path_or_root(field: &str, path: &str) -> Result<SandboxPath, Malformed> {
    required_path(field, if path.is_empty() { "@project" } else { path })
}

pub(super) fn within(
    field: &str,
    value: Option<u32>,
    default: u32,
    least: u32,
    most: u32,
) -> Result<u32, Malformed> {
    let value = value.unwrap_or(default);
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(Malformed::new(field, format!("must be from {least} to {most}")))
    }
}

pub(super) fn text(field: &str, text: &str, least: usize, most: usize) -> Result<(), Malformed> {
    if text.len() < least {
        return Err(Malformed::new(field, "is missing"));
    }
    if text.len() > most {
        return Err(Malformed::new(field, format!("is longer than {most} bytes")));
    }
    if text.contains('\0') {
        return Err(Malformed::new(field, "contains a NUL byte"));
    }
    Ok(())
}

/// Validates file content, which may hold NUL bytes.
pub(super) fn content(field: &str, content: &[u8]) -> Result<(), Malformed> {
    if content.len() > MAX_CONTENT {
        return Err(Malformed::new(field, format!("is longer than {MAX_CONTENT} bytes")));
    }
    Ok(())
}

/// Refuses a result in which a choice is unset or unknown.
pub(super) fn known(is_known: bool, field: &str) -> Result<(), Malformed> {
    if is_known { Ok(()) } else { Err(Malformed::new(field, "is unknown")) }
}

/// Validates the permission bits of a file.
pub(super) fn permissions(field: &str, mode: Option<u32>) -> Result<Option<u32>, Malformed> {
    match mode {
        Some(mode) if mode > 0o777 => Err(Malformed::new(field, "must be permission bits, from 0 to 0777")),
        mode => Ok(mode),
    }
}

/// Validates a hash. Empty means that there is none.
pub(super) fn sha256(field: &str, hash: String) -> Result<Option<String>, Malformed> {
    if hash.is_empty() {
        return Ok(None);
    }
    if hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
        Ok(Some(hash))
    } else {
        Err(Malformed::new(field, "is not a SHA-256 in 64 lower-case hexadecimal digits"))
    }
}
