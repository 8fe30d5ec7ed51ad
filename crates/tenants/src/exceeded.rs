//! A bound that leaves no room, in words and numbers.

use std::fmt;

use crate::bounds::Resource;

/// A bound of a tenant that leaves no room for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// Name of the tenant, or of a principal that is one by itself.
    pub tenant: String,
    /// Section of the policy that has the bound.
    pub section: String,
    pub resource: Resource,
    /// Amount that is in use.
    pub used: u64,
    /// Amount that was asked for.
    pub wanted: u64,
    pub limit: u64,
}

impl Exceeded {
    /// Use that cannot be read.
    pub(crate) const UNKNOWN: u64 = u64::MAX;

    /// Returns the amount by which the request would exceed the bound.
    pub fn over(&self) -> u64 {
        self.used.saturating_add(self.wanted).saturating_sub(self.limit)
    }

    /// Returns the key of the bound in the policy.
    pub fn key(&self) -> String {
        format!("tenants.{}.{}", self.section, self.resource.key())
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, resource, used, wanted, limit, .. } = self;
        let (key, over) = (self.key(), self.over());
        let (unit, instead) = match resource {
            Resource::Runs => ("runs and companions", "stop one first"),
            Resource::Memory => ("MiB of memory", "stop a run first, or ask for less memory"),
            Resource::Cpu => ("thousandths of a processor", "stop a run first, or ask for less"),
            Resource::Disk => ("MiB of disk", "stop or delete a run first, or ask for less disk"),
            Resource::Egress if *used == Self::UNKNOWN => {
                return write!(
                    f,
                    "the traffic of the tenant {tenant} of this day is not known, and {key} of the policy bounds it. Further \
                     connections are refused until 00:00 UTC, or until an operator has put the daemon's count in order. Do not retry \
                     before."
                );
            }
            Resource::Egress => {
                return write!(
                    f,
                    "the connections of the tenant {tenant} have moved {used} of at most {limit} MiB of this day ({key} of the \
                     policy). Further connections are refused until 00:00 UTC. Do not retry before."
                );
            }
            Resource::Pool => ("warm containers of this minute", "wait a minute"),
        };
        write!(
            f,
            "the tenant {tenant} uses {used} of at most {limit} {unit} ({key} of the policy), and this request for {wanted} exceeds \
             that by {over}: {instead}"
        )
    }
}
