//! Answers a query from the index.
//!
//! The condition that the fewest records meet is looked up, in the order of the log; the found records are checked against the
//! others. Their lines are read from the log's segments, and every line of an answer is verified and checked against the filter
//! again. A query that finds little in a large log searches for a while, and goes on with the next page.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use audit::{Lookup, Reader, Record};
use rusqlite::{Connection, params_from_iter};

use super::fill::SPAN;
use super::names::{self, Field, digest};
use super::schema;
use super::state::IndexError;
use crate::filter::Filter;
use crate::tail::Line;

/// Longest time to search for a page.
const PATIENCE: Duration = Duration::from_secs(2);
/// Approximate bytes of a page's lines.
const PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Records that are searched before the clock is checked.
const WINDOW: u64 = 64 * 1024;
/// Most records of a condition that is looked up without windows.
const FEW: u64 = 64 * 1024;

#[derive(Debug, Clone)]
pub struct Query {
    pub filter: Filter,
    pub newest_first: bool,
    /// Most records of a page.
    pub size: usize,
    /// Record at which the page begins; `None` for the first page.
    pub start: Option<u64>,
}

#[derive(Default)]
pub struct Page {
    pub lines: Vec<Line>,
    /// Record at which the next page begins.
    pub next: Option<u64>,
    /// Last record that was searched.
    pub through: u64,
}

impl Page {
    /// Returns true if no record was found and none is left to search.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.next.is_none()
    }
}

/// A condition that the index can look up.
pub(super) struct Condition {
    column: &'static str,
    value: i64,
    /// Most records that meet it.
    count: u64,
}

/// Answers a page with lines of the log in `directory`. Blocks.
pub(super) fn answer(
    connection: &mut Connection,
    directory: &Path,
    query: &Query,
) -> Result<Page, IndexError> {
    // All from one state of the index.
    let snapshot = connection.transaction()?;
    let through = schema::through(&snapshot)?.map_or(0, |through| through.sequence);
    let nothing = Page { through, ..Page::default() };
    let (Some(conditions), Some(range)) =
        (conditions(&snapshot, &query.filter)?, range(&snapshot, &query.filter, through)?)
    else {
        return Ok(nothing);
    };
    let (mut low, mut high) = range;
    match (query.start, query.newest_first) {
        (Some(start), true) => high = high.min(start),
        (Some(start), false) => low = low.max(start),
        (None, _) => {}
    }
    // After the snapshot: the segments of all its records exist by now.
    let mut search = Search::new(&snapshot, directory, query, conditions)?;
    let stopped = search.run(low, high)?;
    Ok(Page { lines: search.lines, next: stopped.filter(|next| (low..=high).contains(next)), through })
}

struct Search<'a> {
    connection: &'a Connection,
    directory: &'a Path,
    log: Lookup,
    query: &'a Query,
    select: String,
    values: Vec<i64>,
    window: u64,
    lines: Vec<Line>,
    bytes: usize,
    until: Instant,
}

impl<'a> Search<'a> {
    fn new(
        connection: &'a Connection,
        directory: &'a Path,
        query: &'a Query,
        conditions: Vec<Condition>,
    ) -> Result<Self, IndexError> {
        let fewest = conditions.iter().map(|condition| condition.count).min();
        let (select, values) = select(query, conditions);
        Ok(Self {
            connection,
            directory,
            log: Lookup::new(directory)?,
            query,
            select,
            values,
            window: if fewest.is_some_and(|count| count <= FEW) { u64::MAX } else { WINDOW },
            lines: Vec::new(),
            bytes: 0,
            until: Instant::now() + PATIENCE,
        })
    }

    /// Searches the range. Returns where to go on, if a part of it is left.
    fn run(&mut self, low: u64, high: u64) -> Result<Option<u64>, IndexError> {
        let (mut low, mut high) = (low, high);
        while low <= high {
            let width = self.window.min(high - low + 1) - 1;
            let window = if self.query.newest_first { (high - width, high) } else { (low, low + width) };
            if let Some(next) = self.look(window)? {
                return Ok(Some(next));
            }
            if self.query.newest_first {
                let Some(next) = window.0.checked_sub(1) else { break };
                high = next;
            } else {
                low = window.1 + 1;
            }
            if low <= high && Instant::now() >= self.until {
                return Ok(Some(if self.query.newest_first { high } else { low }));
            }
        }
        Ok(None)
    }

    fn look(&mut self, (low, high): (u64, u64)) -> Result<Option<u64>, IndexError> {
        let mut select = self.connection.prepare_cached(&self.select)?;
        let bounds = [low.cast_signed(), high.cast_signed()];
        let mut rows = select.query(params_from_iter(bounds.iter().chain(&self.values)))?;
        let mut looked = 0_u32;
        while let Some(row) = rows.next()? {
            let sequence = row.get::<_, i64>(0)?.cast_unsigned();
            self.take(sequence, row.get::<_, i64>(1)?.cast_unsigned())?;
            looked += 1;
            let full = self.lines.len() >= self.query.size || self.bytes >= PAGE_BYTES;
            if full || (looked.is_multiple_of(64) && Instant::now() >= self.until) {
                return Ok(if self.query.newest_first {
                    sequence.checked_sub(1)
                } else {
                    Some(sequence + 1)
                });
            }
        }
        Ok(None)
    }

