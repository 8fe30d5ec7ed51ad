//! The limits within which a lane works on one call. They come from the profile, through the permit.

use jail::SandboxPath;

use crate::deny::DenyList;
use crate::{Held, PathRules};

/// Limits of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes of content that `read` returns.
    pub max_read_bytes: u64,
    /// Most bytes of file content in a call.
    pub max_write_bytes: u64,
    /// Most bytes of a file after it is edited or patched.
    ///
    /// Only the change is transmitted, so this limit may exceed the size of a message.
    pub max_edit_bytes: u64,
    /// Most bytes of a file, or of all files of an archive, that is uploaded or downloaded.
    pub max_transfer_bytes: u64,
    /// Most bytes of rendered text, such as a diff or one stream of a command.
    pub max_output_bytes: u64,
    /// Most bytes of output that a command may write before it is ended.
    pub max_spool_bytes: u64,
    /// True if `.git/hooks` and `.git/config` may not be read.
    pub hide_git_config: bool,
    /// Says if the programs in [`crate::deny::NAMES`] are denied.
    pub deny_list: DenyList,
    /// Base names of programs that are denied in addition.
    pub denied_programs: Vec<String>,
    /// True if processes that a command leaves running stay until the run ends.
    pub keep_background: bool,
    /// Name in commits.
    pub author_name: String,
    /// Address in commits.
    pub author_email: String,
    /// Paths that a command reads, if it was admitted because it only reads.
    ///
    /// Each must be a path that [`crate::Operation::Read`] or a listing would open.
    pub reads: Vec<SandboxPath>,
    /// The profile's rules for paths, with the paths that the call's consent covers.
    pub path_rules: PathRules,
    /// State that the call's consent was given to, which the effect must find unchanged; `None` if no reviewer was asked.
    pub held_to: Option<Held>,
}

impl Bounds {
    /// Most bytes of a transfer if the profile sets no limit.
    pub const MAX_TRANSFER_BYTES: u64 = 64 * 1024 * 1024;
    /// Longest file that can be edited or patched. A lane holds the old and the new content in memory, with an index of their lines.
    pub const LARGEST_EDIT: u64 = 16 * 1024 * 1024;
    /// Longest file of which a part is read. Every read hashes the whole file, and a hole of terabytes costs a command nothing.
    pub const LARGEST_READ: u64 = 256 * 1024 * 1024;

    /// Longest file that is hashed before it is changed: what was uploaded can be replaced.
    pub fn largest_replaced(&self) -> u64 {
        self.max_transfer_bytes.max(Self::LARGEST_READ)
    }
}

impl Default for Bounds {
    /// The defaults of the shipped profiles.
    fn default() -> Self {
        Self {
            max_read_bytes: 50_000,
            max_write_bytes: 100_000,
            max_edit_bytes: 100_000,
            max_transfer_bytes: Self::MAX_TRANSFER_BYTES,
            max_output_bytes: 16 * 1024,
            max_spool_bytes: 64 * 1024 * 1024,
            hide_git_config: true,
            deny_list: DenyList::On,
            denied_programs: Vec::new(),
            keep_background: false,
            author_name: "Cofferdam agent".to_owned(),
            author_email: "agent@cofferdam.invalid".to_owned(),
            reads: Vec::new(),
            path_rules: PathRules::default(),
            held_to: None,
        }
    }
}
