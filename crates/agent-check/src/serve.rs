//! The listener.

use std::io::Write as _;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::Report;

/// Time for which a line counts.
const FRESH: Duration = Duration::from_millis(100);
/// Wait after a connection that cannot be accepted.
const AGAIN: Duration = Duration::from_millis(100);

/// Answers each connection with the report and closes it, until `stop`.
pub async fn serve(listener: TcpListener, report: impl Fn() -> Report, stop: CancellationToken) {
    let mut known: Option<(Instant, String)> = None;
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection for an agent check cannot be accepted");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let fresh = known.take().filter(|(since, _)| since.elapsed() < FRESH);
        let (_, line) = known.insert(fresh.unwrap_or_else(|| (Instant::now(), report().line())));
        answer(stream, line);
        // Other work goes first: a flood of connections gets only the processor time that is left.
        tokio::task::yield_now().await;
    }
}

/// Sends the line, which fits into the empty buffer. A peer that is gone gets none.
fn answer(stream: TcpStream, line: &str) {
    // The socket does not block.
    let _ = stream.into_std().and_then(|mut stream| stream.write_all(line.as_bytes()));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn started(
        report: impl Fn() -> Report + Send + 'static,
    ) -> (std::net::SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        tokio::spawn(serve(listener, report, stop.clone()));
        (address, stop)
    }

    async fn asked(address: std::net::SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_gets_one_line_and_ends() {
        let (address, stop) = started(|| Report::Ready { free_percent: 50 }).await;
        assert_eq!(asked(address).await, "up ready 50%\n");
        stop.cancel();
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn peers_that_send_or_stay_hold_up_nobody() {
        let (address, _stop) = started(|| Report::Drained).await;
        let mut silent = Vec::new();
        for _ in 0..200 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // The listener has closed it perhaps.
            let _ = stream.write_all(&[b'x'; 4_096]).await;
            silent.push(stream);
        }
        assert_eq!(asked(address).await, "up drain\n");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_flood_makes_few_reports_and_a_change_is_seen() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let (address, _stop) = started(move || {
            let made = counted.fetch_add(1, Ordering::SeqCst);
            if made == 0 { Report::Down } else { Report::Drained }
        })
        .await;
        let begun = Instant::now();
        assert_eq!(asked(address).await, "down\n");
        for _ in 0..100 {
            asked(address).await;
        }
        let most = begun.elapsed().as_millis() / FRESH.as_millis() + 2;
        assert!(count.load(Ordering::SeqCst) as u128 <= most);
        tokio::time::sleep(FRESH).await;
        assert_eq!(asked(address).await, "up drain\n");
    }
}
