//! Runs: one owning task each, the only one that changes its run's state.

mod adopt;
mod changes;
mod default_image;
mod freeze;
mod launch;
mod mounting;
mod reattach;
mod recover;
mod registry;
mod remove;
mod request;
mod resources;
mod retained;
mod run;
mod source;
mod task;
mod trash;
mod workspace;

pub(crate) use default_image::{DefaultImageSource, read as read_busybox};
pub(crate) use launch::{Directories, Launcher};
pub(crate) use reattach::TakenOver;
pub(crate) use registry::{OnStop, Runs};
pub(crate) use remove::remove_tree;
pub(crate) use request::{hide_secrets, parse as parse_request};
pub(crate) use run::Run;
pub(crate) use trash::{Deleted, Trash};
pub(crate) use workspace::{Roots, open_own};
