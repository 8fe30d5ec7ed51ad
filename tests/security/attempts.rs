//! Attacks from inside, whatever the engine is: each asserts that it fails.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use libc::{EACCES, EAFNOSUPPORT, ECONNREFUSED, ENETUNREACH, ENOENT, ENOSYS, EPERM, SYS_prctl, SYS_socket};

use crate::inside::{Inside, outcomes};

/// A system call as the probe takes it, and the errnos that a refusal may have.
pub(crate) struct Attempt {
    name: &'static str,
    call: String,
    refusals: &'static [i32],
}

pub(crate) const REFUSED: &[i32] = &[EPERM];
const NO_FAMILY: &[i32] = &[EPERM, EAFNOSUPPORT];
/// A user that the workspace's mount does not know cannot own anything there.
const NO_USER: &[i32] = &[EPERM, libc::EOVERFLOW];
/// As if the kernel did not have it, so that programs fall back to a call whose arguments can be judged.
const MISSING: &[i32] = &[ENOSYS];

pub(crate) fn attempt(
    name: &'static str,
    number: libc::c_long,
    arguments: &str,
    refusals: &'static [i32],
) -> Attempt {
    Attempt { name, call: format!("{number},{arguments}"), refusals }
}

/// Makes all attempts in one process and asserts that each is refused, as it should be.
pub(crate) async fn all_refused(inside: &mut Inside, attempts: &[Attempt]) {
    let mut input = String::new();
    for attempt in attempts {
        writeln!(input, "{}:{}", attempt.name, attempt.call).unwrap();
    }
    let found = outcomes(&inside.probe_with(&["calls"], input.into_bytes()).await);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, attempts.iter().map(|attempt| attempt.name).collect::<Vec<_>>());
    let wrong: Vec<_> = attempts
        .iter()
        .zip(&found)
        .filter(|(attempt, (_, errno))| !attempt.refusals.contains(errno))
        .map(|(_, found)| found)
        .collect();
    assert!(wrong.is_empty(), "not refused as it should be: {wrong:?}");
}

/// Addresses of this host, so that a way to any of them would be found.
fn host_addresses() -> Vec<String> {
    let output = Command::new("hostname").arg("--all-ip-addresses").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let addresses: Vec<String> =
        text.split_whitespace().filter(|address| !address.contains(':')).map(Into::into).collect();
    assert!(!addresses.is_empty(), "the host has the engine's bridge at least");
    addresses
}

pub(crate) async fn no_other_capability(inside: &mut Inside) {
    let everything = "#ffffffffffffffff:ffffffffffffffff:ffffffffffffffff";
    let attempts = [
        attempt("capset", libc::SYS_capset, &format!("#20080522,{everything}"), REFUSED),
        attempt("drop from the bounding set", SYS_prctl, "24,21", REFUSED),
        attempt("ambient", SYS_prctl, "47,2,21,0,0", REFUSED),
        attempt("securebits", SYS_prctl, "28,47", REFUSED),
    ];
    all_refused(inside, &attempts).await;
}

