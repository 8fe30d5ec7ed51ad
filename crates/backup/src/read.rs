//! Reads an archive once, from front to back. It is treated as hostile.

use std::collections::BTreeMap;
use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use crate::format::{Entry, HEAD, Head, MANIFEST, MOST, Manifest, REQUIRED, VERSION, is_member, longest};

/// Bytes after the last member that an archive may have. They are empty blocks.
const REST: u64 = 64 * 1024;

/// Reason why an archive is not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The file cannot be opened, or not with this key.
    #[error(transparent)]
    Open(io::Error),
    #[error("not a backup: the archive cannot be read, or it is cut off")]
    Archive(#[source] io::Error),
    /// The archive has an entry that no backup has.
    #[error("not a backup: {0}")]
    Shape(String),
    #[error(
        "the backup has the form {0}, and this program knows the form {VERSION}: use the release that made it"
    )]
    Version(u32),
    /// A member that every backup has is not there.
    #[error("{0} is missing: the backup is not whole")]
    Missing(String),
    /// A member differs from its description in the manifest.
    #[error("{0} was changed: it does not match the manifest")]
    Changed(String),
    /// The digest of the archive is not the expected one.
    #[error("its SHA-256 is {0}: it is another backup, or was changed")]
    Other(String),
    #[error("a file of the backup cannot be written")]
    Write(#[source] io::Error),
}

/// Reads the archive, and gives each member to `take` until it was read whole.
///
/// A name that `take` gets is one of the few that a backup can have. The members are checked against the manifest, which comes last, so
/// `take` must not use them before this function returns.
///
/// With `expected` the SHA-256 of the whole archive must be this one, in hex.
pub(crate) fn read(
    archive: impl Read,
    expected: Option<&str>,
    take: &mut dyn FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<Head, ArchiveError> {
    let mut archive = tar::Archive::new(Whole { from: archive, sha256: Sha256::new() });
    let head = members(&mut archive, take)?;
    let mut whole = archive.into_inner();
    let rest = io::copy(&mut (&mut whole).take(REST + 1), &mut io::sink()).map_err(ArchiveError::Archive)?;
    if rest > REST {
        return Err(ArchiveError::Shape("it goes on after its end".to_owned()));
    }
    let found = hex::encode(whole.sha256.finalize());
    match expected {
        Some(expected) if expected != found => Err(ArchiveError::Other(found)),
        _ => Ok(head),
    }
}

/// Reads the members, the first and the last one included.
fn members<R: Read>(
    archive: &mut tar::Archive<R>,
    take: &mut dyn FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<Head, ArchiveError> {
    // Raw entries: those that extend others are no members, and are not read into memory.
    let mut entries = archive.entries().map_err(ArchiveError::Archive)?.raw(true);
    let mut head = None;
    let mut found = BTreeMap::<String, Entry>::new();
    while let Some(entry) = entries.next() {
        let mut entry = entry.map_err(ArchiveError::Archive)?;
        let name = name_of(&entry)?;
        let bytes = entry.size();
        if bytes > longest(&name) {
            return Err(ArchiveError::Shape(format!("{name} is too long")));
        }
        if head.is_none() {
            if name != HEAD {
                return Err(ArchiveError::Shape(format!("{HEAD} is not its first member")));
            }
            head = Some(read_head(&mut entry, bytes)?);
            continue;
        }
        if name == MANIFEST {
            let manifest = short(&mut entry, bytes)?;
            let manifest: Manifest = serde_json::from_slice(&manifest)
                .map_err(|_| ArchiveError::Shape(format!("{MANIFEST} cannot be read")))?;
            drop(entry);
            if entries.next().is_some() {
                return Err(ArchiveError::Shape(format!("{MANIFEST} is not its last member")));
            }
            compare(&manifest, &found)?;
            return head.ok_or_else(|| ArchiveError::Missing(HEAD.to_owned()));
        }
        if !is_member(&name) || found.contains_key(&name) || found.len() == MOST {
            return Err(ArchiveError::Shape(format!("it has the member {name:?}, or has it twice")));
        }
        let mut content = Hashed { from: &mut entry, bytes: 0, sha256: Sha256::new(), failure: None };
        let taken = take(&name, &mut content);
        let Hashed { bytes: came, sha256, failure, .. } = content;
        if let Some(failure) = failure {
            return Err(ArchiveError::Archive(failure));
        }
        taken.map_err(ArchiveError::Write)?;
        if came != bytes {
            return Err(ArchiveError::Archive(io::ErrorKind::UnexpectedEof.into()));
        }
        found.insert(name, Entry { bytes, sha256: hex::encode(sha256.finalize()) });
    }
    Err(ArchiveError::Missing(MANIFEST.to_owned()))
}

/// Returns the name of a regular file.
fn name_of(entry: &tar::Entry<'_, impl Read>) -> Result<String, ArchiveError> {
    let path = entry.path_bytes();
    let name = String::from_utf8_lossy(&path).into_owned();
    if entry.header().entry_type() != tar::EntryType::Regular {
        return Err(ArchiveError::Shape(format!("{name:?} is no regular file")));
    }
    Ok(name)
}

fn short(entry: &mut impl Read, bytes: u64) -> Result<Vec<u8>, ArchiveError> {
    let mut content = Vec::new();
    entry.take(bytes).read_to_end(&mut content).map_err(ArchiveError::Archive)?;
    if content.len() as u64 != bytes {
        return Err(ArchiveError::Archive(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(content)
}

fn read_head(entry: &mut impl Read, bytes: u64) -> Result<Head, ArchiveError> {
    let content = short(entry, bytes)?;
    let unreadable = || ArchiveError::Shape(format!("{HEAD} cannot be read"));
    // The version first: another one may have other fields.
    let value: serde_json::Value = serde_json::from_slice(&content).map_err(|_| unreadable())?;
    let version = value["version"].as_u64().ok_or_else(unreadable)?;
    if version != u64::from(VERSION) {
        return Err(ArchiveError::Version(u32::try_from(version).unwrap_or(u32::MAX)));
    }
    serde_json::from_value(value).map_err(|_| unreadable())
}

fn compare(manifest: &Manifest, found: &BTreeMap<String, Entry>) -> Result<(), ArchiveError> {
    for (name, entry) in &manifest.members {
        match found.get(name) {
            None => return Err(ArchiveError::Missing(format!("{name:?}"))),
            Some(found) if found != entry => return Err(ArchiveError::Changed(name.clone())),
            Some(_) => {}
        }
    }
    if let Some(name) = found.keys().find(|name| !manifest.members.contains_key(*name)) {
        return Err(ArchiveError::Shape(format!("{name} is not in its manifest")));
    }
    match REQUIRED.iter().find(|name| !found.contains_key(**name)) {
        Some(name) => Err(ArchiveError::Missing((*name).to_owned())),
        None => Ok(()),
    }
}

/// Reader of the whole archive.
struct Whole<R> {
    from: R,
    sha256: Sha256,
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.sha256.update(&buffer[..count]);
        Ok(count)
    }
}

/// Reader of a member. It keeps the failure of the archive apart from that of its reader.
struct Hashed<'a> {
    from: &'a mut dyn Read,
    bytes: u64,
    sha256: Sha256,
    failure: Option<io::Error>,
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.from.read(buffer) {
            Ok(count) => {
                self.sha256.update(&buffer[..count]);
                self.bytes += count as u64;
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.failure = Some(error);
                Err(kind.into())
            }
        }
    }
}
