//! Checks for a container with its own kernel, whose processes the host cannot see.

use containers::{Boundary, ContainerCgroup, ContainerId, EngineFacts, Inspection};
use operations::Reason;
use policy::{Profile, has_own_kernel};
use refusal::{Refusal, chain};

/// Returns the boundary that a profile asks for.
pub(crate) fn of(profile: &Profile) -> Boundary {
    if profile.runtime.as_deref().is_some_and(has_own_kernel) {
        Boundary::OwnKernel
    } else {
        Boundary::HostKernel
    }
}

/// Refuses a profile without a runtime if the engine's default runtime is gVisor.
///
/// The profile's settings were checked for another boundary.
pub(crate) fn is_named(runtime: Option<&str>, engine: &EngineFacts) -> Result<(), Refusal> {
    if runtime.is_some() || !has_own_kernel(&engine.default_runtime) {
        return Ok(());
    }
    Err(Refusal::new(
        Reason::PreconditionFailed,
        format!(
            "the engine's default runtime is gVisor: name it in the profile (runtime: {})",
            engine.default_runtime
        ),
    ))
}

/// Returns the host's process that serves the container's files. The run's mounts are visible in its root.
///
/// Its existence also proves that the sandbox is in a cgroup of the container. Otherwise no limit would apply.
pub(crate) fn file_server(inspection: &Inspection, container: &ContainerId) -> Result<u32, Refusal> {
    let refused = |why: &str| Refusal::new(Reason::EngineUnavailable, why);
    let pid = inspection.host_pid.ok_or_else(|| refused("the engine does not name the sandbox's process"))?;
    let cgroup = ContainerCgroup::of_pid(pid, container).map_err(|error| {
        tracing::error!(%container, error = %chain(&error), "a sandbox is in no cgroup of its container's");
        refused(
            "the runtime does not put its sandbox into the container's cgroup, without which no limit holds: register it without --ignore-cgroups, in an engine of this host",
        )
    })?;
    cgroup.file_server().ok_or_else(|| refused("no process of the runtime serves the container's files"))
}

/// Checks in the kernel that the container has no network. The engine only reports its own record of networks.
#[expect(clippy::disallowed_methods, reason = "the host's /proc")]
pub(crate) fn has_no_network(pid: u32) -> Result<(), String> {
    let devices = std::fs::read_to_string(format!("/proc/{pid}/net/dev"))
        .map_err(|_| "its network cannot be examined".to_owned())?;
    // Two lines of headings.
    let strange =
        devices.lines().skip(2).filter_map(|line| line.split_once(':')).any(|(name, _)| name.trim() != "lo");
    if strange { Err("its container has a network".to_owned()) } else { Ok(()) }
}
