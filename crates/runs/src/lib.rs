#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod adopt;
mod bases;
mod begin_egress;
mod boundary;
mod bundle;
mod changes;
mod checkpoints;
mod companions_end;
mod create;
mod default_image;
mod extend;
mod forks;
mod freeze;
mod gate;
mod held;
mod launch;
mod lease;
mod leftovers;
mod on_base;
mod phases;
mod placeholders;
mod reattach;
mod recover;
mod refused;
mod registry;
mod request;
mod restored;
mod retained;
mod run;
mod seen;
mod settling;
mod shared;
mod shown_token;
pub mod stored;
mod target;
mod task;
mod tenants;
#[doc(hidden)]
pub mod testing;
mod token;
mod variables;
mod way_in;
mod way_out;

pub use ::run_record as record;
pub use egress::{Answer, Change, PushQuestion, PushUpdate, Question};
pub use egress_rules::Rules;

pub use ::leftovers::{remove_tree, remove_unknown};
pub use bases::Bases;
pub use checkpoints::{Checkpoints, Origin};
pub use default_image::{DefaultImageSource, NoDefaultImage, read as read_busybox};
pub use executor::root_layer::shown as shown_of_root;
pub use gate::Gate;
pub use launch::pool::{Pool, PoolEntry};
pub use launch::{ColdStarts, Launcher, RemoteClones};
pub use on_base::no_such_base;
pub use reattach::TakenOver;
pub use registry::{OnStop, RunBounds, Runs, request_key};
pub use request::{Parsed, absolute, has_no_password, hide_secrets, parse as parse_request, revision};
pub use run::{Busy, Readiness, Run};
pub use run_directories::deny_list::HarnessOnBind;
pub use run_directories::directories::Directories;
pub use run_directories::linked::linked as linked_repository;
pub use run_directories::trash;
pub use run_directories::workspace::{
    Purpose, Roots, make as make_directory, open_own as open_directory, owner_for,
};
pub use run_files::{Carried, GuestBinary, LogLocation, place_worker};
pub use seen::Seen;
pub use shown_token::ShownToken;
pub use way_out::{Asked, Reviewers, WayOut, no_way_out};
