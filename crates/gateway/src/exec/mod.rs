//! Which commands may run.
//!
//! ```text
//! argv ─ see through wrappers ─ deny list ─ environment ─ read-only rule + prefix rules, strictest ─ default
//! script ─ see through ─ deny list ─ environment ─ prefix rules that ask or deny, strictest
//! ```
//!
//! The deny list is asked for every program that can be seen in the command line, however it is wrapped: by its name in
//! any case and at any path, behind wrappers and multi-call binaries, in scripts and here-documents. The agent asks it
//! again for the file that a name leads to.
//!
//! `effects` knows of some programs which arguments write, delete or run something, in any image. Only a command that it knows
//! to read is one of the read-only rule, and a call with `only_reads` is refused without that in every profile. No `allow` rule
//! speaks for arguments that run or delete something. What the profile says of `delete` holds for `find -delete`, too.
//!
//! What cannot be seen: what a program does once it runs (a script in a file, a makefile, `python -c`, git's aliases), what a
//! script computes or decodes, a copy of a program under another name. The list is about what an agent may mean to do; the
//! container is what holds it.

mod denied;
mod effects;
mod env;
mod environment;
mod inner;
mod judge;
mod named;
mod options;
mod plain;
mod read_only;
mod script;
mod see_through;
mod shell;
mod sight;
mod wrapper;

#[cfg(test)]
mod tests;

pub(crate) use effects::only_reads;
pub(crate) use judge::{Applied, ExecRuling, judge, judge_script};
pub use named::named_files;
pub(crate) use plain::plain_argv;
pub(crate) use sight::Sight;
use wrapper::Kind;

/// Whether a program runs other programs that its arguments name. No `allow` rule is for these. Those that do so only
/// with some arguments are no wrappers without them.
pub(crate) fn is_wrapper(program: &str) -> bool {
    wrapper::kind(&ops::deny::base_name(program)).is_some_and(|kind| {
        !matches!(
            kind,
            Kind::Follows(_) | Kind::Shell | Kind::Source | Kind::Print | Kind::Trap | Kind::Alias
        )
    })
}
