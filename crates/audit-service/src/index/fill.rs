//! Adds records to the index.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::names::{Field, Names};
use super::row::Row;
use super::schema::{self, Through};
use super::state::IndexError;

/// Number of records in one entry of `spans`.
pub(super) const SPAN: u64 = 1_024;

pub(super) struct Filler {
    connection: Connection,
    names: Names,
    /// Earliest and latest time of each span since the last commit.
    spans: BTreeMap<u64, (i64, i64)>,
    through: Option<Through>,
    open: bool,
}

impl Filler {
    pub(super) fn new(connection: Connection) -> Result<Self, IndexError> {
        let through = schema::through(&connection)?;
        Ok(Self { connection, names: Names::default(), spans: BTreeMap::new(), through, open: false })
    }

    /// Returns the last record in the index.
    pub(super) fn through(&self) -> Option<Through> {
        self.through
    }

    /// Adds a record to the transaction that [`Self::commit`] ends. The next one must follow it in the log.
    pub(super) fn add(&mut self, row: &Row) -> Result<(), IndexError> {
        let Self { connection, names, .. } = self;
        if !self.open {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            self.open = true;
        }
        let sequence = row.sequence.cast_signed();
        let time = row.time;
        let mut number = |field, text| names.number(connection, field, text);
        let kind = number(Field::Kind, Some(row.kind))?;
        let run = number(Field::Run, row.run.as_deref())?;
        let principal = number(Field::Principal, row.principal.as_deref())?;
        let agent = number(Field::Agent, row.agent.as_deref())?;
        let operation = number(Field::Operation, row.operation.as_deref())?;
        let status = number(Field::Status, row.status)?;
        let reason = number(Field::Reason, row.reason.as_deref())?;
        connection
            .prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)")?
            .execute(params![
                sequence,
                time,
                kind,
                run,
                principal,
                agent,
                operation,
                status,
                reason,
                row.call,
                row.approval,
                row.position.cast_signed()
            ])?;
        if let Some(last) = row.removed {
            // Records that the log no longer has must not be found here.
            let before = last.cast_signed().min(sequence - 1);
            connection.execute("DELETE FROM events WHERE sequence <= ?1", [before])?;
        }
        let span = self.spans.entry(row.sequence / SPAN).or_insert((time, time));
        *span = (span.0.min(time), span.1.max(time));
        self.through = Some(Through { sequence: row.sequence, hash: row.hash });
        Ok(())
    }

    /// Commits the added records, which queries then find.
    pub(super) fn commit(&mut self) -> Result<(), IndexError> {
        if !self.open {
            return Ok(());
        }
        self.names.flush(&self.connection)?;
        let mut spans = self.connection.prepare_cached(
            "INSERT INTO spans VALUES (?1, ?2, ?3) ON CONFLICT (span) DO UPDATE
             SET earliest = min(earliest, excluded.earliest), latest = max(latest, excluded.latest)",
        )?;
        for (span, (earliest, latest)) in std::mem::take(&mut self.spans) {
            spans.execute(params![span.cast_signed(), earliest, latest])?;
        }
        drop(spans);
        if let Some(through) = self.through {
            schema::set_through(&self.connection, through)?;
        }
        self.connection.execute_batch("COMMIT")?;
        self.open = false;
        Ok(())
    }

    /// Completes a new database.
    pub(super) fn complete(mut self) -> Result<(), IndexError> {
        self.commit()?;
        schema::complete(&self.connection)?;
        self.connection.close().map_err(|(_, error)| error.into())
    }
}
