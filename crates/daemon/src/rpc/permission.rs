//! Serves `PermissionService`, and translates permissions between the API's form and the gateway's.

use std::sync::Arc;

use audit_service::AuditLog;
use gateway::{Effect, Gateway, PathPattern, Permission, Scope, Subject};
use identity::{PermissionId, Principal};
use policy::{Policy, paths::ProfilePathRule};
use refusal::Refusal;
use timestamp::UnixMillis;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use wire::v1::permission_service_server::PermissionService;
use wire::v1::{self, permission as wire_permission};

use super::{portion, principal};
use calls::grants::Grants;

const MAX_PAGE: u32 = 1_000;

pub(crate) struct Service {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) audit: Arc<AuditLog>,
    /// Runs changes to their end even if the client leaves: a recorded change takes effect.
    pub(crate) tasks: TaskTracker,
}

enum Change {
    Add(Box<Permission>),
    End(String, Effect, String),
}

impl Service {
    /// Returns the change that adds a grant or a revocation.
    fn added(
        &self,
        permission: v1::Permission,
        effect: Effect,
        principal: &Principal,
    ) -> Result<Change, Refusal> {
        has_no_secret(&self.audit, &permission)?;
        Ok(Change::Add(Box::new(from_wire(permission, effect, principal)?)))
    }

    async fn make(&self, change: Change, principal: &Principal) -> Result<v1::Permission, Refusal> {
        let (grants, audit, name) = (self.grants.clone(), self.audit.clone(), principal.name.clone());
        let made = self.tasks.spawn(async move {
            // A reason is stored and shown.
            let hidden = |text: &str| audit.redactor().whole(text).0;
            match change {
                Change::Add(permission) => {
                    let reason = hidden(&permission.reason);
                    grants.add(Permission { reason, ..*permission }).await
                }
                Change::End(id, effect, reason) => grants.end(&id, effect, &name, &hidden(&reason)).await,
            }
        });
        let permission = made.await.map_err(|error| Refusal::internal("changing a permission", &error))??;
        Ok(to_wire(permission))
    }
}

#[tonic::async_trait]
impl PermissionService for Service {
    async fn grant_permission(
        &self,
        request: Request<v1::GrantPermissionRequest>,
    ) -> Result<Response<v1::GrantPermissionResponse>, Status> {
        use v1::grant_permission_request::What;
        let principal = principal(&request)?;
        let request = request.into_inner();
        let change = match request.what.ok_or_else(|| missing("permission or lift_permission_id"))? {
            What::Permission(permission) => self.added(permission, Effect::Grant, &principal)?,
            What::LiftPermissionId(id) => Change::End(id, Effect::Revocation, request.reason),
        };
        let permission = self.make(change, &principal).await?;
        Ok(Response::new(v1::GrantPermissionResponse { permission: Some(permission) }))
    }

    async fn revoke_permission(
        &self,
        request: Request<v1::RevokePermissionRequest>,
    ) -> Result<Response<v1::RevokePermissionResponse>, Status> {
        use v1::revoke_permission_request::What;
        let principal = principal(&request)?;
        let request = request.into_inner();
        let change = match request.what.ok_or_else(|| missing("permission or permission_id"))? {
            What::Permission(permission) => self.added(permission, Effect::Revocation, &principal)?,
            What::PermissionId(id) => Change::End(id, Effect::Grant, request.reason),
        };
        let permission = self.make(change, &principal).await?;
        Ok(Response::new(v1::RevokePermissionResponse { permission: Some(permission) }))
    }

    async fn list_permissions(
        &self,
        request: Request<v1::ListPermissionsRequest>,
    ) -> Result<Response<v1::ListPermissionsResponse>, Status> {
        let request = request.into_inner();
        let parse = |token: &str| PermissionId::parse(token).ok().map(|id| id.to_string());
        let (size, before) = portion::page(request.page_size, MAX_PAGE, &request.page_token, parse)?;
        let permissions = self.grants.list(before, request.include_ended, size + 1).await?;
        let mut permissions = permissions.into_iter().map(to_wire).collect();
        let more = portion::cut(&mut permissions, size);
        let next_page_token =
            permissions.last().filter(|_| more).map(|last| last.permission_id.clone()).unwrap_or_default();
        let path_rules =
            if request.page_token.is_empty() { path_rules(&self.gateway.policy()) } else { Vec::new() };
        Ok(Response::new(v1::ListPermissionsResponse { permissions, next_page_token, path_rules }))
    }
}

