//! Whose kernel the processes of a container ask.
//!
//! In gVisor that is a program of its own on the host, the sandbox: the host knows the sandbox's processes, not the
//! container's. Limits and the end of the container hold for the sandbox as a whole. What runs inside is ended from
//! inside, and what commands must not reach there has a user of its own.

use crate::ids::RunUser;

/// Between a container and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Boundary {
    /// Namespaces and cgroups of the host's kernel.
    #[default]
    HostKernel,
    /// A kernel of the container's own: gVisor.
    OwnKernel,
}

/// What the sandbox itself needs: threads of the kernel and of what serves its files.
const SANDBOX_PIDS: u32 = 128;
/// Threads of the host for each process inside, measured: 10 to 12.
const PIDS_FOR_ONE: u32 = 12;

impl Boundary {
    /// The user of PID 1 and of what holds a guest's streams. The kernel of the host protects both from commands of the
    /// same user; gVisor's lets commands end the one and open what the other has.
    pub fn own_user(self, user: RunUser) -> RunUser {
        match self {
            Self::HostKernel => user,
            Self::OwnKernel => user.other(),
        }
    }

    /// The limit on the host's processes and threads that lets so many run inside.
    pub(crate) fn host_pids(self, pids: u32) -> u32 {
        match self {
            Self::HostKernel => pids,
            Self::OwnKernel => pids.saturating_mul(PIDS_FOR_ONE).saturating_add(SANDBOX_PIDS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kernel_of_its_own_changes_anything() {
        let user = RunUser::DEFAULT;
        assert_eq!((Boundary::HostKernel.own_user(user), Boundary::HostKernel.host_pids(64)), (user, 64));
        let other = Boundary::OwnKernel.own_user(user);
        assert_ne!(other.uid(), user.uid());
        assert_ne!(other.gid(), user.gid());
        assert_eq!(Boundary::OwnKernel.host_pids(64), 896);
        assert_eq!(Boundary::OwnKernel.host_pids(u32::MAX), u32::MAX);
    }
}
