//! A process that waits to become a command that is not known yet.
//!
//! It already has its session, its pipes and its filters. The rest comes over a socket pair: one message of lengths, with the working
//! directory as a descriptor, and then the strings. The rule of the parent module applies here as well: only async-signal-safe calls, and
//! memory from `mmap(2)`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::{mem, ptr};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};
use seccompiler::BpfProgram;

use super::{
    NOT_STARTED, Pipes, Plan, Spawned, above_stdio, block_all, confine, execute, fail, gaps, own_session,
    pipe, pipes, set_mask,
};

/// Most bytes of strings that are sent. The socket accepts them at once, so that sending never waits.
const MAX_STRINGS: usize = 64 * 1024;

/// Name of the process while it waits.
const NAME: &CStr = c"coffer-prefork";

/// The guest's side of the process. Dropping it makes the process exit.
pub(crate) struct Prefork {
    pub(crate) pid: i32,
    control: OwnedFd,
    pipes: Pipes,
    fault: OwnedFd,
}

/// Header before the strings.
#[repr(C)]
#[derive(Clone, Copy)]
struct Lengths {
    /// Bytes of all strings, each with its NUL: the program, the arguments, the environment.
    strings: u32,
    arguments: u32,
    variables: u32,
}

const LENGTHS: usize = size_of::<Lengths>();

