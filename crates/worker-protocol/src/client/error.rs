//! How a stream, or a call on it, fails.

use std::io;

use thiserror::Error;

use crate::PROTOCOL;
use crate::frame::FrameError;

/// A worker did not come up.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// It said nothing in time.
    #[error("the worker did not say hello in time")]
    TimedOut,
    #[error("the worker closed its stream before its hello")]
    Closed,
    #[error("the worker's stream failed")]
    Io(#[from] io::Error),
    /// What came is no frame: often the engine's own message in place of the worker.
    #[error("the worker's first bytes are no frame")]
    Frame(#[from] FrameError),
    /// A frame, but no hello.
    #[error("the worker's first frame is not a hello")]
    NotHello,
    #[error("the worker speaks version {0} of the protocol, not {PROTOCOL}")]
    Version(u32),
    /// An answer to somebody else's hello.
    #[error("the worker's hello does not answer this one")]
    Nonce,
    #[error("the kernel gave no random bytes")]
    Random(#[source] io::Error),
}

/// Why a stream is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CloseReason {
    /// We wanted it so.
    #[error("shut down")]
    Shutdown,
    /// The worker is gone.
    #[error("the worker closed its stream")]
    Eof,
    #[error("the worker's stream failed: {0}")]
    Io(io::ErrorKind),
    /// The worker said what it must not say.
    #[error("the worker broke the protocol: {0}")]
    Protocol(#[from] Violation),
    /// It does not answer pings.
    #[error("the worker does not answer")]
    Heartbeat,
    /// It answers pings, but ends no calls.
    #[error("the worker left too many calls without an outcome")]
    Unresponsive,
}

/// What a worker must not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// Not a frame, or too long for one.
    #[error("a frame that is malformed or too long")]
    Frame,
    /// A frame cut by the end of the stream.
    #[error("a cut frame")]
    Cut,
    /// A frame without a body.
    #[error("an empty frame")]
    Empty,
    /// A hello after the first.
    #[error("a second hello")]
    Hello,
    /// A pong that nobody asked for.
    #[error("an unasked pong")]
    Pong,
    /// A frame for a call that is not in flight.
    #[error("a frame for a call that is not in flight")]
    UnknownCall,
    /// A command announced where none is, twice, or with an impossible process id.
    #[error("a command announced wrongly")]
    Spawned,
    /// An end announced where there is none, or twice.
    #[error("an end announced wrongly")]
    Ended,
    /// Output where there can be none, with a gap, too much at once or altogether.
    #[error("output that cannot be")]
    Output,
    /// More output than there was credit for.
    #[error("more output than it had credit for")]
    Window,
    /// Input taken that was not sent, or where there is none.
    #[error("input taken that was not sent")]
    Taken,
    /// An outcome that is malformed, of another operation, too early, or with counts that are not true.
    #[error("an outcome that cannot be")]
    Outcome,
}

/// A call without an outcome. What it did is not known, unless it says so.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LaneError {
    #[error("the worker was lost: {0}")]
    Lost(CloseReason),
    /// No outcome by the deadline and the grace after it.
    #[error("the worker gave no outcome in time")]
    TimedOut,
    /// Cancelled, and the worker did not say what became of it in time; or before it was sent at all.
    #[error("the call was cancelled")]
    Cancelled,
    /// As many terminals as there may be at once are open. Nothing was sent.
    #[error("too many terminals at once")]
    Busy,
    /// The operation is larger than a frame. Nothing was sent.
    #[error("the operation is too large to be sent")]
    TooLarge,
    /// The command could not be put into its cgroup. It was ended before its first instruction.
    #[error("the command could not be confined: {0}")]
    NotPlaced(String),
}
