//! A process that waits for the next operation, with all of its restrictions on.
//!
//! Forking, limits, the filter, and the faults of pages that both sides write to cost more than what a small operation does.
//! So one is made ahead, when the host worker has nothing else to do: it gets its work over a pipe and becomes the operation's
//! process. Work that the pipe does not take at once, or that comes while none waits, gets a process of its own as ever.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use prost::Message;
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use wire::worker::v1::Start;

use crate::child::Terms;
use crate::{child, sys};

/// Most bytes of an order: what an empty pipe takes at once, by pipe(7).
const MOST: usize = 64 * 1024;

/// What stands before the operation: the job's number, the time it has in milliseconds, and its own length. Native order:
/// both ends are one program.
const HEADER: usize = 3 * 8;

/// The process, from the host worker's side.
#[derive(Debug)]
pub(crate) struct Ready {
    process: OwnedFd,
    orders: OwnedFd,
    result: OwnedFd,
}

/// What the process is told.
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) deadline: Instant,
    pub(crate) start: Start,
}

impl Ready {
    /// Forks. In the new process this does not return.
    pub(crate) fn fork(terms: &Terms) -> io::Result<Self> {
        let (order, orders) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (result, results) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        match sys::fork()? {
            sys::Fork::Child => child::wait(terms, order, results),
            sys::Fork::Parent(pid) => {
                // Not reaped yet, so the id cannot belong to anybody else.
                Ok(Self { process: pidfd_open(pid, PidfdFlags::empty())?, orders, result })
            }
        }
    }

    /// Gives it its work: its pidfd and the pipe of its result. `None` where the work does not fit or the process is gone;
    /// it has not begun then.
    pub(crate) fn order(self, number: u64, start: &Start, deadline: Instant) -> Option<(OwnedFd, OwnedFd)> {
        let length = start.encoded_len();
        if HEADER + length > MOST {
            self.dismiss();
            return None;
        }
        let time = deadline.saturating_duration_since(Instant::now()).as_millis();
        let mut order = Vec::with_capacity(HEADER + length);
        for number in [number, time.try_into().unwrap_or(u64::MAX), length as u64] {
            order.extend(number.to_ne_bytes());
        }
        order.extend(start.encode_to_vec());
        match retry_on_intr(|| rustix::io::write(&self.orders, &order)) {
            Ok(written) if written == order.len() => Some((self.process, self.result)),
            // An order that is cut off is none.
            _ => {
                self.dismiss();
                None
            }
        }
    }

    pub(crate) fn dismiss(self) {
        // Fails only when the process is over already.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let _ = retry_on_intr(|| waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED));
    }
}

/// Waits for the order, in the process itself. `None`: nobody will give one any more.
pub(crate) fn receive(orders: BorrowedFd<'_>) -> io::Result<Option<Order>> {
    let mut header = [0; HEADER];
    if !fill(orders, &mut header)? {
        return Ok(None);
    }
    let mut numbers = [0_u64; 3];
    for (number, bytes) in numbers.iter_mut().zip(header.as_chunks().0) {
        *number = u64::from_ne_bytes(*bytes);
    }
    let [number, time, length] = numbers;
    let length = usize::try_from(length).ok().filter(|length| HEADER + length <= MOST);
    let mut bytes = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    if !fill(orders, &mut bytes)? {
        return Ok(None);
    }
    let start = Start::decode(bytes.as_slice()).map_err(io::Error::other)?;
    Ok(Some(Order { number, deadline: Instant::now() + Duration::from_millis(time), start }))
}

/// Whether all of it came before the end.
fn fill(orders: BorrowedFd<'_>, mut bytes: &mut [u8]) -> io::Result<bool> {
    while !bytes.is_empty() {
        match rustix::io::read(orders, &mut *bytes) {
            Ok(0) => return Ok(false),
            Ok(read) => bytes = &mut bytes[read..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}
