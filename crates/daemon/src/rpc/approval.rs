//! Serves `ApprovalService`.

use std::pin::Pin;
use std::sync::Arc;

use audit_service::AuditLog;
use calls::Approvals;
use futures_util::{Stream, StreamExt as _, stream};
use gateway::{Approval, ApprovalFilter, ApprovalState, Ballot, Choice, Consent, Covers, Gateway, Remember};
use identity::{Principal, RunId};
use operations::FileState;
use passkeys::Passkeys;
use policy::Form;
use redact::Redactor;
use refusal::Refusal;
use runs::Runs;
use timestamp::UnixMillis;
use tokio_stream::wrappers::BroadcastStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::approval_service_server::ApprovalService;
use wire::v1::decide_approval_request::Decision;

use super::signing::{assertion, draft};
use super::{MAX_MESSAGE, behind, check_home, portion, principal};

/// Maximum size of the operations, previews and files in a list, bytes. The list has to fit into one message.
const MAX_SHOWN: usize = MAX_MESSAGE / 2;

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) passkeys: Arc<Passkeys>,
    pub(crate) stop: CancellationToken,
}

/// Returns true if `principal` may see the calls of the principal that asked for the approval, or the run.
///
/// Reviewers may see all approvals. An approval shows contents of the workspace.
pub(super) fn sees(service: &Service, principal: &Principal, approval: &Approval) -> bool {
    principal.may_see(&approval.requested_by) || sees_run(service, principal, &approval.run_id)
}

fn sees_run(service: &Service, principal: &Principal, run_id: &str) -> bool {
    let run = RunId::parse(run_id).and_then(|id| service.runs.get(id));
    run.is_ok_and(|run| run.is_seen_by(principal))
}

pub(super) fn no_such_approval(id: &str) -> Refusal {
    Refusal::absent("approval", id, "there is no such approval")
}

#[tonic::async_trait]
impl ApprovalService for Service {
    async fn list_approvals(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<Response<v1::ListApprovalsResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let filter = ApprovalFilter {
            state: state_from_wire(request.state())?,
            run_id: Some(request.run_id).filter(|id| !id.is_empty()),
        };
        let mut approvals = self.gateway.list_approvals(&filter);
        approvals.retain(|approval| sees(self, &principal, approval));
        if let Some(run) = filter.run_id.filter(|_| approvals.is_empty()) {
            check_home(&self.runs, &principal, &run)?;
        }
        portion::answer(v1::ListApprovalsResponse {
            approvals: within(&approvals, MAX_SHOWN, self.audit.redactor()),
        })
    }

    async fn get_approval(
        &self,
        request: Request<v1::GetApprovalRequest>,
    ) -> Result<Response<v1::GetApprovalResponse>, Status> {
        let principal = principal(&request)?;
        let id = &request.get_ref().approval_id;
        let approval = self.gateway.approval(id).filter(|approval| sees(self, &principal, approval));
        let approval = approval.ok_or_else(|| no_such_approval(id))?;
        Ok(Response::new(v1::GetApprovalResponse {
            approval: Some(to_wire(&approval, self.audit.redactor())),
        }))
    }

