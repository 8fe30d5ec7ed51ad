//! The names of a run and the bytes that it has moved, in a file of the state directory. Each of its companions has such a file beside it.
//!
//! One JSON object a line: the block first, then each name in the order of its address, and the sums of bytes. A torn last line is dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use egress_rules::{HostName, NoAddress, Pool, Source};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// Bytes of open connections after which their sum is stored.
const STORED: u64 = 1 << 20;
/// Longest line, bytes.
const LINE: u64 = 1024;
/// File of a run. That of a companion has the companion's name after it, and a dot between, which is in no such name.
const FILE: &str = "names";

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Block(Ipv4Net),
    Name(HostName),
    Bytes(u64),
}

/// The names and bytes of a run.
#[derive(Debug)]
pub(crate) struct Table {
    pool: Pool,
    /// Number of names that the file has.
    stored: usize,
    /// `None` for a task, which has no names and no later daemon.
    file: Option<File>,
    bytes: u64,
    /// Bytes that the file has.
    written: u64,
}

impl Table {
    /// Opens the file of a run, or makes one for names in `block`.
    pub(crate) fn open(path: &Path, block: Ipv4Net) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let (known, end) = read(&file)?;
        file.set_len(end)?;
        let (pool, bytes) = if let Some(known) = known {
            known
        } else {
            file.set_len(0)?;
            let pool = Pool::new(block).map_err(io::Error::other)?;
            write(&mut file, &Line::Block(block))?;
            (pool, 0)
        };
        let stored = pool.names().len();
        Ok(Self { pool, stored, file: Some(file), bytes, written: bytes })
    }

    /// Makes the table of a task.
    pub(crate) fn of_task(block: Ipv4Net) -> io::Result<Self> {
        let pool = Pool::new(block).map_err(io::Error::other)?;
        Ok(Self { pool, stored: 0, file: None, bytes: 0, written: 0 })
    }

    /// Returns the address of a name. Gives it one first if it has none.
    pub(crate) fn assign(
        &mut self,
        name: &HostName,
        source: Source,
        per_minute: u32,
        now: Duration,
    ) -> Result<Ipv4Addr, Unassigned> {
        if let Some(address) = self.pool.address_of(name).filter(|_| self.has_stored(name)) {
            return Ok(address);
        }
        let address = self.pool.assign(name, source, per_minute, now)?;
        self.store_names()?;
        Ok(address)
    }

    fn has_stored(&self, name: &HostName) -> bool {
        let names = self.pool.names();
        self.stored == names.len() || names.iter().take(self.stored).any(|stored| stored == name)
    }

    /// Writes the names that the file lacks. A later daemon gives addresses in the order of the lines, so none may be missing before another.
    fn store_names(&mut self) -> io::Result<()> {
        while let Some(name) = self.pool.names().get(self.stored).cloned() {
            self.write(&Line::Name(name))?;
            self.stored += 1;
        }
        Ok(())
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| write(file, line))
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the bytes of all connections.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds bytes of connections. The file gets their sum once a MiB, and when a connection ends (`store`).
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes.saturating_sub(self.written) >= STORED {
            self.store();
        }
    }

    /// Writes the sum of bytes into the file, if it has changed.
    pub(crate) fn store(&mut self) {
        if self.bytes == self.written {
            return;
        }
        self.written = self.bytes;
        if let Err(error) = self.write(&Line::Bytes(self.bytes)) {
            tracing::error!(%error, "the bytes of a run's connections were not stored");
        }
    }
}

/// The lack of an address for a name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unassigned {
    #[error(transparent)]
    None(#[from] NoAddress),
    #[error("the name cannot be stored")]
    Io(#[from] io::Error),
}

fn write(file: &mut File, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let before = file.metadata()?.len();
    let written = file.write_all(&text);
    if written.is_err() {
        // On a full disk, the next line must not continue a torn one. The first error counts.
        let _ = file.set_len(before);
    }
    written
}

/// Returns the file of a run in its directory, or that of a companion if the name is not empty.
pub(crate) fn file_of(directory: &Path, companion: &str) -> PathBuf {
    if companion.is_empty() { directory.join(FILE) } else { directory.join(format!("{FILE}.{companion}")) }
}

/// Returns the names of a run's companions and the bytes that their files have, also of companions that have ended.
///
/// The files stay as they are, because an open table may write to one.
pub(crate) fn bytes_of_companions(directory: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let companion = name.to_str().and_then(|name| name.strip_prefix(FILE)?.strip_prefix('.'));
        let Some(companion) = companion else { continue };
        let (known, _) = read(&File::open(directory.join(&name))?)?;
        all.push((companion.to_owned(), known.map_or(0, |(_, bytes)| bytes)));
    }
    Ok(all)
}

