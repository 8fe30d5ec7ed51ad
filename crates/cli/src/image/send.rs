//! A tar on its way to the daemon, in pieces.

use std::io::{self, Read, Write};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Bytes of one piece.
const PIECE: usize = 256 * 1024;
/// Pieces that wait.
const WAITING: usize = 4;

/// The messages of a request: the header, and what a thread of its own writes. The thread ends with the request.
pub(super) struct Sending<T> {
    pub(super) messages: ReceiverStream<T>,
    /// What went wrong here, if anything did.
    pub(super) written: tokio::task::JoinHandle<io::Result<()>>,
}

/// Starts to send.
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
            // The daemon answered before the end: its answer says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Ok(()) => Ok(()),
            Err(error) => {
                // A message without a part is none: what came so far is not taken for a whole tar.
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
        let room = PIECE - self.piece.len();
        let taken = bytes.len().min(room);
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

/// Copies a file, and says how far it is.
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
