//! Stores texts that many records share as small numbers: the ids of runs and agents, and the names of operations.
//!
//! The count of each tells a query which of its conditions leaves the fewest records.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, params};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::state::IndexError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Field {
    Kind = 0,
    Run = 1,
    Principal = 2,
    Agent = 3,
    Operation = 4,
    Status = 5,
    Reason = 6,
}

impl Field {
    const COUNT: usize = 7;
}

/// A text's number, and the number of records that have the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) id: i64,
    pub(super) count: u64,
}

/// Most texts that are kept in memory while filling.
const REMEMBERED: usize = 10_000;

/// The numbers that a filler has given. They must be flushed in the transaction of the rows that use them, and forgotten when it
/// fails.
#[derive(Default)]
pub(super) struct Names {
    known: [HashMap<String, (i64, u64)>; Field::COUNT],
    /// Number of texts in all maps.
    count: usize,
}

impl Names {
    /// Returns the number of a text, and counts one further record with it.
    pub(super) fn number(
        &mut self,
        connection: &Connection,
        field: Field,
        text: Option<&str>,
    ) -> Result<Option<i64>, IndexError> {
        let Some(text) = text else { return Ok(None) };
        if let Some((id, met)) = self.known[field as usize].get_mut(text) {
            *met += 1;
            return Ok(Some(*id));
        }
        if self.count >= REMEMBERED {
            self.flush(connection)?;
            *self = Self::default();
        }
        let id = if let Some(name) = find(connection, field, text)? {
            name.id
        } else {
            connection
                .prepare_cached("INSERT INTO names (field, text, count) VALUES (?1, ?2, 0)")?
                .execute(params![field as u8, text])?;
            connection.last_insert_rowid()
        };
        self.known[field as usize].insert(text.to_owned(), (id, 1));
        self.count += 1;
        Ok(Some(id))
    }

    /// Writes how often each text occurred since the last flush.
    pub(super) fn flush(&mut self, connection: &Connection) -> Result<(), IndexError> {
        let mut update = connection.prepare_cached("UPDATE names SET count = count + ?2 WHERE id = ?1")?;
        for (id, met) in self.known.iter_mut().flat_map(HashMap::values_mut).filter(|(_, met)| *met > 0) {
            update.execute(params![*id, met.cast_signed()])?;
            *met = 0;
        }
        Ok(())
    }
}

/// Returns a text's number, if any record has the text.
pub(super) fn find(connection: &Connection, field: Field, text: &str) -> Result<Option<Name>, IndexError> {
    let mut statement =
        connection.prepare_cached("SELECT id, count FROM names WHERE field = ?1 AND text = ?2")?;
    let found = statement.query_row(params![field as u8, text], |row| {
        Ok(Name { id: row.get(0)?, count: row.get::<_, i64>(1)?.cast_unsigned() })
    });
    Ok(found.optional()?)
}

/// Returns the number of a text that few records share, such as a call's id.
///
/// Two texts may have the same number: the records that it finds are compared again. The numbers of the daemon's own ids grow with
/// their time (UUID version 7, RFC 9562: 48 bits of milliseconds come first). So those of one batch are adjacent, and the batch
/// changes few pages. The number of any other text is anywhere.
pub(super) fn digest(text: &str) -> i64 {
    let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let mut number = *hash.first_chunk::<8>().unwrap_or(&[0; 8]);
    if let Some(id) = Uuid::try_parse(text).ok().filter(|id| id.get_version_num() == 7) {
        number[..6].copy_from_slice(&id.as_bytes()[..6]);
    }
    i64::from_be_bytes(number)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use uuid::{NoContext, Timestamp, Uuid};

    use super::digest;

    #[test]
    fn later_ids_have_larger_numbers_and_other_texts_have_some() {
        let id = |millis: u64| {
            let nanos = u32::try_from(millis % 1_000 * 1_000_000).unwrap();
            let time = Timestamp::from_unix(NoContext, millis / 1_000, nanos);
            digest(&Uuid::new_v7(time).to_string())
        };
        let moments = [1, 1_000, 1_795_000_000_000, 1_795_000_000_001, 1_795_000_086_400];
        assert!(moments.map(id).is_sorted());
        // Those of one moment are told apart but for a few.
        let same: HashSet<i64> = (0..100).map(|_| id(1_795_000_000_000)).collect();
        assert!(same.len() > 90, "{}", same.len());
        let others = ["", "c", "not an id", "01a20397-e49e-468c-bebe-2106e91ea914"].map(digest);
        assert_eq!(HashSet::from(others).len(), others.len());
    }
}