impl Prefork {
    /// Forks the process, and installs `filters` in it in this order.
    pub(crate) fn fork(filters: &[BpfProgram]) -> io::Result<Self> {
        let (ends, pipes) = pipes()?;
        let (fault, fault_child) = pipe()?;
        let (control, control_child) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let (control, control_child) = (above_stdio(control)?, above_stdio(control_child)?);
        let stdio = ends.each_ref().map(AsRawFd::as_raw_fd);
        let (control_fd, fault_fd) = (control_child.as_raw_fd(), fault_child.as_raw_fd());
        let close = gaps(control_fd, fault_fd);

        let before = block_all();
        // SAFETY: the child only ever runs `child`, which keeps to async-signal-safe calls and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            child(stdio, control_fd, fault_fd, close, filters);
        }
        let error = io::Error::last_os_error();
        set_mask(&before);
        if pid < 0 {
            return Err(error);
        }
        Ok(Self { pid, control, pipes, fault })
    }

    /// Turns the process into the command of `plan`. If that does not fit, or the process is gone, the command has not begun.
    pub(crate) fn become_command(self, plan: &Plan) -> Option<Spawned> {
        let strings: Vec<u8> = std::iter::once(&plan.program)
            .chain(&plan.args)
            .chain(&plan.env)
            .flat_map(CString::as_bytes_with_nul)
            .copied()
            .collect();
        if strings.len() > MAX_STRINGS {
            return None;
        }
        let count = |strings: &[CString]| u32::try_from(strings.len()).ok();
        let lengths = Lengths {
            strings: u32::try_from(strings.len()).ok()?,
            arguments: count(&plan.args)?,
            variables: count(&plan.env)?,
        };
        let mut header = [0; LENGTHS];
        for (place, number) in
            header.chunks_exact_mut(4).zip([lengths.strings, lengths.arguments, lengths.variables])
        {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        let whole = header.len() + strings.len();
        let cwd = [plan.cwd.as_fd()];
        let mut space = [mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !rights.push(SendAncillaryMessage::ScmRights(&cwd)) {
            return None;
        }
        let parts = [IoSlice::new(&header), IoSlice::new(&strings)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.control, &parts, &mut rights, flags) {
            Ok(sent) if sent == whole => {}
            // When it is dropped, it exits without having begun.
            _ => return None,
        }
        let Self { pid, pipes, fault, .. } = self;
        Some(Spawned { pid, pipes: Some(pipes), go: None, fault })
    }
}

/// Runs the process. Must not allocate, lock or panic.
fn child(
    stdio: [RawFd; 3],
    control: RawFd,
    fault: RawFd,
    close: [(u32, u32); 3],
    filters: &[BpfProgram],
) -> ! {
    // SAFETY: plain system calls on numbers, on locals and on memory that was mapped here; the other end, which is this program, computed
    // the lengths from the strings, and they are checked all the same.
    unsafe {
        // This name is for people who list the processes of a run. The command gets its own name.
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr(), 0, 0, 0);
        own_session(stdio, false, fault);
        confine(close, filters, fault);
        let (lengths, cwd) = receive(control);
        if libc::fchdir(cwd) < 0 {
            fail(fault);
        }
        libc::close(cwd);
        let (arguments, variables) = (lengths.arguments as usize, lengths.variables as usize);
        let length = lengths.strings as usize;
        // First the pointers, then the strings. Both arrays end with a null, and one has space before it.
        let pointers = (arguments + variables + 3) * size_of::<*const c_char>();
        let memory = libc::mmap(
            ptr::null_mut(),
            pointers + length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if memory == libc::MAP_FAILED {
            fail(fault);
        }
        let strings = memory.cast::<u8>().add(pointers);
        let mut received = 0;
        while received < length {
            match libc::read(control, strings.add(received).cast(), length - received) {
                count if count > 0 => received += count.unsigned_abs(),
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(NOT_STARTED),
            }
        }
        let argv = memory.cast::<*const c_char>().add(1);
        let envp = argv.add(arguments + 1);
        let mut at = 0;
        let program = strings.cast::<c_char>();
        at = behind(strings, at, length);
        for index in 0..arguments {
            *argv.add(index) = strings.add(at).cast();
            at = behind(strings, at, length);
        }
        for index in 0..variables {
            *envp.add(index) = strings.add(at).cast();
            at = behind(strings, at, length);
        }
        execute(program, argv, envp);
        fail(fault);
    }
}

/// Returns the start of the string after the one at `at`.
///
/// # Safety
/// `length` bytes at `strings` are readable.
unsafe fn behind(strings: *const u8, mut at: usize, length: usize) -> usize {
    // SAFETY: only bytes before `length` are read.
    unsafe {
        while at < length && *strings.add(at) != 0 {
            at += 1;
        }
        if at >= length {
            // There are fewer strings than the header says.
            libc::_exit(NOT_STARTED);
        }
    }
    // No string follows the last one. The result is not used then, since the count has reached its end as well.
    if at + 1 < length { at + 1 } else { at }
}

/// Waits for the lengths, and for the working directory that comes with them. Exits at the end of the socket.
///
/// # Safety
/// Only in a child between fork and exec.
unsafe fn receive(control: RawFd) -> (Lengths, RawFd) {
    /// Space for one descriptor, with the alignment of control messages.
    #[repr(C, align(8))]
    struct Space([u8; 64]);
    // SAFETY: all of this is local; zeroes are a valid value of each.
    unsafe {
        let mut lengths: Lengths = mem::zeroed();
        let mut space = Space([0; 64]);
        let mut part =
            libc::iovec { iov_base: (&raw mut lengths).cast::<c_void>(), iov_len: size_of::<Lengths>() };
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = space.0.as_mut_ptr().cast();
        message.msg_controllen = space.0.len() as _;
        loop {
            match libc::recvmsg(control, &raw mut message, libc::MSG_CMSG_CLOEXEC | libc::MSG_WAITALL) {
                count if count == LENGTHS.cast_signed() => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(NOT_STARTED),
            }
        }
        let rights = libc::CMSG_FIRSTHDR(&raw const message);
        if rights.is_null()
            || (*rights).cmsg_level != libc::SOL_SOCKET
            || (*rights).cmsg_type != libc::SCM_RIGHTS
        {
            libc::_exit(NOT_STARTED);
        }
        let cwd = ptr::read_unaligned(libc::CMSG_DATA(rights).cast::<c_int>());
        (lengths, cwd)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn plan(argv: &[&str], env: &[&str]) -> Plan {
        let strings = |texts: &[&str]| texts.iter().map(|text| CString::new(*text).unwrap()).collect();
        Plan {
            program: CString::new(argv[0]).unwrap(),
            args: strings(argv),
            env: strings(env),
            cwd: File::open("/proc").unwrap().into(),
            wait: true,
            terminal: None,
            stdin: None,
        }
    }

    fn written(spawned: Spawned) -> String {
        let mut text = String::new();
        let pipes = spawned.pipes.unwrap();
        drop(pipes.stdin);
        File::from(pipes.stdout).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn prefork_becomes_the_given_command() {
        let prefork = Prefork::fork(&[]).unwrap();
        let script = "echo $A-$1; pwd; tr '\\0' '\\n' < /proc/self/environ";
        let shell = plan(&["/bin/sh", "-c", script, "", "x y"], &["A=1", "B="]);
        assert_eq!(written(prefork.become_command(&shell).unwrap()), "1-x y\n/proc\nA=1\nB=\n");
        let prefork = Prefork::fork(&[]).unwrap();
        let bare = plan(&["/bin/true"], &[]);
        assert_eq!(written(prefork.become_command(&bare).unwrap()), "");
    }

    #[test]
    fn text_without_an_interpreter_is_run_by_the_shell() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "echo \"$1 $#\"\n").unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let cwd = || File::open(dir.path()).unwrap().into();
        let waiting = || Prefork::fork(&[]).unwrap();
        let script = Plan { cwd: cwd(), ..plan(&["./script", "a b", "c"], &[]) };
        assert_eq!(written(waiting().become_command(&script).unwrap()), "a b 2\n");
        let forked = Plan { wait: false, cwd: cwd(), ..script };
        assert_eq!(written(crate::sys::spawn(&forked, &[]).unwrap()), "a b 2\n");
    }

    #[test]
    fn long_plans_and_dead_processes_leave_it_to_another() {
        let long = "x".repeat(MAX_STRINGS);
        assert!(Prefork::fork(&[]).unwrap().become_command(&plan(&["/bin/true", &long], &[])).is_none());
        let prefork = Prefork::fork(&[]).unwrap();
        let mut status = 0;
        // SAFETY: the process is this test's own child.
        unsafe {
            libc::kill(prefork.pid, libc::SIGKILL);
            libc::waitpid(prefork.pid, &raw mut status, 0);
        }
        assert!(prefork.become_command(&plan(&["/bin/true"], &[])).is_none());
    }

    #[test]
    fn a_program_that_cannot_be_run_is_reported() {
        let spawned = Prefork::fork(&[]).unwrap().become_command(&plan(&["/no/such"], &[])).unwrap();
        let mut errno = Vec::new();
        File::from(spawned.fault).read_to_end(&mut errno).unwrap();
        assert_eq!(errno, libc::ENOENT.to_ne_bytes());
    }
}
