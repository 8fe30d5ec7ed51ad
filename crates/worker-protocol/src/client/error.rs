//! Errors of a stream, and of a call on it.

use std::io;

use thiserror::Error;

use crate::PROTOCOL;
use crate::frame::FrameError;

/// Error while connecting to a worker.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// It sent no frame in time.
    #[error("the worker did not say hello in time")]
    TimedOut,
    #[error("the worker closed its stream before its hello")]
    Closed,
    #[error("the worker's stream failed")]
    Io(#[from] io::Error),
    /// The first bytes are no frame. Often they are the engine's own message in place of the worker's.
    #[error("the first bytes of the worker are not a frame")]
    Frame(#[from] FrameError),
    /// A frame that is not a hello.
    #[error("the worker's first frame is not a hello")]
    NotHello,
    #[error("the worker speaks version {0} of the protocol, not {PROTOCOL}")]
    Version(u32),
    /// The answer belongs to another hello.
    #[error("the worker's hello does not answer this one")]
    Nonce,
    #[error("the kernel gave no random bytes")]
    Random(#[source] io::Error),
}

/// Reason why a stream is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CloseReason {
    /// The daemon closed it.
    #[error("shut down")]
    Shutdown,
    /// The worker is gone.
    #[error("the worker closed its stream")]
    Eof,
    #[error("the worker's stream failed: {0}")]
    Io(io::ErrorKind),
    /// The worker sent a forbidden frame.
    #[error("the worker broke the protocol: {0}")]
    Protocol(#[from] Violation),
    /// It does not answer pings.
    #[error("the worker does not answer")]
    Heartbeat,
    /// It answers pings, but ends no calls.
    #[error("the worker left too many calls without an outcome")]
    Unresponsive,
}

/// A frame that a worker must not send.
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
    /// A pong without a ping.
    #[error("an unasked pong")]
    Pong,
    /// Variables reported as taken that were not sent, or reported twice.
    #[error("the worker acknowledges variables that were not sent")]
    Variables,
    /// A frame for a call that is not in flight.
    #[error("a frame for a call that is not in flight")]
    UnknownCall,
    /// A command announced for another operation, twice, or with an impossible process id.
    #[error("a command announced wrongly")]
    Spawned,
    /// An end announced for a command that does not run, or twice.
    #[error("an end announced wrongly")]
    Ended,
    /// Output that is not expected, has a gap, or is too much at once or in total.
    #[error("output that cannot be")]
    Output,
    /// More output than there was credit for.
    #[error("more output than it had credit for")]
    Window,
    /// Input reported as taken that was not sent, or for a command without input.
    #[error("the worker acknowledges input that was not sent")]
    Taken,
    /// An outcome that is malformed, of another operation, too early, or with wrong counts.
    #[error("an outcome that cannot be")]
    Outcome,
}

/// Error of a call without an outcome. Its effect is unknown, unless the variant says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LaneError {
    #[error("the worker was lost: {0}")]
    Lost(CloseReason),
    /// No outcome by the deadline and the grace period after it.
    #[error("the worker gave no outcome in time")]
    TimedOut,
    /// Cancelled without an outcome in time, or before it was sent.
    #[error("the call was cancelled")]
    Cancelled,
    /// The maximum number of terminals is open. No frame was sent.
    #[error("too many terminals at once")]
    Busy,
    /// The operation is larger than a frame. No frame was sent.
    #[error("the operation is too large to be sent")]
    TooLarge,
    /// The command could not be put into its cgroup. It was ended before its first instruction.
    #[error("the command could not be confined: {0}")]
    NotPlaced(String),
}
