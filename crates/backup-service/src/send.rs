//! Sends an archive at the pace of the client, and no faster than a bound.

use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use refusal::Refusal;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, error::SendTimeoutError};
use tonic::Status;
use wire::v1::create_backup_response::Event;
use wire::v1::{BackupMade, CreateBackupResponse};

/// Number of bytes of one message.
const CHUNK: usize = 256 * 1024;
/// Number of messages that wait for the client.
const WAITING: usize = 4;
/// Time that a client has to take one message.
const STALL: Duration = Duration::from_secs(60);
/// Bytes that go out in a second.
const RATE: u64 = 64 << 20;

/// Sender of the messages to the client.
#[derive(Clone)]
pub struct Events(mpsc::Sender<Result<CreateBackupResponse, Status>>);

impl Events {
    /// Returns the sender, and the receiver from which the client's stream reads.
    pub fn new() -> (Self, mpsc::Receiver<Result<CreateBackupResponse, Status>>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Sends the end of a whole backup.
    pub(crate) async fn made(&self, made: BackupMade) {
        let _ = self.0.send_timeout(Ok(response(Event::Made(made))), STALL).await;
    }

    /// Ends the stream with the reason why there is no backup.
    pub async fn fail(self, refusal: Refusal) {
        let _ = self.0.send_timeout(Err(refusal.into()), STALL).await;
    }
}

fn response(event: Event) -> CreateBackupResponse {
    CreateBackupResponse { event: Some(event) }
}

/// Writer in a thread that may block.
pub(crate) struct Sending {
    to: Events,
    runtime: Handle,
    chunk: Vec<u8>,
    sha256: Sha256,
    sent: u64,
    begun: Instant,
    longest: Duration,
}

impl Sending {
    pub(crate) fn new(to: Events, runtime: Handle, longest: Duration) -> Self {
        let chunk = Vec::with_capacity(CHUNK);
        Self { to, runtime, chunk, sha256: Sha256::new(), sent: 0, begun: Instant::now(), longest }
    }

    /// Sends the rest. Returns the length and the SHA-256 of all.
    pub(crate) fn finish(mut self) -> io::Result<(u64, String)> {
        self.send()?;
        Ok((self.sent, hex::encode(self.sha256.finalize())))
    }

    fn send(&mut self) -> io::Result<()> {
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
        self.sha256.update(&chunk);
        self.sent += chunk.len() as u64;
        let sent = self.runtime.block_on(self.to.0.send_timeout(Ok(response(Event::Data(chunk))), STALL));
        match sent {
            Err(SendTimeoutError::Closed(_)) => return Err(ErrorKind::BrokenPipe.into()),
            Err(SendTimeoutError::Timeout(_)) => return Err(ErrorKind::TimedOut.into()),
            Ok(()) => {}
        }
        let took = self.begun.elapsed();
        if took > self.longest {
            return Err(ErrorKind::TimedOut.into());
        }
        if let Some(early) = due(self.sent).checked_sub(took) {
            std::thread::sleep(early);
        }
        Ok(())
    }
}

/// Returns the time before which so many bytes must not have gone out.
fn due(sent: u64) -> Duration {
    Duration::from_millis(sent.saturating_mul(1000) / RATE)
}

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(CHUNK - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..count]);
        if self.chunk.len() == CHUNK {
            self.send()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_bounded() {
        assert_eq!(due(RATE * 3 / 2), Duration::from_millis(1_500));
        assert_eq!(due(1), Duration::ZERO);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn all_bytes_arrive_in_order_and_a_client_that_leaves_ends_it() {
        let (events, mut receiver) = Events::new();
        let runtime = Handle::current();
        let content: Vec<u8> = (0..CHUNK * 2 + 5).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (sent, from) = (content.clone(), runtime.clone());
        let writing = tokio::task::spawn_blocking(move || {
            let mut sending = Sending::new(events, from, STALL);
            sending.write_all(&sent).unwrap();
            sending.finish().unwrap()
        });
        let mut came = Vec::new();
        while let Some(message) = receiver.recv().await {
            let Some(Event::Data(data)) = message.unwrap().event else { panic!("no data") };
            came.extend(data);
        }
        assert!(came == content);
        let expected = hex::encode(Sha256::digest(&content));
        assert_eq!(writing.await.unwrap(), (content.len() as u64, expected));
        let (events, receiver) = Events::new();
        drop(receiver);
        let writing = tokio::task::spawn_blocking(move || {
            Sending::new(events, runtime, STALL).write_all(&vec![0; CHUNK]).unwrap_err().kind()
        });
        assert_eq!(writing.await.unwrap(), ErrorKind::BrokenPipe);
    }
}
