//! The host's own file of names, hosts(5). Its names are parsed once for each edition of the file.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use egress_rules::HostName;
use parking_lot::Mutex;

/// Longest file that is read, in bytes. Lists against advertisements have 3 MB.
const LONGEST: u64 = 8 << 20;

type Names = HashMap<String, Vec<IpAddr>>;

/// The file, and the names of its last edition.
#[derive(Debug)]
pub(crate) struct HostsFile {
    path: PathBuf,
    known: Mutex<Option<(Edition, Names)>>,
}

/// The facts that differ after a change of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edition {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Edition {
    fn of(file: &Metadata) -> Self {
        Self {
            file: (file.dev(), file.ino()),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl HostsFile {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), known: Mutex::new(None) }
    }

    /// Returns the addresses of a name; none without a file. Blocks while it reads a new edition.
    ///
    /// A file that cannot be used is an error: its names would be looked up elsewhere.
    pub(crate) fn addresses(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        let edition = Edition::of(&file.metadata()?);
        let mut known = self.known.lock();
        if known.as_ref().is_none_or(|(last, _)| *last != edition) {
            *known = Some((edition, read(file)?));
        }
        let found = known.as_ref().and_then(|(_, names)| names.get(&name.to_string()));
        Ok(found.cloned().unwrap_or_default())
    }
}

fn read(file: File) -> io::Result<Names> {
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        let message = format!("the file of hosts is longer than {} MiB", LONGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(names(&String::from_utf8_lossy(&bytes)))
}

/// Returns the names in lower case, each with its addresses in the order of the lines.
fn names(text: &str) -> Names {
    let mut names = Names::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
        let address = address.to_canonical();
        for word in words {
            let addresses = names.entry(word.to_ascii_lowercase()).or_default();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    fn addresses<const N: usize>(texts: [&str; N]) -> Vec<IpAddr> {
        texts.map(|text| text.parse::<IpAddr>().unwrap()).to_vec()
    }

    #[test]
    fn names_of_a_file_of_hosts_are_found() {
        let known = names(
            "127.0.0.1 localhost\n\n# 10.0.0.1 a.example.org\n10.0.0.7\tmirror  A.example.org # b.example.org\n\
             fd00::7 a.example.org a.example.org\nnone a.example.org\n::ffff:10.0.0.8 a.example.org",
        );
        assert_eq!(known["a.example.org"], addresses(["10.0.0.7", "fd00::7", "10.0.0.8"]));
        assert_eq!(known.get("b.example.org"), None);
        assert_eq!(known.get("example.org"), None);
    }

    #[test]
    fn a_changed_file_is_read_again_and_an_unchanged_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        let hosts = HostsFile::new(&path);
        let found = || hosts.addresses(&name("a.example.org")).unwrap();
        assert_eq!(found(), addresses([]));

        std::fs::write(&path, "10.0.0.1 a.example.org").unwrap();
        assert_eq!(found(), addresses(["10.0.0.1"]));
        // Only a copy has what the file does not say.
        hosts.known.lock().as_mut().unwrap().1.insert("a.example.org".to_owned(), addresses(["10.0.0.9"]));
        assert_eq!(found(), addresses(["10.0.0.9"]));

        let new = directory.path().join("new");
        std::fs::write(&new, "10.0.0.2 a.example.org").unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert_eq!(found(), addresses(["10.0.0.2"]));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found(), addresses([]));
    }

    #[test]
    fn a_file_that_is_too_long_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        File::create(&path).unwrap().set_len(LONGEST + 1).unwrap();
        let error = HostsFile::new(&path).addresses(&name("a.example.org")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn bytes_that_are_no_text_hide_no_other_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        std::fs::write(&path, b"10.0.0.1 \xff\xfe\n10.0.0.2 a.example.org\n").unwrap();
        let found = HostsFile::new(&path).addresses(&name("a.example.org")).unwrap();
        assert_eq!(found, addresses(["10.0.0.2"]));
    }
}
