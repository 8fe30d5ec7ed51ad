//! What a daemon that died has left behind: containers, mounts, and calls and sessions without an end.
//!
//! Runs end with their daemon: nobody has seen what went on in them meanwhile. Their workspaces stay.

use std::collections::BTreeMap;

use anyhow::Context as _;
use audit::{Event, Kind, Outcome, Status};
use containers::{Engine, LABEL_INSTANCE};

use crate::audit::AuditLog;
use crate::runs::Directories;
use crate::status::chain;
use crate::terminal;

/// Removes every container and mount of this instance.
pub(crate) async fn remove_leftovers(
    engine: &dyn Engine,
    instance: &str,
    directories: &Directories,
) -> anyhow::Result<()> {
    let left = engine.list(LABEL_INSTANCE, instance).await.map_err(|error| anyhow::anyhow!(chain(&error)))?;
    for container in &left {
        tracing::warn!(container = container.name, "removing a container that a former daemon left");
        engine.remove(&container.id).await.map_err(|error| anyhow::anyhow!(chain(&error)))?;
    }
    let mounts = directories.mounts();
    let cleaned = tokio::task::spawn_blocking(move || clean(&mounts)).await?;
    let cleaned = cleaned.context("cannot clean up the mounts that a former daemon left")?;
    if cleaned > 0 {
        tracing::warn!(mounts = cleaned, "removed mounts that a former daemon left");
    }
    Ok(())
}

/// The slots are two levels down: `mounts/RUN/workspace`.
fn clean(mounts: &std::path::Path) -> Result<usize, containers::MountError> {
    let mut cleaned = 0;
    for run in std::fs::read_dir(mounts).into_iter().flatten().flatten() {
        cleaned += containers::clean_slots(&run.path())?;
        // Only an empty directory goes.
        let _ = std::fs::remove_dir(run.path());
    }
    Ok(cleaned)
}

/// Gives every intent that has no receipt one that says so, and every session that was open its end.
pub(crate) async fn close_open_calls(log: &AuditLog, directories: &Directories) -> anyhow::Result<()> {
    let mut open: BTreeMap<String, Event> = BTreeMap::new();
    let mut sessions = BTreeMap::new();
    let mut follow = log.read_after(0, false);
    while let Some(lines) = follow.next().await.map_err(|refusal| anyhow::anyhow!(refusal.message))? {
        for line in lines {
            let event = line.record.event;
            match (event.kind, event.call_id.clone(), terminal::session_of(&event)) {
                (Kind::CallIntent, Some(call), _) => drop(open.insert(call, event)),
                (Kind::CallReceipt, Some(call), _) => drop(open.remove(&call)),
                (Kind::SessionOpened, _, Some(session)) => drop(sessions.insert(session, event)),
                (Kind::SessionClosed, _, Some(session)) => drop(sessions.remove(&session)),
                _ => {}
            }
        }
    }
    for (call, intent) in open {
        tracing::warn!(call, "a call was under way when the daemon ended: recorded as interrupted");
        let mut receipt = Event::new(Kind::CallReceipt).call(call).outcome(
            Outcome::new(Status::Interrupted)
                .message("the daemon ended during the call; whether it had an effect is not known"),
        );
        receipt.run_id = intent.run_id;
        receipt.principal = intent.principal;
        receipt.agent_id = intent.agent_id;
        receipt.operation = intent.operation;
        log.record(receipt).await.map_err(|_| anyhow::anyhow!("the audit log cannot be written"))?;
    }
    for (session, opened) in sessions {
        tracing::warn!(%session, "a session was open when the daemon ended: recorded as interrupted");
        let directories = directories.clone();
        let closed =
            tokio::task::spawn_blocking(move || terminal::interrupted(&opened, &directories)).await?;
        log.record(closed).await.map_err(|_| anyhow::anyhow!("the audit log cannot be written"))?;
    }
    Ok(())
}
