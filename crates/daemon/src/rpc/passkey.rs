//! Serves `PasskeyService`.

use std::sync::Arc;

use identity::Role;
use passkeys::{Answer, Passkey, Passkeys};
use refusal::Refusal;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::passkey_service_server::PasskeyService;

use super::approval::{self, choice_from_wire, no_such_approval, remember_from_wire, sees};
use super::principal;
use super::signing::{assertion, draft};

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
            .ok_or_else(|| no_such_approval(&request.approval_id))?;
        let draft = draft(&approval, choice, &request.comment, &remember);
        let asked = self.passkeys.begin_consent(&principal.name, &draft)?;
        Ok(Response::new(v1::BeginConsentResponse {
            challenge: asked.challenge,
            rp_id: asked.rp_id,
            credential_ids: ids(&asked.credential_ids),
        }))
    }
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
