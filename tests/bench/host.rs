//! The machine, and how busy it was with other things.

use std::fs;

use serde_json::{Value, json};

/// A look at the machine.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) kernel: String,
    /// Load averages of 1, 5 and 15 minutes.
    pub(crate) load: String,
}

impl Host {
    pub(crate) fn look() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ");
        Self {
            // The kernel names no model of an ARM processor.
            processor: model.map_or(std::env::consts::ARCH, |(_, model)| model).to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load,
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "processor": self.processor,
            "processors": self.processors,
            "kernel": self.kernel,
            "load_average": self.load,
        })
    }
}
