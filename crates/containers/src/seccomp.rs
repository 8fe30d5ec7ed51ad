//! The system calls that a run may make: `images/seccomp.json`, compiled into the binary.
//!
//! `images/README.md` gives the reason for each rule. The engine parses the profile when it creates a container. Here it is only made
//! compact, because it is part of the request.

use libc::{AF_NETLINK, EAFNOSUPPORT, EOPNOTSUPP, NETLINK_ROUTE};
use serde_json::{Value, json};

use crate::quota::Quota;
use crate::run_as::RunAs;

const PROFILE: &str = include_str!("../../../images/seccomp.json");

/// The compiled-in profile is not JSON: a broken build.
#[derive(Debug, thiserror::Error)]
#[error("the built-in seccomp profile is not valid JSON")]
pub struct SeccompError(#[from] serde_json::Error);

/// Returns the profile of a container, on one line and without comments.
pub fn seccomp_profile(run_as: RunAs, quota: Quota) -> Result<String, SeccompError> {
    let mut profile: Value = serde_json::from_str(PROFILE)?;
    let Some(rules) = profile.get_mut("syscalls").and_then(Value::as_array_mut) else {
        return Ok(profile.to_string());
    };
    for rule in rules.iter_mut().filter_map(Value::as_object_mut) {
        rule.remove("comment");
        let names = rule.get_mut("names").and_then(Value::as_array_mut);
        if let Some(names) = names.filter(|_| quota == Quota::Measured) {
            names.retain(|name| name != "fallocate");
        }
    }
    if quota == Quota::Measured {
        // It allocates gigabytes of disk at once, before the daemon can measure. The error is that of a file system without it, after which
        // the C library writes instead.
        rules.push(json!({ "names": ["fallocate"], "action": "SCMP_ACT_ERRNO", "errnoRet": EOPNOTSUPP }));
    }
    if run_as == RunAs::MappedRoot {
        // Programs that switch to another user first drop root's groups. The call changes only the caller's groups, to groups of the
        // namespace.
        rules.push(json!({ "names": ["setgroups"], "action": "SCMP_ACT_ALLOW" }));
        // The error is that of a kernel without the audit protocol, after which `useradd` continues. At EPERM it would end.
        rules.push(json!({
            "names": ["socket"],
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": EAFNOSUPPORT,
            "args": [
                { "index": 0, "value": AF_NETLINK, "op": "SCMP_CMP_EQ" },
                { "index": 2, "value": NETLINK_ROUTE, "op": "SCMP_CMP_NE" },
            ],
        }));
    }
    Ok(profile.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn profile() -> Value {
        of(RunAs::Agent, Quota::Kernel)
    }

    fn of(run_as: RunAs, quota: Quota) -> Value {
        serde_json::from_str(&seccomp_profile(run_as, quota).unwrap()).unwrap()
    }

    /// Names allowed whatever their arguments are.
    fn unconditional(profile: &Value) -> BTreeSet<String> {
        profile["syscalls"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|rule| rule["action"] == "SCMP_ACT_ALLOW" && rule["args"].is_null())
            .flat_map(|rule| rule["names"].as_array().unwrap())
            .map(|name| name.as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn root_may_make_one_call_more() {
        let one = of(RunAs::MappedRoot, Quota::Kernel);
        let (mut more, usual) = (unconditional(&one), unconditional(&profile()));
        assert!(more.remove("setgroups") && !usual.contains("setgroups"));
        assert_eq!(more, usual);
        let rules = |profile: &Value| profile["syscalls"].as_array().unwrap().clone();
        let (usual, added) = (rules(&profile()), rules(&one));
        assert_eq!(added[..usual.len()], usual);
        let allowed = added[usual.len()..].iter().filter(|rule| rule["action"] == "SCMP_ACT_ALLOW");
        assert_eq!((added.len() - usual.len(), allowed.count()), (2, 1));
    }

    #[test]
    fn space_can_be_allotted_only_where_the_kernel_counts_it() {
        let (held, mut measured) = (of(RunAs::Agent, Quota::Kernel), of(RunAs::Agent, Quota::Measured));
        let refused = measured["syscalls"].as_array_mut().unwrap().pop().unwrap();
        let wanted = json!({ "names": ["fallocate"], "action": "SCMP_ACT_ERRNO", "errnoRet": EOPNOTSUPP });
        assert_eq!(refused, wanted);
        let mut usual = unconditional(&held);
        assert!(usual.remove("fallocate"));
        assert_eq!(unconditional(&measured), usual);
    }

    #[test]
    fn everything_that_is_not_named_is_refused() {
        let profile = profile();
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        assert_eq!(
            profile["archMap"],
            serde_json::json!([
                {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
                {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
            ])
        );
    }

    #[test]
    fn dangerous_system_calls_are_refused() {
        const REFUSED: &str = "io_uring_setup io_uring_enter io_uring_register socketcall ptrace process_vm_readv \
            process_vm_writev kcmp pidfd_getfd process_madvise keyctl add_key request_key bpf perf_event_open \
            userfaultfd mount umount umount2 move_mount open_tree fsopen fsmount fsconfig fspick mount_setattr \
            pivot_root chroot unshare setns name_to_handle_at open_by_handle_at init_module finit_module \
            delete_module kexec_load kexec_file_load reboot swapon swapoff quotactl quotactl_fd acct syslog \
            settimeofday clock_settime adjtimex clock_adjtime stime vmsplice iopl ioperm modify_ldt lookup_dcookie \
            fanotify_init fanotify_mark memfd_secret mq_open sethostname setdomainname nfsservctl vhangup \
            move_pages migrate_pages mbind set_mempolicy io_setup io_submit sync syncfs";
        let profile = profile();
        let named: BTreeSet<&str> = profile["syscalls"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|rule| rule["names"].as_array().unwrap())
            .map(|name| name.as_str().unwrap())
            .collect();
        let wrong: Vec<&str> = REFUSED.split_whitespace().filter(|name| named.contains(name)).collect();
        assert_eq!(wrong, Vec::<&str>::new());
    }

    #[test]
    fn calls_that_depend_on_their_arguments_are_never_allowed_without_a_condition() {
        const CONDITIONAL: &str = "socket socketpair clone personality prlimit64 chmod fchmod fchmodat creat mkdir \
            mkdirat open openat mknod mknodat renameat2 clone3 fchmodat2 ioctl";
        let free = unconditional(&profile());
        let wrong: Vec<&str> = CONDITIONAL.split_whitespace().filter(|name| free.contains(*name)).collect();
        assert_eq!(wrong, Vec::<&str>::new());
        assert!(free.contains("openat2"), "the guest resolves paths with it");
    }

    #[test]
    fn set_id_bits_devices_and_namespaces_are_masked_out() {
        let profile = profile();
        let conditions = |name: &str| -> Vec<Value> {
            let rules = profile["syscalls"].as_array().unwrap().iter();
            rules
                .filter(|rule| rule["names"].as_array().unwrap().iter().any(|n| n == name))
                .map(|rule| rule["args"].clone())
                .collect()
        };
        let masked = |index: u64, mask: u64, equals: u64| serde_json::json!([{"index": index, "value": mask, "valueTwo": equals, "op": "SCMP_CMP_MASKED_EQ"}]);
        for (name, index) in
            [("chmod", 1), ("fchmod", 1), ("creat", 1), ("mkdir", 1), ("fchmodat", 2), ("mkdirat", 2)]
        {
            assert_eq!(conditions(name), [masked(index, 0o6000, 0)], "{name}");
        }
        for (name, flags) in [("open", 1), ("openat", 2)] {
            let creates = u64::from((libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)).cast_unsigned());
            assert_eq!(conditions(name), [masked(flags, creates, 0), masked(flags + 1, 0o6000, 0)], "{name}");
        }
        for (name, index) in [("mknod", 1), ("mknodat", 2)] {
            let files = [0, libc::S_IFIFO, libc::S_IFREG, libc::S_IFSOCK];
            let wanted: Vec<Value> =
                files.map(|kind| masked(index, u64::from(libc::S_IFMT) | 0o6000, kind.into())).to_vec();
            assert_eq!(conditions(name), wanted, "{name}");
        }
        let namespaces = libc::CLONE_NEWNS
            | libc::CLONE_NEWCGROUP
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET;
        assert_eq!(conditions("clone"), [masked(0, u64::from(namespaces.cast_unsigned()), 0)]);
        assert_eq!(conditions("renameat2"), [masked(4, u64::from(libc::RENAME_WHITEOUT), 0)]);
    }

    #[test]
    fn no_request_that_would_take_a_file_out_of_its_quota_is_allowed() {
        const SETS_FLAGS: [u64; 3] = [0x4008_6602, 0x4004_6602, 0x401c_5820];
        /// The old requests that allot space: RESVSP, RESVSP64, ALLOCSP, ALLOCSP64, ZERO_RANGE.
        const ALLOTS: [u64; 5] = [0x4030_5828, 0x4030_582a, 0x4030_580a, 0x4030_5824, 0x4030_5839];
        /// Asking for the flags, a window's size, data that waits; unlocking a pseudo-terminal; a reflink.
        const USUAL: [u64; 7] = [0x8008_6601, 0x5413, 0x541b, 0x5401, 0x8004_5430, 0x4004_5431, 0x4004_9409];
        let profile = profile();
        let rules: Vec<(u64, u64)> = profile["syscalls"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|rule| rule["names"][0] == "ioctl")
            .map(|rule| {
                let condition = &rule["args"][0];
                assert_eq!(
                    (&condition["index"], &condition["op"]),
                    (&1.into(), &"SCMP_CMP_MASKED_EQ".into())
                );
                (condition["value"].as_u64().unwrap(), condition["valueTwo"].as_u64().unwrap())
            })
            .collect();
        // The kernel looks at the lower half of the number, whatever is in the upper.
        let allowed = |request: u64| {
            [0, 1 << 32].map(|upper| rules.iter().any(|(mask, equals)| (request | upper) & mask == *equals))
        };
        for request in SETS_FLAGS.into_iter().chain(ALLOTS) {
            assert_eq!(allowed(request), [false; 2], "{request:x}");
        }
        for request in USUAL {
            assert_eq!(allowed(request), [true; 2], "{request:x}");
        }
    }

    #[test]
    fn only_unix_internet_and_route_sockets_can_be_made() {
        let profile = profile();
        let sockets: BTreeSet<(i64, Option<i64>)> = profile["syscalls"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|rule| rule["names"][0] == "socket")
            .map(|rule| {
                let equals = |at: usize, index: i64| {
                    let condition = rule["args"].get(at)?;
                    assert_eq!(
                        (&condition["index"], &condition["op"]),
                        (&index.into(), &"SCMP_CMP_EQ".into())
                    );
                    condition["value"].as_i64()
                };
                (equals(0, 0).unwrap(), equals(1, 2))
            })
            .collect();
        let of = |family: i32, protocol: Option<i32>| (i64::from(family), protocol.map(i64::from));
        let tcp_and_udp = |family| [0, 6, 17].map(|protocol| of(family, Some(protocol)));
        let mut wanted = BTreeSet::from([of(libc::AF_UNIX, None), of(AF_NETLINK, Some(NETLINK_ROUTE))]);
        wanted.extend(tcp_and_udp(libc::AF_INET));
        wanted.extend(tcp_and_udp(libc::AF_INET6));
        assert_eq!(sockets, wanted);
    }
}
