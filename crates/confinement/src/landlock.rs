//! Restricts a process by Landlock, the second barrier after the pivoted root: files only beneath the given directories, no signals and
//! no abstract sockets outside. Features that the kernel lacks are left out and reported.

use std::os::fd::AsFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};
pub use landlock::{AccessNet as Network, CompatLevel, PathFd, RulesetStatus};

const ABI_WANTED: ABI = ABI::V6;
/// The lowest version that suffices as the only barrier: it covers moves between directories and truncation.
const ABI_NEEDED: ABI = ABI::V3;

pub type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Returns every use of the network that Landlock can refuse.
pub fn whole_network() -> BitFlags<AccessNet> {
    AccessNet::from_all(ABI_WANTED)
}

/// Restricts this process to `directories`, each of which may be writable, and refuses these uses of the network.
pub fn restrict(
    directories: impl IntoIterator<Item = (impl AsFd, bool)>,
    network: impl Into<BitFlags<AccessNet>>,
    needed: CompatLevel,
) -> Result<RulesetStatus, Fault> {
    let everything = AccessFs::from_all(ABI_WANTED);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = everything & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock);
    let mut rules = Ruleset::default()
        .set_compatibility(needed)
        .handle_access(AccessFs::from_all(ABI_NEEDED))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)?
        .handle_access(network)?
        .scope(Scope::from_all(ABI_WANTED))?
        .create()?;
    for (directory, writes) in directories {
        rules = rules.add_rule(PathBeneath::new(directory, if writes { write } else { read }))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}