    /// Adds a record to the page if the filter matches it.
    fn take(&mut self, sequence: u64, position: u64) -> Result<(), IndexError> {
        let filter = &self.query.filter;
        let Some(text) = self.log.line(sequence, position).map_err(IndexError::of_log)? else {
            return self.missing(sequence);
        };
        // Before the costly proof: most lines do not contain the text.
        if filter.text.as_ref().is_some_and(|needle| !needle.is_in(text)) {
            return Ok(());
        }
        match Record::from_line(text) {
            Ok(record) if record.sequence == sequence => {
                if filter.matches(&record, text) {
                    self.bytes += text.len();
                    self.lines.push(Line { record, text: text.to_owned() });
                }
                Ok(())
            }
            _ => self.missing(sequence),
        }
    }

    /// Handles a record whose line is not at its indexed position.
    ///
    /// That is normal if the record was removed meanwhile. Otherwise reading the log shows if the log or the index is damaged.
    fn missing(&self, sequence: u64) -> Result<(), IndexError> {
        if self.log.was_removed(sequence).map_err(IndexError::of_log)? {
            return Ok(());
        }
        Reader::from(self.directory, sequence.saturating_sub(1)).next_with_position()?;
        Err(IndexError::Inconsistent)
    }
}

/// Returns the conditions of a filter that the index can look up. `None`: no record meets all of them.
pub(super) fn conditions(
    connection: &Connection,
    filter: &Filter,
) -> Result<Option<Vec<Condition>>, IndexError> {
    let mut conditions = Vec::new();
    for (column, text) in [("call", &filter.call), ("approval", &filter.approval)] {
        if let Some(text) = text {
            conditions.push(Condition { column, value: digest(text), count: 0 });
        }
    }
    let kind = match filter.kinds.as_slice() {
        [only] => Some(only.clone()),
        _ => None,
    };
    for (column, field, text) in [
        ("run", Field::Run, &filter.run),
        ("reason", Field::Reason, &filter.reason),
        ("agent", Field::Agent, &filter.agent),
        ("principal", Field::Principal, &filter.principal),
        ("operation", Field::Operation, &filter.operation),
        ("status", Field::Status, &filter.status),
        ("kind", Field::Kind, &kind),
    ] {
        let Some(text) = text else { continue };
        let Some(name) = names::find(connection, field, text)? else { return Ok(None) };
        conditions.push(Condition { column, value: name.id, count: name.count });
    }
    Ok(Some(conditions))
}

/// Returns the first and the last record that can match. `None`: none can.
fn range(connection: &Connection, filter: &Filter, through: u64) -> Result<Option<(u64, u64)>, IndexError> {
    let first: Option<i64> =
        connection.query_row("SELECT min(sequence) FROM events", [], |row| row.get(0))?;
    let Some(first) = first.map(i64::cast_unsigned) else { return Ok(None) };
    if filter.from.is_none() && filter.until.is_none() {
        return Ok(Some((first, through)));
    }
    // The clock may have stepped back: spans may overlap in time, and each has a separate earliest and latest time.
    let spans: (Option<i64>, Option<i64>) = connection.query_row(
        "SELECT min(span), max(span) FROM spans WHERE latest >= ?1 AND earliest < ?2",
        [filter.from.unwrap_or(i64::MIN), filter.until.unwrap_or(i64::MAX)],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let (Some(from), Some(to)) = spans else { return Ok(None) };
    let (from, to) = (from.cast_unsigned() * SPAN, to.cast_unsigned() * SPAN + (SPAN - 1));
    Ok(Some((first.max(from), through.min(to))))
}

pub(super) fn select(query: &Query, conditions: Vec<Condition>) -> (String, Vec<i64>) {
    let best = conditions.iter().min_by_key(|condition| condition.count);
    let by = best.map_or("NOT INDEXED".to_owned(), |best| format!("INDEXED BY by_{}", best.column));
    let mut select = format!("SELECT sequence, place FROM events {by} WHERE sequence BETWEEN ?1 AND ?2");
    let mut values = Vec::new();
    let mut add = |text: String, value| {
        values.push(value);
        // Writing to a string does not fail.
        let _ = write!(select, " AND {text} ?{}", values.len() + 2);
    };
    for Condition { column, value, .. } in conditions {
        add(format!("{column} ="), value);
    }
    for (condition, value) in [("time >=", query.filter.from), ("time <", query.filter.until)] {
        if let Some(value) = value {
            add(condition.to_owned(), value);
        }
    }
    select.push_str(if query.newest_first { " ORDER BY sequence DESC" } else { " ORDER BY sequence" });
    (select, values)
}
