//! The daemon's part in running a command, outside the container.

use std::pin::Pin;

use operations::KillEvidence;

/// Puts a command into a separate cgroup, and ends all processes in there.
///
/// [`Placement::finish`] is called exactly once after every [`Placement::place`], whatever the call's result, even if `place` failed.
pub trait Placement: Send + Sync {
    /// Moves the command, which exists and waits, to where it can be ended. An error keeps it from running.
    fn place(&self, pid_in_namespace: u32) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;

    /// Announces the process that reads the command's pipes for background processes. [`Self::finish`] puts it beside them.
    fn beside(&self, _pid_in_namespace: u32) {}

    /// Ends the remaining processes, or keeps those that may stay, and returns what it found.
    ///
    /// The command is over, or has to end (`forced`: asked first, then killed).
    fn finish(&self, forced: bool) -> Pin<Box<dyn Future<Output = KillEvidence> + Send + '_>>;
}
