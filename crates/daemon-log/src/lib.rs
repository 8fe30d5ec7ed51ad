#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod flood;
mod level;
mod line;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::flood::FloodLimit;
use crate::line::{Escape, OneLine};

pub use crate::level::Level;

/// Interval of [`Log::report`].
pub const REPORT: Duration = flood::WINDOW;

/// Form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    /// JSON Lines.
    Json,
}

impl Format {
    pub const ALL: [(&'static str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];

    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// The log of this process.
pub struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
    level: Mutex<Level>,
    flood: Arc<FloodLimit>,
}

/// Starts the log on standard error. A process does this once.
pub fn start(level: Level, format: Format) -> Arc<Log> {
    let (filter, handle) = reload::Layer::new(level.filter());
    let flood = Arc::new(FloodLimit::default());
    let subscriber = tracing_subscriber::registry().with(filter).with(flood.layer());
    match format {
        Format::Json => {
            let writer = OneLine { make: io::stderr, escape: Escape::Json };
            subscriber.with(fmt::layer().json().with_target(false).with_writer(writer)).init();
        }
        Format::Text => {
            let has_colors = io::stderr().is_terminal();
            let escape = if has_colors { Escape::ColoredText } else { Escape::Text };
            let writer = OneLine { make: io::stderr, escape };
            let layer = fmt::layer().with_target(false).with_ansi(has_colors).with_writer(writer);
            subscriber.with(layer).init();
        }
    }
    Arc::new(Log { filter: handle, level: Mutex::new(level), flood })
}

impl Log {
    /// Returns the level in force.
    pub fn level(&self) -> Level {
        self.level.lock().clone()
    }

    /// Replaces the level, and returns the previous one.
    pub fn set_level(&self, level: Level) -> Level {
        let mut current = self.level.lock();
        // Fails only if the subscriber is gone, and then nothing is logged.
        let _ = self.filter.reload(level.filter());
        std::mem::replace(&mut current, level)
    }

    /// Logs how many lines were left out, for each place whose ten seconds are over. The caller repeats this at [`REPORT`].
    pub fn report(&self) {
        self.flood.report(Instant::now());
    }

    /// Logs all counts of lines that were left out. For the end of the daemon.
    pub fn report_all(&self) {
        self.flood.report(Instant::now() + flood::WINDOW);
    }
}
