//! Writes audit events about approvals and reads them back. After a restart the log alone knows the decisions.

use audit::{Event, Kind};
use gateway::{Approval, ApprovalState, Consent, PermitState, Vote};
use serde_json::{Value, json};

/// Returns an event about an approval.
pub(super) fn event(kind: Kind, approval: &Approval) -> Event {
    let event = Event::new(kind)
        .run(&approval.run_id)
        .principal(&approval.requested_by)
        .agent(&approval.agent_id)
        .operation(&approval.operation)
        .approval(&approval.approval_id);
    if approval.is_of_connection() { event } else { event.call(&approval.call_id) }
}

/// Returns the event of a request for approval.
pub(super) fn requested(approval: &Approval) -> Event {
    let mut details = json!({
        "risk": approval.risk.as_str(),
        "rule": approval.rule,
        "justification": approval.justification,
        "digest": approval.digest,
        "shown": approval.shown_digest(),
        "timeout_ms": approval.expires_at.0.saturating_sub(approval.created_at.0),
        "approvals_needed": approval.needed,
        "level": approval.level.as_str(),
    });
    // `coffer audit consents` then misses a signature that was taken away.
    if approval.passkey {
        details["passkey"] = true.into();
    }
    if approval.is_of_push() {
        // The ids name the content, which is too long for a record.
        details["push"] = serde_json::from_str::<Value>(&approval.operation_json)
            .map(|mut operation| operation["push"].take())
            .unwrap_or_default();
    } else if approval.is_of_connection() {
        // A call has an intent with its operation.
        details["preview"] = approval.preview.as_str().into();
    }
    event(Kind::ApprovalRequested, approval).details(details)
}

/// Returns the event of a vote that does not settle the approval.
pub(super) fn voted(approval: &Approval) -> Event {
    event(Kind::ApprovalVoted, approval).details(json!({
        "vote": approval.votes.last(),
        "approvals_needed": approval.needed,
        "digest": approval.digest,
    }))
}

/// Returns the event that settles the approval, also by expiry or cancellation.
pub(super) fn decided(approval: &Approval) -> Event {
    let mut details = json!({
        "state": approval.state.as_str(),
        "decided_by": approval.decided_by,
        "decided_at_ms": approval.decided_at,
        "comment": approval.comment,
        "digest": approval.digest,
    });
    if approval.decided_by.is_some() {
        details["vote"] = json!(approval.votes.last());
    }
    if let Some(consent) = &approval.remembered {
        details["remembered"] = json!(consent.consent_id);
    }
    event(Kind::ApprovalDecided, approval).details(details)
}

/// Returns the event of a consent that is remembered from now on.
pub(super) fn remembered(consent: &Consent) -> Event {
    consent_event(Kind::ConsentRemembered, consent).principal(&consent.given_by).details(json!({
        "consent_id": consent.consent_id,
        "covers": consent.covers,
        "policy_digest": consent.policy_digest,
    }))
}

/// Returns the event of a consent's end: revoked, or over with its run or its policy.
pub(super) fn forgotten(consent: &Consent, principal: Option<&str>, why: &str) -> Event {
    let event = consent_event(Kind::ConsentRevoked, consent)
        .details(json!({ "consent_id": consent.consent_id, "why": why }));
    match principal {
        Some(principal) => event.principal(principal),
        None => event,
    }
}

fn consent_event(kind: Kind, consent: &Consent) -> Event {
    Event::new(kind).run(&consent.run_id).operation(&consent.operation).approval(&consent.approval_id)
}

/// Applies a record of the log to `approval`. Ignores records of other approvals.
pub(super) fn replay(approval: &mut Approval, record: &Event) {
    if record.approval_id.as_deref() != Some(approval.approval_id.as_str()) {
        return;
    }
    let none = Value::Null;
    let details = record.details.as_ref().unwrap_or(&none);
    let vote = serde_json::from_value::<Vote>(details["vote"].clone()).ok();
    match record.kind {
        Kind::ApprovalReminded => approval.reminded = true,
        Kind::ApprovalVoted => approval.votes.extend(vote),
        Kind::ApprovalDecided if approval.state == ApprovalState::Pending => {
            let state = serde_json::from_value(details["state"].clone()).ok();
            let Some(state) = state.filter(|state| *state != ApprovalState::Pending) else { return };
            approval.votes.extend(vote);
            approval.state = state;
            if state == ApprovalState::Approved {
                approval.permit = PermitState::Available;
            }
            approval.decided_by = details["decided_by"].as_str().map(str::to_owned);
            let at = serde_json::from_value(details["decided_at_ms"].clone()).ok();
            approval.decided_at = at.or(Some(approval.created_at));
            details["comment"].as_str().unwrap_or_default().clone_into(&mut approval.comment);
        }
        _ => {}
    }
}
