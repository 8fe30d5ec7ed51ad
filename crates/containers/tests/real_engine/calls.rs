//! System calls tried from inside a container: the ones that must not work, and the ones that must.

use crate::support::TestContainer;

/// A system call from inside, and what must come of it.
struct Call {
    name: &'static str,
    argv: String,
    errno: i32,
}

fn call(name: &'static str, number: libc::c_long, values: &[&str], errno: i32) -> Call {
    let argv = std::iter::once(number.to_string()).chain(values.iter().map(|arg| (*arg).to_owned()));
    Call { name, argv: argv.collect::<Vec<_>>().join(","), errno }
}

fn refused_calls() -> Vec<Call> {
    use libc::{
        AF_ALG, AF_NETLINK, AF_PACKET, AF_VSOCK, CLONE_NEWNET, CLONE_NEWUSER, ENOSYS, EPERM, SIGCHLD,
        SOCK_RAW, SOCK_STREAM,
    };
    let n = |value: libc::c_int| value.to_string();
    let mut calls = vec![
        call("io_uring_setup", libc::SYS_io_uring_setup, &["8", "0"], EPERM),
        call("socket vsock", libc::SYS_socket, &[&n(AF_VSOCK), &n(SOCK_STREAM)], EPERM),
        call("socket netlink audit", libc::SYS_socket, &[&n(AF_NETLINK), &n(SOCK_RAW), "9"], EPERM),
        call("socket netlink netfilter", libc::SYS_socket, &[&n(AF_NETLINK), &n(SOCK_RAW), "12"], EPERM),
        call("socket alg", libc::SYS_socket, &[&n(AF_ALG), "5"], EPERM),
        call("socket packet", libc::SYS_socket, &[&n(AF_PACKET), &n(SOCK_RAW)], EPERM),
        call("socket sctp", libc::SYS_socket, &["2", &n(SOCK_STREAM), "132"], EPERM),
        call("socket mptcp", libc::SYS_socket, &["2", &n(SOCK_STREAM), "262"], EPERM),
        call("socketpair inet", libc::SYS_socketpair, &["2", &n(SOCK_STREAM), "0", "0"], EPERM),
        call("ptrace", libc::SYS_ptrace, &["0"], EPERM),
        call("process_vm_readv", libc::SYS_process_vm_readv, &["1"], EPERM),
        call("process_vm_writev", libc::SYS_process_vm_writev, &["1"], EPERM),
        call("kcmp", libc::SYS_kcmp, &["1", "1"], EPERM),
        call("pidfd_getfd", libc::SYS_pidfd_getfd, &["0", "0"], EPERM),
        call("process_madvise", libc::SYS_process_madvise, &[], EPERM),
        call("keyctl", libc::SYS_keyctl, &["0"], EPERM),
        call("add_key", libc::SYS_add_key, &["@user", "@x", "0", "0", "0"], EPERM),
        call("bpf", libc::SYS_bpf, &["0"], EPERM),
        call("perf_event_open", libc::SYS_perf_event_open, &[], EPERM),
        call("userfaultfd", libc::SYS_userfaultfd, &["0"], EPERM),
        call("mount", libc::SYS_mount, &["@none", "@/tmp", "@tmpfs"], EPERM),
        call("umount2", libc::SYS_umount2, &["@/tmp"], EPERM),
        call("open_tree", libc::SYS_open_tree, &["-100", "@/", "1"], EPERM),
        call("fsopen", libc::SYS_fsopen, &["@tmpfs"], EPERM),
        call("mount_setattr", libc::SYS_mount_setattr, &["-100", "@/"], EPERM),
        call("pivot_root", libc::SYS_pivot_root, &["@/", "@/"], EPERM),
        call("chroot", libc::SYS_chroot, &["@/tmp"], EPERM),
        call("unshare user", libc::SYS_unshare, &[&n(CLONE_NEWUSER)], EPERM),
        call("setns", libc::SYS_setns, &["0", "0"], EPERM),
        call("clone user", libc::SYS_clone, &[&n(CLONE_NEWUSER | SIGCHLD)], EPERM),
        call("clone user net", libc::SYS_clone, &[&n(CLONE_NEWUSER | CLONE_NEWNET | SIGCHLD)], EPERM),
        call("clone3", libc::SYS_clone3, &["0", "0"], ENOSYS),
        call("name_to_handle_at", libc::SYS_name_to_handle_at, &["-100", "@/tmp"], EPERM),
        call("open_by_handle_at", libc::SYS_open_by_handle_at, &["0"], EPERM),
        call("personality no-randomize", libc::SYS_personality, &["262144"], EPERM),
        call("quotactl", libc::SYS_quotactl, &[], EPERM),
        call("syslog", libc::SYS_syslog, &["3"], EPERM),
        call("vmsplice", libc::SYS_vmsplice, &["0"], EPERM),
        call("prlimit of another", libc::SYS_prlimit64, &["1", "7", "0", "0"], EPERM),
        call("mknodat device", libc::SYS_mknodat, &["-100", "@/tmp/n", "8630", "259"], EPERM),
        call("mknodat set-id", libc::SYS_mknodat, &["-100", "@/tmp/n", "35309", "0"], EPERM),
        call("fchmodat set-user-id", libc::SYS_fchmodat, &["-100", "@/tmp", "2541"], EPERM),
        call("fchmodat set-group-id", libc::SYS_fchmodat, &["-100", "@/tmp", "1517"], EPERM),
        call("fchmod set-user-id", libc::SYS_fchmod, &["0", "2541"], EPERM),
        call("mkdirat set-group-id", libc::SYS_mkdirat, &["-100", "@/tmp/d", "1517"], EPERM),
        call("openat create set-user-id", libc::SYS_openat, &["-100", "@/tmp/s", "65", "2541"], EPERM),
        call("openat tmpfile set-user-id", libc::SYS_openat, &["-100", "@/tmp", "4259842", "2541"], EPERM),
        call("renameat2 whiteout", libc::SYS_renameat2, &["-100", "@/tmp/a", "-100", "@/tmp/b", "4"], EPERM),
        call("ioctl set flags", libc::SYS_ioctl, &["0", "1074292226", "0"], EPERM),
        call("ioctl set project", libc::SYS_ioctl, &["0", "1075599392", "0"], EPERM),
        // The kernel does not look at the upper half of the number.
        call("ioctl set project, wild", libc::SYS_ioctl, &["0", "5370566688", "0"], EPERM),
        call("kernel module", libc::SYS_finit_module, &["0"], EPERM),
        call("reboot", libc::SYS_reboot, &[], EPERM),
        call("mq_open", libc::SYS_mq_open, &["@q", "66", "384", "0"], EPERM),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        call("chmod set-user-id", libc::SYS_chmod, &["@/tmp", "2541"], EPERM),
        call("creat set-user-id", libc::SYS_creat, &["@/tmp/s", "2541"], EPERM),
        call("open create set-group-id", libc::SYS_open, &["@/tmp/s", "65", "1517"], EPERM),
        call("mknod device", libc::SYS_mknod, &["@/tmp/n", "8630", "259"], EPERM),
        call("modify_ldt", libc::SYS_modify_ldt, &["0"], EPERM),
    ]);
    calls
}

