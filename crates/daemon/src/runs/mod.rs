//! Runs: one owning task each, the only one that changes its run's state.

mod launch;
mod record;
mod registry;
mod remove;
mod request;
mod task;
mod workspace;

pub(crate) use launch::{Directories, Launcher, cgroup_of, chain, engine_refusal};
pub(crate) use record::Record;
pub(crate) use registry::{Run, Runs};
pub(crate) use request::parse as parse_request;
pub(crate) use workspace::{Directory, Roots};

#[cfg(test)]
pub(crate) use workspace::Owner;

#[cfg(test)]
pub(crate) use record::{Limits, Spec, State, Workspace};
