//! Connects the stream of a client with the socket of the host worker that reads or writes a tree.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Blocking;
use std::pin::Pin;

use admission::STALL;
use bytes::Bytes;
use disk_quotas::Disk;
use executor::{Directory, layer};
use futures_util::{Stream, StreamExt as _};
use host_launch::TreeBounds;
use operations::Reason;
use refusal::{Refusal, unread};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wire::v1::export_base_response::Part;
use wire::v1::{self, ExportBaseResponse};

/// Size of a piece, bytes.
const PIECE: usize = 256 * 1024;

/// The files of a base in pieces, as a client sends them.
pub type Pieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;
/// The answer of an export, as far as the client has not read it.
pub type Sender = mpsc::Sender<Result<ExportBaseResponse, Status>>;

/// Fills an empty directory with the tree that comes in pieces. Returns its digest and size.
pub(crate) async fn receive(
    into: &Directory,
    (pieces, disk): (Pieces, &Disk),
    most: TreeBounds,
) -> Result<v1::Base, Refusal> {
    let (ours, theirs) = pair()?;
    let receiving = layer::import(into, theirs, most);
    let feeding = feed(pieces, |more| disk.check(more), ours);
    tokio::pin!(receiving, feeding);
    let fed = tokio::select! {
        // It has answered before the end.
        received = &mut receiving => return received,
        fed = &mut feeding => fed,
    };
    let received = receiving.await;
    settled(received, fed)
}

/// Combines the answer of the process with the end of the client's stream.
///
/// A client breaks its stream off if its source fails, also after the last byte. A tree that came whole is no base then.
fn settled<T>(received: Result<T, Refusal>, fed: Result<(), Refusal>) -> Result<T, Refusal> {
    match (received, fed) {
        (Err(refused), Err(_)) if refused.reason != Reason::PreconditionFailed => Err(refused),
        (_, Err(why)) => Err(why),
        (received, Ok(())) => received,
    }
}

/// Passes the pieces of a client on, until its stream or the process at the other end of the socket ends.
///
/// The bounds of the tree are those of its beginning. Runs and images may have taken the space since then, so each piece needs its own.
async fn feed(
    mut pieces: Pieces,
    has_space: impl Fn(u64) -> Result<(), Refusal>,
    mut into: UnixStream,
) -> Result<(), Refusal> {
    loop {
        let piece = match timeout(STALL, pieces.next()).await {
            Ok(Some(Ok(piece))) => piece,
            Ok(None) => return Ok(()),
            Ok(Some(Err(_))) => {
                let message =
                    "the client ended the stream before the base was complete; nothing of it is left";
                return Err(Refusal::new(Reason::Cancelled, message));
            }
            Err(_) => {
                let message = format!("the client has sent nothing for {} seconds", STALL.as_secs());
                return Err(Refusal::new(Reason::TimedOut, message));
            }
        };
        has_space(piece.len() as u64)?;
        if into.write_all(&piece).await.is_err() {
            // The process has ended. Its answer has the reason.
            return Ok(());
        }
    }
}

/// Passes the bytes of a process on to a client, until the process has closed its end.
pub(crate) async fn pass(
    mut from: UnixStream,
    sender: &Sender,
    stop: &CancellationToken,
) -> Result<(), Refusal> {
    let mut buffer = vec![0; PIECE];
    loop {
        let passing = async {
            let read = from.read(&mut buffer).await;
            let read = read.map_err(|error| Refusal::internal("sending a base", &error))?;
            if read > 0 {
                send(sender, Part::Piece(buffer[..read].to_vec())).await?;
            }
            Ok::<usize, Refusal>(read)
        };
        let read = tokio::select! {
            read = passing => read?,
            () = sender.closed() => return Err(unread(true, STALL)),
            () = stop.cancelled() => {
                return Err(Refusal::new(Reason::Cancelled, "the daemon is stopping: export the base again"));
            }
        };
        if read == 0 {
            return Ok(());
        }
    }
}

pub(crate) async fn send(sender: &Sender, part: Part) -> Result<(), Refusal> {
    let message = Ok(ExportBaseResponse { part: Some(part) });
    let sent = sender.send_timeout(message, STALL).await;
    sent.map_err(|error| unread(matches!(error, mpsc::error::SendTimeoutError::Closed(_)), STALL))
}

