//! Reads a recording back: what the terminal showed, without what was typed.
//!
//! The file is the daemon's own, but its texts are an agent's, so lines are bounded and a line that is none ends the reading.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde_json::Value;

use super::Size;

/// Longest line that is read, bytes. A recorder writes at most 64 KiB of text in a line, of which JSON makes six times as many.
const LINE: u64 = 1024 * 1024;

/// Something that happened at a terminal.
#[derive(Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time since the beginning of the recording, microseconds.
    pub at_us: u64,
    pub shown: Shown,
}

/// Event that a reader of recordings may see.
#[derive(Debug, PartialEq, Eq)]
pub enum Shown {
    Size(Size),
    Output(String),
    /// Number of a signal that was sent to the terminal.
    Signal(u32),
}

/// A recording that is being read. Blocks on the disk.
#[derive(Debug)]
pub struct Playback {
    lines: BufReader<File>,
    size: Size,
}

impl Playback {
    /// Opens the recording at `path`. Fails with `NotFound` if there is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut lines = BufReader::new(File::open(path)?);
        let header = line(&mut lines)?.and_then(|line| serde_json::from_slice::<Value>(&line).ok());
        let size = header.as_ref().and_then(|header| size(&header["width"], &header["height"]));
        let size = size.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it has no header"))?;
        Ok(Self { lines, size })
    }

    /// Returns the size of the terminal at first.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the next events, from at least `bytes` of the file. At the end of the recording it returns none.
    pub fn next(&mut self, bytes: usize) -> io::Result<Vec<Moment>> {
        let (mut moments, mut read) = (Vec::new(), 0);
        while read < bytes || moments.is_empty() {
            let Some(line) = line(&mut self.lines)? else { break };
            read += line.len();
            match event(&line) {
                Some(Event::Shown(moment)) => moments.push(moment),
                Some(Event::Typed) => {}
                None => return Err(io::Error::new(io::ErrorKind::InvalidData, "a line of it is no event")),
            }
        }
        Ok(moments)
    }
}

/// Event of a line.
enum Event {
    Shown(Moment),
    Typed,
}

/// Returns the next whole line, or `None` at the end. The last line of a recording that is being written may be incomplete.
fn line(lines: &mut BufReader<File>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    lines.take(LINE).read_until(b'\n', &mut line)?;
    match line.last() {
        Some(b'\n') => Ok(Some(line)),
        _ if line.len() as u64 == LINE => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"))
        }
        _ => Ok(None),
    }
}

fn event(line: &[u8]) -> Option<Event> {
    let (at, kind, text): (f64, String, String) = serde_json::from_slice(line).ok()?;
    if !at.is_finite() || at < 0.0 {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked above; it saturates"
    )]
    let at_us = (at * 1e6).round() as u64;
    let shown = match kind.as_str() {
        "i" => return Some(Event::Typed),
        "o" => Shown::Output(text),
        "r" => {
            let (columns, rows) = text.split_once('x')?;
            Shown::Size(Size { rows: rows.parse().ok()?, columns: columns.parse().ok()? })
        }
        "m" => Shown::Signal(text.strip_prefix("signal ")?.parse().ok()?),
        _ => return None,
    };
    Some(Event::Shown(Moment { at_us, shown }))
}

fn size(columns: &Value, rows: &Value) -> Option<Size> {
    let number = |value: &Value| u16::try_from(value.as_u64()?).ok();
    Some(Size { rows: number(rows)?, columns: number(columns)? })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Moment, Playback, Shown};
    use crate::allowance::Allowance;
    use crate::recording::{Entry, Header, Recording, Size};

    #[test]
    fn a_recording_is_played_without_what_was_typed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("sessions/run/session.cast");
        let header = Header { size: Size { rows: 24, columns: 80 }, term: "xterm", timestamp: 0, title: "t" };
        let mut recording = Recording::begin(&path, &header, 1 << 20, &Allowance::new(u64::MAX)).unwrap();
        for entry in [
            Entry::Output(Bytes::from_static(b"Password: \x1b[2J")),
            Entry::Input(Bytes::from_static(b"swordfish\r")),
            Entry::Resize(Size { rows: 7, columns: 123 }),
            Entry::Signal(2),
            Entry::Output(Bytes::from_static(b"\xff!")),
        ] {
            recording.add(&entry).unwrap();
        }
        recording.finish().unwrap();

        let mut playback = Playback::open(&path).unwrap();
        assert_eq!(playback.size(), Size { rows: 24, columns: 80 });
        let moments = playback.next(usize::MAX).unwrap();
        assert!(moments.is_sorted_by_key(|moment| moment.at_us));
        let shown: Vec<Shown> = moments.into_iter().map(|moment| moment.shown).collect();
        assert_eq!(
            shown,
            [
                Shown::Output("Password: \u{1b}[2J".to_owned()),
                Shown::Size(Size { rows: 7, columns: 123 }),
                Shown::Signal(2),
                Shown::Output("\u{fffd}!".to_owned()),
            ]
        );
        assert_eq!(playback.next(1).unwrap(), []);
    }

    #[test]
    fn a_recording_is_read_in_parts_up_to_its_last_whole_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.cast");
        let lines = "{\"width\":80,\"height\":24}\n[0.5, \"o\", \"a\"]\n[0.7, \"i\", \"x\"]\n[1.25, \"o\", \"b\"]\n[2.0, \"o\", \"c";
        std::fs::write(&path, lines).unwrap();
        let mut playback = Playback::open(&path).unwrap();
        let output = |at_us, text: &str| Moment { at_us, shown: Shown::Output(text.to_owned()) };
        assert_eq!(playback.next(1).unwrap(), [output(500_000, "a")]);
        assert_eq!(playback.next(1).unwrap(), [output(1_250_000, "b")]);
        assert_eq!(playback.next(1).unwrap(), []);
    }

    #[test]
    fn other_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.cast");
        assert_eq!(Playback::open(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        for none in ["", "{}\n", "[]\n", "{\"width\":99999999,\"height\":1}\n"] {
            std::fs::write(&path, none).unwrap();
            assert!(Playback::open(&path).is_err(), "{none:?}");
        }
        for none in [
            "{}",
            "[1]",
            "[-1.0, \"o\", \"a\"]",
            "[1.0, \"x\", \"a\"]",
            "[1.0, \"r\", \"8\"]",
            "[1.0, \"m\", \"x\"]",
        ] {
            std::fs::write(&path, format!("{{\"width\":80,\"height\":24}}\n{none}\n")).unwrap();
            assert!(Playback::open(&path).unwrap().next(1).is_err(), "{none}");
        }
    }
}
