//! Compiles a list of system calls to filters.
//!
//! Any call that is not listed returns EPERM, so that a library which merely tries something goes on. A second list has calls that no
//! code of these programs makes by mistake (running a program, tracing, mounting, loading code into the kernel): these end the process.
//!
//! `clone3` takes its flags from memory, where no filter sees them. The filter reports it as missing, so that the C library uses
//! `clone`, which has them in a register.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Cmp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

use crate::{SetupError, step};

#[derive(Debug)]
pub struct Filter(BpfProgram);

impl Filter {
    /// Installs the filter for good, for this process, which has one thread.
    pub fn install(&self) -> io::Result<()> {
        apply_filter(&self.0).map_err(io::Error::other)
    }
}

/// System calls, and the conditions of each: no condition, or one of several.
pub type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filters of a program.
#[derive(Debug)]
pub struct Filters([Filter; 3]);

impl Filters {
    /// Compiles the filters that leave only `allowed`, and memory that is not executable.
    pub fn allowing(mut allowed: Rules) -> Result<Self, SetupError> {
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            allowed.insert(call, vec![without(2, EXECUTABLE).map_err(fault)?]);
        }
        Ok(Self([
            compile(unconditional(DEADLY), SeccompAction::Allow, SeccompAction::KillProcess)?,
            compile(allowed, SeccompAction::Errno(EPERM), SeccompAction::Allow)?,
            // After the allow list, which lacks this call: of several errors the kernel returns that of the latest filter.
            compile(unconditional(&[libc::SYS_clone3]), SeccompAction::Allow, SeccompAction::Errno(ENOSYS))?,
        ]))
    }

    /// Installs them for good, for this process, which has one thread.
    pub fn install(&self) -> Result<(), SetupError> {
        self.0.iter().try_for_each(Filter::install).map_err(step("installing the seccomp filter"))
    }
}

/// Compiles a filter that refuses `refused`, beside the filters of the program.
pub fn refusing(refused: Rules) -> Result<Filter, SetupError> {
    compile(refused, SeccompAction::Allow, SeccompAction::Errno(EPERM))
}

#[allow(clippy::cast_sign_loss)] // errno constants are positive
const EPERM: u32 = libc::EPERM as u32;
#[allow(clippy::cast_sign_loss)] // as above
const ENOSYS: u32 = libc::ENOSYS as u32;
#[allow(clippy::cast_sign_loss)] // a flag bit
const EXECUTABLE: u64 = libc::PROT_EXEC as u64;

fn compile(rules: Rules, otherwise: SeccompAction, listed: SeccompAction) -> Result<Filter, SetupError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(fault)?;
    let filter = SeccompFilter::new(rules, otherwise, listed, arch).map_err(fault)?;
    Ok(Filter(filter.try_into().map_err(fault)?))
}

/// Names the compilation in an error of it.
pub fn fault(error: impl std::error::Error + Send + Sync + 'static) -> SetupError {
    SetupError::new("compiling the seccomp filter", io::Error::other(error))
}

pub fn unconditional(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

/// Returns the rule that argument `index` has none of the bits of `mask`.
pub fn without(index: u8, mask: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(index, Len::Qword, Cmp::MaskedEq(mask), 0)?])
}

/// Returns the rule that these arguments have these values, apart from the bits that are ignored.
pub fn equal<const N: usize>(arguments: [Argument; N]) -> Result<SeccompRule, BackendError> {
    let condition = |Argument { index, value, ignored }: Argument| {
        let mask = u64::from(!ignored.cast_unsigned());
        let value = u64::from(value.cast_unsigned());
        SeccompCondition::new(index, Len::Dword, Cmp::MaskedEq(mask), value)
    };
    SeccompRule::new(arguments.into_iter().map(condition).collect::<Result<_, _>>()?)
}

/// An argument of a system call, of 32 bits.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    pub index: u8,
    pub value: libc::c_int,
    /// Bits that may have any value.
    pub ignored: libc::c_int,
}

impl Argument {
    /// Argument `index` with exactly this value.
    pub const fn is(index: u8, value: libc::c_int) -> Self {
        Self { index, value, ignored: 0 }
    }
}

/// Calls that end the process.
pub const DEADLY: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
];
