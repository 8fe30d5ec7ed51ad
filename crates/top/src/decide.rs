//! Decides on an approval that its reviewer has read.

use command_context::client::{Client, quick};
use presentation::failure::Failure;
use presentation::output::{Look, Output};
use presentation::time;
use wire::v1::approval::{Remember, State};
use wire::v1::decide_approval_request::Decision;
use wire::v1::{Approval, DecideApprovalRequest, GetApprovalRequest};

use crate::approval::render;

/// An approval as a reviewer was shown it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown(Approval);

/// The result of a decision.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The daemon has the decision.
    Decided(Box<Approval>),
    /// The approval differs from the one that was shown, so nothing was decided.
    Changed(Box<Shown>),
    /// It no longer waits.
    Over(Box<Approval>),
}

impl Shown {
    /// Fetches an approval, to be shown.
    pub(crate) async fn fetch(client: &Client, approval_id: &str) -> Result<Self, Failure> {
        let request = GetApprovalRequest { approval_id: approval_id.to_owned() };
        let response = client.approvals().get_approval(quick(request)).await?.into_inner();
        Ok(Self(response.approval.unwrap_or_default()))
    }

    #[cfg(test)]
    pub(crate) fn of(approval: Approval) -> Self {
        Self(approval)
    }

    /// Returns the approval.
    pub(crate) fn approval(&self) -> &Approval {
        &self.0
    }

    /// Returns all that a reviewer has to see. It is harmless for every terminal.
    pub(crate) fn text(&self) -> String {
        let mut page = Output::new(Look::PIPE);
        render(&self.0, &time::now(), false, &mut page);
        page.as_str().to_owned()
    }

    /// Returns true if both ask for consent to the same.
    ///
    /// The digest binds the daemon, and the others are what the reviewer has read. Votes and the time left may differ.
    fn asks_the_same_as(&self, other: &Self) -> bool {
        let asked = |shown: &Self| {
            let Approval { digest, preview, operation_json, operation, files, run_id, .. } = shown.0.clone();
            let Approval { justification, risk, policy_digest, call_id, .. } = shown.0.clone();
            (
                digest,
                preview,
                operation_json,
                operation,
                files,
                run_id,
                justification,
                risk,
                policy_digest,
                call_id,
            )
        };
        asked(self) == asked(other)
    }
}

/// Approves or denies what was shown. Consent covers this call alone.
///
/// Asks for the approval again right before: if it has changed, nothing is decided. A denial needs no such check, but the
/// approval must still wait.
pub(crate) async fn decide(client: &Client, shown: &Shown, decision: Decision) -> Result<Verdict, Failure> {
    let now = Shown::fetch(client, &shown.0.approval_id).await?;
    if now.0.state() != State::Pending {
        return Ok(Verdict::Over(Box::new(now.0)));
    }
    if decision == Decision::Approve && !shown.asks_the_same_as(&now) {
        return Ok(Verdict::Changed(Box::new(now)));
    }
    let request = DecideApprovalRequest {
        approval_id: shown.0.approval_id.clone(),
        decision: decision.into(),
        comment: String::new(),
        remember: Remember::Once.into(),
        ..Default::default()
    };
    let response = client.approvals().decide_approval(quick(request)).await?.into_inner();
    Ok(Verdict::Decided(Box::new(response.approval.unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use wire::v1::BoundFile;

    use super::*;

    #[test]
    fn whatever_consent_is_bound_to_or_was_read_must_be_the_same() {
        let base = Approval { digest: "d".into(), preview: "p".into(), ..Default::default() };
        let same = |other: Approval| Shown(base.clone()).asks_the_same_as(&Shown(other));
        assert!(same(base.clone()));
        assert!(same(Approval { reminded: true, ..base.clone() }), "the time that passes changes nothing");
        assert!(!same(Approval { digest: "e".into(), ..base.clone() }));
        assert!(!same(Approval { preview: "q".into(), ..base.clone() }));
        assert!(!same(Approval { operation_json: "{}".into(), ..base.clone() }));
        assert!(!same(Approval { files: vec![BoundFile::default()], ..base.clone() }));
    }

    #[test]
    fn the_text_holds_no_command_that_a_reviewer_could_paste_unread() {
        let approval =
            Approval { state: State::Pending.into(), approval_id: "a".into(), ..Default::default() };
        let text = Shown(approval).text();
        assert!(text.contains("Preview") && !text.contains("coffer approval approve"), "{text}");
    }
}
