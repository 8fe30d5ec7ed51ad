//! Reattaches the approvals that waited when the last daemon ended.
//!
//! It reads the calls from the store, and later decisions from the audit log, which is authoritative for decisions. A recorded
//! decision that was not yet in force comes into force now. No decision is in force without a record.

use std::collections::{BTreeMap, BTreeSet};

use audit::Kind;
use audit_service::AuditLog;
use gateway::{Approval, ApprovalState, Consent, Gateway};
use identity::CallId;
use refusal::chain;
use store::{SettledApproval, Store};
use timestamp::UnixMillis;

use super::events::{decided, replay};
use super::pending::{self, Earlier, Pending, settled};

/// The approvals that an earlier daemon left waiting.
#[derive(Default)]
pub struct WaitingApprovals {
    /// Calls that go on.
    pub(crate) waiting: Vec<Pending>,
    /// Approvals whose calls are over, or may have been executed. They are shown, and their calls do not go on.
    over: Vec<SettledApproval>,
    /// Approvals of connections, which ended with the daemon.
    connections: Vec<Approval>,
    /// Ids of approvals that can no longer be read.
    lost: Vec<String>,
    consents: Vec<Consent>,
}

impl WaitingApprovals {
    /// Reads store and log.
    pub async fn read(store: &Store, log: &AuditLog) -> anyhow::Result<Self> {
        let failed = |error: store::StoreError| anyhow::anyhow!("the store: {}", chain(&error));
        let (stored, unreadable) = store.approvals().map_err(failed)?;
        let mut found = Self { lost: unreadable, ..Self::default() };
        for approval in &found.lost {
            tracing::error!(approval, "a waiting call can no longer be read and is closed");
        }
        let first = stored.iter().map(|stored| stored.after).min();
        let mut kept = BTreeMap::new();
        for stored in stored {
            match pending::read(&stored) {
                Ok(earlier) => drop(kept.insert(stored.approval_id, (earlier, stored.spent))),
                Err(error) => {
                    let approval = &stored.approval_id;
                    tracing::error!(approval, error = %chain(&error), "a call that waited cannot be read");
                    found.lost.push(stored.approval_id);
                }
            }
        }
        if let Some(first) = first {
            found.over.extend(bring_up_to_date(log, first, &mut kept).await?);
        }
        for ((approval, call), spent) in kept.into_values() {
            if spent {
                found.over.push(settled(approval, true)?);
            } else if approval.format != gateway::FORMAT {
                let id = &approval.approval_id;
                tracing::warn!(
                    approval = id,
                    "this approval was requested by an older release, whose approvals bind less: it is \
                     cancelled"
                );
                let comment = "requested by an older release, whose approvals bind less: make the call again"
                    .to_owned();
                found.over.push(settled(Approval { comment, ..approval }, false)?);
            } else if !approval.is_sound() {
                let approval = approval.approval_id;
                tracing::error!(approval, "a call that waited is damaged: it is closed");
                found.lost.push(approval);
            } else if let Some((asker, operation)) = call {
                found.waiting.push(Pending { approval, asker, operation });
            } else {
                found.connections.push(approval);
            }
        }
        for (id, consent) in store.consents().map_err(failed)? {
            match consent.and_then(|consent| serde_json::from_slice(&consent).ok()) {
                Some(consent) => found.consents.push(consent),
                None => store.delete_consent(&id).map_err(failed)?,
            }
        }
        Ok(found)
    }

    /// Returns the calls whose intents stay open.
    pub fn calls(&self) -> BTreeSet<CallId> {
        self.waiting.iter().map(|kept| kept.asker.call).collect()
    }

    /// Records the end of the approvals of connections that were pending. They ended with the daemon.
    pub async fn close_connections(&mut self, log: &AuditLog) -> anyhow::Result<()> {
        for mut approval in self.connections.drain(..) {
            if approval.state == ApprovalState::Pending {
                approval.state = ApprovalState::Cancelled;
                approval.decided_at = Some(UnixMillis::now());
                "the daemon ended, and the connections that waited with it".clone_into(&mut approval.comment);
                let recorded = log.record(decided(&approval)).await;
                recorded.map_err(|_| anyhow::anyhow!("the audit log cannot be written"))?;
            }
            self.over.push(settled(approval, false)?);
        }
        Ok(())
    }

    /// Gives the approvals to the gateway, and deletes the unusable ones from the store. Returns the calls that wait.
    pub fn restore(
        mut self,
        store: &Store,
        gateway: &Gateway,
        lives: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Vec<Pending>> {
        let failed = |error: store::StoreError| anyhow::anyhow!("the store: {}", chain(&error));
        for approval in &self.lost {
            store.delete_approval(approval).map_err(failed)?;
        }
        for approval in &self.over {
            store.settle_approval(approval).map_err(failed)?;
        }
        let waiting = self.waiting.iter().map(|kept| kept.approval.clone());
        let mut approvals: BTreeMap<String, Approval> =
            waiting.map(|approval| (approval.approval_id.clone(), approval)).collect();
        for json in store.settled_approvals().map_err(failed)? {
            // An approval that contradicts itself is not shown.
            if let Ok(approval) = serde_json::from_slice::<Approval>(&json)
                && approval.is_sound()
            {
                approvals.entry(approval.approval_id.clone()).or_insert(approval);
            }
        }
        gateway.restore_approvals(approvals.into_values().collect())?;
        let digest = gateway.policy().digest().to_owned();
        for consent in self.consents.drain(..) {
            if consent.policy_digest == digest && lives(&consent.run_id) {
                gateway.remember(consent);
            } else {
                store.delete_consent(&consent.consent_id).map_err(failed)?;
            }
        }
        Ok(self.waiting)
    }
}

/// Applies the log's records. Removes and returns the approvals of calls that have a receipt: they no longer wait.
async fn bring_up_to_date(
    log: &AuditLog,
    after: u64,
    kept: &mut BTreeMap<String, (Earlier, bool)>,
) -> anyhow::Result<Vec<SettledApproval>> {
    let mut over = Vec::new();
    let mut follow = log.read_after(after, false);
    while let Some(lines) = follow.next().await.map_err(|refusal| anyhow::anyhow!(refusal.message))? {
        for line in lines {
            let event = &line.record.event;
            let Some(approval) = &event.approval_id else { continue };
            if event.kind == Kind::CallReceipt {
                if let Some(((approval, _), spent)) = kept.remove(approval) {
                    over.push(settled(approval, spent)?);
                }
            } else if let Some(((approval, _), _)) = kept.get_mut(approval) {
                replay(approval, event);
            }
        }
    }
    Ok(over)
}
