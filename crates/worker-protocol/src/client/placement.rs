//! What the daemon does for a command outside the container.

use std::pin::Pin;

use ops::KillEvidence;

/// Puts a command into a cgroup of its own, and ends everything in there.
///
/// [`Placement::finish`] is called exactly once after every [`Placement::place`], whatever became of the call, also
/// when `place` failed.
pub trait Placement: Send + Sync {
    /// The command is there and waits: put it where it can be ended. An error keeps it from running.
    fn place(&self, pid_in_namespace: u32) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;

    /// The process of this number empties the command's pipes for those that stay: put it with them in [`Self::finish`].
    fn beside(&self, _pid_in_namespace: u32) {}

    /// The command is over, or is to be (`forced`: asked first, then killed). End what is left, or keep it where it may stay, and say what was found.
    fn finish(&self, forced: bool) -> Pin<Box<dyn Future<Output = KillEvidence> + Send + '_>>;
}
