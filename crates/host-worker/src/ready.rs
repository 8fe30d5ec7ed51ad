//! Processes that wait for an operation, with all of their restrictions on.
//!
//! Forking, limits, the filter, and the faults of pages that both sides write to cost more than a small operation. So these
//! processes are made ahead, in quiet moments. Each gets its work over a pipe and becomes the operation's process.
//!
//! The host worker forks a new process for work that the pipe does not take at once, or that comes while no process waits.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use wire::worker::v1::Start;

use crate::child::Terms;
use crate::{child, order};
use confinement::sys::{Fork, fork};

/// A waiting process, from the host worker's side.
#[derive(Debug)]
pub(crate) struct Ready {
    process: OwnedFd,
    orders: OwnedFd,
    result: OwnedFd,
}

/// The same process with its work.
#[derive(Debug)]
pub(crate) struct Ordered {
    pub(crate) process: OwnedFd,
    /// Pipe for `Go`.
    pub(crate) orders: OwnedFd,
    pub(crate) result: OwnedFd,
}

impl Ready {
    /// Forks. Does not return in the new process.
    pub(crate) fn fork(terms: &Terms) -> io::Result<Self> {
        let (order, orders) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (result, results) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        match fork()? {
            Fork::Child => child::wait(terms, order, results),
            Fork::Parent(pid) => {
                // Not reaped yet, so the id cannot belong to another process.
                Ok(Self { process: pidfd_open(pid, PidfdFlags::empty())?, orders, result })
            }
        }
    }

    /// Gives the process its work. `None`: the work does not fit or the process is gone, and the work has not begun.
    pub(crate) fn order(self, number: u64, start: &Start, deadline: Instant) -> Option<Ordered> {
        let Some(order) = order::encode(number, start, deadline) else {
            self.dismiss();
            return None;
        };
        match retry_on_intr(|| rustix::io::write(&self.orders, &order)) {
            Ok(written) if written == order.len() => {
                let Self { process, orders, result } = self;
                Some(Ordered { process, orders, result })
            }
            // The process ignores an order that is cut off.
            _ => {
                self.dismiss();
                None
            }
        }
    }

    pub(crate) fn dismiss(self) {
        // Fails only if the process is over already.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let _ = retry_on_intr(|| waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED));
    }
}
