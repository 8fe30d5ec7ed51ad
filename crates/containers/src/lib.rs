//! Containers: everything that Cofferdam asks of a container engine and of the kernel beneath it.
//!
//! The one crate that knows the engine's vendor API ([`DockerEngine`] is its sole user), behind the [`Engine`]
//! trait in types of our own. Beside it live the things that no engine does for us:
//!
//! - [`container_spec`]: hardening as a pure function, and [`verify`], which compares what was asked for with what
//!   the engine says is in force.
//! - [`MountSlot`]: idmapped bind mounts that show a workspace's files as owned by the run's user.
//! - [`mount_overlay`]: copy-on-write over a directory.
//! - [`ProjectQuotas`] and [`measure`]: how much a run has on the disk, and a bound that the kernel holds.
//! - [`ContainerCgroup`]: a cgroup for each exec, so that its whole process tree can be ended.
//! - [`ensure_default`]: the default image, made here of the host's [`Busybox`], without any registry.
//! - [`advisories`]: known escapes in the versions that an engine reports.

pub mod accounts;
mod advisories;
mod busybox;
mod cgroups;
mod docker;
mod engine;
mod exec;
mod hardening;
mod ids;
mod image;
mod mounts;
mod quota;
mod seccomp;
mod spec;
mod sys;
mod verify;

pub use advisories::{ADVISORY_CAVEAT, Advisory, advisories};
pub use busybox::{Busybox, NoBusybox};
pub use cgroups::{
    CgroupError, Commands, ContainerCgroup, FormerEnded, FormerLeaf, Group, HostProcess, KillEvidence,
    KillMethod, Leaf, LimitEvents,
};
pub use docker::DockerEngine;
pub use engine::{
    ContainerListing, ContainerState, Engine, EngineError, EngineFacts, ImageFacts, ImageRefused,
    ImportChanges, Inspection, UsableImage,
};
pub use exec::{ErrorTail, ExecInput, ExecOutput, ExecStream};
pub use hardening::{
    AGENT_PATH, GROUP_PATH, Hardening, HardeningError, LABEL_INSTANCE, LABEL_RUN, LABEL_SPEC, PASSWD_PATH,
    RunFacts, container_spec, cpu_limit,
};
pub use ids::{ContainerId, ContainerName, Endpoint, ExecId, IdError, ImageId, ImageReference, RunUser};
pub use image::{DefaultImage, DefaultImageError, ensure_default};
pub use mounts::overlay::{OverlayError, check_overlay_layers, mount_overlay};
pub use mounts::{Access, IdMap, MountError, MountSlot, clean_slots, idmap_supported, leftover_slots};
pub use quota::{Amount, DEEPEST, Measured, ProjectId, ProjectQuotas, measure, unnamed};
pub use seccomp::{SeccompError, seccomp_profile};
pub use spec::{ContainerSpec, MountSpec, MountSpecError, Propagation};
pub use verify::{HardeningLine, HardeningReport, Mismatch, report, verify};
