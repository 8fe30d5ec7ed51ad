//! System calls that a command may not make, in addition to the container's own profile.
//!
//! The container's profile has to allow `openat2` for the guest, and a system-call filter cannot read its argument, which is in memory.
//! With it a command could create set-id files. The namespaces that `clone3` makes are named in memory, too. Commands get ENOSYS for both,
//! for which every program has a fallback. The container's profile refuses the other calls as well, but this filter applies under any
//! profile, and in gVisor, where the container's profile does not reach commands.

use std::collections::BTreeMap;

use libc::{ENOSYS, EOPNOTSUPP, EPERM};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::own_kernel;

const SET_ID: [u64; 2] = [0o4000, 0o2000];
/// Flags with which an open makes a file. `O_TMPFILE` has the bit of `O_DIRECTORY` as well.
const CREATES: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];
const FCHMODAT2: i64 = 452;
/// System calls that read or change other processes, which share the guest's uid.
const REFUSED: [i64; 4] =
    [libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_pidfd_getfd];

/// Requests that put text into a terminal's input as if it had been typed: TIOCSTI and TIOCLINUX of ioctl_tty(2), CVE-2023-28339.
///
/// The program that reads from that terminal, such as a shell that an operator has opened, would obey the text.
const TYPES: [u64; 2] = [0x5412, 0x541c];

/// System calls that set a file's mode, and the index of the mode among their arguments.
const MODE_SETTERS: &[(i64, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];
/// System calls that can make a file while they open it, and the index of the flags among their arguments.
const OPENERS: &[(i64, u8)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// Kernel for which a filter is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    Linux,
    /// gVisor.
    Own,
}

/// Returns the filters, which have to be installed in this order.
pub(crate) fn programs(kernel: Kernel) -> Result<Vec<BpfProgram>, BackendError> {
    let missing = [libc::SYS_openat2, libc::SYS_clone3].map(|number| (number, Vec::new()));
    let mut refused: Vec<_> = REFUSED.into_iter().map(|number| (number, Vec::new())).collect();
    let mut programs = vec![program(missing, ENOSYS)?];
    if kernel == Kernel::Own {
        refused.extend(own_kernel::refused()?);
        // It would fill the host's disk before a run can be measured. On Linux the engine's profile refuses it for a run that is measured.
        programs.push(program([(libc::SYS_fallocate, Vec::new())], EOPNOTSUPP)?);
    }
    for &(number, argument) in MODE_SETTERS {
        let rules = SET_ID.into_iter().map(|bit| SeccompRule::new(vec![has(argument, bit)?]));
        refused.push((number, rules.collect::<Result<_, _>>()?));
    }
    for &(number, flags) in OPENERS {
        // The mode is the next argument. Without these flags it is not read.
        let rules =
            SET_ID.into_iter().flat_map(|bit| CREATES.map(|flag| (u64::from(flag.unsigned_abs()), bit)));
        let rules = rules.map(|(flag, bit)| SeccompRule::new(vec![has(flags, flag)?, has(flags + 1, bit)?]));
        refused.push((number, rules.collect::<Result<_, _>>()?));
    }
    refused.push((libc::SYS_ioctl, equal(1, TYPES)?));
    programs.push(program(refused, EPERM)?);
    Ok(programs)
}

/// Returns a rule for each of these values of an argument.
fn equal(argument: u8, values: [u64; 2]) -> Result<Vec<SeccompRule>, BackendError> {
    let rules = values.into_iter().map(|value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
            .and_then(|condition| SeccompRule::new(vec![condition]))
    });
    rules.collect()
}

/// Returns the condition that an argument has this bit.
fn has(argument: u8, bit: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit)
}

fn program(
    rules: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>,
    errno: i32,
) -> Result<BpfProgram, BackendError> {
    let mut table = BTreeMap::new();
    for (number, rules) in rules {
        // The x32 numbers name the same calls, on kernels that have them.
        #[cfg(target_arch = "x86_64")]
        table.insert(number | 0x4000_0000, rules.clone());
        table.insert(number, rules);
    }
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(table, SeccompAction::Allow, refuse, architecture)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::fs::{
        CWD, FileType, Mode, OFlags, ResolveFlags, chmod, fchmod, mkdirat, mknodat, open, openat2,
    };
    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    use super::*;

    #[test]
    fn the_kernel_refuses_filtered_calls() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // Filters belong to the thread that installs them.
        let filtered = thread::spawn(move || {
            for program in programs(Kernel::Linux).unwrap() {
                seccompiler::apply_filter(&program).unwrap();
            }
            let open = openat2(CWD, "/", OFlags::RDONLY, Mode::empty(), ResolveFlags::BENEATH);
            assert_eq!(open.unwrap_err(), Errno::NOSYS);
            for (mode, expected) in [
                (0o4755, Err(Errno::PERM)),
                (0o2755, Err(Errno::PERM)),
                (0o6755, Err(Errno::PERM)),
                (0o1755, Ok(())),
                (0o755, Ok(())),
            ] {
                let mode = Mode::from_raw_mode(mode);
                assert_eq!(fchmod(&file, mode), expected, "{mode:?}");
                assert_eq!(chmod(file.path(), mode), expected, "{mode:?}");
            }
            let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
            assert_eq!(pidfd_getfd(&own, 0, PidfdGetfdFlags::empty()).unwrap_err(), Errno::PERM);
        });
        filtered.join().unwrap();
    }

    #[test]
    fn v3_no_file_is_made_with_a_set_id_bit() {
        let top = tempfile::tempdir().unwrap();
        let filtered = thread::spawn(move || {
            for program in programs(Kernel::Own).unwrap() {
                seccompiler::apply_filter(&program).unwrap();
            }
            let path = |name: &str, mode: u32| top.path().join(format!("{name}{mode:o}"));
            for (mode, expected) in [
                (0o4755, Err(Errno::PERM)),
                (0o2755, Err(Errno::PERM)),
                (0o6755, Err(Errno::PERM)),
                (0o1755, Ok(())),
                (0o755, Ok(())),
            ] {
                let bits = Mode::from_raw_mode(mode);
                let create = OFlags::CREATE | OFlags::WRONLY;
                assert_eq!(open(path("file", mode), create, bits).map(drop), expected, "{mode:o}");
                let unnamed = open(top.path(), OFlags::TMPFILE | OFlags::WRONLY, bits).map(drop);
                assert_eq!(unnamed, expected, "{mode:o}");
                assert_eq!(mkdirat(CWD, path("directory", mode), bits), expected, "{mode:o}");
                let node = mknodat(CWD, path("node", mode), FileType::RegularFile, bits, 0);
                assert_eq!(node, expected, "{mode:o}");
                assert_eq!(open(top.path(), OFlags::RDONLY, bits).map(drop), Ok(()), "the mode is not read");
            }
        });
        filtered.join().unwrap();
    }
}
