//! Something between the daemon and the engine that a test decides about.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// Both sides see each connection end when it is dropped.
pub struct EngineProxy {
    _tasks: JoinSet<()>,
    held: Arc<AtomicUsize>,
}

impl EngineProxy {
    /// Passes everything on.
    pub fn new(socket: &Path) -> Self {
        Self::holding(socket, |_| false)
    }

    /// Passes everything on but requests of which this is true, by their first line: these get no answer.
    pub fn holding(socket: &Path, is_held: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let (is_held, held) = (Arc::new(is_held), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        let count = held.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (is_held, count) = (is_held.clone(), count.clone());
                connections.spawn(async move { pass(client, is_held.as_ref(), &count).await });
            }
        });
        Self { _tasks: tasks, held }
    }

    /// Requests that wait for an answer which does not come.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }
}

async fn pass(client: UnixStream, is_held: &(dyn Fn(&str) -> bool + Send + Sync), held: &AtomicUsize) {
    let engine = UnixStream::connect("/var/run/docker.sock").await.unwrap();
    let ((mut from_client, mut to_client), (mut from_engine, mut to_engine)) =
        (client.into_split(), engine.into_split());
    let there = async {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut piece).await {
            // A request that the daemon's client sends has its head in one piece.
            let text = String::from_utf8_lossy(&piece[..length]);
            if text.lines().next().is_some_and(is_held) {
                held.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }
            if to_engine.write_all(&piece[..length]).await.is_err() {
                return;
            }
        }
        let _ = to_engine.shutdown().await;
    };
    let back = async {
        let _ = tokio::io::copy(&mut from_engine, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    tokio::join!(there, back);
}
