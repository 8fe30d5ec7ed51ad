//! Reads the file and turns it into a [`Config`].

#![expect(clippy::disallowed_methods, reason = "the configuration")]

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use document::MAX_FILE_BYTES;

use super::{Config, Problems, read};

/// Loads and validates `path`.
pub(crate) fn load(path: &Path) -> anyhow::Result<Config> {
    let shown = path.display().to_string();
    let mut text = String::new();
    let file = File::open(path);
    file.and_then(|file| file.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text))
        .map_err(|error| anyhow::anyhow!("the configuration {shown} cannot be read: {error}"))?;
    Ok(parse(&shown, &text)?)
}

/// Parses and validates the text of a configuration; `file` names it in problems.
pub(super) fn parse(file: &str, text: &str) -> Result<Config, Problems> {
    document::read(file, text, read::config).map_err(Problems)
}
