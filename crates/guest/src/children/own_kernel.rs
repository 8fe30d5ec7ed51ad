//! System calls that a command may not make in gVisor.
//!
//! There the engine's profile applies only to the first process. So the commands' own filter has the important parts of it. The other calls
//! do not exist in gVisor, or need capabilities.

use libc::{AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, NETLINK_ROUTE};
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

/// Namespaces, mounts, keys, and other ways into the kernel.
const REFUSED: [i64; 23] = [
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_kcmp,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
];
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
];
const FAMILIES: [i32; 4] = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK];

/// Returns the refused system calls, each with the arguments for which it is refused. A call without arguments is always refused.
pub(super) fn refused() -> Result<Vec<(i64, Vec<SeccompRule>)>, BackendError> {
    let mut refused: Vec<_> = REFUSED.into_iter().map(|number| (number, Vec::new())).collect();
    let namespaces = NAMESPACES.into_iter().map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        first(SeccompCmpOp::MaskedEq(flag), flag).and_then(|condition| SeccompRule::new(vec![condition]))
    });
    refused.push((libc::SYS_clone, namespaces.collect::<Result<_, _>>()?));
    let others = FAMILIES.into_iter().map(|family| first(SeccompCmpOp::Ne, u64::from(family.unsigned_abs())));
    let others = SeccompRule::new(others.collect::<Result<_, _>>()?)?;
    // Programs list their interfaces with this one protocol.
    let protocols = SeccompRule::new(vec![
        first(SeccompCmpOp::Eq, u64::from(AF_NETLINK.unsigned_abs()))?,
        compare(2, SeccompCmpOp::Ne, u64::from(NETLINK_ROUTE.unsigned_abs()))?,
    ])?;
    for number in [libc::SYS_socket, libc::SYS_socketpair] {
        refused.push((number, vec![others.clone(), protocols.clone()]));
    }
    // A process names itself as process 0. Here it could also change the limits of a non-dumpable process.
    let other = SeccompRule::new(vec![first(SeccompCmpOp::Ne, 0)?])?;
    refused.push((libc::SYS_prlimit64, vec![other]));
    Ok(refused)
}

fn first(operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    compare(0, operator, value)
}

fn compare(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, netlink, socket};
    use rustix::process::{Resource, getpid, getrlimit, prlimit};

    use crate::children::{Kernel, filters};

    #[test]
    fn filters_refuse_the_calls_that_the_engine_profile_refuses() {
        // Filters belong to the thread that installs them, and to what it starts.
        let filtered = thread::spawn(|| {
            for program in filters(Kernel::Own).unwrap() {
                seccompiler::apply_filter(&program).unwrap();
            }
            for (family, protocol, expected) in [
                (AddressFamily::NETLINK, Some(netlink::AUDIT), Some(Errno::PERM)),
                (AddressFamily::NETLINK, Some(netlink::NETFILTER), Some(Errno::PERM)),
                (AddressFamily::NETLINK, None, None),
                (AddressFamily::PACKET, None, Some(Errno::PERM)),
                (AddressFamily::UNIX, None, None),
                (AddressFamily::INET, None, None),
            ] {
                assert_eq!(socket(family, SocketType::DGRAM, protocol).err(), expected, "{family:?}");
            }
            let file = tempfile::tempfile().unwrap();
            let allotted = fallocate(&file, FallocateFlags::empty(), 0, 4096);
            assert_eq!(allotted.unwrap_err(), Errno::OPNOTSUPP);
            let limit = getrlimit(Resource::Nofile);
            assert_eq!(prlimit(Some(getpid()), Resource::Nofile, limit).unwrap_err(), Errno::PERM);
            assert_eq!(prlimit(None, Resource::Nofile, limit).unwrap(), limit);
            let mut child = std::process::Command::new("true").spawn().unwrap();
            assert!(child.wait().unwrap().success(), "processes can be made");
            let unshared = std::process::Command::new("unshare").args(["--user", "true"]).output().unwrap();
            assert!(!unshared.status.success());
        });
        filtered.join().unwrap();
    }
}
