#![doc = include_str!("../README.md")]

pub mod landlock;
pub mod privileges;
pub mod root;
pub mod seccomp;
pub mod sys;

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// A step of the set-up that this host does not allow.
#[derive(Debug, Error)]
#[error("cannot set up the jail: {step}: {source}{hint}")]
pub struct SetupError {
    step: &'static str,
    #[source]
    source: io::Error,
    hint: &'static str,
}

impl SetupError {
    pub fn new(step: &'static str, source: impl Into<io::Error>) -> Self {
        Self { step, source: source.into(), hint: "" }
    }

    /// Adds words that say what may help.
    #[must_use]
    pub fn hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }
}

/// Names the step of an error.
pub fn step<E: Into<io::Error>>(name: &'static str) -> impl FnOnce(E) -> SetupError {
    move |source| SetupError::new(name, source)
}

/// Limits a resource of this process, for good. A hard limit that is lower already remains.
pub fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).map_err(Into::into)
}
