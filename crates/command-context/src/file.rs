//! YAML files that a command line names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use compose::MAX_FILE_BYTES;

/// Reads as much of a file as is parsed, and one byte more, for which the parser refuses the text.
pub fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
