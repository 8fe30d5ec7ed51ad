//! How much a run has on the disk, and a bound that the kernel holds.
//!
//! Two ways. Where the file system has project quotas ([`ProjectQuotas`]: ext4 and xfs, mounted with `prjquota`), what the
//! daemon makes for a run belongs to a project of its own, everything in it inherits that, and the kernel refuses the byte or
//! the file that is one too many. Elsewhere [`measure`] adds up what is there, for the daemon to act upon.
//!
//! ```text
//! directory ─► ProjectQuotas::assign ─► kernel: inherits, counts, refuses (EDQUOT, ENOSPC)
//!           └► measure: names, blocks and links of everything beneath; opens directories and nothing else
//! processes ─► unnamed: files that they alone still have
//! ```

mod measure;
mod project;
mod unnamed;

pub use measure::{DEEPEST, Measured, measure};
pub use project::{ProjectId, ProjectQuotas};
pub use unnamed::{open_files, unnamed};

/// Mechanism that holds a run to its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quota {
    /// The kernel refuses what is too much.
    Kernel,
    /// The daemon measures, after the fact.
    #[default]
    Measured,
}

/// Bytes, and files: regular ones, directories, links and all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Bytes of disk, holes not counted.
    pub bytes: u64,
    pub files: u64,
}
