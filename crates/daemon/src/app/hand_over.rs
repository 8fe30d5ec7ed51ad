//! The end of a daemon whose place another process takes.

use std::future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runs::Runs;
use runs::record::State;
use take_over::{Door, Heir, Listeners, StopSignals, Terms};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::parts::Parts;
use crate::hand_over::formats;

/// Time that calls and launches under way have to finish. A longer call ends as interrupted, and a launch is repeated by its request.
const FINISH: Duration = Duration::from_secs(10);
/// Time between two looks at the calls under way.
const LOOK: Duration = Duration::from_millis(20);

/// The processes that ask to take over.
pub(super) struct Heirs(Option<oneshot::Receiver<Heir>>);

impl Heirs {
    /// Waits for a process that takes over.
    pub(super) async fn next(self) -> Heir {
        if let Some(heirs) = self.0
            && let Ok(heir) = heirs.await
        {
            return heir;
        }
        future::pending().await
    }
}

/// Listens for processes that want to take over. Without this a daemon serves all the same, and an upgrade needs a restart.
pub(super) fn open(state_dir: &Path, file: &Path, listeners: &Listeners, parts: &Parts) -> Heirs {
    let opened = std::path::absolute(file).and_then(|config| {
        let terms = Terms {
            version: env!("CARGO_PKG_VERSION"),
            formats: formats(),
            config,
            listeners: listeners.clone(),
            ends: Box::new(ends(parts)),
        };
        Door::open(state_dir)?.attend(terms)
    });
    if let Err(error) = &opened {
        tracing::warn!(%error, "no other process can take over: an upgrade needs a restart");
    }
    Heirs(opened.ok())
}

/// Returns the number of runs that are being launched.
fn launching(runs: &Runs) -> usize {
    runs.all_living().iter().filter(|(_, run)| run.record().state == State::Creating).count()
}

/// Returns a function that names everything that would end with this daemon now.
fn ends(parts: &Parts) -> impl Fn() -> Vec<String> + Send + 'static {
    // The thread that asks outlives the parts, and a stop waits until none of them can write to the log.
    let (runs, table) = (Arc::downgrade(&parts.workers.runs), Arc::downgrade(&parts.records.table));
    move || {
        let (Some(runs), Some(table)) = (runs.upgrade(), table.upgrade()) else { return Vec::new() };
        let living = runs.all_living();
        let connections: u64 =
            living.iter().filter_map(|(_, run)| run.egress()).map(|egress| egress.view().counts().open).sum();
        let counted = [
            (table.working() as u64, format!("calls that take longer than {} s more", FINISH.as_secs())),
            (connections, "connections of runs to other hosts".to_owned()),
            (
                launching(&runs) as u64,
                format!("launches of runs that take longer than {} s more", FINISH.as_secs()),
            ),
        ];
        let counted = counted.into_iter().filter(|(count, _)| *count > 0);
        let always = "terminals, forwarded ports, uploads, backups and bundles under way, sessions of MCP over HTTP, and of the console \
                      with a token or a certificate, if any";
        counted.map(|(count, what)| format!("{what}: {count} now")).chain([always.to_owned()]).collect()
    }
}

/// Accepts no further connection, and waits until the calls under way have finished. All runs are left to the successor.
///
/// A signal during that time stops the daemon as always, and the successor is refused. After that time the runs are the successor's, so a
/// signal stops whichever of the two is the daemon in the end.
pub(super) async fn drain(
    heir: Heir,
    closing: &CancellationToken,
    listeners: &Listeners,
    parts: &Parts,
    stops: &mut StopSignals,
) -> Option<Heir> {
    tracing::info!("another process takes over: no new connections");
    listeners.leave(true);
    closing.cancel();
    let finished = async {
        parts.life.entering.close();
        parts.life.entering.wait().await;
        while parts.records.table.working() > 0 || launching(&parts.workers.runs) > 0 {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(FINISH, finished) => {
            parts.life.on_stop.hand_over();
            Some(heir)
        }
        () = stops.next() => {
            tracing::info!("the daemon was told to stop: no other process takes over");
            listeners.leave(false);
            listeners.close();
            heir.refuse("the daemon was told to stop");
            None
        }
    }
}
