#![doc = include_str!("../README.md")]

mod bound;
pub mod bundle;
mod canonical;
mod chain;
mod checkpoint;
mod copy;
mod event;
mod hash;
mod inclusion;
mod ledger;
mod lines;
mod lookup;
mod note;
pub mod ocsf;
mod packed;
mod reader;
mod record;
mod recovery;
mod redact;
mod removal;
mod retention;
mod segment;
mod signer;
mod single;
mod storage;
mod tree;
mod verify;
mod worker;
mod writer;

pub use canonical::MAX_LINE;
pub use chain::{Break, Damage};
pub use checkpoint::Checkpoint;
pub use copy::{files_to_copy, is_file_to_copy, is_plain_segment};
pub use event::{Decision, Event, Kind, Outcome, Status, Usage, Verdict};
pub use hash::{Hash, LogId, ParseHexError};
pub use inclusion::{Prover, root_of};
pub use lookup::Lookup;
pub use note::{ParseKeyError, VerifierKey};
pub use reader::{ReadError, Reader};
pub use record::{Head, Record};
pub use recovery::{OpenError, Opened, Repair};
pub use removal::Removal;
pub use retention::{Policy, RetentionError, compress_next, disk_use, removal, sweep};
pub use signer::{Signer, SignerError};
pub use verify::{
    Against, Integrity, LogFiles, Progress, Report, UNVOUCHED, verify, verify_against, verify_files,
    verify_up_to, verify_with,
};
pub use worker::WorkerChange;
pub use writer::{AppendError, Limits, RotateError, Unrecorded, Writer};

/// Version of the log's files. Their first hash covers it.
pub const FORMAT: u32 = 1;

#[cfg(test)]
mod format;
#[cfg(test)]
mod testing;