    async fn decide_approval(
        &self,
        request: Request<v1::DecideApprovalRequest>,
    ) -> Result<Response<v1::DecideApprovalResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let mut ballot = Ballot {
            choice: choice_from_wire(request.decision())?,
            remember: remember_from_wire(request.remember(), request.prefix)?,
            comment: request.comment,
            proof: None,
        };
        let asked = self.gateway.approval(&request.approval_id);
        if principal.scope.is_some() && !asked.as_ref().is_some_and(|asked| sees(self, &principal, asked)) {
            return Err(no_such_approval(&request.approval_id).into());
        }
        if let Some(proof) = request.proof {
            let asked = asked.ok_or_else(|| no_such_approval(&request.approval_id))?;
            let draft = draft(&asked, ballot.choice, &ballot.comment, &ballot.remember);
            let signed = assertion(proof);
            let verified = self.passkeys.verify_consent(&principal.name, &draft, &signed).await?;
            ballot.proof = Some(verified.into_record());
        }
        let service = self.clone();
        // In a separate task, so that the decision is completed even if the client leaves.
        let decided =
            tokio::spawn(
                async move { service.approvals.decide(&request.approval_id, &principal, &ballot).await },
            );
        let approval = decided.await.map_err(|error| Refusal::internal("deciding", &error))??;
        Ok(Response::new(v1::DecideApprovalResponse {
            approval: Some(to_wire(&approval, self.audit.redactor())),
        }))
    }

    async fn list_consents(
        &self,
        request: Request<v1::ListConsentsRequest>,
    ) -> Result<Response<v1::ListConsentsResponse>, Status> {
        let principal = principal(&request)?;
        let run_id = request.into_inner().run_id;
        let consents = self.gateway.consents(Some(run_id.as_str()).filter(|id| !id.is_empty()));
        let seen = consents.iter().filter(|consent| sees_run(self, &principal, &consent.run_id));
        let consents = seen.map(|consent| consent_to_wire(consent, self.audit.redactor()));
        let consents = consents.collect::<Vec<_>>();
        if consents.is_empty() {
            check_home(&self.runs, &principal, &run_id)?;
        }
        portion::answer(v1::ListConsentsResponse { consents })
    }

    async fn revoke_consent(
        &self,
        request: Request<v1::RevokeConsentRequest>,
    ) -> Result<Response<v1::RevokeConsentResponse>, Status> {
        let principal = principal(&request)?;
        let consent_id = request.into_inner().consent_id;
        let service = self.clone();
        // In a separate task, so that the revocation is completed even if the client leaves.
        let revoked =
            tokio::spawn(async move { service.approvals.revoke(&consent_id, &principal.name).await });
        let consent = revoked.await.map_err(|error| Refusal::internal("revoking", &error))??;
        let consent = consent_to_wire(&consent, self.audit.redactor());
        Ok(Response::new(v1::RevokeConsentResponse { consent: Some(consent) }))
    }

    type WatchApprovalsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchApprovalsResponse, Status>> + Send>>;

    async fn watch_approvals(
        &self,
        request: Request<v1::WatchApprovalsRequest>,
    ) -> Result<Response<Self::WatchApprovalsStream>, Status> {
        let principal = principal(&request)?;
        let run = Some(request.into_inner().run_id).filter(|id| !id.is_empty());
        if let Some(run) = &run {
            check_home(&self.runs, &principal, run)?;
        }
        let service = self.clone();
        let audit = self.audit.clone();
        let shown = move |approval: &Approval| sees(&service, &principal, approval);
        // Subscribes before it lists, so that no change is missed between the two.
        let changes = self.approvals.changes();
        let filter = ApprovalFilter { state: Some(ApprovalState::Pending), run_id: run.clone() };
        let respond = move |approval: &Approval| {
            Ok(v1::WatchApprovalsResponse { approval: Some(to_wire(approval, audit.redactor())) })
        };
        let pending = self.gateway.list_approvals(&filter);
        let pending: Vec<_> = pending.iter().filter(|approval| shown(approval)).map(&respond).collect();
        let later = BroadcastStream::new(changes).filter_map(move |change| {
            let answer = match change {
                Ok(approval)
                    if run.as_ref().is_none_or(|run| *run == approval.run_id) && shown(&approval) =>
                {
                    Some(respond(&approval))
                }
                Ok(_) => None,
                Err(_) => Some(Err(behind())),
            };
            std::future::ready(answer)
        });
        let stop = self.stop.clone();
        let watched = stream::iter(pending).chain(later).take_until(stop.cancelled_owned());
        Ok(Response::new(Box::pin(watched)))
    }
}

pub(super) fn choice_from_wire(decision: Decision) -> Result<Choice, Refusal> {
    match decision {
        Decision::Approve => Ok(Choice::Approve),
        Decision::Deny => Ok(Choice::Deny),
        Decision::Unspecified => Err(Refusal::invalid("decision", "must be APPROVE or DENY")),
    }
}

/// Parses the reviewer's choice of what is remembered. A prefix without the form PREFIX is an error.
pub(super) fn remember_from_wire(
    form: v1::approval::Remember,
    prefix: Vec<String>,
) -> Result<Remember, Refusal> {
    use v1::approval::Remember as Wire;
    match form {
        Wire::Prefix => Ok(Remember::Prefix(prefix)),
        _ if !prefix.is_empty() => Err(Refusal::invalid("prefix", "is for the form PREFIX only")),
        Wire::Unspecified | Wire::Once => Ok(Remember::Once),
        Wire::Digest => Ok(Remember::Digest),
    }
}

/// Returns a list that fits into one message.
///
/// An approval beyond `most` bytes is listed without its details, because an agent must not be able to hide one from
/// its reviewers with large ones. `GetApproval` shows each approval in full.
fn within(approvals: &[Approval], most: usize, redactor: &Redactor) -> Vec<v1::Approval> {
    let mut left = most;
    let shown = approvals.iter().map(|approval| {
        let mut approval = to_wire(approval, redactor);
        let files: usize = approval.files.iter().map(|file| file.path.len() + 80).sum();
        let size = approval.operation_json.len() + approval.preview.len() + files;
        if size > left {
            approval.operation_json.clear();
            approval.files.clear();
            "[too long for this list: GetApproval shows it]".clone_into(&mut approval.preview);
        } else {
            left -= size;
        }
        approval
    });
    shown.collect()
}

