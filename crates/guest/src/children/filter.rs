//! System calls that a command may not make, in addition to the container's own profile.
//!
//! The container's profile has to allow `openat2` for the guest, and a system-call filter cannot read its argument, which is in memory.
//! With it a command could create set-id files. Commands get ENOSYS, for which every program has a fallback. The container's profile
//! refuses the other calls as well, but this filter applies under any profile.

use std::collections::BTreeMap;

use libc::{ENOSYS, EOPNOTSUPP, EPERM};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::own_kernel;

const SET_ID: [u64; 2] = [0o4000, 0o2000];
const FCHMODAT2: i64 = 452;
/// System calls that read or change other processes, which share the guest's uid.
const REFUSED: [i64; 4] =
    [libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_pidfd_getfd];

/// Requests that put text into a terminal's input as if it had been typed: TIOCSTI and TIOCLINUX of ioctl_tty(2), CVE-2023-28339.
///
/// The program that reads from that terminal, such as a shell that an operator has opened, would obey the text.
const TYPES: [u64; 2] = [0x5412, 0x541c];

/// Kernel for which a filter is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    Linux,
    /// gVisor.
    Own,
}

/// Returns the filters, which have to be installed in this order.
pub(crate) fn programs(kernel: Kernel) -> Result<Vec<BpfProgram>, BackendError> {
    let missing = [(libc::SYS_openat2, Vec::new())];
    let mut refused: Vec<_> = REFUSED.into_iter().map(|number| (number, Vec::new())).collect();
    let mut programs = vec![program(missing, ENOSYS)?];
    if kernel == Kernel::Own {
        refused.extend(own_kernel::refused()?);
        // It would fill the host's disk before a run can be measured. On Linux the engine's profile refuses it for a run that is measured.
        programs.push(program([(libc::SYS_fallocate, Vec::new())], EOPNOTSUPP)?);
    }
    for (number, argument) in mode_setters() {
        let rules = SET_ID.into_iter().map(|bit| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit)
                .and_then(|condition| SeccompRule::new(vec![condition]))
        });
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

/// Returns the system calls that set a file's mode, and the index of the mode among their arguments.
fn mode_setters() -> Vec<(i64, u8)> {
    let mut setters = vec![(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2)];
    #[cfg(target_arch = "x86_64")]
    setters.push((libc::SYS_chmod, 1));
    setters
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

    use rustix::fs::{Mode, OFlags, ResolveFlags, chmod, fchmod, openat2};
    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    use super::*;

    #[test]
    fn the_kernel_refuses_what_it_should() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // Filters belong to the thread that installs them.
        let filtered = thread::spawn(move || {
            for program in programs(Kernel::Linux).unwrap() {
                seccompiler::apply_filter(&program).unwrap();
            }
            let open = openat2(rustix::fs::CWD, "/", OFlags::RDONLY, Mode::empty(), ResolveFlags::BENEATH);
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
}
