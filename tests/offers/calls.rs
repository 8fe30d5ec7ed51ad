//! System calls that programs make, by their numbers on the two architectures that a run can have.

use std::ffi::CStr;

use crate::errors::{check, word};
use crate::row;

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
}

/// The number on x86-64, and on the others.
const fn pick(x86: i64, generic: i64) -> i64 {
    if cfg!(target_arch = "x86_64") { x86 } else { generic }
}

pub fn rows() {
    const EMPTY: &CStr = c"";
    const FILE: &CStr = c"/tmp/offers-call";
    const NAME: &CStr = c"offers";
    let at = |text: &'static CStr| text.as_ptr().expose_provenance().cast_signed() as i64;
    let mut memory = [0_u64; 64];
    let buffer = (&raw mut memory).expose_provenance().cast_signed() as i64;
    let processor = [1_u64];
    let first = (&raw const processor).expose_provenance().cast_signed() as i64;
    let _ = std::fs::write("/tmp/offers-call", "x");
    const AT_CWD: i64 = -100;
    // O_TMPFILE, of which O_DIRECTORY is a part, and O_RDWR.
    const TMPFILE: i64 = 0o20_000_002 | pick(0o200_000, 0o40_000);
    let made: [(&str, i64, [i64; 6]); 71] = [
        ("io_uring_setup", 425, [8, buffer, 0, 0, 0, 0]),
        ("io_setup", pick(206, 0), [8, buffer, 0, 0, 0, 0]),
        ("userfaultfd", pick(323, 282), [1, 0, 0, 0, 0, 0]),
        ("perf_event_open", pick(298, 241), [buffer, 0, -1, -1, 0, 0]),
        ("bpf", pick(321, 280), [0, buffer, 72, 0, 0, 0]),
        ("keyctl", pick(250, 219), [0, -3, 0, 0, 0, 0]),
        ("ptrace", pick(101, 117), [16, 9_999_999, 0, 0, 0, 0]),
        ("process_vm_readv", pick(310, 270), [1, 0, 0, 0, 0, 0]),
        ("kcmp", pick(312, 272), [1, 1, 0, 0, 0, 0]),
        ("personality, as it is", pick(135, 92), [0xffff_ffff, 0, 0, 0, 0, 0]),
        ("personality, without randomisation", pick(135, 92), [0x0004_0000, 0, 0, 0, 0, 0]),
        ("clone3", 435, [0, 0, 0, 0, 0, 0]),
        ("unshare of users", pick(272, 97), [0x1000_0000, 0, 0, 0, 0, 0]),
        ("unshare of mounts", pick(272, 97), [0x0002_0000, 0, 0, 0, 0, 0]),
        ("mount", pick(165, 40), [at(EMPTY), at(FILE), at(EMPTY), 0, 0, 0]),
        ("chroot", pick(161, 51), [at(c"/"), 0, 0, 0, 0, 0]),
        ("sethostname", pick(170, 161), [at(NAME), 6, 0, 0, 0, 0]),
        ("name_to_handle_at", pick(303, 264), [AT_CWD, at(EMPTY), 0, 0, 0, 0]),
        ("membarrier", pick(324, 283), [0, 0, 0, 0, 0, 0]),
        ("mlock", pick(149, 228), [buffer, 64, 0, 0, 0, 0]),
        ("memfd_create", pick(319, 279), [at(NAME), 0, 0, 0, 0, 0]),
        ("memfd_secret", 447, [0, 0, 0, 0, 0, 0]),
        ("pidfd_open", 434, [i64::from(std::process::id()), 0, 0, 0, 0, 0]),
        ("close_range", 436, [1_000_000, 1_000_000, 0, 0, 0, 0]),
        ("openat2", 437, [AT_CWD, at(FILE), buffer, 24, 0, 0]),
        ("faccessat2", 439, [AT_CWD, at(FILE), 0, 0, 0, 0]),
        ("statx", pick(332, 291), [AT_CWD, at(FILE), 0, 0x7ff, buffer, 0]),
        ("file without a name (O_TMPFILE)", pick(257, 56), [AT_CWD, at(c"/tmp"), TMPFILE, 0o600, 0, 0]),
        ("getrandom", pick(318, 278), [buffer, 8, 0, 0, 0, 0]),
        ("extended attribute", pick(188, 5), [at(FILE), at(c"user.offers"), buffer, 1, 0, 0]),
        ("flock", pick(73, 32), [1, 1, 0, 0, 0, 0]),
        ("inotify_init1", pick(294, 26), [0, 0, 0, 0, 0, 0]),
        ("fanotify_init", pick(300, 262), [0x200, 0, 0, 0, 0, 0]),
        ("eventfd2", pick(290, 19), [0, 0, 0, 0, 0, 0]),
        ("timerfd_create", pick(283, 85), [1, 0, 0, 0, 0, 0]),
        ("epoll_create1", pick(291, 20), [0, 0, 0, 0, 0, 0]),
        ("timer_create", pick(222, 107), [1, 0, buffer, 0, 0, 0]),
        ("vmsplice", pick(278, 75), [1, buffer, 0, 0, 0, 0]),
        ("sched_setaffinity", pick(203, 122), [0, 8, first, 0, 0, 0]),
        ("sched_setscheduler, batch", pick(144, 119), [0, 3, buffer, 0, 0, 0]),
        ("setpriority, lower", pick(141, 140), [0, 0, 1, 0, 0, 0]),
        ("setpriority, higher", pick(141, 140), [0, 0, -5, 0, 0, 0]),
        ("ioprio_set", pick(251, 30), [1, 0, 0x4004, 0, 0, 0]),
        ("mbind", pick(237, 235), [0, 0, 0, 0, 0, 0]),
        ("get_mempolicy", pick(239, 236), [0, 0, 0, 0, 0, 0]),
        ("POSIX message queue", pick(240, 180), [at(NAME), 0o102, 0o600, 0, 0, 0]),
        ("System V shared memory", pick(29, 194), [0, 4096, 0o600, 0, 0, 0]),
        ("System V semaphores", pick(64, 190), [0, 1, 0o600, 0, 0, 0]),
        ("System V messages", pick(68, 186), [0, 0o600, 0, 0, 0, 0]),
        ("landlock_create_ruleset", 444, [0, 0, 1, 0, 0, 0]),
        ("seccomp", pick(317, 277), [2, 0, buffer, 0, 0, 0]),
        ("sync", pick(162, 81), [0, 0, 0, 0, 0, 0]),
        ("adjtimex", pick(159, 171), [buffer, 0, 0, 0, 0, 0]),
        ("clock_settime", pick(227, 112), [0, buffer, 0, 0, 0, 0]),
        ("quotactl", pick(179, 60), [0, 0, 0, 0, 0, 0]),
        ("syslog", pick(103, 116), [10, 0, 0, 0, 0, 0]),
        ("FIFO in /tmp", pick(259, 33), [AT_CWD, at(c"/tmp/offers-fifo"), 0o010_600, 0, 0, 0]),
        ("device in /tmp", pick(259, 33), [AT_CWD, at(c"/tmp/offers-device"), 0o020_600, 0x103, 0, 0]),
        ("chown to oneself", pick(260, 54), [AT_CWD, at(FILE), -1, -1, 0, 0]),
        ("chown to another", pick(260, 54), [AT_CWD, at(FILE), 4242, 4242, 0, 0]),
        ("socket: Unix", pick(41, 198), [1, 1, 0, 0, 0, 0]),
        ("socket: TCP", pick(41, 198), [2, 1, 0, 0, 0, 0]),
        ("socket: UDP over IPv6", pick(41, 198), [10, 2, 0, 0, 0, 0]),
        ("socket: netlink, interfaces", pick(41, 198), [16, 3, 0, 0, 0, 0]),
        ("socket: netlink, others", pick(41, 198), [16, 3, 16, 0, 0, 0]),
        ("socket: packet", pick(41, 198), [17, 3, 0x300, 0, 0, 0]),
        ("socket: ping", pick(41, 198), [2, 2, 1, 0, 0, 0]),
        ("socket: raw IP", pick(41, 198), [2, 3, 255, 0, 0, 0]),
        ("socket: vsock", pick(41, 198), [40, 1, 0, 0, 0, 0]),
        ("socket: kernel crypto", pick(41, 198), [38, 5, 0, 0, 0, 0]),
        ("setgroups", pick(116, 159), [0, 0, 0, 0, 0, 0]),
    ];
    for (name, number, [a, b, c, d, e, f]) in made {
        memory.fill(0);
        // SAFETY: pointers are to texts and to buffer that outlive the call, or are null, which the kernel refuses.
        let result = check(unsafe { syscall(number, a, b, c, d, e, f) });
        row(name, word(result));
    }
    for left in ["call", "fifo", "device"] {
        let _ = std::fs::remove_file(format!("/tmp/offers-{left}"));
    }
    row("program in memory", word(in_memory()));
}

/// Runs this program from a file without a name.
fn in_memory() -> std::io::Result<()> {
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
    use std::process::{Command, Stdio};
    // SAFETY: a name, and no flags.
    let made = check(unsafe { syscall(pick(319, 279), c"offers".as_ptr(), 0) })?;
    // SAFETY: the descriptor is new.
    let memory = unsafe { OwnedFd::from_raw_fd(i32::try_from(made).unwrap_or(-1)) };
    let mut file = std::fs::File::from(memory);
    std::io::copy(&mut std::fs::File::open("/proc/self/exe")?, &mut file)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).env("OFFERS_IS_CHILD", "1").status().map(drop)
}
