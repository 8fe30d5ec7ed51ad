//! Serves `TokenService`, and translates API tokens between the API's form and the daemon's.

use std::sync::Arc;
use std::time::Duration;

use gateway::Gateway;
use identity::{ApiToken, Principal, Role, Roles, RunId, TokenId};
use ipnet::IpNet;
use listener::Tokens;
use operations::Reason;
use refusal::Refusal;
use timestamp::{UnixMillis, duration_from_wire};
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::token_service_server::TokenService;

use super::{portion, principal};

const MAX_PAGE: u32 = 1_000;
const MAX_NAME: usize = 64;
/// Maximum number of profiles, of runs, and of networks of a token.
const MAX_LIST: usize = 64;
const DEFAULT_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

pub(crate) struct Service {
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) gateway: Arc<Gateway>,
    /// Runs changes to their end even if the client leaves: a recorded change takes effect.
    pub(crate) tasks: TaskTracker,
}

#[tonic::async_trait]
impl TokenService for Service {
    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenResponse>, Status> {
        let principal = principal(&request)?;
        let (token, secret) = self.parse(request.into_inner(), &principal)?;
        let tokens = self.tokens.clone();
        let made = self.tasks.spawn(async move { tokens.create(token).await }).await;
        let token = made.map_err(|error| Refusal::internal("making the token", &error))??;
        Ok(Response::new(v1::CreateTokenResponse { token: Some(to_wire(token)), secret }))
    }

    async fn list_tokens(
        &self,
        request: Request<v1::ListTokensRequest>,
    ) -> Result<Response<v1::ListTokensResponse>, Status> {
        let request = request.into_inner();
        let parse = |token: &str| TokenId::parse(token).ok();
        let (size, before) = portion::page(request.page_size, MAX_PAGE, &request.page_token, parse)?;
        let mut tokens = self.tokens.list(request.include_ended);
        tokens.retain(|token| before.is_none_or(|before| token.id < before));
        let mut tokens = tokens.into_iter().take(size + 1).map(to_wire).collect();
        let more = portion::cut(&mut tokens, size);
        let next_page_token =
            tokens.last().filter(|_| more).map(|last| last.token_id.clone()).unwrap_or_default();
        Ok(Response::new(v1::ListTokensResponse { tokens, next_page_token }))
    }

    async fn revoke_token(
        &self,
        request: Request<v1::RevokeTokenRequest>,
    ) -> Result<Response<v1::RevokeTokenResponse>, Status> {
        let principal = principal(&request)?;
        let id = TokenId::parse(&request.get_ref().token_id)?;
        let tokens = self.tokens.clone();
        let ended = self.tasks.spawn(async move { tokens.revoke(id, &principal.name).await }).await;
        let token = ended.map_err(|error| Refusal::internal("revoking the token", &error))??;
        Ok(Response::new(v1::RevokeTokenResponse { token: Some(to_wire(token)) }))
    }
}

impl Service {
    /// Parses a request for a new token. Returns the token and its secret, which is stored nowhere.
    fn parse(&self, request: v1::CreateTokenRequest, by: &Principal) -> Result<(ApiToken, String), Refusal> {
        let token = request.token.ok_or_else(|| Refusal::invalid("token", "is missing"))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if token.name.is_empty() || token.name.len() > MAX_NAME || !token.name.chars().all(plain) {
            let message = format!("must be 1 to {MAX_NAME} characters of [A-Za-z0-9._-]");
            return Err(Refusal::invalid("token.name", message));
        }
        for (field, count) in [
            ("token.profiles", token.profiles.len()),
            ("token.run_ids", token.run_ids.len()),
            ("token.source_networks", token.source_networks.len()),
        ] {
            if count > MAX_LIST {
                return Err(Refusal::invalid(field, format!("has more than {MAX_LIST}")));
            }
        }
        let policy = self.gateway.policy();
        if let Some(unknown) = token.profiles.iter().find(|profile| policy.profile(profile).is_none()) {
            let known: Vec<_> = policy.profile_names().collect();
            let message = format!("there is no profile {unknown:?}; there are {}", known.join(", "));
            return Err(Refusal::invalid("token.profiles", message));
        }
        let runs = token.run_ids.iter().map(|run| RunId::parse(run)).collect::<Result<_, _>>()?;
        let networks = token.source_networks.iter().map(|network| parse_network(network));
        let networks = networks.collect::<Result<_, _>>()?;
        let created_at = UnixMillis::now();
        let lifetime = lifetime(request.lifetime.as_ref(), self.tokens.max_lifetime())?;
        let id = TokenId::new();
        let (secret, hash) = ApiToken::issue(id);
        let token = ApiToken {
            id,
            name: token.name,
            roles: roles(token.roles, by)?,
            profiles: token.profiles,
            runs,
            networks,
            created_by: by.name.clone(),
            uid: by.uid,
            gid: by.gid,
            created_at,
            expires_at: UnixMillis(created_at.0.saturating_add(lifetime)),
            ended: None,
            hash,
        };
        Ok((token, secret))
    }
}

/// Parses the roles of a token. A principal can give only roles that it has.
fn roles(names: Vec<String>, by: &Principal) -> Result<Roles, Refusal> {
    let roles = Roles::try_from(names).map_err(|_| {
        let known = Role::ALL.map(|(name, _)| name);
        Refusal::invalid("token.roles", format!("must be of {}", known.join(", ")))
    })?;
    if roles.is_empty() {
        return Err(Refusal::invalid("token.roles", "is empty: the token would give access to nothing"));
    }
    if !by.roles.covers(roles) {
        let message = format!("token.roles: {} cannot give a role that it does not have", by.name);
        return Err(Refusal::new(Reason::PermissionDenied, message));
    }
    Ok(roles)
}

/// Returns the lifetime of a token, milliseconds.
fn lifetime(asked: Option<&wire::Duration>, most: Duration) -> Result<u64, Refusal> {
    let lifetime = match asked {
        None => DEFAULT_LIFETIME.min(most),
        Some(asked) => {
            let lifetime = duration_from_wire(asked).filter(|lifetime| *lifetime <= most);
            lifetime.ok_or_else(|| {
                let message = format!("must be positive and at most {} s, as configured", most.as_secs());
                Refusal::invalid("lifetime", message)
            })?
        }
    };
    Ok(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX))
}

fn parse_network(text: &str) -> Result<IpNet, Refusal> {
    let network =
        text.parse::<IpNet>().or_else(|_| text.parse().map(|address: std::net::IpAddr| address.into()));
    let message =
        || Refusal::invalid("token.source_networks", "must be addresses or networks, such as 10.0.0.0/8");
    network.map(|network| network.trunc()).map_err(|_| message())
}

fn to_wire(token: ApiToken) -> v1::Token {
    let time = |at: UnixMillis| Some(at.to_wire());
    v1::Token {
        token_id: token.id.to_string(),
        name: token.name,
        roles: token.roles.names().into_iter().map(str::to_owned).collect(),
        profiles: token.profiles,
        run_ids: token.runs.iter().map(ToString::to_string).collect(),
        source_networks: token.networks.iter().map(ToString::to_string).collect(),
        expires_at: time(token.expires_at),
        created_by: token.created_by,
        created_at: time(token.created_at),
        revoked_by: token.ended.as_ref().map(|ended| ended.by.clone()).unwrap_or_default(),
        revoked_at: token.ended.and_then(|ended| time(ended.at)),
    }
}
