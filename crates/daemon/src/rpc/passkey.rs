//! Serves `PasskeyService`.

use std::sync::Arc;

use consent_proof::{Assertion, digest};
use gateway::{Approval, Choice, Remember};
use identity::Role;
use passkeys::{Answer, Draft, Passkey, Passkeys};
use refusal::Refusal;
use serde_json::json;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::passkey_service_server::PasskeyService;

use super::approval::{self, choice_from_wire, no_such_approval, remember_from_wire, sees};
use super::principal;

pub(crate) struct Service {
    pub(crate) passkeys: Arc<Passkeys>,
    pub(crate) approvals: approval::Service,
    /// Runs changes to their end even if the client leaves: a recorded change takes effect.
    pub(crate) tasks: TaskTracker,
}

#[tonic::async_trait]
impl PasskeyService for Service {
    async fn begin_registration(
        &self,
        request: Request<v1::BeginRegistrationRequest>,
    ) -> Result<Response<v1::BeginRegistrationResponse>, Status> {
        let principal = principal(&request)?;
        let options = self.passkeys.begin_registration(&principal.name)?;
        Ok(Response::new(v1::BeginRegistrationResponse {
            challenge: options.challenge,
            rp_id: options.rp_id,
            user_id: options.user_id,
            user_name: principal.name.clone(),
            exclude: ids(&options.exclude),
            proof_challenge: options.proof_challenge,
        }))
    }

    async fn finish_registration(
        &self,
        request: Request<v1::FinishRegistrationRequest>,
    ) -> Result<Response<v1::FinishRegistrationResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let answer = Answer {
            name: request.name,
            authenticator_data: request.authenticator_data,
            client_data_json: request.client_data_json,
            proof: request.proof.map(assertion),
        };
        let passkeys = self.passkeys.clone();
        let registered =
            self.tasks.spawn(async move { passkeys.register(&principal.name, &answer).await }).await;
        let passkey = registered.map_err(|error| Refusal::internal("registering the passkey", &error))??;
        Ok(Response::new(v1::FinishRegistrationResponse { passkey: Some(to_wire(&passkey)) }))
    }

    async fn list_passkeys(
        &self,
        request: Request<v1::ListPasskeysRequest>,
    ) -> Result<Response<v1::ListPasskeysResponse>, Status> {
        let principal = principal(&request)?;
        let all = principal.roles.has_any(&[Role::Operator, Role::Auditor]);
        let passkeys = self.passkeys.list((!all).then_some(principal.name.as_str()));
        Ok(Response::new(v1::ListPasskeysResponse { passkeys: passkeys.iter().map(to_wire).collect() }))
    }

    async fn remove_passkey(
        &self,
        request: Request<v1::RemovePasskeyRequest>,
    ) -> Result<Response<v1::RemovePasskeyResponse>, Status> {
        let principal = principal(&request)?;
        let id = request.into_inner().credential_id;
        let passkeys = self.passkeys.clone();
        let removed = self.tasks.spawn(async move { passkeys.remove(&id, &principal.name).await }).await;
        let passkey = removed.map_err(|error| Refusal::internal("removing the passkey", &error))??;
        Ok(Response::new(v1::RemovePasskeyResponse { passkey: Some(to_wire(&passkey)) }))
    }

    async fn begin_consent(
        &self,
        request: Request<v1::BeginConsentRequest>,
    ) -> Result<Response<v1::BeginConsentResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let choice = choice_from_wire(request.decision())?;
        let remember = remember_from_wire(request.remember(), request.prefix)?;
        let approval = self.approvals.gateway.approval(&request.approval_id);
        let approval = approval
            .filter(|approval| sees(&self.approvals, &principal, approval))
            .ok_or_else(no_such_approval)?;
        let draft = draft(&approval, choice, &request.comment, &remember);
        let asked = self.passkeys.begin_consent(&principal.name, &draft)?;
        Ok(Response::new(v1::BeginConsentResponse {
            challenge: asked.challenge,
            rp_id: asked.rp_id,
            credential_ids: ids(&asked.credential_ids),
        }))
    }
}

/// Returns a decision on an approval in the form that a passkey signs.
pub(super) fn draft(approval: &Approval, choice: Choice, comment: &str, remember: &Remember) -> Draft {
    let (remember, prefix) = match remember {
        Remember::Once => ("once", Vec::new()),
        Remember::Digest => ("digest", Vec::new()),
        Remember::Prefix(words) => ("prefix", words.clone()),
    };
    // In the order of the page. Each text is as reviewers get it, with secrets hidden.
    let shown = json!([
        approval.operation,
        approval.operation_json,
        approval.preview,
        approval.justification,
        approval.risk.as_str(),
        approval.rule,
        approval.requested_by,
        approval.agent_id,
        approval.role,
        approval.profile,
        approval.run_id,
    ]);
    Draft {
        approval_id: approval.approval_id.clone(),
        digest: approval.digest.clone(),
        shown: digest(&shown.to_string()),
        decision: choice.as_str(),
        comment: comment.to_owned(),
        remember,
        prefix,
    }
}

/// Returns the id of a passkey and its answer.
pub(super) fn assertion(proof: v1::PasskeyProof) -> (Vec<u8>, Assertion) {
    let v1::PasskeyProof { credential_id, authenticator_data, client_data_json, signature } = proof;
    (credential_id, Assertion { authenticator_data, client_data_json, signature })
}

fn ids(hex: &[String]) -> Vec<Vec<u8>> {
    hex.iter().filter_map(|id| hex::decode(id).ok()).collect()
}

fn to_wire(passkey: &Passkey) -> v1::Passkey {
    v1::Passkey {
        credential_id: hex::decode(&passkey.credential_id).unwrap_or_default(),
        principal: passkey.principal.clone(),
        name: passkey.name.clone(),
        algorithm: passkey.public_key.algorithm().to_owned(),
        created_at: Some(passkey.created_at.to_wire()),
        used_at: passkey.used_at.map(timestamp::UnixMillis::to_wire),
    }
}
