//! Reading keys and writing the screen block, for as long as the terminal likes (Ctrl-S stops it). So each has a thread,
//! and the session goes on beside them. Neither holds `coffer` up when it ends.

use std::io::{self, Write};
use std::thread;

use tokio::sync::{mpsc, oneshot};

/// Bytes read at once: what the daemon takes in one message.
const READ: usize = 16 * 1024;
/// Reads that may wait.
const KEYS: usize = 16;
/// Pieces of output that may wait.
const PIECES: usize = 4;

/// What is typed, until the terminal is gone.
pub(super) fn keys() -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, keys) = mpsc::channel(KEYS);
    thread::Builder::new().name("keys".into()).spawn(move || {
        let mut buffer = vec![0; READ];
        loop {
            // Not through `std::io::Stdin`, which would keep what it read too much.
            let read = match rustix::io::read(io::stdin(), &mut buffer) {
                Ok(read @ 1..) => read,
                Err(rustix::io::Errno::INTR) => continue,
                Ok(_) | Err(_) => return,
            };
            if sender.blocking_send(buffer[..read].to_vec()).is_err() {
                return;
            }
        }
    })?;
    Ok(keys)
}

/// The way to the screen, and when all of it has been written after the sender is gone.
pub(super) fn screen() -> io::Result<(mpsc::Sender<Vec<u8>>, oneshot::Receiver<()>)> {
    let (sender, mut pieces) = mpsc::channel::<Vec<u8>>(PIECES);
    let (done, written) = oneshot::channel();
    thread::Builder::new().name("screen".into()).spawn(move || {
        let mut stdout = io::stdout().lock();
        while let Some(piece) = pieces.blocking_recv() {
            if stdout.write_all(&piece).and_then(|()| stdout.flush()).is_err() {
                break;
            }
        }
        let _ = done.send(());
    })?;
    Ok((sender, written))
}
