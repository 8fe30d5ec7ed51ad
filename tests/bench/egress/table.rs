//! The table at the end: each measure without the way out, through it, and its target.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::host::Host;
use crate::report::time;
use crate::sample::Sample;

/// A measure.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) direct: String,
    pub(crate) egress: String,
    pub(crate) difference: String,
    pub(crate) target: String,
    /// `None` without a target.
    pub(crate) met: Option<bool>,
}

/// The most that a time may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Most {
    /// More than without the way out.
    More(Duration),
    /// Through the way out, whatever it is without.
    All(Duration),
    Unbounded,
}

/// All measures, and the machine before and after.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) began: Host,
    pub(crate) ended: Host,
    pub(crate) rows: Vec<Row>,
}

impl Row {
    /// Returns the rows of times: the median, which has the target, and the 99th percentile.
    pub(crate) fn of_times(what: &str, direct: Option<&Sample>, egress: &Sample, most: Most) -> [Self; 2] {
        let at = |name: &str, part: fn(&Sample) -> Duration, most: Most| {
            let (direct, egress) = (direct.map(part), part(egress));
            let (target, met) = match most {
                Most::More(more) => (
                    format!("≤ {} more", time(more)),
                    direct.map(|direct| egress.saturating_sub(direct) <= more),
                ),
                Most::All(most) => (format!("≤ {}", time(most)), Some(egress <= most)),
                Most::Unbounded => (String::new(), None),
            };
            Self {
                what: format!("{what}, {name}"),
                direct: direct.map(time).unwrap_or_default(),
                egress: time(egress),
                difference: direct.map(|direct| difference(direct, egress)).unwrap_or_default(),
                target,
                met,
            }
        };
        [at("p50", Sample::median, most), at("p99", Sample::p99, Most::Unbounded)]
    }

    fn json(&self) -> Value {
        let Self { what, direct, egress, difference, target, met } = self;
        json!({
            "what": what, "direct": direct, "egress": egress, "difference": difference, "target": target, "met": met,
        })
    }
}

fn difference(direct: Duration, egress: Duration) -> String {
    match egress.checked_sub(direct) {
        Some(more) => format!("+{}", time(more)),
        None => format!("-{}", time(direct.abs_diff(egress))),
    }
}

impl Table {
    /// Returns true if no target was missed.
    pub(crate) fn met(&self) -> bool {
        self.rows.iter().all(|row| row.met != Some(false))
    }

    pub(crate) fn json(&self) -> String {
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        let host = json!({ "before": self.began.json(), "after": self.ended.json() });
        format!("{:#}\n", json!({ "host": host, "egress": rows }))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { processor, processors, kernel, load } = &self.began;
        writeln!(f, "\n{processors} × {processor}, Linux {kernel}")?;
        writeln!(f, "load average {load} before, {} after (this benchmark included)", self.ended.load)?;
        writeln!(
            f,
            "\n{:42} {:>12} {:>12} {:>12} {:>18}",
            "measure", "direct", "egress", "difference", "target"
        )?;
        for Row { what, direct, egress, difference, target, met } in &self.rows {
            let met = met.map_or("", |met| if met { "met" } else { "missed" });
            writeln!(f, "{what:42} {direct:>12} {egress:>12} {difference:>12} {target:>18}  {met}")?;
        }
        Ok(())
    }
}
