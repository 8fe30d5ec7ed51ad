//! Restricts the process by Landlock, the second barrier after the pivoted root: files only beneath the mounts, no network, no
//! signals and no abstract sockets outside. Features that the kernel lacks are left out and reported.

use std::os::fd::{AsFd, OwnedFd};

use confinement::SetupError;
use confinement::landlock::{
    CompatLevel, Fault, PathFd, RulesetStatus, restrict as restrict_to, whole_network,
};
use host_launch::Landlock;
use host_launch::args::JailMount;

/// Restricts this process to `jail_mounts` and to their `writable` parts, which are mounted in the root by now.
pub(super) fn restrict(jail_mounts: &[JailMount], writable: &[String]) -> Result<Landlock, SetupError> {
    let open = |(path, writes): (String, bool)| Ok((PathFd::new(path)?, writes));
    let jail_mounts =
        jail_mounts.iter().map(|jail_mount| (format!("/{}", jail_mount.name()), jail_mount.is_writable()));
    let parts = writable.iter().map(|part| (format!("/{part}"), true));
    let opened: Result<Vec<_>, Fault> = jail_mounts.chain(parts).map(open).collect();
    opened.and_then(|opened| apply(opened, CompatLevel::BestEffort)).map_err(fault)
}

/// Restricts this process by Landlock as the only barrier. Returns an error if the kernel's Landlock is too old.
pub(super) fn restrict_alone(jail_mounts: &[(JailMount, OwnedFd)]) -> Result<Landlock, SetupError> {
    let opened = jail_mounts.iter().map(|(jail_mount, directory)| (directory, jail_mount.is_writable()));
    apply(opened, CompatLevel::HardRequirement).map_err(fault)
}

fn fault(error: Fault) -> SetupError {
    SetupError::new("Landlock", std::io::Error::other(error))
}

fn apply(
    jail_mounts: impl IntoIterator<Item = (impl AsFd, bool)>,
    needed: CompatLevel,
) -> Result<Landlock, Fault> {
    Ok(match restrict_to(jail_mounts, whole_network(), needed)? {
        RulesetStatus::FullyEnforced => Landlock::Full,
        RulesetStatus::PartiallyEnforced => Landlock::Partial,
        RulesetStatus::NotEnforced => Landlock::Absent,
    })
}
