//! What a profile lets a request have that is not said by the operation itself, for another profile may take less.

/// Most of what one command is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandLimits {
    /// Arguments.
    pub args: usize,
    /// Bytes of all arguments together.
    pub argv_bytes: usize,
    /// Bytes of a script.
    pub script_bytes: usize,
    /// Bytes of standard input, in the request.
    pub stdin_bytes: usize,
    /// Files outside of the mounts may be named.
    pub container_paths: bool,
}

impl CommandLimits {
    /// Where a profile does not say.
    pub const USUAL: Self = Self {
        args: 4_096,
        argv_bytes: 128 * 1024,
        script_bytes: 64 * 1024,
        stdin_bytes: 1024 * 1024,
        container_paths: false,
    };
    /// What no profile exceeds: the kernel takes 2 MiB of arguments, of which a script is one, and 128 KiB of each.
    pub const WIDEST: Self = Self {
        args: 65_536,
        argv_bytes: 2 * 1024 * 1024,
        script_bytes: 128 * 1024 - 1,
        stdin_bytes: 3 * 1024 * 1024,
        container_paths: true,
    };

    /// Those of a profile that gives commands so many bytes of arguments and of standard input.
    pub fn of(argv_bytes: u64, stdin_bytes: u64, container_paths: bool) -> Self {
        let size = |bytes: u64, most: usize| usize::try_from(bytes).unwrap_or(most).min(most);
        let is_wide = argv_bytes > Self::USUAL.argv_bytes as u64;
        let other = if is_wide { Self::WIDEST } else { Self::USUAL };
        Self {
            argv_bytes: size(argv_bytes, Self::WIDEST.argv_bytes),
            stdin_bytes: size(stdin_bytes, Self::WIDEST.stdin_bytes),
            container_paths,
            ..other
        }
    }
}
