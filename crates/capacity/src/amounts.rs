//! Amounts of the four resources that runs use.

use serde::{Deserialize, Serialize};

/// Processor time of one core, in the unit of [`Amounts::cpu_micros`].
pub const CORE: u64 = 1_000_000;

/// One of the four resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    Memory,
    Cpu,
    Pids,
    Disk,
}

impl Resource {
    pub const ALL: [Self; 4] = [Self::Memory, Self::Cpu, Self::Pids, Self::Disk];

    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
            Self::Disk => "disk",
        }
    }
}

/// Amounts of each resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    pub memory_bytes: u64,
    /// Microseconds of processor time in each second.
    pub cpu_micros: u64,
    /// Number of processes and threads.
    pub pids: u64,
    pub disk_bytes: u64,
}

impl Amounts {
    pub fn of(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Memory => self.memory_bytes,
            Resource::Cpu => self.cpu_micros,
            Resource::Pids => self.pids,
            Resource::Disk => self.disk_bytes,
        }
    }

    /// Returns the sum of both. A sum that is too large becomes the largest number.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            cpu_micros: self.cpu_micros.saturating_add(other.cpu_micros),
            pids: self.pids.saturating_add(other.pids),
            disk_bytes: self.disk_bytes.saturating_add(other.disk_bytes),
        }
    }
}
