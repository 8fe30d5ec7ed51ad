#![doc = include_str!("../README.md")]

mod advisories;
mod beside;
mod boundary;
mod bundle;
mod cgroups;
mod docker;
mod engine;
mod etc;
mod exec;
mod hardening;
mod ids;
mod image;
mod image_paths;
mod mounts;
mod quota;
mod run_as;
mod seccomp;
mod spec;
mod sys;
mod tars;
mod user_map;
mod verify;

pub use advisories::{ADVISORY_CAVEAT, Advisory, advisories};
pub use beside::ImageProgram;
pub use boundary::Boundary;
pub use bundle::{
    BUNDLE_PATH, BUNDLE_VARIABLES, POLICIES, bundle_mounts, chromium_policy, java_store, known_bundles,
};
pub use busybox::{Busybox, NoBusybox};
pub use cgroups::{
    CgroupError, Commands, ContainerCgroup, Group, HostProcess, KillEvidence, KillMethod, Leaf, LeftoverLeaf,
    LeftoversEnded, LimitEvents,
};
pub use docker::{ContainerInput, Engine};
pub use engine::{
    BuildNetwork, ContainerListing, ContainerState, EngineError, EngineFacts, FileKind, ImageBuild,
    ImageFacts, ImageIds, ImageListing, ImageRefused, ImageStore, ImportChanges, Inspection, Looked,
    TarStream, UsableImage,
};
pub use etc::{EtcFiles, GROUP_PATH, PASSWD_PATH, etc_files, host_files};
pub use exec::{ErrorTail, ExecInput, ExecOutput, ExecStream};
pub use hardening::{
    GUEST_PATH, Hardening, HardeningError, LABEL_RUN, LABEL_SPEC, RunFacts, container_spec, cpu_limit,
};
pub use ids::{ContainerId, ContainerName, Endpoint, ExecId, IdError, ImageId, ImageReference, RunUser};
pub use image::{DefaultImage, DefaultImageError, ensure_default};
pub use image_paths::check_image_paths;
pub use leftovers::LABEL_INSTANCE;
pub use mounts::overlay::{OverlayError, check_overlay_layers, mount_overlay};
pub use mounts::root::{mount_root, reattach_root, root_layers, root_slot};
pub use mounts::shared::OwnerMap;
pub use mounts::{IdMap, MountError, MountSlot, clean_slots, idmap_supported, leftover_slots};
pub use quota::{Amount, DEEPEST, Measured, ProjectId, ProjectQuotas, Quota, measure, open_files, unnamed};
pub use run_as::RunAs;
pub use seccomp::{SeccompError, seccomp_profile};
pub use spec::{ContainerSpec, MountSpec, MountSpecError, Propagation};
pub use tars::{BadTar, Meter, TarForm, form_of, pass_archive, pass_context, pass_filesystem};
pub use user_map::{HostUser, NotInForce, UserMap};
pub use verify::{HardeningLine, HardeningReport, Mismatch, report, verify};
