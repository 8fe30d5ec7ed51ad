//! A table of measures: each by other means, by Cofferdam, the difference, and its target.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::args::Args;
use crate::host::Host;
use crate::report::time;
use crate::sample::Sample;
use crate::verdict;

/// A measure.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) what: String,
    /// By other means.
    pub(crate) other: String,
    /// By Cofferdam.
    pub(crate) ours: String,
    pub(crate) difference: String,
    pub(crate) target: String,
    /// `None` without a target.
    pub(crate) met: Option<bool>,
}

/// The most that a time may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Most {
    /// More than by other means.
    More(Duration),
    /// Whatever it is by other means.
    All(Duration),
    /// So many times the other one.
    Times(f64),
    Unbounded,
}

/// All measures, and the machine before and after.
#[derive(Debug)]
pub(crate) struct Table {
    /// Name of the lane.
    pub(crate) lane: &'static str,
    /// Names of the columns [`Row::other`] and [`Row::ours`].
    pub(crate) columns: [&'static str; 2],
    pub(crate) began: Host,
    pub(crate) ended: Host,
    pub(crate) rows: Vec<Row>,
}

impl Row {
    /// Returns the rows of times: the median, which has the target, and the 99th percentile.
    pub(crate) fn of_times(what: &str, other: Option<&Sample>, ours: &Sample, most: Most) -> [Self; 2] {
        Self::of_both(what, other, ours, [most, Most::Unbounded])
    }

    /// Returns the rows of the median and of the 99th percentile, each with its target.
    pub(crate) fn of_both(what: &str, other: Option<&Sample>, ours: &Sample, most: [Most; 2]) -> [Self; 2] {
        let at = |name: &str, part: fn(&Sample) -> Duration, most: Most| {
            Self::of_time(format!("{what}, {name}"), other.map(part), part(ours), most)
        };
        [at("p50", Sample::median, most[0]), at("p99", Sample::p99, most[1])]
    }

    /// Returns the row of one time.
    pub(crate) fn of_time(what: String, other: Option<Duration>, ours: Duration, most: Most) -> Self {
        let (target, met) = match most {
            Most::More(more) => {
                (format!("≤ {} more", time(more)), other.map(|other| ours.saturating_sub(other) <= more))
            }
            Most::All(most) => (format!("≤ {}", time(most)), Some(ours <= most)),
            Most::Times(times) => {
                (format!("≤ {times} ×"), other.map(|other| ours.as_secs_f64() <= times * other.as_secs_f64()))
            }
            Most::Unbounded => (String::new(), None),
        };
        let difference = match (most, other) {
            (_, None) => String::new(),
            (Most::Times(_), Some(other)) => {
                format!("{:.2} ×", ours.as_secs_f64() / other.as_secs_f64())
            }
            (_, Some(other)) => difference(other, ours),
        };
        Self { what, other: other.map(time).unwrap_or_default(), ours: time(ours), difference, target, met }
    }

    fn json(&self, columns: [&str; 2]) -> Value {
        let Self { what, other, ours, difference, target, met } = self;
        json!({
            "what": what, (columns[0]): other, (columns[1]): ours, "difference": difference, "target": target, "met": met,
        })
    }
}

fn difference(other: Duration, ours: Duration) -> String {
    match ours.checked_sub(other) {
        Some(more) => format!("+{}", time(more)),
        None => format!("-{}", time(other.abs_diff(ours))),
    }
}

impl Table {
    /// Prints the table, writes it if that is asked for, and returns a failure if a target is to be met and was missed.
    pub(crate) fn finish(&self, args: &Args) -> ExitCode {
        print!("{self}");
        if let Some(path) = &args.json {
            verdict::write(path, &self.json());
        }
        if args.check && !self.met() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    /// Returns true if no target was missed.
    fn met(&self) -> bool {
        self.rows.iter().all(|row| row.met != Some(false))
    }

    fn json(&self) -> String {
        let rows: Vec<Value> = self.rows.iter().map(|row| row.json(self.columns)).collect();
        let host = json!({ "before": self.began.json(), "after": self.ended.json() });
        format!("{:#}\n", json!({ "host": host, (self.lane): rows }))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { processor, processors, kernel, load } = &self.began;
        writeln!(f, "\n{processors} × {processor}, Linux {kernel}")?;
        writeln!(f, "load average {load} before, {} after (this benchmark included)", self.ended.load)?;
        let [other, ours] = self.columns;
        writeln!(f, "\n{:54} {other:>12} {ours:>12} {:>12} {:>18}", "measure", "difference", "target")?;
        for Row { what, other, ours, difference, target, met } in &self.rows {
            let met = met.map_or("", |met| if met { "met" } else { "missed" });
            writeln!(f, "{what:54} {other:>12} {ours:>12} {difference:>12} {target:>18}  {met}")?;
        }
        Ok(())
    }
}
