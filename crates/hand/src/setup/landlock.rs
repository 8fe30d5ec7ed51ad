//! Landlock, the second wall behind the pivoted root: files only beneath the mounts, no network, no signals and no
//! abstract sockets outside. What the kernel lacks of it is left out and reported.

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};

use super::SetupError;
use crate::args::Place;
use crate::report::Landlock;

const ABI_WANTED: ABI = ABI::V6;

/// Restricts this process to `places`, which are mounted in the root by now.
pub(super) fn restrict(places: &[Place]) -> Result<Landlock, SetupError> {
    apply(places).map_err(|error| SetupError::new("Landlock", std::io::Error::other(error)))
}

fn apply(places: &[Place]) -> Result<Landlock, Box<dyn std::error::Error + Send + Sync>> {
    let everything = AccessFs::from_all(ABI_WANTED);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = everything & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock);
    let mut rules = Ruleset::default()
        .handle_access(everything)?
        .handle_access(AccessNet::from_all(ABI_WANTED))?
        .scope(Scope::from_all(ABI_WANTED))?
        .create()?;
    for place in places {
        let directory = PathFd::new(format!("/{}", place.name()))?;
        rules =
            rules.add_rule(PathBeneath::new(directory, if place.is_writable() { write } else { read }))?;
    }
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Landlock::Full,
        RulesetStatus::PartiallyEnforced => Landlock::Partial,
        RulesetStatus::NotEnforced => Landlock::Absent,
    })
}