pub(crate) async fn no_other_socket(inside: &mut Inside) {
    let (stream, raw) = (libc::SOCK_STREAM, libc::SOCK_RAW);
    let socket = |name, family: i32, kind: i32, protocol: i32| {
        attempt(name, SYS_socket, &format!("{family},{kind},{protocol}"), NO_FAMILY)
    };
    let attempts = [
        socket("vsock", libc::AF_VSOCK, stream, 0),
        socket("netlink netfilter", libc::AF_NETLINK, raw, libc::NETLINK_NETFILTER),
        socket("netlink generic", libc::AF_NETLINK, raw, libc::NETLINK_GENERIC),
        socket("netlink xfrm", libc::AF_NETLINK, raw, libc::NETLINK_XFRM),
        socket("netlink diagnosis", libc::AF_NETLINK, raw, libc::NETLINK_SOCK_DIAG),
        socket("netlink audit", libc::AF_NETLINK, raw, libc::NETLINK_AUDIT),
        socket("netlink uevents", libc::AF_NETLINK, raw, libc::NETLINK_KOBJECT_UEVENT),
        socket("alg", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
        socket("packet", libc::AF_PACKET, raw, 0x0300),
        socket("raw icmp", libc::AF_INET, raw, libc::IPPROTO_ICMP),
        socket("raw ip", libc::AF_INET, raw, libc::IPPROTO_RAW),
        socket("raw icmp6", libc::AF_INET6, raw, libc::IPPROTO_ICMPV6),
        socket("ping", libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
        socket("sctp", libc::AF_INET, stream, libc::IPPROTO_SCTP),
        socket("mptcp", libc::AF_INET, stream, 262),
        socket("tipc", libc::AF_TIPC, stream, 0),
        socket("bluetooth", libc::AF_BLUETOOTH, raw, 1),
        socket("can", libc::AF_CAN, raw, 1),
        socket("xdp", libc::AF_XDP, raw, 0),
        socket("key", libc::AF_KEY, raw, 2),
        socket("rds", libc::AF_RDS, libc::SOCK_SEQPACKET, 0),
    ];
    all_refused(inside, &attempts).await;
}

pub(crate) async fn no_namespace(inside: &mut Inside) {
    let mut attempts = Vec::new();
    for (name, flag) in [
        ("mount", libc::CLONE_NEWNS),
        ("uts", libc::CLONE_NEWUTS),
        ("ipc", libc::CLONE_NEWIPC),
        ("user", libc::CLONE_NEWUSER),
        ("pid", libc::CLONE_NEWPID),
        ("net", libc::CLONE_NEWNET),
        ("cgroup", libc::CLONE_NEWCGROUP),
        ("user and mount", libc::CLONE_NEWUSER | libc::CLONE_NEWNS),
    ] {
        attempts.push(attempt(name, libc::SYS_unshare, &flag.to_string(), REFUSED));
        attempts.push(attempt(name, libc::SYS_clone, &(flag | libc::SIGCHLD).to_string(), REFUSED));
        // CLONE_NEW… and SIGCHLD in its structure, where no filter can see them.
        let structure = format!("#{flag:x}:0:0:0:11:0:0:0:0:0:0,88");
        attempts.push(attempt(name, libc::SYS_clone3, &structure, MISSING));
    }
    attempts.extend([
        attempt("time namespace", libc::SYS_unshare, "128", REFUSED),
        attempt("setns", libc::SYS_setns, "0,0", REFUSED),
        attempt("mount tmpfs", libc::SYS_mount, "@none,@/tmp,@tmpfs,0,0", REFUSED),
        attempt("mount proc", libc::SYS_mount, "@none,@/tmp,@proc,0,0", REFUSED),
        attempt("bind", libc::SYS_mount, "@/,@/tmp,0,4096,0", REFUSED),
        attempt("remount the root", libc::SYS_mount, "0,@/,0,32,0", REFUSED),
        attempt("remount a bind", libc::SYS_mount, "0,@/workspace,0,4128,0", REFUSED),
        attempt("umount a mask", libc::SYS_umount2, "@/proc/kcore,2", REFUSED),
        attempt("open_tree", libc::SYS_open_tree, "-100,@/,1", REFUSED),
        attempt("move_mount", libc::SYS_move_mount, "-100,@/workspace,-100,@/tmp,0", REFUSED),
        attempt("fsopen", libc::SYS_fsopen, "@tmpfs,0", REFUSED),
        attempt("fsmount", libc::SYS_fsmount, "0,0,0", REFUSED),
        attempt("fspick", libc::SYS_fspick, "-100,@/,0", REFUSED),
        attempt("mount_setattr", libc::SYS_mount_setattr, "-100,@/,0,#0:1:0:0,32", REFUSED),
        attempt("pivot_root", libc::SYS_pivot_root, "@/tmp,@/tmp", REFUSED),
        attempt("chroot", libc::SYS_chroot, "@/workspace", REFUSED),
        attempt("sethostname", libc::SYS_sethostname, "@pwned,5", REFUSED),
        attempt("name_to_handle_at", libc::SYS_name_to_handle_at, "-100,@/,#8,#0,0", REFUSED),
        attempt("open_by_handle_at", libc::SYS_open_by_handle_at, "0,#8,0", REFUSED),
    ]);
    all_refused(inside, &attempts).await;
}

pub(crate) async fn no_dangerous_part(inside: &mut Inside) {
    let attempts = [
        attempt("io_uring_setup", libc::SYS_io_uring_setup, "8,#0:0:0:0:0:0:0:0:0:0:0:0:0:0:0", REFUSED),
        attempt("io_uring_enter", libc::SYS_io_uring_enter, "0,0,0,0", REFUSED),
        attempt("bpf", libc::SYS_bpf, "5,#0:0:0:0:0:0:0:0,64", REFUSED),
        attempt("keyctl", libc::SYS_keyctl, "0,-3,1", REFUSED),
        attempt("add_key", libc::SYS_add_key, "@user,@x,@y,1,-3", REFUSED),
        attempt("request_key", libc::SYS_request_key, "@user,@x,0,-3", REFUSED),
        attempt("userfaultfd", libc::SYS_userfaultfd, "1", REFUSED),
        attempt("perf_event_open", libc::SYS_perf_event_open, "#0,0,-1,-1,0", REFUSED),
        attempt("kexec_load", libc::SYS_kexec_load, "0,0,0,0", REFUSED),
        attempt("kexec_file_load", libc::SYS_kexec_file_load, "-1,-1,0,0,0", REFUSED),
        attempt("init_module", libc::SYS_init_module, "#0,8,@", REFUSED),
        attempt("finit_module", libc::SYS_finit_module, "0,@,0", REFUSED),
        attempt("delete_module", libc::SYS_delete_module, "@x,0", REFUSED),
        attempt("reboot", libc::SYS_reboot, "4276215469,672274793,0", REFUSED),
        attempt("swapon", libc::SYS_swapon, "@/workspace/probe,0", REFUSED),
        attempt("settimeofday", libc::SYS_settimeofday, "#0:0,0", REFUSED),
        attempt("clock_settime", libc::SYS_clock_settime, "0,#0:0", REFUSED),
        attempt("syslog", libc::SYS_syslog, "3,#0:0,16", REFUSED),
        attempt("acct", libc::SYS_acct, "@/tmp/x", REFUSED),
        attempt("fanotify_init", libc::SYS_fanotify_init, "0,0", REFUSED),
        attempt("memfd_secret", libc::SYS_memfd_secret, "0", REFUSED),
        attempt("personality", libc::SYS_personality, "262144", REFUSED),
        attempt("ptrace me", libc::SYS_ptrace, "0,0,0,0", REFUSED),
        // Both put text into the terminal as if it had been typed.
        attempt("TIOCSTI", libc::SYS_ioctl, "0,21522,@x", REFUSED),
        attempt("TIOCLINUX", libc::SYS_ioctl, "0,21532,@x", REFUSED),
        attempt("openat2", libc::SYS_openat2, "-100,@/tmp,#0:0:0,24", MISSING),
    ];
    all_refused(inside, &attempts).await;
}

/// `other` is somebody who does not own the workspace.
pub(crate) async fn no_device_and_no_set_id_bit(inside: &mut Inside, other: u32) {
    let (set_uid, set_gid) = (0o4755, 0o2755);
    let created = libc::O_CREAT | libc::O_WRONLY;
    let at = |name, number, arguments: String| attempt(name, number, &arguments, REFUSED);
    let mut attempts = vec![
        at("device", libc::SYS_mknodat, format!("-100,@/workspace/made,{},259", libc::S_IFCHR | 0o666)),
        at("block device", libc::SYS_mknodat, format!("-100,@/tmp/made,{},2048", libc::S_IFBLK | 0o666)),
        at("whiteout", libc::SYS_renameat2, "-100,@/workspace/probe,-100,@/workspace/made,4".to_owned()),
        at("openat2", libc::SYS_openat2, format!("-100,@/workspace/made,#{created:x}:{set_uid:x}:0,24")),
        at("fchmodat2", 452, format!("-100,@/workspace/probe,{set_uid},0")),
        at("chown", libc::SYS_fchownat, format!("-100,@/workspace/probe,{other},{other},0")),
        at(
            "capability",
            libc::SYS_setxattr,
            "@/workspace/probe,@security.capability,#ffffffff02000001:ffffffff:0,20,0".to_owned(),
        ),
    ];
    for mode in [set_uid, set_gid, set_uid | set_gid] {
        attempts.extend([
            at("fchmodat", libc::SYS_fchmodat, format!("-100,@/workspace/probe,{mode}")),
            at("openat", libc::SYS_openat, format!("-100,@/workspace/made,{created},{mode}")),
            at("mknodat", libc::SYS_mknodat, format!("-100,@/workspace/made,{},0", libc::S_IFREG | mode)),
            at("mkdirat", libc::SYS_mkdirat, format!("-100,@/workspace/made,{mode}")),
        ]);
        #[cfg(target_arch = "x86_64")]
        attempts.extend([
            at("chmod", libc::SYS_chmod, format!("@/workspace/probe,{mode}")),
            at("creat", libc::SYS_creat, format!("@/workspace/made,{mode}")),
            at("open", libc::SYS_open, format!("@/workspace/made,{created},{mode}")),
        ]);
    }
    for attempt in &mut attempts {
        match attempt.name {
            "openat2" => attempt.refusals = MISSING,
            "chown" => attempt.refusals = NO_USER,
            _ => {}
        }
    }
    all_refused(inside, &attempts).await;
    assert!(!inside.workspace.join("made").exists());
    let probe = std::fs::metadata(inside.workspace.join("probe")).unwrap();
    assert_eq!(probe.permissions().mode() & 0o7777, 0o755);
}

pub(crate) async fn no_special_file(inside: &mut Inside) {
    let mut found = inside.probe(&["special-files"]).await;
    // What covers the kernel's files is the null device.
    found.retain(|line| !line.starts_with("character /proc/") && !line.starts_with("character /sys/"));
    found.sort();
    let harmless = ["full", "null", "pts/ptmx", "random", "tty", "urandom", "zero"];
    assert_eq!(found, harmless.map(|name| format!("character /dev/{name}")));
}

pub(crate) async fn no_network(inside: &mut Inside) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let receiver = UdpSocket::bind("0.0.0.0:0").unwrap();
    let (tcp, udp) = (listener.local_addr().unwrap().port(), receiver.local_addr().unwrap().port());

    let mut targets: Vec<String> = Vec::new();
    for address in host_addresses() {
        targets.extend([format!("tcp:{address}:{tcp}"), format!("udp:{address}:{udp}")]);
    }
    for outside in [
        "169.254.169.254:80",
        "172.17.0.1:2375",
        "1.1.1.1:53",
        "10.0.0.1:443",
        "192.168.0.1:22",
        "224.0.0.1:5353",
    ] {
        targets.extend([format!("tcp:{outside}"), format!("udp:{outside}")]);
    }
    for outside in ["[fd00:ec2::254]:80", "[2606:4700:4700::1111]:53"] {
        targets.push(format!("tcp:{outside}"));
    }
    let unreachable = targets.len();
    targets.push(format!("tcp:127.0.0.1:{tcp}"));

    let words: Vec<&str> = std::iter::once("connect").chain(targets.iter().map(String::as_str)).collect();
    let found = outcomes(&inside.probe(&words).await);
    assert_eq!(found.len(), targets.len());
    let reached: Vec<_> = found[..unreachable]
        .iter()
        .filter(|(_, errno)| ![ENETUNREACH, libc::EADDRNOTAVAIL].contains(errno))
        .collect();
    assert!(reached.is_empty(), "{reached:?}");
    // The loopback is the run's own.
    assert_eq!(found[unreachable].1, ECONNREFUSED);

    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    receiver.set_nonblocking(true).unwrap();
    assert_eq!(receiver.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);

    let devices = inside.probe(&["read", "/proc/net/dev"]).await.join("");
    let names: Vec<&str> =
        devices.split("\\n").filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    assert_eq!(names, ["lo"]);
}

pub(crate) async fn no_particulars(inside: &mut Inside) {
    let lines = inside.probe(&["processes"]).await;
    let mut lines: Vec<&str> = lines.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    lines.sort_unstable();
    // A copy of the agent may wait for the next command.
    lines.dedup();
    assert_eq!(lines, ["/.cofferdam/guest hold", "/.cofferdam/guest serve", "/workspace/probe processes"]);

    let hidden = [
        "/proc/kcore",
        "/proc/keys",
        "/proc/key-users",
        "/proc/kallsyms",
        "/proc/modules",
        "/proc/cmdline",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/interrupts",
        "/proc/sysrq-trigger",
        "/proc/kmsg",
        "/proc/partitions",
    ];
    let words: Vec<&str> = std::iter::once("read").chain(hidden).collect();
    for line in inside.probe(&words).await {
        // Covered by something empty, or not in this kernel.
        assert!(line.ends_with(" \"\"") || line.ends_with(&format!(" {ENOENT}")), "{line}");
    }
    let hostname = inside.probe(&["read", "/proc/sys/kernel/hostname"]).await;
    assert_eq!(hostname, ["/proc/sys/kernel/hostname \"cofferdam\\n\""]);
    let agent = inside.probe(&["read", "/.cofferdam/guest"]).await;
    assert_eq!(agent, [format!("/.cofferdam/guest {EACCES}")]);

    // The host's directories show in no mount table of the run's.
    let mounts = inside
        .probe(&["read", "/proc/self/mountinfo", "/proc/self/cgroup", "/proc/self/environ"])
        .await
        .join("");
    for word in ["docker.sock", "overlay2/diff"] {
        assert!(!mounts.contains(word), "{word} in {mounts}");
    }
}

pub(crate) async fn no_way_to_the_agent(inside: &mut Inside) {
    let found = outcomes(&inside.probe(&["peers"]).await);
    let attacked: BTreeSet<&str> = found.iter().map(|(name, _)| name.split(' ').next().unwrap()).collect();
    let count = attacked.len();
    assert!(
        (2..=4).contains(&count),
        "the first process, the agent, and the two copies of it that may wait: {attacked:?}"
    );
    let succeeded: Vec<_> = found
        .iter()
        // A name in a directory that cannot be searched does not exist either, as far as the kernel says.
        .filter(|(_, errno)| ![EACCES, EPERM, ENOENT].contains(errno))
        .collect();
    assert!(succeeded.is_empty(), "{succeeded:?}");
    for attempt in ["fd/1", "mem", "ptrace attach", "process_vm_readv", "pidfd_getfd 1", "prlimit", "environ"]
    {
        let tried = found.iter().filter(|(name, _)| name.split_once(' ').unwrap().1 == attempt).count();
        assert_eq!(tried, count, "{attempt} was tried on all");
    }
}
