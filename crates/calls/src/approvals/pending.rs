//! Stores a waiting call with all that another process needs to go on with it.

use std::time::Duration;

use gateway::{Approval, ApprovalState, PermitState};
use identity::{CallId, RunId};
use operations::{CommandLimits, Operation};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use store::{SettledApproval, StoredApproval};
use traces::CallTrace;
use wire::v1;

/// The owner of a call, the form of its request, and so the form of its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    pub(crate) call: CallId,
    pub(crate) run: RunId,
    pub(crate) principal: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) request_id: Option<String>,
    /// Digest of the request, which identifies a repetition.
    pub(crate) digest: Vec<u8>,
    /// Names of dialect and tool. `None`: a typed message.
    pub(crate) dialect: Option<(String, String)>,
    pub(crate) task_id: String,
    pub(crate) correlation_id: String,
    /// True if it was made with the run's token.
    #[serde(default)]
    pub(crate) via_token: bool,
    /// The client's own timeout.
    pub(crate) limit: Option<Duration>,
    /// Missing in what an earlier release stored.
    #[serde(default)]
    pub(crate) trace: Option<CallTrace>,
}

/// A waiting call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    pub(crate) approval: Approval,
    pub(crate) asker: Asker,
    pub(crate) operation: Operation,
}

#[derive(Serialize, Deserialize)]
struct Head {
    approval: Approval,
    /// `None` for a connection.
    asker: Option<Asker>,
}

/// An approval of an earlier daemon, with the call that waits for it if it is not of a connection.
pub(super) type Earlier = (Approval, Option<(Asker, Operation)>);

/// The reason why a stored call cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("its stored record is not valid JSON")]
    Head(#[from] serde_json::Error),
    #[error("its operation cannot be decoded")]
    Operation(#[from] prost::DecodeError),
    #[error("its operation is malformed: {0}")]
    Malformed(String),
}

/// Returns the stored form of a call that is over.
///
/// An approval that waited was cancelled; one that was approved was used or is void.
pub(super) fn settled(mut approval: Approval, spent: bool) -> Result<SettledApproval, serde_json::Error> {
    if approval.state == ApprovalState::Pending {
        approval.state = ApprovalState::Cancelled;
        approval.decided_at.get_or_insert(approval.created_at);
    }
    if approval.permit == PermitState::Available {
        approval.permit = if spent { PermitState::Issued } else { PermitState::Withdrawn };
    }
    Ok(SettledApproval {
        approval_id: approval.approval_id.clone(),
        run_id: approval.run_id.clone(),
        at: approval.decided_at.unwrap_or(approval.created_at).0,
        approval: serde_json::to_vec(&approval)?,
    })
}

/// Returns the stored form of an approval. `after` is the sequence number of the record of its request.
pub(super) fn stored(
    approval: &Approval,
    call: Option<(Asker, Operation)>,
    after: u64,
) -> Result<StoredApproval, serde_json::Error> {
    let (asker, operation) = call.unzip();
    let head = Head { approval: approval.clone(), asker };
    Ok(StoredApproval {
        approval_id: approval.approval_id.clone(),
        run_id: approval.run_id.clone(),
        after,
        spent: false,
        approval: serde_json::to_vec(&head)?,
        operation: operation.map(|operation| operation.message().encode_to_vec()).unwrap_or_default(),
    })
}

/// Reads an approval from the store.
pub(super) fn read(stored: &StoredApproval) -> Result<Earlier, Unreadable> {
    let Head { approval, asker } = serde_json::from_slice(&stored.approval)?;
    let Some(asker) = asker else { return Ok((approval, None)) };
    let operation = v1::Operation::decode(stored.operation.as_slice())?;
    let operation = Operation::parse_within(operation, CommandLimits::WIDEST)
        .map_err(|malformed| Unreadable::Malformed(malformed.to_string()))?;
    Ok((approval, Some((asker, operation))))
}
