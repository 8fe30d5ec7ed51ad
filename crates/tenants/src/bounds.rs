//! Amounts that runs use, and the bounds on them.

use std::ops::Add;

use serde::Serialize;

/// A resource that tenants have bounds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Runs and companions that live.
    Runs,
    /// Memory that they may use, MiB.
    Memory,
    /// Processor time that they may use, in thousandths of a processor.
    Cpu,
    /// Disk quotas of runs that live, and the files of those that have ended, MiB.
    Disk,
    /// Traffic of a day, MiB.
    Egress,
    /// Warm containers that runs take in a minute.
    Pool,
}

impl Resource {
    pub const ALL: [Self; 6] = [Self::Runs, Self::Memory, Self::Cpu, Self::Disk, Self::Egress, Self::Pool];

    /// Returns the key of its bound in the policy.
    pub fn key(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Memory => "memory_mib",
            Self::Cpu => "cpu_millis",
            Self::Disk => "disk_mib",
            Self::Egress => "egress_mib_per_day",
            Self::Pool => "pool_per_minute",
        }
    }
}

/// Bounds of a tenant. Serialised, they are keys of a policy section again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bounds {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mib: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress_mib_per_day: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_per_minute: Option<u64>,
}

impl Bounds {
    /// Returns the bound on a resource; `None` if there is none.
    pub fn of(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Runs => self.runs,
            Resource::Memory => self.memory_mib,
            Resource::Cpu => self.cpu_millis,
            Resource::Disk => self.disk_mib,
            Resource::Egress => self.egress_mib_per_day,
            Resource::Pool => self.pool_per_minute,
        }
    }

    /// Returns true if it bounds nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Amounts that a run uses, or that runs use together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    pub runs: u64,
    pub memory_mib: u64,
    pub cpu_millis: u64,
    pub disk_mib: u64,
}

impl Amounts {
    /// Returns each resource that counts while a run lives, with its amount.
    pub(crate) fn each(self) -> [(Resource, u64); 4] {
        [
            (Resource::Runs, self.runs),
            (Resource::Memory, self.memory_mib),
            (Resource::Cpu, self.cpu_millis),
            (Resource::Disk, self.disk_mib),
        ]
    }
}

/// Sums do not exceed the largest number.
impl Add for Amounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            runs: self.runs.saturating_add(other.runs),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            disk_mib: self.disk_mib.saturating_add(other.disk_mib),
        }
    }
}
