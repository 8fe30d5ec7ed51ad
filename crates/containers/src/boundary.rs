//! Kernel that serves the system calls of a container's processes.
//!
//! With gVisor that kernel is the sandbox, a separate program on the host. The host sees the sandbox's processes and not the container's.
//! Limits and the end of the container apply to the sandbox as a whole. Processes inside are ended from inside. A process that commands
//! must not reach runs there as a different user.

use crate::ids::RunUser;

/// Kernel boundary between a container and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Boundary {
    /// Namespaces and cgroups of the host's kernel.
    #[default]
    HostKernel,
    /// Separate kernel of the container: gVisor.
    OwnKernel,
}

/// Processes and threads of the sandbox itself: kernel threads and the file server.
const SANDBOX_PIDS: u32 = 128;
/// Host threads for each process inside. Measured: 10 to 12.
const PIDS_FOR_ONE: u32 = 12;

impl Boundary {
    /// Returns the user of PID 1 and of the process that holds a guest's streams.
    ///
    /// The host's kernel protects both from commands of the same user. Under gVisor, a command of the same user could end PID 1 and open
    /// the other's descriptors.
    pub fn own_user(self, user: RunUser) -> RunUser {
        match self {
            Self::HostKernel => user,
            Self::OwnKernel => user.other(),
        }
    }

    /// Returns the limit on host processes and threads that lets `pids` run inside.
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
    fn only_a_separate_kernel_has_another_user_and_process_limit() {
        let user = RunUser::DEFAULT;
        assert_eq!((Boundary::HostKernel.own_user(user), Boundary::HostKernel.host_pids(64)), (user, 64));
        let other = Boundary::OwnKernel.own_user(user);
        assert_ne!(other.uid(), user.uid());
        assert_ne!(other.gid(), user.gid());
        assert_eq!(Boundary::OwnKernel.host_pids(64), 896);
        assert_eq!(Boundary::OwnKernel.host_pids(u32::MAX), u32::MAX);
    }
}
