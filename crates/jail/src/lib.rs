//! Path grammar and beneath-root directory handles: the audited core that both lanes share.
//!
//! Everything below a mount is hostile: whoever runs in the container renames, links and replaces at the very
//! moment of a call. Two rules keep that harmless, and every function here follows them:
//!
//! 1. *A path is parsed once.* [`SandboxPath`] is a mount and a normalised relative path; nothing else names a file.
//! 2. *The kernel confines, not a comparison of strings.* Every open goes through `openat2` on the mount's own
//!    directory handle with `RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS`.
//!    There is no fallback; [`supported`] says at start-up whether the kernel has it.
//!
//! A caller starts at a [`Jail`], asks for a [`Readable`] or [`Writable`] place (which is where the protected
//! paths are refused), and from there gets files, [`Dir`]ectories and write [`Target`]s. A [`Dir`] hands out its
//! children by name without asking about protected paths again: walkers ask [`Jail::check`] for what they visit.
//!
//! What is promised: confinement to the mount, and that a file is replaced whole or not at all. What is not:
//! that a directory stays where it was, since the container may rename it at any time.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod dir;
mod error;
mod excerpt;
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
mod transaction;
mod write;

pub use dir::{Dir, Entries, Entry};
pub use error::{AccessError, OpenError, OpenErrorKind, RemoveError, WriteError};
pub use excerpt::excerpt;
pub use jail::{Jail, Readable, Writable};
pub use meta::{FileKind, Metadata, RegularFile};
pub use mount::Mount;
pub use name::EntryName;
pub use path::SandboxPath;
pub use private::{Keeps, Private, Whose};
pub use protect::{Access, GitReads, Protection, RUN_LOG};
pub use refusal::PathRefusal;
pub use rel::{MAX_COMPONENT_BYTES, MAX_PATH_BYTES, RelPath};
pub use remove::{Removable, Removal};
pub use resolve::{Unsupported, supported};
pub use root::Root;
pub use sweep::Swept;
pub use transaction::{Change, CommitError, Left, LeftState, PatchRecovery, Recovery, Then};
pub use write::{Found, Parents, Target, WriteMode, Written};