fn state_from_wire(state: v1::approval::State) -> Result<Option<ApprovalState>, Refusal> {
    Ok(Some(match state {
        v1::approval::State::Unspecified => return Ok(None),
        v1::approval::State::Pending => ApprovalState::Pending,
        v1::approval::State::Approved => ApprovalState::Approved,
        v1::approval::State::Denied => ApprovalState::Denied,
        v1::approval::State::Expired => ApprovalState::Expired,
        v1::approval::State::Cancelled => ApprovalState::Cancelled,
    }))
}

fn to_wire(approval: &Approval, redactor: &Redactor) -> v1::Approval {
    let redactor = &*redactor.of(&approval.run_id);
    let time = UnixMillis::to_wire;
    let state = match approval.state {
        ApprovalState::Pending => v1::approval::State::Pending,
        ApprovalState::Approved => v1::approval::State::Approved,
        ApprovalState::Denied => v1::approval::State::Denied,
        ApprovalState::Expired => v1::approval::State::Expired,
        ApprovalState::Cancelled => v1::approval::State::Cancelled,
    };
    v1::Approval {
        approval_id: approval.approval_id.clone(),
        state: state.into(),
        run_id: approval.run_id.clone(),
        call_id: approval.call_id.clone(),
        agent_id: approval.agent_id.clone(),
        requested_by: approval.requested_by.clone(),
        operation: approval.operation.clone(),
        operation_json: approval.operation_json.clone(),
        preview: approval.preview.clone(),
        justification: approval.justification.clone(),
        risk: approval.risk.as_str().to_owned(),
        digest: approval.digest.clone(),
        created_at: Some(time(approval.created_at)),
        expires_at: Some(time(approval.expires_at)),
        decided_by: approval.decided_by.clone().unwrap_or_default(),
        decided_at: approval.decided_at.map(time),
        comment: approval.comment.clone(),
        role: approval.role.clone(),
        profile: approval.profile.clone(),
        rule: approval.rule.clone(),
        policy_digest: approval.policy_digest.clone(),
        approvals_needed: approval.needed,
        level_needed: approval.level.as_str().to_owned(),
        votes: approval.votes.iter().map(vote_to_wire).collect(),
        remember_options: [v1::approval::Remember::Once]
            .into_iter()
            .chain(approval.offers.iter().copied().map(form_to_wire))
            .map(i32::from)
            .collect(),
        files: approval.files.iter().map(|(path, state)| file_to_wire(path, state, redactor)).collect(),
        reminded: approval.reminded,
        consent_id: approval
            .remembered
            .as_ref()
            .map(|consent| consent.consent_id.clone())
            .unwrap_or_default(),
        freezes_run: approval.freeze,
        decision_time_from: approval.time_from.clone(),
        needs_passkey: approval.passkey,
    }
}

fn vote_to_wire(vote: &gateway::Vote) -> v1::ApprovalVote {
    v1::ApprovalVote {
        principal: vote.principal.clone(),
        level: vote.level.as_str().to_owned(),
        approved: vote.choice == Choice::Approve,
        voted_at: Some(vote.at.to_wire()),
        comment: vote.comment.clone(),
        signed: vote.proof.is_some(),
    }
}

fn form_to_wire(form: Form) -> v1::approval::Remember {
    match form {
        Form::Digest => v1::approval::Remember::Digest,
        Form::Prefix => v1::approval::Remember::Prefix,
    }
}

fn file_to_wire(path: &str, state: &FileState, redactor: &Redactor) -> v1::BoundFile {
    // A word of a command may be the name of a file and also a secret.
    worker_protocol::convert::file_to_wire(redactor.text(path).0, state.clone())
}

fn consent_to_wire(consent: &Consent, redactor: &Redactor) -> v1::Consent {
    let redactor = &*redactor.of(&consent.run_id);
    let (form, digest, prefix) = match &consent.covers {
        Covers::Digest(digest) => (Form::Digest, digest.clone(), Vec::new()),
        Covers::Prefix(words) => {
            (Form::Prefix, String::new(), words.iter().map(|word| redactor.text(word).0).collect())
        }
    };
    v1::Consent {
        consent_id: consent.consent_id.clone(),
        run_id: consent.run_id.clone(),
        approval_id: consent.approval_id.clone(),
        operation: consent.operation.clone(),
        form: form_to_wire(form).into(),
        digest,
        prefix,
        policy_digest: consent.policy_digest.clone(),
        given_by: consent.given_by.clone(),
        given_at: Some(consent.given_at.to_wire()),
    }
}
