//! Constants and signals that a daemon and the keeper of a process share.

/// Number of the keeper's descriptor through which a daemon passes it a stream: the far end of a `SOCK_SEQPACKET` pair.
///
/// The daemon sends one packet of one byte, with the stream as its `SCM_RIGHTS`.
pub const DOOR: i32 = 3;
/// Most bytes in one Stdin frame.
pub const MAX_STDIN: usize = 64 * 1024;

/// Signals that a client may send to a process: HUP INT QUIT USR1 USR2 TERM CONT STOP TSTP.
const SIGNALS: [u32; 9] = [1, 2, 3, 10, 12, 15, 18, 19, 20];

/// Returns the signal of this number, if it may be sent.
pub fn signal_of(number: u32) -> Option<i32> {
    SIGNALS.contains(&number).then(|| number.cast_signed())
}
