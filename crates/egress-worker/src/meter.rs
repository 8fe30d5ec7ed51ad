//! Counts the bytes of a connection, and those of all together.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep_until;
use wire::worker::v1::ConnectionBytes;
use wire::worker::v1::connection_ended::Cause;

/// The bounds that all connections share.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Most bytes of all connections; `None`: no bound.
    max_bytes: Option<u64>,
    /// Time without a byte after which a connection is ended; `None`: no bound.
    idle: Option<Duration>,
    bytes: Cell<u64>,
    /// Connections that are reported while they are open, by their numbers.
    reported: RefCell<BTreeMap<u64, Rc<Counts>>>,
    /// Signals bytes after a report.
    moved: Notify,
    has_moved: Cell<bool>,
}

/// The bytes of one connection.
#[derive(Debug, Default)]
struct Counts {
    out: Cell<u64>,
    into: Cell<u64>,
    /// Sum of both at the last report.
    reported: Cell<u64>,
}

impl Bounds {
    /// Takes the bounds of the protocol, in which zero means none.
    pub(crate) fn new(max_bytes: u64, idle_timeout_ms: u64) -> Rc<Self> {
        let some = |bound: u64| Some(bound).filter(|bound| *bound > 0);
        Rc::new(Self {
            max_bytes: some(max_bytes),
            idle: some(idle_timeout_ms).map(Duration::from_millis),
            bytes: Cell::new(0),
            reported: RefCell::default(),
            moved: Notify::new(),
            has_moved: Cell::new(false),
        })
    }

    /// Waits until there are bytes after the last report.
    pub(crate) async fn moved(&self) {
        self.moved.notified().await;
    }

    /// Returns the connections whose bytes have changed since the last report.
    pub(crate) fn report(&self) -> Vec<ConnectionBytes> {
        self.has_moved.set(false);
        let reported = self.reported.borrow();
        let changed = reported.iter().filter_map(|(id, counts)| {
            let (bytes_out, bytes_in) = (counts.out.get(), counts.into.get());
            let sum = bytes_out.saturating_add(bytes_in);
            (counts.reported.replace(sum) != sum).then_some(ConnectionBytes { id: *id, bytes_out, bytes_in })
        });
        changed.collect()
    }

    fn note(&self, bytes: u64) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        if !self.has_moved.replace(true) {
            self.moved.notify_one();
        }
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
    counts: Rc<Counts>,
    /// Number under which it is reported; 0 before it is connected.
    number: Cell<u64>,
    last: Cell<Instant>,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bounds.reported.borrow_mut().remove(&self.number.get());
    }
}

impl Meter {
    pub(crate) fn new(bounds: &Rc<Bounds>) -> Self {
        let (bounds, counts) = (Rc::clone(bounds), Rc::default());
        Self { bounds, counts, number: Cell::new(0), last: Cell::new(Instant::now()) }
    }

    /// Reports its bytes from now on, with the number of the connection.
    pub(crate) fn report_as(&self, number: u64) {
        self.number.set(number);
        self.bounds.reported.borrow_mut().insert(number, Rc::clone(&self.counts));
        // Bytes that were counted before are in no report yet.
        self.bounds.note(0);
    }

    /// Counts bytes that are about to be passed on. Returns an error if the run has used its bytes.
    pub(crate) fn count(&self, from: From, bytes: usize) -> Result<(), Cause> {
        self.check(bytes)?;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bounds.note(bytes);
        let side = match from {
            From::Program => &self.counts.out,
            From::Server => &self.counts.into,
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
        self.counts.out.get()
    }

    pub(crate) fn received(&self) -> u64 {
        self.counts.into.get()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_connections_whose_bytes_have_changed() {
        let bounds = Bounds::new(0, 0);
        let reported = || {
            let report = bounds.report().into_iter();
            report.map(|one| (one.id, one.bytes_out, one.bytes_in)).collect::<Vec<_>>()
        };
        let (one, two) = (Meter::new(&bounds), Meter::new(&bounds));
        one.count(From::Program, 5).unwrap();
        assert!(reported().is_empty(), "it has no server yet");
        one.report_as(1);
        two.report_as(2);
        assert_eq!(reported(), [(1, 5, 0)]);
        assert!(reported().is_empty());
        one.count(From::Server, 7).unwrap();
        two.count(From::Program, 1).unwrap();
        assert_eq!(reported(), [(1, 5, 7), (2, 1, 0)]);
        two.count(From::Program, 1).unwrap();
        drop(two);
        assert!(reported().is_empty(), "its end says the rest");
    }

    #[tokio::test]
    async fn bytes_after_a_report_signal_the_next_one() {
        let bounds = Bounds::new(0, 0);
        let meter = Meter::new(&bounds);
        meter.report_as(1);
        bounds.moved().await;
        bounds.report();
        let waits = tokio::time::timeout(Duration::from_millis(20), bounds.moved());
        assert!(waits.await.is_err(), "nothing has moved");
        meter.count(From::Server, 1).unwrap();
        meter.count(From::Server, 1).unwrap();
        bounds.moved().await;
    }
}
