//! The user of a run's processes inside the container, and the capabilities of that user.

use crate::ids::RunUser;

/// User of a run's processes inside the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunAs {
    /// A user without any capability.
    #[default]
    Agent,
    /// Root of the user namespace that the engine gives the container, an unprivileged user of the host.
    ///
    /// Its capabilities apply to what belongs to that namespace. The host's kernel, devices and files do not.
    MappedRoot,
}

/// Capabilities that `dpkg` and `apt` need, by the kernel's names and numbers (`linux/capability.h`).
///
/// They give files to their owners and change them, switch to the user that downloads, and end that user's processes.
const OF_ROOT: [(&str, u8); 6] = [
    ("CAP_CHOWN", 0),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_FOWNER", 3),
    ("CAP_KILL", 5),
    ("CAP_SETGID", 6),
    ("CAP_SETUID", 7),
];

impl RunAs {
    /// Returns the user in the container.
    pub fn user(self) -> RunUser {
        match self {
            Self::Agent => RunUser::DEFAULT,
            Self::MappedRoot => RunUser::ROOT,
        }
    }

    /// Returns the capabilities by the kernel's names and numbers.
    pub(crate) fn capabilities(self) -> &'static [(&'static str, u8)] {
        match self {
            Self::Agent => &[],
            Self::MappedRoot => &OF_ROOT,
        }
    }

    /// Returns the capabilities as a set in the kernel's format.
    pub(crate) fn capability_set(self) -> u64 {
        self.capabilities().iter().fold(0, |set, (_, number)| set | 1 << number)
    }
}
