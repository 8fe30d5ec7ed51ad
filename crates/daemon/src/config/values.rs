//! Reads paths, names and bounded numbers of the configuration.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Component, PathBuf};

use document::{At, Fields};

/// Reads an absolute path without `..`.
pub(super) fn path(at: &At<'_>) -> Option<PathBuf> {
    let path = PathBuf::from(at.text()?);
    let plain = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
    if !plain {
        at.problem("must be an absolute path without `..`");
    }
    plain.then_some(path)
}

/// Reads a name for logs and records.
pub(super) fn name(at: &At<'_>) -> Option<String> {
    let name = at.text()?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.len() > 64 || !name.chars().all(plain) {
        at.problem("must be 1 to 64 characters of `a-z`, `0-9`, `-` and `_`");
        return None;
    }
    Some(name.to_owned())
}

/// Reads the path under `key`, or returns the default.
pub(super) fn path_or(fields: &Fields<'_>, key: &str, default: &str) -> PathBuf {
    fields.get(key).and_then(path).unwrap_or_else(|| default.into())
}

/// Reads the address and port under `key`, or returns the default. `other` is a second example.
pub(super) fn address_or(fields: &Fields<'_>, key: &str, default: &str, other: &str) -> Option<SocketAddr> {
    let Some(at) = fields.get(key) else { return default.parse().ok() };
    let address = at.text()?.parse().ok();
    if address.is_none() {
        at.problem(format!("must be an address and a port, such as {default} or \"{other}\""));
    }
    address
}

/// Reads the whole number under `key`, or returns the default.
pub(super) fn number_or(fields: &Fields<'_>, key: &str, range: RangeInclusive<u32>, default: u32) -> u32 {
    let range = u64::from(*range.start())..=u64::from(*range.end());
    u32::try_from(fields.number_or(key, range, default.into())).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a value is read as, or what is said of it.
    fn read<T>(written: &str, as_value: impl FnOnce(&At<'_>) -> Option<T>) -> Result<T, String> {
        let read = document::read("f", &format!("key: {written}"), |top| {
            let fields = top.fields(&["key"]);
            as_value(&fields.at("key"))
        });
        read.map(Option::unwrap).map_err(|problems| problems[0].to_string().replace("f:1: key: ", ""))
    }

    #[test]
    fn paths() {
        assert_eq!(read("/a/b", path), Ok("/a/b".into()));
        for bad in ["a/b", "/a/../b"] {
            assert_eq!(read(bad, path), Err("must be an absolute path without `..`".to_owned()));
        }
    }
}
