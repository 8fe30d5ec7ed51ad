//! Limits of a command that a profile sets. An operation that one profile allows may exceed those of another.

use std::time::Duration;

/// Limits of one command.
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
    /// Timeout of a command that sets none.
    pub default_timeout: Duration,
    /// Longest timeout, never more than [`Self::LONGEST_TIMEOUT`].
    pub longest_timeout: Duration,
    /// True if files outside of the mounts may be named.
    pub container_paths: bool,
}

impl CommandLimits {
    /// Timeout of a command or script if neither the call nor its profile sets one.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
    /// Longest timeout of a command or script if its profile sets none.
    pub const MAX_TIMEOUT: Duration = Duration::from_secs(120);
    /// Longest timeout of a command or script, whatever the call and its profile say.
    pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);

    /// Limits where a profile sets none.
    pub const USUAL: Self = Self {
        args: 4_096,
        argv_bytes: 128 * 1024,
        script_bytes: 64 * 1024,
        stdin_bytes: 1024 * 1024,
        default_timeout: Self::DEFAULT_TIMEOUT,
        longest_timeout: Self::LONGEST_TIMEOUT,
        container_paths: false,
    };
    /// Limits that no profile may exceed. The kernel accepts 2 MiB of arguments in all and 128 KiB in each; a script is one argument.
    pub const WIDEST: Self = Self {
        args: 65_536,
        argv_bytes: 2 * 1024 * 1024,
        script_bytes: 128 * 1024 - 1,
        stdin_bytes: 3 * 1024 * 1024,
        container_paths: true,
        ..Self::USUAL
    };

    /// Returns the limits of a profile that allows this many bytes of arguments and of standard input.
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
