//! Measures a run's use of the disk, and limits it through the kernel where possible.
//!
//! There are two mechanisms. ext4 and xfs, mounted with `prjquota`, have project quotas ([`ProjectQuotas`]). There each run's directories
//! belong to a separate project, which all files in them inherit. The kernel refuses any byte or file beyond the limit. On other file
//! systems [`measure`] adds up what exists, and the daemon reacts to it.
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
    /// The kernel refuses writes beyond the limit.
    Kernel,
    /// The daemon measures after the fact.
    #[default]
    Measured,
}

/// Bytes and number of files: regular files, directories, links and all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Bytes of disk, without holes.
    pub bytes: u64,
    pub files: u64,
}
