//! Packs the directory of a build as a tar. Links are sent as links, so that no file outside of the directory is read.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tar::{Builder, HeaderMode};

/// Writes all files of the directory, sorted by name, as files of root and without times.
pub(super) fn write(directory: &Path, output: &mut dyn Write) -> io::Result<()> {
    let mut tar = Builder::new(output);
    tar.follow_symlinks(false);
    tar.mode(HeaderMode::Deterministic);
    // The daemon does not accept sparse files.
    tar.sparse(false);
    below(&mut tar, directory, Path::new(""))?;
    tar.into_inner()?.flush()
}

fn below(tar: &mut Builder<&mut dyn Write>, directory: &Path, within: &Path) -> io::Result<()> {
    let mut names: Vec<PathBuf> = fs::read_dir(directory.join(within))?
        .map(|entry| entry.map(|entry| within.join(entry.file_name())))
        .collect::<io::Result<_>>()?;
    names.sort();
    for name in names {
        let path = directory.join(&name);
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            tar.append_dir(&name, &path)?;
            below(tar, directory, &name)?;
        } else if kind.is_file() || kind.is_symlink() {
            tar.append_path_with_name(&path, &name)?;
        } else {
            return Err(io::Error::other(format!(
                "{} is neither a file, a directory nor a link",
                path.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tar::EntryType::{Directory, Regular, Symlink};

    use super::*;

    #[test]
    fn links_are_sent_as_links_and_nothing_outside_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("Dockerfile"), "FROM scratch\n").unwrap();
        fs::write(at("a/b/file"), "x").unwrap();
        symlink("/etc/passwd", at("a/link")).unwrap();
        let mut bytes = Vec::new();
        write(directory.path(), &mut bytes).unwrap();
        let mut again = Vec::new();
        write(directory.path(), &mut again).unwrap();
        assert_eq!(bytes, again, "the same directory is the same tar");
        let mut archive = tar::Archive::new(bytes.as_slice());
        let found: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.path().unwrap().display().to_string(), entry.header().entry_type(), entry.size())
            })
            .collect();
        let expected = [
            ("Dockerfile", Regular, 13),
            ("a", Directory, 0),
            ("a/b", Directory, 0),
            ("a/b/file", Regular, 1),
            ("a/link", Symlink, 0),
        ];
        assert_eq!(found, expected.map(|(name, kind, size)| (name.to_owned(), kind, size)));
    }
}
