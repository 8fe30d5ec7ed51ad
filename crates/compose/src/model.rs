//! Content of a Compose file, as it concerns a run.

use std::collections::BTreeMap;

/// Content of a Compose file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// Service that is the run itself.
    pub run: Option<Program>,
    /// All other services, in the order of their names.
    pub companions: Vec<Companion>,
}

/// Service that is the run itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub image: String,
    pub env: BTreeMap<String, String>,
    /// Limit of its memory.
    pub memory_mib: Option<u32>,
    /// True if the file names a command, which is not started.
    pub has_command: bool,
}

impl Program {
    /// Returns the limit of its memory in bytes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory_mib.map(|mib| u64::from(mib) << 20)
    }
}

/// Service beside the run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Companion {
    pub name: String,
    pub image: String,
    /// Arguments in place of the image's command. Empty: the image's.
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub ready: Option<Ready>,
    pub memory_mib: Option<u32>,
    pub ports: Vec<u16>,
    /// Names of companions that are ready before it starts.
    pub depends_on: Vec<String>,
}

/// Command that ends with 0 as soon as a companion is ready.
#[derive(Debug, PartialEq, Eq)]
pub struct Ready {
    /// The program first.
    pub command: Vec<String>,
    /// Time until it must have passed.
    pub timeout_seconds: u32,
    /// Time between two attempts, or the daemon's default.
    pub interval_milliseconds: Option<u32>,
}
