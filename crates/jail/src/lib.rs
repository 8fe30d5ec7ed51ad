#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod access;
mod dir;
mod error;
mod follow;
mod jail;
mod lookalike;
mod meta;
mod mount;
mod name;
mod note;
mod path;
mod private;
mod protect;
mod refusal;
mod rel;
mod remove;
mod replace;
mod resolve;
mod root;
mod sweep;
mod temporary;
mod temporary_name;
mod transaction;
mod walk;
mod write;

pub use access::Access;
pub use dir::{Dir, Entries, Entry};
pub use error::{AccessError, OpenError, OpenErrorKind, RemoveError, WriteError};
pub use jail::{Jail, Readable, Writable};
pub use meta::{FileKind, Metadata, RegularFile};
pub use mount::Mount;
pub use name::EntryName;
pub use path::SandboxPath;
pub use private::{Keeps, Private, Whose};
pub use protect::{GitReads, Protection, RUN_LOG};
pub use refusal::PathRefusal;
pub use rel::{MAX_COMPONENT_BYTES, MAX_PATH_BYTES, RelPath};
pub use remove::{Removable, Removal};
pub use resolve::{Unsupported, supported};
pub use root::Root;
pub use sweep::Swept;
pub use text::excerpt;
pub use transaction::{Change, CommitError, Left, LeftState, PatchRecovery, Recovery, Then};
pub use write::{Found, Parents, Target, WriteMode, Written};
