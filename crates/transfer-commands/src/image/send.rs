//! Sends a tar to the daemon in pieces.

use std::io::{self, Read, Write};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Size of one piece, in bytes.
const PIECE: usize = 256 * 1024;
/// Number of pieces that can wait to be sent.
const WAITING: usize = 4;

/// The messages of a request: the header, and the pieces that a separate thread writes. The thread ends with the request.
pub(super) struct Sending<T> {
    pub(super) messages: ReceiverStream<T>,
    /// Result of the thread, with a local error if there was one.
    pub(super) written: tokio::task::JoinHandle<io::Result<()>>,
}

/// Starts to send the header and the content that `write` writes.
pub(super) fn send<T: Send + 'static>(
    header: T,
    message: impl Fn(Option<Vec<u8>>) -> T + Send + 'static,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Sending<T> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let written = tokio::task::spawn_blocking(move || {
        if sender.blocking_send(header).is_err() {
            return Ok(());
        }
        let mut pieces = Pieces { sender, message, piece: Vec::with_capacity(PIECE) };
        match write(&mut pieces).and_then(|()| pieces.flush()) {
            // The daemon answered before the end. Its answer gives the reason.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Ok(()) => Ok(()),
            Err(error) => {
                // A message without a part is invalid, so the daemon does not mistake the pieces so far for a whole tar.
                let _ = pieces.sender.blocking_send((pieces.message)(None));
                Err(error)
            }
        }
    });
    Sending { messages: ReceiverStream::new(receiver), written }
}

struct Pieces<T, M> {
    sender: mpsc::Sender<T>,
    message: M,
    piece: Vec<u8>,
}

impl<T, M: Fn(Option<Vec<u8>>) -> T> Write for Pieces<T, M> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let space = PIECE - self.piece.len();
        let taken = bytes.len().min(space);
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        let sent = self.sender.blocking_send((self.message)(Some(piece)));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Copies a file, and reports the progress in bytes to `at`.
pub(super) fn copy(input: &mut dyn Read, output: &mut dyn Write, at: impl Fn(u64)) -> io::Result<()> {
    let (mut buffer, mut done) = (vec![0; PIECE], 0);
    loop {
        match input.read(&mut buffer)? {
            0 => return Ok(()),
            count => {
                output.write_all(&buffer[..count])?;
                done += count as u64;
                at(done);
            }
        }
    }
}
