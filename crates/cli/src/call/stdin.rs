//! Reads content that the user passes in a file or on standard input, up to a limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::failure::Failure;
use crate::quantity;

/// Size of the largest content that is read, in bytes. It is above every limit of the daemon.
const LARGEST: u64 = 32 << 20;

/// Reads a whole file, or standard input if the path is `-`.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let content = if path == Path::new("-") {
        bounded(&mut io::stdin().lock())
    } else {
        File::open(path).and_then(|mut file| bounded(&mut file))
    };
    let content =
        content.map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))?;
    content.ok_or_else(|| {
        Failure::usage(format!("{} is larger than {}", path.display(), quantity::bytes(LARGEST)))
            .with_hint("`coffer cp FILE RUN:PATH` brings files of any size")
    })
}

/// Reads a whole stream. Returns `None` if it is too long.
fn bounded(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    stream.take(LARGEST + 1).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= LARGEST).then_some(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn is_bounded() {
        assert_eq!(bounded(&mut &b"abc"[..]).unwrap(), Some(b"abc".to_vec()));
        assert_eq!(bounded(&mut io::repeat(0)).unwrap(), None);
        let large = tempfile::NamedTempFile::new().unwrap();
        large.as_file().set_len(LARGEST + 1).unwrap();
        let refused = read(large.path()).unwrap_err().to_string();
        assert!(refused.contains("is larger than 32.0 MiB") && refused.contains("coffer cp"), "{refused}");
    }

    #[test]
    fn a_file_that_is_not_there_is_a_wrong_command_line() {
        assert_eq!(read(Path::new("/nonexistent")).unwrap_err().exit(), Exit::Usage);
    }
}