/// Reads a file: its names and bytes, and the end of its last complete line. `None` if it has no complete first line.
fn read(file: &File) -> io::Result<(Option<(Pool, u64)>, u64)> {
    let mut reader = BufReader::new(file);
    let (mut block, mut names, mut bytes, mut end) = (None, Vec::new(), 0, 0);
    let mut text = Vec::new();
    loop {
        text.clear();
        let read = io::Read::take(&mut reader, LINE).read_until(b'\n', &mut text)?;
        if read == 0 || text.pop() != Some(b'\n') {
            break;
        }
        end += read as u64;
        match serde_json::from_slice(&text)? {
            Line::Block(of) => block = Some(of),
            Line::Name(name) => names.push(name),
            Line::Bytes(sum) => bytes = sum,
        }
    }
    let Some(block) = block else { return Ok((None, end)) };
    let mut pool = Pool::new(block).map_err(io::Error::other)?;
    for name in names {
        pool.assign(&name, Source::Named, 0, Duration::ZERO).map_err(io::Error::other)?;
    }
    Ok((Some((pool, bytes)), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    fn assign(table: &mut Table, text: &str) -> Ipv4Addr {
        table.assign(&name(text), Source::Named, 0, Duration::ZERO).unwrap()
    }

    #[test]
    fn names_and_bytes_survive_and_a_torn_line_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("names");
        let mut table = Table::open(&path, Pool::DEFAULT_BLOCK).unwrap();
        let addresses = ["a.example.org", "b.example.org"].map(|text| assign(&mut table, text));
        table.add(7);
        table.store();
        table.add(5);
        table.store();
        table.add(STORED - 1);
        table.store();
        table.store();
        drop(table);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"name\":\"c.exa").unwrap();

        let mut table = Table::open(&path, "11.7.0.0/16".parse().unwrap()).unwrap();
        assert_eq!(table.bytes(), 11 + STORED);
        assert_eq!(table.pool().block(), Pool::DEFAULT_BLOCK, "the block of the first daemon stays");
        assert_eq!(["a.example.org", "b.example.org"].map(|text| assign(&mut table, text)), addresses);
        assert!(!addresses.contains(&assign(&mut table, "c.example.org")));
        drop(table);
        assert_eq!(Table::open(&path, Pool::DEFAULT_BLOCK).unwrap().pool().names().len(), 3);
    }

    #[test]
    fn a_name_that_could_not_be_stored_is_stored_before_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("names");
        let mut table = Table::open(&path, Pool::DEFAULT_BLOCK).unwrap();
        let first = assign(&mut table, "a.example.org");
        let writable = table.file.replace(File::open(&path).unwrap());
        for text in ["b.example.org", "c.example.org", "b.example.org"] {
            assert!(table.assign(&name(text), Source::Named, 0, Duration::ZERO).is_err(), "{text}");
        }
        assert_eq!(assign(&mut table, "a.example.org"), first);
        table.file = writable;
        let names = ["a.example.org", "d.example.org", "c.example.org", "b.example.org"];
        let addresses = names.map(|text| assign(&mut table, text));
        drop(table);
        let mut table = Table::open(&path, Pool::DEFAULT_BLOCK).unwrap();
        assert_eq!(table.pool().names().len(), 4);
        assert_eq!(names.map(|text| assign(&mut table, text)), addresses);
    }

    #[test]
    fn bytes_of_companions_are_read_beside_open_tables() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let open = |companion| Table::open(&file_of(directory, companion), Pool::DEFAULT_BLOCK).unwrap();
        assert!(bytes_of_companions(directory).unwrap().is_empty());
        open("").add(STORED);
        let mut db = open("db");
        db.add(STORED);
        open("cache");
        let torn = file_of(directory, "torn");
        std::fs::write(&torn, "{\"blo").unwrap();
        let mut found = bytes_of_companions(directory).unwrap();
        found.sort();
        let expected = [("cache", 0), ("db", STORED), ("torn", 0)];
        assert_eq!(found, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
        assert_eq!(std::fs::read(&torn).unwrap(), b"{\"blo", "it stays as it is");
        db.add(STORED);
        assert!(bytes_of_companions(directory).unwrap().contains(&("db".to_owned(), 2 * STORED)));
        std::fs::write(torn, "hello\n").unwrap();
        assert!(bytes_of_companions(directory).is_err());
    }

    #[test]
    fn an_empty_or_torn_file_begins_anew_and_a_foreign_one_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("names");
        std::fs::write(&path, "{\"blo").unwrap();
        assert_eq!(Table::open(&path, Pool::DEFAULT_BLOCK).unwrap().pool().names().len(), 0);
        std::fs::write(&path, "hello\n").unwrap();
        assert!(Table::open(&path, Pool::DEFAULT_BLOCK).is_err());
    }
}
