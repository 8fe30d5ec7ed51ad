#![doc = include_str!("../README.md")]

pub mod ancestry;
mod answer;
pub mod args;
pub mod dialing;
mod egress;
pub mod handles;
mod layer;
mod mirror;
pub mod numbered;
mod owner;
pub mod push_preview;
mod report;
mod spawn;

pub use args::{Marks, TreeBounds, WeakerForm};
pub use egress::{EgressProcess, UNSTEERED, start_egress};
pub use layer::{LayerError, LayerSpec};
pub use mirror::{MirrorError, MirroredClone};
pub use owner::Owner;
pub use report::{Landlock, Namespaces, Report};
pub use spawn::{
    CloneError, CloneSpec, HostWorkerSpec, Launcher, LinkedSpec, ProbeError, RecoverError, WorkerProcess,
};

/// The name (`argv[0]`) of a host worker.
pub const PROGRAM: &str = "coffer-host-worker";
