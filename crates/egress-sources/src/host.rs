//! Files and variables of this host.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Most bytes of a file.
const MOST_BYTES: u64 = 1 << 20;
/// Most files of a directory.
const MOST_FILES: usize = 256;

/// The environment in which the tools would run.
#[derive(Debug)]
pub struct Host {
    /// Beginning of absolute paths: `/`, or a directory of a test.
    root: PathBuf,
    directory: PathBuf,
    variables: BTreeMap<String, String>,
}

/// The reason why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("not read, because it is no regular file")]
    Kind,
    #[error("not read, because it is larger than 1 MiB")]
    Large,
    #[error("not read, because it is not UTF-8")]
    Encoding,
}

impl Host {
    /// Returns the environment of this process.
    pub fn this() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self {
            root: "/".into(),
            directory: std::env::current_dir().unwrap_or_default(),
            variables: variables.collect(),
        }
    }

    #[cfg(test)]
    pub(super) fn of(root: &Path, directory: &str, variables: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            root: root.to_owned(),
            directory: directory.into(),
            variables: variables.iter().map(owned).collect(),
        }
    }

    /// Returns a variable that is not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the path that a variable has, or one below the home directory.
    pub(super) fn path_or_home(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        self.variable(variable).map(PathBuf::from).or_else(|| self.home(below_home))
    }

    /// Returns a path below the home directory.
    pub(super) fn home(&self, below: &str) -> Option<PathBuf> {
        Some(Path::new(self.variable("HOME")?).join(below))
    }

    /// Returns the user's directory for configuration.
    pub(super) fn config(&self) -> Option<PathBuf> {
        self.path_or_home("XDG_CONFIG_HOME", ".config")
    }

    /// Returns the current directory and those above it.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directory.ancestors().take(64)
    }

    /// Reads a regular file. `None` if there is none.
    pub(super) fn text(&self, path: &Path) -> Result<Option<String>, Unreadable> {
        // Without O_NONBLOCK, opening a pipe waits for its writer.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(self.real(path)) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Err(Unreadable::Kind);
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(Unreadable::Large);
        }
        String::from_utf8(bytes).map(Some).map_err(|_| Unreadable::Encoding)
    }

    /// Returns the first files of a directory in the order of their names. None if there is no such directory.
    pub(super) fn files(&self, directory: &Path) -> Result<Vec<PathBuf>, Unreadable> {
        let entries = match std::fs::read_dir(self.real(directory)) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let names =
            entries.take(MOST_FILES).filter_map(|entry| Some(directory.join(entry.ok()?.file_name())));
        let mut paths: Vec<PathBuf> = names.collect();
        paths.sort();
        Ok(paths)
    }

    pub(super) fn is_directory(&self, path: &Path) -> bool {
        self.real(path).is_dir()
    }

    fn real(&self, path: &Path) -> PathBuf {
        let absolute = self.directory.join(path);
        self.root.join(absolute.strip_prefix("/").unwrap_or(&absolute))
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
