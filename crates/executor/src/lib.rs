#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod command_end;
mod container_end;
mod directory;
mod ending;
mod engine;
mod failure;
mod guest;
mod host_worker;
mod keeper;
mod lanes;
mod launcher;
pub mod layer;
mod left;
mod loss;
mod metered;
mod placement;
mod prefork;
mod recent_events;
mod relay;
pub mod root_layer;
mod saved_tree;
mod terminal;
mod upstream;
mod way_out;

pub use command_end::CommandContext;
pub use container_end::ContainerEnd;
pub use directory::{Directory, LinkedRepository};
pub use engine::engine_refusal;
pub use failure::failure;
pub use guest::GuestLane;
pub use host_launch::push_preview::{PushPreview, PushedCommit, UpdatePreview};
pub use host_worker::{CloneBounds, HostWorkerLane, clone_repository};
pub use keeper::{AttachedProcess, Held, KeeperLost, Link, leave};
pub use lanes::Lanes;
pub use launcher::{launcher, set_host_worker};
pub use left::Left;
pub use loss::Loss;
pub use metered::Metered;
pub use relay::sweep;
pub use terminal::Opening;
pub use way_out::{WayOut, give_streams};
