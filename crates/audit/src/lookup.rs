//! Finds lines by their positions, in any order, for callers that have noted the position of each record.

use std::io;
use std::path::{Path, PathBuf};

use crate::canonical::MAX_LINE;
use crate::lines::{ReadAt as _, retry};
use crate::packed::CHUNK;
use crate::removal::{self, Removed};
use crate::segment::{self, Segment, SegmentName, Source};
use crate::storage;

/// Bytes that are read at once, from a multiple of this number.
///
/// Records that are close to each other are in few blocks. A compressed segment can be read from the beginning of each block.
const BLOCK: usize = CHUNK;

/// Position that no file can reach, and so no segment.
const FARTHEST: u64 = 1 << 62;

/// Finds lines of the segments that existed when it was created. It should not be kept for long, because it keeps one of them open.
#[derive(Debug)]
pub struct Lookup {
    dir: PathBuf,
    segments: Vec<Segment>,
    current: Option<(SegmentName, Source)>,
    /// Bytes of the current segment.
    block: Vec<u8>,
    /// Position in the segment where `block` begins.
    start: u64,
}

impl Lookup {
    pub fn new(dir: &Path) -> io::Result<Self> {
        let segments = segment::list(dir)?;
        Ok(Self { dir: dir.to_owned(), segments, current: None, block: Vec::new(), start: 0 })
    }

    /// Returns the line that begins at byte `position` of the segment with the record `sequence`, without its newline.
    ///
    /// The line is not verified, and may even belong to another record. Returns `None` if no segment has a line there.
    pub fn line(&mut self, sequence: u64, position: u64) -> io::Result<Option<&str>> {
        let Some(&Segment { name, .. }) = self.segments.iter().rfind(|segment| segment.name.0 <= sequence)
        else {
            return Ok(None);
        };
        if self.current.as_ref().is_none_or(|(current, _)| *current != name) {
            self.block.clear();
            self.current = segment::open(&self.dir, name)?.map(|source| (name, source));
        }
        let found = match line_in(&self.block, self.start, position) {
            Some(found) => Some(found),
            None => self.load(position)?,
        };
        Ok(found.and_then(|(from, to)| std::str::from_utf8(&self.block[from..to]).ok()))
    }

    /// Returns true if the record `sequence` was removed and the removal is on record.
    pub fn was_removed(&self, sequence: u64) -> io::Result<bool> {
        let file = storage::load(&self.dir, removal::FILE)?;
        let removed = file.as_deref().and_then(Removed::parse);
        Ok(removed.is_some_and(|removed| sequence <= removed.last_sequence))
    }

    /// Reads the block that contains the position, and further bytes if the line is longer than the block.
    fn load(&mut self, position: u64) -> io::Result<Option<(usize, usize)>> {
        let Some((_, source)) = self.current.as_mut().filter(|_| position < FARTHEST) else {
            return Ok(None);
        };
        self.start = position - position % BLOCK as u64;
        self.block.clear();
        let mut wanted = BLOCK;
        loop {
            let at = self.block.len();
            self.block.resize(wanted, 0);
            let offset = self.start + at as u64;
            let count = retry(|| source.read_at(&mut self.block[at..], offset));
            self.block.truncate(at + *count.as_ref().unwrap_or(&0));
            let is_end = count? == 0;
            if self.block.len() == wanted || is_end {
                let found = line_in(&self.block, self.start, position);
                if found.is_some() || is_end || wanted > BLOCK {
                    return Ok(found);
                }
                wanted += MAX_LINE;
            }
        }
    }
}

/// Returns the range of the line at a position, without its newline, in a block that begins at `start`.
fn line_in(block: &[u8], start: u64, position: u64) -> Option<(usize, usize)> {
    let from = usize::try_from(position.checked_sub(start)?).ok()?;
    let length = memchr::memchr(b'\n', block.get(from..)?)?;
    (length < MAX_LINE).then_some((from, from + length))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::Lookup;
    use crate::event::Event;
    use crate::packed;
    use crate::reader::Reader;
    use crate::segment;
    use crate::testing::call;
    use crate::writer::{Limits, Writer};

    #[test]
    fn every_line_is_found_forth_and_back_in_plain_and_in_compressed_segments() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { segment_bytes: 300_000, segment_age: None };
        let (mut writer, _) = Writer::open_with(dir.path(), limits).unwrap();
        for batch in 0..60 {
            let long = serde_json::json!({ "long": "x".repeat(batch * 200) });
            let events: Vec<Event> = (0..40).map(|n| call(n).details(long.clone())).collect();
            let records = writer.append_all(events).unwrap();
            // The positions that the writer reports are those that a reader finds.
            let mut reader = Reader::from(dir.path(), records[0].sequence - 1);
            assert_eq!(reader.next_with_position().unwrap().unwrap().1, writer.last_position());
        }
        let mut reader = Reader::from(dir.path(), 0);
        let mut lines = Vec::new();
        while let Some((line, position)) = reader.next_with_position().unwrap() {
            lines.push((lines.len() as u64 + 1, position, line.to_owned()));
        }
        assert_eq!(lines.len(), 2_400);
        let segments = segment::list(dir.path()).unwrap();
        assert!(segments.len() > 3);
        for pack in [false, true] {
            if pack {
                for segment in &segments[..3] {
                    let (plain, to) = (segment.path(dir.path()), segment.name.packed_path(dir.path()));
                    packed::pack(&mut File::open(&plain).unwrap(), &mut File::create(to).unwrap()).unwrap();
                    fs::remove_file(plain).unwrap();
                }
            }
            let mut lookup = Lookup::new(dir.path()).unwrap();
            let scattered = (0..lines.len()).map(|n| &lines[n * 1_009 % lines.len()]);
            for (sequence, position, line) in
                lines.iter().chain(lines.iter().rev()).chain(scattered.take(300))
            {
                assert_eq!(lookup.line(*sequence, *position).unwrap(), Some(line.as_str()));
            }
        }
    }

    #[test]
    fn lookup_finds_no_line_at_wrong_positions() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(dir.path()).unwrap();
        assert_eq!(
            Lookup::new(&dir.path().join("none")).map_err(|error| error.kind()).err(),
            Some(std::io::ErrorKind::NotFound)
        );
        writer.append_batch(&[call(1), call(2)]).unwrap();
        let mut lookup = Lookup::new(dir.path()).unwrap();
        let second = lookup.line(1, 0).unwrap().unwrap().len() as u64 + 1;
        assert!(lookup.line(1, 5).unwrap().is_some(), "a part of a line is one, until it is proved");
        assert!(lookup.line(2, second).unwrap().is_some());
        for position in [2 * second + 500, 1 << 40, u64::MAX] {
            assert_eq!(lookup.line(2, position).unwrap(), None, "{position}");
        }
        assert_eq!(lookup.line(0, 0).unwrap(), None);
        assert!(!lookup.was_removed(1).unwrap());
        let mut lookup = Lookup::new(dir.path()).unwrap();
        fs::remove_file(segment::list(dir.path()).unwrap()[0].path(dir.path())).unwrap();
        assert_eq!(lookup.line(1, 0).unwrap(), None);
    }
}