/// Returns the path rules of all profiles.
fn path_rules(policy: &Policy) -> Vec<v1::ProfilePathRule> {
    let of = |name: &str| {
        let rules = policy.profile(name).map_or(&[][..], |profile| &profile.paths);
        rules.iter().enumerate().map(|(number, rule)| rule_to_wire(name, number, rule)).collect::<Vec<_>>()
    };
    policy.profile_names().flat_map(of).collect()
}

fn rule_to_wire(profile: &str, number: usize, rule: &ProfilePathRule) -> v1::ProfilePathRule {
    let texts = |patterns: &[PathPattern]| patterns.iter().map(ToString::to_string).collect();
    v1::ProfilePathRule {
        profile: profile.to_owned(),
        rule: format!("paths[{number}]"),
        decision: rule.decision.as_str().to_owned(),
        path: texts(&rule.paths.path),
        except: texts(&rule.paths.except),
        access: rule.paths.access.as_str().to_owned(),
        justification: rule.justification.clone(),
    }
}

/// Refuses a permission with a secret in its command or path.
///
/// These are stored, listed and recorded unchanged. With a part redacted, the permission would be for something else.
fn has_no_secret(audit: &AuditLog, permission: &v1::Permission) -> Result<(), Refusal> {
    let redactor = audit.redactor();
    let words = |words: &[String]| redactor.value(&mut serde_json::json!([words, words.join(" ")]));
    for (field, secrets) in [
        ("command_prefix", words(&permission.command_prefix)),
        ("path_pattern", words(std::slice::from_ref(&permission.path_pattern))),
    ] {
        if secrets > 0 {
            let message =
                "contains what looks like a password or token, which would be stored and shown: leave it out";
            return Err(Refusal::invalid(field, message));
        }
    }
    Ok(())
}

fn missing(what: &str) -> Refusal {
    Refusal::invalid("what", format!("is missing: one of {what}"))
}

/// Parses a permission without its id, which it gets when it is given.
fn from_wire(
    permission: v1::Permission,
    effect: Effect,
    principal: &Principal,
) -> Result<Permission, Refusal> {
    use wire_permission::Subject as Asked;
    let subject = match permission
        .subject
        .ok_or_else(|| Refusal::invalid("permission", "has no holder: name one of agent_id, role, team"))?
    {
        Asked::AgentId(name) => Subject::Agent(name),
        Asked::Role(name) => Subject::Role(name),
        Asked::Team(name) => Subject::Team(name),
    };
    let path = match permission.path_pattern.as_str() {
        "" => None,
        text => Some(PathPattern::parse(text).map_err(|bad| Refusal::invalid("path_pattern", bad))?),
    };
    let expires_at = permission.expires_at.as_ref().map(moment).transpose()?;
    Ok(Permission {
        id: String::new(),
        effect,
        subject,
        scope: Scope {
            operation: Some(permission.operation).filter(|operation| !operation.is_empty()),
            path,
            command: permission.command_prefix,
        },
        preapproved: permission.preapproved,
        reason: permission.reason,
        by: principal.name.clone(),
        at: UnixMillis::now(),
        expires_at,
        ended: None,
    })
}

fn moment(at: &wire::Timestamp) -> Result<UnixMillis, Refusal> {
    UnixMillis::from_wire(at)
        .ok_or_else(|| Refusal::invalid("expires_at", "must be a time in the years 1970 to 9999"))
}

fn to_wire(permission: Permission) -> v1::Permission {
    use wire_permission::Subject as Named;
    let in_force = permission.is_in_force(UnixMillis::now());
    let at = UnixMillis::to_wire;
    let Permission { id, effect, subject, scope, preapproved, reason, by, at: made, expires_at, ended } =
        permission;
    let (ended_by, ended_at, ended_reason) =
        ended.map_or_else(Default::default, |ended| (ended.by, Some(at(ended.at)), ended.reason));
    v1::Permission {
        permission_id: id,
        effect: match effect {
            Effect::Grant => wire_permission::Effect::Grant,
            Effect::Revocation => wire_permission::Effect::Revocation,
        }
        .into(),
        subject: Some(match subject {
            Subject::Agent(name) => Named::AgentId(name),
            Subject::Role(name) => Named::Role(name),
            Subject::Team(name) => Named::Team(name),
        }),
        operation: scope.operation.unwrap_or_default(),
        path_pattern: scope.path.map(String::from).unwrap_or_default(),
        command_prefix: scope.command,
        preapproved,
        reason,
        expires_at: expires_at.map(at),
        created_by: by,
        created_at: Some(at(made)),
        ended_by,
        ended_at,
        ended_reason,
        in_force,
    }
}
