//! Who a run's processes are inside, and what the kernel lets them do.

use crate::ids::RunUser;

/// Who a run's processes are, inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunAs {
    /// A user without any capability.
    #[default]
    Agent,
    /// Root of the user namespace that the engine gives the container, nobody on the host. Its capabilities hold for what belongs
    /// to that namespace, which the host's kernel, its devices and its files do not.
    MappedRoot,
}

/// What `dpkg` and `apt` need of root, by the kernel's names and numbers (`linux/capability.h`): to give files to their
/// owners and to change them, to become the user that downloads, and to end that user's processes.
const OF_ROOT: [(&str, u8); 6] = [
    ("CAP_CHOWN", 0),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_FOWNER", 3),
    ("CAP_KILL", 5),
    ("CAP_SETGID", 6),
    ("CAP_SETUID", 7),
];

impl RunAs {
    /// The user in the container.
    pub fn user(self) -> RunUser {
        match self {
            Self::Agent => RunUser::DEFAULT,
            Self::MappedRoot => RunUser::ROOT,
        }
    }

    /// By the kernel's names and numbers.
    pub(crate) fn capabilities(self) -> &'static [(&'static str, u8)] {
        match self {
            Self::Agent => &[],
            Self::MappedRoot => &OF_ROOT,
        }
    }

    /// Its capabilities as the kernel shows a set of them.
    pub(crate) fn capability_set(self) -> u64 {
        self.capabilities().iter().fold(0, |set, (_, number)| set | 1 << number)
    }
}
