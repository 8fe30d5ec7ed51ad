//! The audit log on disk: records, their canonical bytes, the hash chain, signed checkpoints, retention, verification,
//! redaction.
//!
//! The daemon's one audit task owns a [`Writer`]; everybody else only reads. `coffer` verifies and tails the same
//! files with no daemon at all. `FORMAT.md` beside this crate states the bytes, so that a verifier can be written
//! without reading a line of this code.
//!
//! ```text
//!  Event ──redact──► Writer ──one write, one fdatasync──► NNNNNNNNNNNNNNNNNNNN.jsonl ──► Reader  (replay, follow)
//!                      │                                        │                    └─► verify  (offline)
//!                      ├──► Record (acknowledged: it survives)  └─► retention: compressed, removed behind a checkpoint
//!                      └──► Checkpoint (signed by Signer: what the log was, for who keeps it elsewhere)
//! ```
//!
//! Invariants:
//! * a [`Record`] exists only for a line that was made durable, or that was read back whole with a true hash;
//! * nothing is ever cut from a log but bytes behind the last newline, which no caller was told about;
//! * nothing is removed that was not proved, covered by a signed checkpoint, and put on record as removed before;
//! * after any failed write the writer is poisoned: only opening the log again tells what is on disk.

mod bound;
pub mod bundle;
mod canonical;
mod chain;
mod checkpoint;
mod event;
mod hash;
mod inclusion;
mod ledger;
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
mod time;
mod tree;
mod verify;
mod writer;

pub use canonical::MAX_LINE;
pub use chain::{Break, Damage};
pub use checkpoint::Checkpoint;
pub use event::{Decision, Event, Kind, Outcome, Status, Usage, Verdict};
pub use hash::{Hash, LogId, ParseHexError};
pub use inclusion::{Prover, root_of};
pub use note::{ParseKeyError, VerifierKey};
pub use reader::{ReadError, Reader};
pub use record::{Head, Record};
pub use recovery::{OpenError, Opened, Repair};
pub use redact::Redactor;
pub use removal::Removal;
pub use retention::{Policy, RetentionError, compress_next, disk_use, removal, sweep};
pub use signer::{Signer, SignerError};
pub use time::{ParseTimeError, Time};
pub use verify::{
    Against, Integrity, Progress, Report, UNVOUCHED, verify, verify_against, verify_up_to, verify_with,
};
pub use writer::{AppendError, Limits, RotateError, Unrecorded, Writer};

#[cfg(test)]
mod format;
#[cfg(test)]
mod testing;
