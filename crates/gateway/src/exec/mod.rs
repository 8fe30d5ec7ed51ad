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
//! A script that is not plain words and a command that takes code are *not seen through*. They need consent if the
//! profile asks about commands. An `allow` rule covers such a command only if it names the word that makes it code, and
//! it never covers such a script.
//!
//! The read-only rule covers only commands of which it is known that they read. In every profile, a call with
//! `only_reads` is refused otherwise. No `allow` rule covers arguments that run or delete something. The profile's
//! verdict on `delete` applies to `find -delete` too.

mod judge;
mod sight;

#[cfg(test)]
mod tests;

pub(crate) use judge::{Applied, ExecRuling, judge_operation};
pub(crate) use sight::{Sight, plain_argv};
