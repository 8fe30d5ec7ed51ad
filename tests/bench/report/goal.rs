//! Goals, and whether they were met.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::MIB;

/// A goal beside what was measured.
pub(crate) struct Goal {
    what: String,
    measured: String,
    wanted: String,
    met: bool,
}

impl Goal {
    /// `slow` takes so many times as long as `quick`, or more.
    pub(crate) fn ratio_at_least(
        what: impl Into<String>,
        slow: Duration,
        quick: Duration,
        goal: f64,
    ) -> Self {
        let ratio = slow.as_secs_f64() / quick.as_secs_f64();
        Self::new(what, format!("{ratio:.0} ×"), format!("≥ {goal:.0} ×"), ratio >= goal)
    }

    /// `measured` takes so many times as long as `other`, or less.
    pub(crate) fn ratio_at_most(
        what: impl Into<String>,
        measured: Duration,
        other: Duration,
        goal: f64,
    ) -> Self {
        let ratio = measured.as_secs_f64() / other.as_secs_f64();
        Self::new(what, format!("{ratio:.2} ×"), format!("≤ {goal:.1} ×"), ratio <= goal)
    }

    /// `part` is at most so many percent of `whole`.
    pub(crate) fn share_at_most(what: impl Into<String>, part: Duration, whole: Duration, goal: f64) -> Self {
        let share = 100.0 * part.as_secs_f64() / whole.as_secs_f64();
        Self::new(what, format!("{share:.1} %"), format!("≤ {goal:.0} %"), share <= goal)
    }

    pub(crate) fn millis_at_most(what: impl Into<String>, measured: Duration, goal: f64) -> Self {
        let met = measured.as_secs_f64() * 1e3 <= goal;
        Self::new(what, time(measured), format!("≤ {goal:.1} ms"), met)
    }

    pub(crate) fn rate_at_least(what: impl Into<String>, measured: f64, goal: f64) -> Self {
        Self::new(what, format!("{measured:.0}"), format!("≥ {goal:.0}"), measured >= goal)
    }

    #[allow(clippy::cast_precision_loss)] // far below 2^52
    pub(crate) fn mib_at_most(what: impl Into<String>, bytes: u64, goal: f64) -> Self {
        Self::new(what, mib(bytes), format!("≤ {goal:.1} MiB"), bytes as f64 <= goal * MIB)
    }

    fn new(what: impl Into<String>, measured: String, wanted: String, met: bool) -> Self {
        Self { what: what.into(), measured, wanted, met }
    }

    pub(crate) const fn met(&self) -> bool {
        self.met
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "what": self.what, "measured": self.measured, "goal": self.wanted, "met": self.met })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, measured, wanted, met } = self;
        write!(f, "{what:60} {measured:>10} {wanted:>10}  {}", if *met { "met" } else { "missed" })
    }
}

/// Three digits or so, in the unit that suits.
pub(crate) fn time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        micros if micros < 1e3 => format!("{micros:.0} µs"),
        micros if micros < 1e5 => format!("{:.2} ms", micros / 1e3),
        micros if micros < 1e6 => format!("{:.0} ms", micros / 1e3),
        micros => format!("{:.1} s", micros / 1e6),
    }
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / MIB)
}
