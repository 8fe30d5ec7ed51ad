//! Decides which commands may run.
//!
//! ```text
//! argv ─ see through wrappers ─ deny list ─ environment ─ read-only rule + not seen through + prefix rules, strictest ─ default
//! script ─ see through ─ deny list ─ environment ─ not seen through + prefix rules that ask or deny, strictest
//! ```
//!
//! The deny list is checked for every program that the command line names: in any case and at any path, after wrappers
//! and multi-call binaries, in scripts and here-documents. The agent checks it again for the file that a name resolves
//! to.
//!
//! A script that is not plain words and a command that takes code are *not seen through* (`unseen`). They need consent
//! if the profile asks about commands. An `allow` rule covers such a command only if it names the word that makes it
//! code, and it never covers such a script.
//!
//! `effects` is the table of arguments that write, delete or run something, for some programs in any image. The
//! read-only rule covers only commands that read according to the table. In every profile, a call with `only_reads` is
//! refused otherwise. No `allow` rule covers arguments that run or delete something. The profile's verdict on `delete`
//! applies to `find -delete` too.
//!
//! No part of this sees inside a file that is run: a script, a makefile, a copy of a program under another name. The
//! list expresses an agent's intent; the container confines it.

mod by_kind;
mod code;
mod effects;
mod env;
mod environment;
mod inner;
mod judge;
mod named;
mod plain;
mod read_only;
mod script;
mod see_through;
mod shell;
mod sight;
mod unseen;

#[cfg(test)]
mod tests;

pub(crate) use effects::only_reads;
pub(crate) use judge::{Applied, ExecRuling, judge_operation};
pub use named::named_files;
pub(crate) use plain::plain_argv;
pub(crate) use sight::Sight;