fn allowed_calls() -> Vec<Call> {
    let n = |value: libc::c_int| value.to_string();
    vec![
        call("socket unix", libc::SYS_socket, &["1", &n(libc::SOCK_STREAM)], 0),
        call("socket tcp", libc::SYS_socket, &["2", &n(libc::SOCK_STREAM), "6"], 0),
        call("socket netlink route", libc::SYS_socket, &["16", &n(libc::SOCK_RAW), "0"], 0),
        call("socket udp6", libc::SYS_socket, &["10", &n(libc::SOCK_DGRAM)], 0),
        call("openat create", libc::SYS_openat, &["-100", "@/tmp/f", "65", "420"], 0),
        // Without O_CREAT the mode is not read; programs leave anything in it.
        call("openat with a wild mode", libc::SYS_openat, &["-100", "@/tmp/f", "0", "4095"], 0),
        call("fchmodat", libc::SYS_fchmodat, &["-100", "@/tmp/f", "493"], 0),
        call("fchmodat sticky", libc::SYS_fchmodat, &["-100", "@/tmp/f", "1005"], 0),
        call("mkdirat", libc::SYS_mkdirat, &["-100", "@/tmp/d", "493"], 0),
        call("mknodat fifo", libc::SYS_mknodat, &["-100", "@/tmp/p", "4516", "0"], 0),
        call("renameat2 no replace", libc::SYS_renameat2, &["-100", "@/tmp/f", "-100", "@/tmp/g", "1"], 0),
        call("ioctl reaches the kernel", libc::SYS_ioctl, &["-1", "21523", "0"], libc::EBADF),
        call("ioctl unlocks a terminal", libc::SYS_ioctl, &["-1", "1074025521", "0"], libc::EBADF),
        call("personality ask", libc::SYS_personality, &["4294967295"], 0),
        call("prlimit of one's own", libc::SYS_prlimit64, &["0", "7", "0", "0"], 0),
        call("openat2 reaches the kernel", libc::SYS_openat2, &["-100", "@/tmp", "0", "0"], libc::EINVAL),
    ]
}

#[tokio::test]
async fn the_kernel_s_dangerous_calls_are_refused_and_the_ordinary_ones_are_not() {
    let test = TestContainer::start(|_| Vec::new()).await;
    let calls: Vec<Call> = refused_calls().into_iter().chain(allowed_calls()).collect();
    let args: Vec<&str> =
        std::iter::once("calls").chain(calls.iter().map(|call| call.argv.as_str())).collect();
    let found = test.probe(&args).await;
    assert_eq!(found.len(), calls.len());
    let wrong: Vec<String> = calls
        .iter()
        .zip(&found)
        .filter(|(call, found)| call.errno.to_string() != **found)
        .map(|(call, found)| format!("{}: errno {found} instead of {}", call.name, call.errno))
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
}

/// 452 on every architecture; older libraries do not know its name, and the answer must be a refusal either way.
#[tokio::test]
async fn set_id_modes_cannot_be_set_by_the_newest_call() {
    let test = TestContainer::start(|_| Vec::new()).await;
    let found = test.probe(&["calls", "452,-100,@/tmp,2541,0"]).await;
    let refusals = [libc::ENOSYS.to_string(), libc::EPERM.to_string()];
    assert!(found.len() == 1 && refusals.contains(&found[0]), "{found:?}");
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn the_32_bit_entry_to_the_kernel_is_closed() {
    let test = TestContainer::start(|_| Vec::new()).await;
    assert_eq!(test.probe(&["int80"]).await, Vec::<String>::new(), "the process must not survive it");
}
