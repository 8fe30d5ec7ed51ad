//! Threads that read keys and write to the screen.
//!
//! Both may block for any time, because Ctrl-S stops the terminal. The session continues meanwhile, and the threads do not delay the end of
//! `coffer`.

use std::io::{self, Write};
use std::thread;

use tokio::sync::{mpsc, oneshot};

/// Bytes that are read at once, which the daemon accepts in one message.
const READ: usize = 16 * 1024;
/// Number of reads that can wait.
const KEYS: usize = 16;
/// Number of pieces of output that can wait.
const PIECES: usize = 4;

/// Returns a receiver of the typed bytes, which ends when the terminal is gone.
pub(super) fn keys() -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, keys) = mpsc::channel(KEYS);
    thread::Builder::new().name("keys".into()).spawn(move || {
        let mut buffer = vec![0; READ];
        loop {
            // `std::io::Stdin` is not used, because it would buffer bytes that were read ahead.
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

/// Returns the queue of the screen, and a receiver that fires after the sender was dropped and all output was written.
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
