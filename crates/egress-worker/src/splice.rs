//! Passes bytes both ways at once.
//!
//! One buffer serves all connections: it is filled and emptied without waiting. Bytes that the other side does not take at once are
//! copied, and nothing more is read from their side until they are gone. So an idle connection has no buffer.
//!
//! The buffer is large, because the cost of a transfer is that of waking the two sides. A connection uses more of it while it is taken.

use std::cell::{Cell, RefCell};
use std::io;

use rustix::net::{Shutdown, shutdown};
use tokio::net::TcpStream;
use tokio::task::coop;
use wire::worker::v1::connection_ended::Cause;

use crate::meter::{From, Meter};

/// Bytes of the buffer.
const BUFFER_SIZE: usize = 1024 * 1024;
/// Bytes that are read at once at first, and from a side whose bytes are not taken at once.
const READ: usize = 64 * 1024;
/// Copied bytes of all connections beyond which less is read at once.
const CROWDED: usize = 16 * 1024 * 1024;
const READ_CROWDED: usize = 4 * 1024;

thread_local! {
    /// The buffer of all connections.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER_SIZE].into_boxed_slice());
    /// Copied bytes of all connections.
    static COPIED: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work` with the buffer of all connections. It must not wait.
pub(crate) fn with_buffer<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        let most = if COPIED.get() > CROWDED { READ_CROWDED } else { BUFFER_SIZE };
        work(buffer.get_mut(..most).unwrap_or_default())
    })
}

/// Bytes that wait for a side to take them.
struct Copied(Vec<u8>);

impl Copied {
    fn new(bytes: Vec<u8>) -> Self {
        COPIED.set(COPIED.get() + bytes.len());
        Self(bytes)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        COPIED.set(COPIED.get().saturating_sub(self.0.len()));
    }
}

/// Bytes that were received before, by the side that they go to.
#[derive(Debug, Default)]
pub(crate) struct Early {
    pub(crate) to_server: Vec<u8>,
    /// These are counted already.
    pub(crate) to_program: Vec<u8>,
}

/// Passes bytes until both sides have ended. An end of one side is passed on, and the other side goes on.
pub(crate) async fn splice(
    program: &TcpStream,
    server: &TcpStream,
    meter: &Meter,
    early: Early,
) -> Result<(), Cause> {
    meter.count(From::Program, early.to_server.len())?;
    tokio::try_join!(
        pass(program, server, early.to_server, |bytes| meter.count(From::Program, bytes)),
        pass(server, program, early.to_program, |bytes| meter.count(From::Server, bytes)),
    )?;
    Ok(())
}

async fn pass(
    from: &TcpStream,
    to: &TcpStream,
    early: Vec<u8>,
    count: impl Fn(usize) -> Result<(), Cause>,
) -> Result<(), Cause> {
    write(to, early).await?;
    let mut most = READ;
    loop {
        coop::consume_budget().await;
        from.readable().await.map_err(|_| Cause::Reset)?;
        let left = with_buffer(|buffer| {
            let most_now = buffer.len().min(most);
            match from.try_read(buffer.get_mut(..most_now).unwrap_or_default()) {
                Ok(0) => Ok(None),
                Ok(read) => {
                    let bytes = buffer.get(..read).unwrap_or_default();
                    count(bytes.len())?;
                    let left = bytes.get(try_write(to, bytes)?..).unwrap_or_default();
                    match left.len() {
                        0 if read == most => most = BUFFER_SIZE.min(2 * most),
                        0 => {}
                        _ => most = READ.max(most / 2),
                    }
                    Ok(Some(left.to_vec()))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(Vec::new())),
                Err(_) => Err(Cause::Reset),
            }
        })?;
        match left {
            Some(left) => write(to, left).await?,
            None => break,
        }
    }
    // The other side may have closed its connection already.
    let _ = shutdown(to, Shutdown::Write);
    Ok(())
}

/// Writes all bytes, and waits while the other side is full.
async fn write(to: &TcpStream, bytes: Vec<u8>) -> Result<(), Cause> {
    let copied = Copied::new(bytes);
    let mut rest = &copied.0[..];
    while !rest.is_empty() {
        to.writable().await.map_err(|_| Cause::Reset)?;
        rest = rest.get(try_write(to, rest)?..).unwrap_or_default();
    }
    Ok(())
}

/// Writes as much as the socket takes now.
pub(crate) fn try_write(to: &TcpStream, bytes: &[u8]) -> Result<usize, Cause> {
    match to.try_write(bytes) {
        Ok(written) => Ok(written),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        Err(_) => Err(Cause::Reset),
    }
}

#[cfg(test)]
mod tests;
