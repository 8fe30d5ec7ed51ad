//! A process that waits for an operation, with all of its restrictions on.
//!
//! Forking, limits, the filter, and the faults of pages that both sides write to cost more than what a small operation does.
//! So they are made ahead, when it is quiet: each gets its work over a pipe and becomes the operation's
//! process. Work that the pipe does not take at once, or that comes while none waits, gets a process of its own as ever.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use wire::worker::v1::Start;

use crate::child::Terms;
use crate::{child, order, sys};

/// The process, from the host worker's side.
#[derive(Debug)]
pub(crate) struct Ready {
    process: OwnedFd,
    orders: OwnedFd,
    result: OwnedFd,
}

/// The same with its work.
#[derive(Debug)]
pub(crate) struct Ordered {
    pub(crate) process: OwnedFd,
    /// For the word that it may take effect.
    pub(crate) orders: OwnedFd,
    pub(crate) result: OwnedFd,
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

    /// Gives it its work. `None` where the work does not fit or the process is gone; it has not begun then.
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