/// Returns the daemon's end of a socket, and that of a process.
pub(crate) fn pair() -> Result<(UnixStream, OwnedFd), Refusal> {
    let made = Blocking::pair().and_then(|(ours, theirs)| {
        ours.set_nonblocking(true)?;
        Ok((UnixStream::from_std(ours)?, theirs.into()))
    });
    made.map_err(|error| Refusal::internal("making a socket for a base", &error))
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn pieces(items: Vec<io::Result<Bytes>>) -> Pieces {
        Box::pin(stream::iter(items))
    }

    #[tokio::test]
    async fn pieces_reach_the_process_in_order_and_their_end_closes_the_socket() {
        let (ours, theirs) = Blocking::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let sent = vec![Ok(Bytes::from_static(b"one ")), Ok(Bytes::new()), Ok(Bytes::from_static(b"two"))];
        let feeding = feed(pieces(sent), |_| Ok(()), UnixStream::from_std(ours).unwrap());
        let mut theirs = UnixStream::from_std(theirs).unwrap();
        let mut read = String::new();
        let (fed, came) = tokio::join!(feeding, theirs.read_to_string(&mut read));
        assert!(fed.is_ok() && came.is_ok());
        assert_eq!(read, "one two");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_breaks_off_or_is_silent_ends_the_import() {
        let (ours, theirs) = pair().unwrap();
        let broken = vec![Ok(Bytes::from_static(b"one")), Err(io::ErrorKind::ConnectionReset.into())];
        assert_eq!(feed(pieces(broken), |_| Ok(()), ours).await.unwrap_err().reason, Reason::Cancelled);
        drop(theirs);
        let (ours, _theirs) = pair().unwrap();
        let silent = Box::pin(stream::pending());
        assert_eq!(feed(silent, |_| Ok(()), ours).await.unwrap_err().reason, Reason::TimedOut);
        let (ours, theirs) = pair().unwrap();
        drop(theirs);
        let endless = Box::pin(stream::repeat_with(|| Ok(Bytes::from_static(b"more"))));
        assert!(feed(endless, |_| Ok(()), ours).await.is_ok(), "the process has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn an_export_goes_on_while_its_target_waits_for_a_turn() {
        let part = || Part::VerifiedDigest("ab".repeat(32));
        let (sender, mut receiver) = mpsc::channel(1);
        send(&sender, part()).await.unwrap();
        let waiting = async {
            tokio::time::sleep(admission::WAIT).await;
            receiver.recv().await
        };
        let (sent, read) = tokio::join!(send(&sender, part()), waiting);
        assert!(sent.is_ok() && read.is_some());
        assert_eq!(send(&sender, part()).await.unwrap_err().reason, Reason::TimedOut);
    }

    #[tokio::test]
    async fn an_import_ends_when_the_disk_has_no_space_for_the_next_piece() {
        let (ours, theirs) = pair().unwrap();
        let sent = ["one", "larger", "two"].map(|piece| io::Result::Ok(Bytes::from_static(piece.as_bytes())));
        let has_space = |more: u64| match more {
            0..=3 => Ok(()),
            _ => Err(Refusal::new(Reason::WriteLimit, "full")),
        };
        let fed = feed(pieces(sent.into()), has_space, ours).await;
        assert_eq!(fed.as_ref().map_err(|refused| refused.reason), Err(Reason::WriteLimit));
        let cut = Refusal::new(Reason::PreconditionFailed, "cut");
        assert_eq!(settled::<()>(Err(cut), fed).unwrap_err().reason, Reason::WriteLimit);
        let mut came = String::new();
        let mut theirs = Blocking::from(theirs);
        io::Read::read_to_string(&mut theirs, &mut came).unwrap();
        assert_eq!(came, "one");
    }

    #[test]
    fn a_stream_that_breaks_off_is_no_base_even_after_its_last_byte() {
        let why = || Refusal::new(Reason::Cancelled, "why");
        let cut = || Refusal::new(Reason::PreconditionFailed, "cut");
        let reason = |received, fed| settled(received, fed).map_err(|refused: Refusal| refused.reason);
        assert_eq!(reason(Ok(1), Err(why())), Err(Reason::Cancelled));
        assert_eq!(reason(Err(cut()), Err(why())), Err(Reason::Cancelled));
        let late = Refusal::new(Reason::TimedOut, "late");
        assert_eq!(reason(Err(late), Err(why())), Err(Reason::TimedOut));
        assert_eq!(reason(Err(cut()), Ok(())), Err(Reason::PreconditionFailed));
        assert_eq!(reason(Ok(1), Ok(())), Ok(1));
    }

    #[tokio::test]
    async fn an_export_ends_with_its_client_and_with_the_daemon() {
        let stop = CancellationToken::new();
        let (ours, theirs) = pair().unwrap();
        let (sender, mut receiver) = mpsc::channel(4);
        drop(theirs);
        assert!(pass(ours, &sender, &stop).await.is_ok(), "the process has closed its end");
        assert!(receiver.try_recv().is_err());
        let (ours, _theirs) = pair().unwrap();
        drop(receiver);
        assert_eq!(pass(ours, &sender, &stop).await.unwrap_err().reason, Reason::Cancelled);
        let (ours, _theirs) = pair().unwrap();
        let (sender, _receiver) = mpsc::channel(4);
        stop.cancel();
        let refused = pass(ours, &sender, &stop).await.unwrap_err();
        assert!(refused.message.contains("stopping"), "{}", refused.message);
    }
}
