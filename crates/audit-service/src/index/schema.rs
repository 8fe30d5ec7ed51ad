//! The index's tables. All data is derived from the segments: an index of another version is not converted, but rebuilt.

#![expect(clippy::disallowed_methods, reason = "the daemon's own index")]

use std::path::Path;

use audit::Hash;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use super::state::IndexError;

/// Changes with the meaning of any row.
const VERSION: u32 = 3;

/// `events` is narrow, so that the data of a query is in memory. For a record it has only the position of its line: the byte of its segment
/// at which the line begins. The segment follows from the sequence number.
const TABLES: &str = "
CREATE TABLE progress (
    one     INTEGER PRIMARY KEY CHECK (one = 0),
    through INTEGER NOT NULL,
    hash    TEXT NOT NULL
) STRICT;
CREATE TABLE names (
    id    INTEGER PRIMARY KEY,
    field INTEGER NOT NULL,
    text  TEXT NOT NULL,
    count INTEGER NOT NULL,
    UNIQUE (field, text)
) STRICT;
CREATE TABLE events (
    sequence  INTEGER PRIMARY KEY,
    time      INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    run       INTEGER,
    principal INTEGER,
    agent     INTEGER,
    operation INTEGER,
    status    INTEGER,
    reason    INTEGER,
    call      INTEGER,
    approval  INTEGER,
    place     INTEGER NOT NULL
) STRICT;
CREATE TABLE spans (
    span     INTEGER PRIMARY KEY,
    earliest INTEGER NOT NULL,
    latest   INTEGER NOT NULL
) STRICT;
";

/// Created once the rows exist: sorting once is many times faster than inserting each one in order.
const INDEXES: &str = "
CREATE INDEX by_kind ON events (kind);
CREATE INDEX by_run ON events (run) WHERE run IS NOT NULL;
CREATE INDEX by_principal ON events (principal) WHERE principal IS NOT NULL;
CREATE INDEX by_agent ON events (agent) WHERE agent IS NOT NULL;
CREATE INDEX by_operation ON events (operation) WHERE operation IS NOT NULL;
CREATE INDEX by_status ON events (status) WHERE status IS NOT NULL;
CREATE INDEX by_reason ON events (reason) WHERE reason IS NOT NULL;
CREATE INDEX by_call ON events (call) WHERE call IS NOT NULL;
CREATE INDEX by_approval ON events (approval) WHERE approval IS NOT NULL;
";

/// Most memory for a connection's pages, KiB. The rest is in the system's cache.
const CACHE_KIB: i32 = 8 * 1024;

/// The position of an index in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Through {
    pub(super) sequence: u64,
    /// The hash of the record with that sequence number.
    pub(super) hash: Hash,
}

/// Creates a new database. It must be filled in one go, and never used if that fails.
pub(super) fn create(path: &Path) -> Result<Connection, IndexError> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "OFF")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "cache_size", -8 * CACHE_KIB)?;
    connection.execute_batch(TABLES)?;
    Ok(connection)
}

/// Makes the last step of a new database.
pub(super) fn complete(connection: &Connection) -> Result<(), IndexError> {
    // Sorting uses a second thread.
    connection.pragma_update(None, "threads", 1)?;
    connection.execute_batch(INDEXES)?;
    connection.pragma_update(None, "user_version", VERSION)?;
    Ok(())
}

/// Opens the existing database for writing, if it is of this version.
pub(super) fn open(path: &Path) -> Result<Option<Connection>, IndexError> {
    if !path.exists() {
        return Ok(None);
    }
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version != VERSION {
        return Ok(None);
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // Intact after a power failure; records that it lacks then are read again.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(Some(connection))
}

pub(super) fn open_for_reading(path: &Path) -> Result<Connection, IndexError> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB / 2)?;
    connection.busy_timeout(std::time::Duration::from_secs(1))?;
    Ok(connection)
}

pub(super) fn through(connection: &Connection) -> Result<Option<Through>, IndexError> {
    let row = connection.query_row("SELECT through, hash FROM progress", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
    });
    let Some((sequence, hash)) = row.optional()? else { return Ok(None) };
    let hash = hash.parse().map_err(|_| IndexError::Inconsistent)?;
    Ok(Some(Through { sequence: sequence.cast_unsigned(), hash }))
}

pub(super) fn set_through(connection: &Connection, through: Through) -> Result<(), IndexError> {
    connection.execute(
        "INSERT OR REPLACE INTO progress (one, through, hash) VALUES (0, ?1, ?2)",
        params![through.sequence.cast_signed(), through.hash.to_string()],
    )?;
    Ok(())
}
