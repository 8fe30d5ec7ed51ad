//! Which commands may run.
//!
//! ```text
//! argv ─ see through wrappers ─ deny list ─ environment ─ read-only rule + prefix rules, strictest ─ default
//! ```
//!
//! The deny list is asked for every program that can be seen in the command line, however it is wrapped. What a
//! program does once it runs (a script, a makefile, `python -c`) cannot be seen; the container is what holds that.

mod environment;
mod find;
mod flags;
mod judge;
mod read_only;
mod see_through;
mod shell;
mod wrapper;

#[cfg(test)]
mod tests;

pub(crate) use judge::{ExecRuling, judge};

/// Whether a program runs other programs that its arguments name. No `allow` rule is for these.
pub(crate) fn is_wrapper(program: &str) -> bool {
    wrapper::kind(&ops::deny::base_name(program))
        .is_some_and(|kind| !matches!(kind, wrapper::Kind::Find | wrapper::Kind::Shell))
}
