//! The system call bpf(2): maps of sockets, programs and links, as far as this crate needs them.

#![allow(unsafe_code)] // no library of the workspace wraps bpf(2)

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

/// Commands of `linux/bpf.h`.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const MAP_TYPE_SOCKMAP: u32 = 15;
const PROG_TYPE_SK_LOOKUP: u32 = 30;
const ATTACH_SK_LOOKUP: u32 = 36;
/// Source register of an instruction that loads a map by its descriptor.
const PSEUDO_MAP_FD: u8 = 1;

/// `struct bpf_insn` of `linux/bpf.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    /// Destination register in the low four bits, source register in the high four.
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const fn new(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Self {
        Self { code, registers: to | from << 4, offset, immediate }
    }

    /// Copies a register of 64 bits.
    pub(crate) const fn copy(to: u8, from: u8) -> Self {
        Self::new(0xbf, to, from, 0, 0)
    }

    pub(crate) const fn set(to: u8, value: i32) -> Self {
        Self::new(0xb7, to, 0, 0, value)
    }

    pub(crate) const fn add(to: u8, value: i32) -> Self {
        Self::new(0x07, to, 0, 0, value)
    }

    pub(crate) const fn and(to: u8, value: i32) -> Self {
        Self::new(0x57, to, 0, 0, value)
    }

    pub(crate) const fn or(to: u8, from: u8) -> Self {
        Self::new(0x4f, to, from, 0, 0)
    }

    /// Loads 32 bits from memory.
    pub(crate) const fn load(to: u8, from: u8, offset: i16) -> Self {
        Self::new(0x61, to, from, offset, 0)
    }

    /// Stores 32 bits of a register.
    pub(crate) const fn store(to: u8, offset: i16, from: u8) -> Self {
        Self::new(0x63, to, from, offset, 0)
    }

    /// Jumps if a register equals a value.
    pub(crate) const fn if_equal(register: u8, value: i32) -> Self {
        Self::new(0x15, register, 0, 0, value)
    }

    /// Jumps if a register differs from a value.
    pub(crate) const fn if_different(register: u8, value: i32) -> Self {
        Self::new(0x55, register, 0, 0, value)
    }

    pub(crate) const fn goto() -> Self {
        Self::new(0x05, 0, 0, 0, 0)
    }

    /// Returns this jump over so many instructions.
    pub(crate) const fn over(self, instructions: i16) -> Self {
        Self { offset: instructions, ..self }
    }

    pub(crate) const fn call(helper: i32) -> Self {
        Self::new(0x85, 0, 0, 0, helper)
    }

    pub(crate) const fn exit() -> Self {
        Self::new(0x95, 0, 0, 0, 0)
    }

    /// Loads a map, in two instructions.
    pub(crate) fn map(to: u8, map: &SocketMap) -> [Self; 2] {
        [Self::new(0x18, to, PSEUDO_MAP_FD, 0, map.0.as_raw_fd()), Self::new(0, 0, 0, 0, 0)]
    }
}

/// A map of sockets. A socket leaves it when it is closed.
#[derive(Debug)]
pub(crate) struct SocketMap(OwnedFd);

impl SocketMap {
    pub(crate) fn new<const N: usize>(sockets: [BorrowedFd<'_>; N]) -> io::Result<Self> {
        #[repr(C)]
        struct Create {
            map_type: u32,
            key_size: u32,
            value_size: u32,
            max_entries: u32,
        }
        #[repr(C)]
        struct Update {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let size = u32::try_from(N).map_err(io::Error::other)?;
        let create = Create { map_type: MAP_TYPE_SOCKMAP, key_size: 4, value_size: 8, max_entries: size };
        let map = Self(descriptor(call(MAP_CREATE, &create)?));
        for (key, socket) in (0..size).zip(sockets) {
            let value = u64::from(number(socket.as_raw_fd())?);
            let update = Update {
                map: number(map.0.as_raw_fd())?,
                padding: 0,
                key: address(&key),
                value: address(&value),
                flags: 0,
            };
            call(MAP_UPDATE_ELEM, &update)?;
        }
        Ok(map)
    }
}

/// Loads a program of type `sk_lookup`.
pub(crate) fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        program_type: u32,
        instructions: u32,
        first: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        expected_attach_type: u32,
    }
    let license = c"Apache-2.0";
    let load = Load {
        program_type: PROG_TYPE_SK_LOOKUP,
        instructions: u32::try_from(program.len()).map_err(io::Error::other)?,
        first: program.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: *b"coffer_egress\0\0\0",
        interface: 0,
        expected_attach_type: ATTACH_SK_LOOKUP,
    };
    Ok(descriptor(call(PROG_LOAD, &load)?))
}

/// Attaches a program to a network namespace, until the link is closed.
pub(crate) fn attach(program: BorrowedFd<'_>, namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        program: u32,
        target: u32,
        attach_type: u32,
        flags: u32,
    }
    let create = Create {
        program: number(program.as_raw_fd())?,
        target: number(namespace.as_raw_fd())?,
        attach_type: ATTACH_SK_LOOKUP,
        flags: 0,
    };
    Ok(descriptor(call(LINK_CREATE, &create)?))
}

fn number(descriptor: RawFd) -> io::Result<u32> {
    u32::try_from(descriptor).map_err(io::Error::other)
}

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value).expose_provenance() as u64
}

/// Makes the system call with a leading part of `union bpf_attr`; the kernel takes the rest for zero.
fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: the kernel reads `size` bytes at the pointer, and the memory that they point to, which outlives the call: each caller
    // keeps it in its own frame. It writes to none of it, as no command here has an output.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        RawFd::try_from(result).map_err(io::Error::other)
    }
}

/// Takes a descriptor that the kernel has just made.
fn descriptor(new: RawFd) -> OwnedFd {
    // SAFETY: bpf(2) returned it as a new descriptor, and nothing else has it. The kernel sets close-on-exec.
    unsafe { OwnedFd::from_raw_fd(new) }
}
