//! Attacks on the processes of the same user: the container's first one, and the agent that started this one.

use std::fs::{self, OpenOptions};
use std::io;

use crate::sys::{self, Pair};
use crate::{check, look, report};

/// Tries everything that a debugger may do, on every other process, and prints `PID ATTEMPT RESULT`. A process that
/// was attacked with success is as good as taken over.
pub fn attack() {
    for pid in others() {
        let proc = |entry: &str| format!("/proc/{pid}/{entry}");
        let name = |attempt: &str| format!("{pid} {attempt}");
        for directory in ["fd", "fdinfo", "map_files", "ns"] {
            // Names in `ns` are no secret; their targets are.
            let seen = if directory == "ns" {
                fs::read_link(proc("ns/mnt")).map(drop)
            } else {
                fs::read_dir(proc(directory)).and_then(|mut entries| entries.next().transpose()).map(drop)
            };
            report(name(directory), seen);
        }
        for link in ["root", "cwd", "exe"] {
            report(name(link), fs::read_link(proc(link)));
        }
        report(name("root/tmp"), fs::read_dir(proc("root/tmp")));
        for file in ["mem", "maps", "environ", "auxv", "syscall", "stack", "io", "pagemap", "clear_refs"] {
            let write = matches!(file, "clear_refs");
            report(name(file), OpenOptions::new().read(!write).write(write).open(proc(file)).and_then(used));
        }
        for descriptor in 0..8 {
            let path = proc(&format!("fd/{descriptor}"));
            report(name(&format!("fd/{descriptor}")), OpenOptions::new().write(true).open(path));
        }
        let memory = OpenOptions::new().write(true).open(proc("mem"));
        report(name("mem for writing"), memory);
        system_calls(pid);
    }
}

/// A file that opens may still refuse to be read.
fn used(file: fs::File) -> io::Result<fs::File> {
    use std::os::unix::fs::FileExt;
    // Address zero of `mem` is never mapped: EIO then means that access was granted.
    match file.read_at(&mut [0; 8], 0) {
        Err(error) if error.raw_os_error() != Some(5) && error.raw_os_error() != Some(9) => Err(error),
        _ => Ok(file),
    }
}

fn system_calls(pid: i32) {
    let name = |attempt: &str| format!("{pid} {attempt}");
    let null = std::ptr::null_mut();
    report(name("ptrace attach"), check(unsafe { sys::ptrace(sys::PTRACE_ATTACH, pid, null, null) }));
    report(name("ptrace seize"), check(unsafe { sys::ptrace(sys::PTRACE_SEIZE, pid, null, null) }));
    let mut buffer = [0_u8; 8];
    let local = Pair(buffer.as_mut_ptr() as u64, 8);
    let remote = Pair(0x40_0000, 8);
    for (attempt, number) in
        [("process_vm_readv", sys::SYS_PROCESS_VM_READV), ("process_vm_writev", sys::SYS_PROCESS_VM_WRITEV)]
    {
        let result = unsafe {
            sys::syscall(number, i64::from(pid), &raw const local, 1_u64, &raw const remote, 1_u64, 0_u64)
        };
        report(name(attempt), check(result));
    }
    let limit = Pair(0, 0);
    let prlimit = unsafe { sys::syscall(sys::SYS_PRLIMIT64, i64::from(pid), 7_i64, &raw const limit, 0_i64) };
    report(name("prlimit"), check(prlimit));
    let kcmp = unsafe {
        sys::syscall(sys::SYS_KCMP, i64::from(pid), i64::from(std::process::id()), 0_i64, 0_i64, 0_i64)
    };
    report(name("kcmp"), check(kcmp));
    let pidfd = unsafe { sys::syscall(sys::SYS_PIDFD_OPEN, i64::from(pid), 0_i64) };
    for descriptor in 0..3_i64 {
        let stolen = unsafe { sys::syscall(sys::SYS_PIDFD_GETFD, pidfd, descriptor, 0_i64) };
        report(name(&format!("pidfd_getfd {descriptor}")), check(stolen));
    }
}

/// Sends a signal to the agent.
pub fn signal_agent(number: &str) {
    let number = number.parse().unwrap();
    for pid in others() {
        if fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"/.cofferdam/guest\0serve\0") {
            report(pid, check(unsafe { sys::kill(pid, number) }));
        }
    }
}

/// Sends every signal to the container's first process in every way that there is, and to all others but those two that no process
/// can ignore.
pub fn signal_first() {
    for full in [false, true] {
        if full {
            fill_the_queue();
        }
        for number in 1..=64 {
            let name = |way: &str| format!("{way} {number}{}", if full { " with a full queue" } else { "" });
            report(name("kill"), check(unsafe { sys::kill(1, number) }));
            let forged = sys::SignalInfo::queued(number);
            let queue = |call: i64, threads: &[i64]| {
                let result = match threads {
                    [thread] => unsafe {
                        sys::syscall(call, 1_i64, *thread, i64::from(number), &raw const forged)
                    },
                    _ => unsafe { sys::syscall(call, 1_i64, i64::from(number), &raw const forged) },
                };
                check(result)
            };
            report(name("sigqueue"), queue(sys::SYS_RT_SIGQUEUEINFO, &[]));
            report(name("tgsigqueue"), queue(sys::SYS_RT_TGSIGQUEUEINFO, &[1]));
            let pidfd = unsafe { sys::syscall(sys::SYS_PIDFD_OPEN, 1_i64, 0_i64) };
            let sent = unsafe {
                sys::syscall(sys::SYS_PIDFD_SEND_SIGNAL, pidfd, i64::from(number), &raw const forged, 0_i64)
            };
            report(name("pidfd"), check(sent));
            if number != sys::SIGKILL && number != sys::SIGSTOP {
                report(name("broadcast"), check(unsafe { sys::kill(-1, number) }));
            }
        }
    }
}

/// Sends a signal to every process that it may be sent to, but this one and the container's first.
pub fn signal_all(number: &str) {
    report("all", check(unsafe { sys::kill(-1, number.parse().unwrap()) }));
}

/// Queues signals at this process until the kernel takes no more of this user's: information about another one is lost.
fn fill_the_queue() {
    const REAL_TIME: i32 = 50;
    let blocked = 1_u64 << (REAL_TIME - 1);
    let masked =
        unsafe { sys::syscall(sys::SYS_RT_SIGPROCMASK, 0_i64, &raw const blocked, 0_i64, 8_i64) };
    check(masked).unwrap();
    let own = i64::from(std::process::id());
    let forged = sys::SignalInfo::queued(REAL_TIME);
    let mut queued = 0_u32;
    let is_full = loop {
        let sent = unsafe {
            sys::syscall(sys::SYS_RT_SIGQUEUEINFO, own, i64::from(REAL_TIME), &raw const forged)
        };
        match check(sent) {
            Ok(_) if queued < 1_000_000 => queued += 1,
            ended => break ended.is_err(),
        }
    };
    println!("queue {}", if is_full { "ok" } else { "-1" });
}

fn others() -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap();
    look::pids().into_iter().filter(|pid| *pid != own).collect()
}
