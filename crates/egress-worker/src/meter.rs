//! Counts the bytes of a connection, and those of all together.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;
use wire::worker::v1::connection_ended::Cause;

/// The bounds that all connections share.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Most bytes of all connections; `None`: no bound.
    max_bytes: Option<u64>,
    /// Time without a byte after which a connection is ended; `None`: no bound.
    idle: Option<Duration>,
    bytes: Cell<u64>,
}

impl Bounds {
    /// Takes the bounds of the protocol, in which zero means none.
    pub(crate) fn new(max_bytes: u64, idle_timeout_ms: u64) -> Rc<Self> {
        let some = |bound: u64| Some(bound).filter(|bound| *bound > 0);
        Rc::new(Self {
            max_bytes: some(max_bytes),
            idle: some(idle_timeout_ms).map(Duration::from_millis),
            bytes: Cell::new(0),
        })
    }
}

/// The side that sent a byte.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From {
    Program,
    Server,
}

/// The bytes of one connection.
#[derive(Debug)]
pub(crate) struct Meter {
    bounds: Rc<Bounds>,
    out: Cell<u64>,
    into: Cell<u64>,
    last: Cell<Instant>,
}

impl Meter {
    pub(crate) fn new(bounds: &Rc<Bounds>) -> Self {
        let (out, into) = (Cell::new(0), Cell::new(0));
        Self { bounds: Rc::clone(bounds), out, into, last: Cell::new(Instant::now()) }
    }

    /// Counts bytes that are about to be passed on. Returns an error if the run has used its bytes.
    pub(crate) fn count(&self, from: From, bytes: usize) -> Result<(), Cause> {
        self.check(bytes)?;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bounds.bytes.set(self.bounds.bytes.get().saturating_add(bytes));
        let side = match from {
            From::Program => &self.out,
            From::Server => &self.into,
        };
        side.set(side.get().saturating_add(bytes));
        self.last.set(Instant::now());
        Ok(())
    }

    /// Returns an error if the run has not so many bytes left.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), Cause> {
        let all = self.bounds.bytes.get().saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if self.bounds.max_bytes.is_some_and(|most| all > most) { Err(Cause::Bytes) } else { Ok(()) }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.out.get()
    }

    pub(crate) fn received(&self) -> u64 {
        self.into.get()
    }

    /// Begins the time without a byte anew.
    pub(crate) fn touch(&self) {
        self.last.set(Instant::now());
    }

    /// Waits until the connection has been idle for too long.
    pub(crate) async fn idle(&self) {
        let Some(idle) = self.bounds.idle else { return std::future::pending().await };
        loop {
            let end = self.last.get() + idle;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end.into()).await;
        }
    }
}
