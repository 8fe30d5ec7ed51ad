//! YAML files that a command line names.

use std::fs::File;
use std::io;
use std::path::Path;

use compose::bounded;

/// Reads as much of a file as is parsed, and one byte more, for which the parser refuses the text.
pub fn text(path: &Path) -> io::Result<String> {
    bounded(File::open(path)?)
}
