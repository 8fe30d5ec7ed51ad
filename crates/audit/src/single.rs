//! Parses a line that does not come from a segment but from a database, an export, or an answer of the API.

use crate::canonical;
use crate::chain::Damage;
use crate::record::Record;

impl Record {
    /// Parses the record of one line without its newline, and checks the line's own hash.
    ///
    /// This verifies only the line, and not that it is in a log.
    pub fn from_line(line: &str) -> Result<Self, Damage> {
        let envelope = canonical::open(line.as_bytes())?;
        canonical::record(&envelope, line.as_bytes()).map_err(|_| Damage::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Damage, Event, Kind, Reader, Record, Writer};

    #[test]
    fn a_line_is_proved_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path()).unwrap();
        let record = writer.append(&Event::new(Kind::CallIntent).operation("read")).unwrap();
        let mut reader = Reader::from(directory.path(), 0);
        let line = reader.next_line().unwrap().unwrap().to_owned();
        assert_eq!(Record::from_line(&line), Ok(record));
        assert_eq!(Record::from_line(&line.replace("read", "exec")), Err(Damage::Edited));
        for other in ["", "{}", &line[1..]] {
            assert_eq!(Record::from_line(other), Err(Damage::Malformed), "{other}");
        }
    }
}
