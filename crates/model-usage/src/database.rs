//! The file of all counts: SQLite in WAL mode. Each transaction is on the disk when it ends.

use std::path::Path;

use rusqlite::{Connection, Statement, params};

use crate::accounts::KEPT_DAYS;
use crate::changes::{Changes, Owner, Row};
use crate::day::Day;
use crate::tokens::Usage;

/// Version of the tables.
pub const VERSION: u32 = 1;
/// Bytes of the journal that remain after a checkpoint.
const JOURNAL: u32 = 1 << 20;

/// `counts` is a [`Usage`] in JSON. The row whose model is empty counts the requests that were sent.
const TABLES: &str = "
CREATE TABLE runs (
    run    TEXT NOT NULL,
    model  TEXT NOT NULL,
    counts TEXT NOT NULL,
    PRIMARY KEY (run, model)
) STRICT, WITHOUT ROWID;
CREATE TABLE days (
    day       INTEGER NOT NULL,
    principal TEXT NOT NULL,
    model     TEXT NOT NULL,
    counts    TEXT NOT NULL,
    PRIMARY KEY (day, principal, model)
) STRICT, WITHOUT ROWID;
";

/// Deletes the days before a day that are not among the newest ones with a row either, because the clock may be ahead by years.
const DELETE_BEFORE: &str = "
DELETE FROM days WHERE day < ?1 AND day < (
    SELECT min(day) FROM (SELECT DISTINCT day FROM days ORDER BY day DESC LIMIT ?2)
)";

/// Error of reading or writing the counts.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the database of the use of models failed")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the database of the use of models has a row that cannot be read")]
    Row(#[from] serde_json::Error),
    #[error("the database of the use of models is damaged: {0}")]
    Damaged(String),
    #[error("the database of the use of models is of a later version ({0}) than this daemon")]
    Newer(u32),
    #[error("the database of the use of models could not be read when the daemon started")]
    AtStart,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Database(Connection);

impl Database {
    /// Opens or makes the file, and checks all of it.
    pub(crate) fn open(path: &Path) -> Result<Self, Unreadable> {
        let mut connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "journal_size_limit", JOURNAL)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if found != "ok" {
            return Err(Unreadable::Damaged(found));
        }
        let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        match version {
            0 => {
                let change = connection.transaction()?;
                change.execute_batch(TABLES)?;
                change.pragma_update(None, "user_version", VERSION)?;
                change.commit()?;
            }
            VERSION => {}
            later => return Err(Unreadable::Newer(later)),
        }
        Ok(Self(connection))
    }

    /// Calls `take` with each row of a run.
    pub(crate) fn read_runs(&self, mut take: impl FnMut(&Row, Usage)) -> Result<(), Unreadable> {
        let mut statement = self.0.prepare("SELECT run, model, counts FROM runs")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let counts: String = row.get(2)?;
            let (owner, model) = (Owner::Run(row.get(0)?), row.get(1)?);
            take(&Row { owner, model }, serde_json::from_str(&counts)?);
        }
        Ok(())
    }

    /// Calls `take` with each row of these days.
    pub(crate) fn read_days(
        &self,
        (first, last): (Day, Day),
        mut take: impl FnMut(&Row, Usage),
    ) -> Result<(), Unreadable> {
        let query = "SELECT day, principal, model, counts FROM days WHERE day BETWEEN ?1 AND ?2";
        let mut statement = self.0.prepare(query)?;
        let mut rows = statement.query(params![first.number(), last.number()])?;
        while let Some(row) = rows.next()? {
            let counts: String = row.get(3)?;
            let Some(day) = Day::from_number(row.get(0)?) else { continue };
            let (owner, model) = (Owner::Day(day, row.get(1)?), row.get(2)?);
            take(&Row { owner, model }, serde_json::from_str(&counts)?);
        }
        Ok(())
    }

    /// Returns the last day that has a row.
    pub(crate) fn last_day(&self) -> Result<Option<Day>, Unreadable> {
        let number: Option<i64> = self.0.query_row("SELECT max(day) FROM days", [], |row| row.get(0))?;
        Ok(number.and_then(Day::from_number))
    }

    /// Writes changes in one transaction. A failure leaves none of them.
    pub(crate) fn write(&mut self, changes: &Changes) -> Result<(), Unreadable> {
        let change = self.0.transaction()?;
        {
            let mut forget = change.prepare_cached("DELETE FROM runs WHERE run = ?1")?;
            for run in &changes.forgotten {
                forget.execute(params![run])?;
            }
            let set = "INSERT OR REPLACE INTO runs (run, model, counts) VALUES (?1, ?2, ?3)";
            let mut set_run = change.prepare_cached(set)?;
            let set = "INSERT OR REPLACE INTO days (day, principal, model, counts) VALUES (?1, ?2, ?3, ?4)";
            let mut set_day = change.prepare_cached(set)?;
            for (row, usage) in &changes.rows {
                write_row(&mut set_run, &mut set_day, row, &serde_json::to_string(usage)?)?;
            }
            if let Some(oldest) = changes.oldest {
                change.execute(DELETE_BEFORE, params![oldest.number(), KEPT_DAYS])?;
            }
        }
        Ok(change.commit()?)
    }

    /// Returns the first day that has a row.
    #[cfg(test)]
    pub(crate) fn first_day(&self) -> Option<Day> {
        let number: Option<i64> =
            self.0.query_row("SELECT min(day) FROM days", [], |row| row.get(0)).unwrap();
        number.and_then(Day::from_number)
    }
}

fn write_row(
    set_run: &mut Statement<'_>,
    set_day: &mut Statement<'_>,
    row: &Row,
    counts: &str,
) -> rusqlite::Result<usize> {
    match &row.owner {
        Owner::Run(run) => set_run.execute(params![run, row.model, counts]),
        Owner::Day(day, principal) => set_day.execute(params![day.number(), principal, row.model, counts]),
    }
}
