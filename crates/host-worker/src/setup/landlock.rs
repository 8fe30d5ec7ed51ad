//! Restricts the process by Landlock, the second barrier after the pivoted root: files only beneath the mounts, no network, no
//! signals and no abstract sockets outside. Features that the kernel lacks are left out and reported.

use std::os::fd::{AsFd, OwnedFd};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::SetupError;
use host_launch::Landlock;
use host_launch::args::JailMount;

const ABI_WANTED: ABI = ABI::V6;
/// The lowest version that suffices as the only barrier: it covers moves between directories and truncation.
const ABI_NEEDED: ABI = ABI::V3;

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

type Fault = Box<dyn std::error::Error + Send + Sync>;

fn fault(error: Fault) -> SetupError {
    SetupError::new("Landlock", std::io::Error::other(error))
}

fn apply(
    jail_mounts: impl IntoIterator<Item = (impl AsFd, bool)>,
    needed: CompatLevel,
) -> Result<Landlock, Fault> {
    let everything = AccessFs::from_all(ABI_WANTED);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = everything & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock);
    let mut rules = Ruleset::default()
        .set_compatibility(needed)
        .handle_access(AccessFs::from_all(ABI_NEEDED))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)?
        .handle_access(AccessNet::from_all(ABI_WANTED))?
        .scope(Scope::from_all(ABI_WANTED))?
        .create()?;
    for (directory, writes) in jail_mounts {
        rules = rules.add_rule(PathBeneath::new(directory, if writes { write } else { read }))?;
    }
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Landlock::Full,
        RulesetStatus::PartiallyEnforced => Landlock::Partial,
        RulesetStatus::NotEnforced => Landlock::Absent,
    })
}
