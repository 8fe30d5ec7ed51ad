//! Encodes the order for a process that waits, as bytes in a pipe.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use prost::Message;
use rustix::io::Errno;
use wire::worker::v1::Start;

/// Most bytes of an order. An empty pipe takes as many at once, by pipe(7).
const MOST: usize = 64 * 1024;

/// The header of the operation: the job's number, its time in milliseconds, and its length. In native byte order, since both ends
/// are one program.
const HEADER: usize = 3 * 8;

/// An operation for a process that waits.
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) deadline: Instant,
    pub(crate) start: Start,
}

/// Returns the bytes of an order; `None` if they do not fit.
pub(crate) fn encode(number: u64, start: &Start, deadline: Instant) -> Option<Vec<u8>> {
    let length = start.encoded_len();
    if HEADER + length > MOST {
        return None;
    }
    let time = deadline.saturating_duration_since(Instant::now()).as_millis();
    let mut order = Vec::with_capacity(HEADER + length);
    for number in [number, time.try_into().unwrap_or(u64::MAX), length as u64] {
        order.extend(number.to_ne_bytes());
    }
    order.extend(start.encode_to_vec());
    Some(order)
}

impl Order {
    /// Waits for the order, in the process itself. `None`: no order will come.
    pub(crate) fn receive(orders: BorrowedFd<'_>) -> io::Result<Option<Self>> {
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
        Ok(Some(Self { number, deadline: Instant::now() + Duration::from_millis(time), start }))
    }
}

/// Fills `bytes`. Returns false if the pipe ends first.
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
