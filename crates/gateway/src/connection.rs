//! Approvals of connections that leave a run, and of pushes of git over them.
//!
//! A connection is no call: no client can ask for one, and it has no permit. Its approval has the same states, votes and times as that of a
//! call. It is redeemed once, for all connections to the same host and port that wait.

use std::collections::BTreeSet;
use std::time::Duration;

use operations::Reason;
use timestamp::UnixMillis;

use crate::approvals::{Approval, ApprovalState, FORMAT, PermitState, expiry};
use crate::binding::Encoder;
use crate::decision::Refusal;
use crate::gateway::Gateway;
use crate::permission::refusal;
use policy::{Caller, DecisionTime, Form, Risk, RunScope, Terms};

/// Name of the operation in approvals and records. No call has it.
pub const CONNECT: &str = "connect";

/// Name of the operation of a push that a program makes over a connection. No call has it.
pub const PUSH: &str = "push";

/// A connection that needs consent, or a push over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// The run's owner, agent and role.
    pub caller: Caller,
    pub run: RunScope,
    /// Canonical name, or an address.
    pub host: String,
    pub port: u16,
    /// `HTTPS`, `HTTP` or `TCP`.
    pub scheme: String,
    /// Methods that a request over HTTP may have; `None` is every method.
    pub methods: Option<BTreeSet<String>>,
    /// The rule that asks, such as `egress rule 2: *.example.net`.
    pub rule: String,
    /// Companion of the run whose program wants it; `None` for a program of the run itself. Consent covers no other's.
    pub companion: Option<String>,
    /// The push, if consent is for one. It covers no other.
    pub push: Option<BoundPush>,
}

/// A push that consent is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundPush {
    /// Path of the repository.
    pub repository: String,
    /// Refs, ids and options, one fact a line.
    pub statement: String,
}

/// The part of a connection that reviewers see. Secrets are hidden already.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectReview {
    /// The connection as JSON.
    pub operation_json: String,
    /// The connection and the commands that were running, in words.
    pub preview: String,
}

impl Approval {
    /// Returns true if the approval is of a connection or of a push over one, and not of a call.
    pub fn is_of_connection(&self) -> bool {
        self.operation == CONNECT || self.is_of_push()
    }

    /// Returns true if the approval is of a push over a connection.
    pub fn is_of_push(&self) -> bool {
        self.operation == PUSH
    }
}

impl Gateway {
    /// Makes an approval for a connection, as [`Self::prepare_approval`] does for a call.
    pub fn prepare_connection(
        &self,
        connect: &Connect,
        review: ConnectReview,
        longest: Option<Duration>,
    ) -> Result<Approval, Refusal> {
        let policy = self.policy();
        let Some(profile) = policy.profile(&connect.run.profile) else {
            let message = "the policy no longer has the profile of this run".to_owned();
            return Err(refusal(&policy, Reason::PermissionDenied, message, "profile"));
        };
        let terms = profile.approvals.terms_of_connection(Risk::High);
        let time = terms.decision_time(&connect.run.profile, longest);
        let approval = connect.approval(review, terms, time, policy.digest(), self.now());
        self.approvals().insert(approval, &policy)
    }

    /// Uses an approval that was given to this connection, once.
    ///
    /// The caller has to check that the rules for connections still do not deny it, and to store that the approval is spent.
    pub fn redeem_connection(&self, approval_id: &str, connect: &Connect) -> Result<(), Refusal> {
        let policy = self.policy();
        let mut approvals = self.approvals();
        approvals.redeemable(approval_id, ("", &connect.caller.run_id), &policy, self.now())?;
        let digest = connect.digest(policy.digest(), Some(approval_id));
        approvals.issue(approval_id, |_| digest, &policy).map(drop)
    }

    /// Cancels the approvals of connections that were asked for under another policy than the one in force.
    pub fn cancel_outdated_connections(&self) -> Vec<Approval> {
        let policy = self.policy();
        let is_outdated =
            |approval: &Approval| approval.is_of_connection() && approval.policy_digest != policy.digest();
        self.approvals().cancel(is_outdated, self.now())
    }
}

impl Connect {
    /// Returns the program that wants the connection, in words for a reviewer.
    pub fn program(&self) -> String {
        match &self.companion {
            None => "a program in the run".to_owned(),
            Some(name) => format!("a program in the run's companion {name}"),
        }
    }

    fn approval(
        &self,
        review: ConnectReview,
        terms: Terms,
        time: DecisionTime,
        policy_digest: &str,
        now: UnixMillis,
    ) -> Approval {
        let Self { caller, run, host, port, scheme, rule, companion, push, .. } = self;
        let whose = self.program();
        let justification = match push {
            None => format!("{whose} wants {host}:{port} over {scheme}"),
            Some(push) => format!("{whose} pushes to {} on {host}:{port}", push.repository),
        };
        // Consent to a push is for its ids, and the rules that would keep one to a connection are those of the run.
        let offers = match (push, companion) {
            (None, None) => terms.remember.into_iter().filter(|form| *form == Form::Digest).collect(),
            _ => Vec::new(),
        };
        let approval_id = node_id::new_id().to_string();
        Approval {
            format: FORMAT,
            state: ApprovalState::Pending,
            permit: PermitState::None,
            run_id: caller.run_id.clone(),
            call_id: String::new(),
            agent_id: caller.agent_id.clone(),
            role: caller.role.clone(),
            profile: run.profile.clone(),
            requested_by: caller.principal.clone(),
            operation: if push.is_some() { PUSH } else { CONNECT }.to_owned(),
            operation_json: review.operation_json,
            preview: review.preview,
            rule: format!("profile {}: {rule}", run.profile),
            justification,
            risk: Risk::High,
            digest: self.digest(policy_digest, Some(&approval_id)),
            policy_digest: policy_digest.to_owned(),
            created_at: now,
            expires_at: expiry(&time, now),
            time_from: time.from,
            reminded: false,
            remind: terms.remind,
            needed: terms.needed.max(1),
            level: terms.level,
            passkey: terms.passkey,
            votes: Vec::new(),
            freeze: false,
            offers,
            consent_digest: self.digest(policy_digest, None),
            argv: Vec::new(),
            files: Vec::new(),
            held: None,
            remembered: None,
            decided_by: None,
            decided_at: None,
            comment: String::new(),
            approval_id,
        }
    }

    /// Returns the digest over everything that consent covers. Without an approval it is that of every such connection of the run.
    fn digest(&self, policy_digest: &str, approval_id: Option<&str>) -> String {
        let Self { caller, run, host, port, scheme, methods, rule, companion, push } = self;
        let RunScope { profile, image_id } = run;
        let Caller { principal, agent_id, role, run_id } = caller;
        let mut bytes = Encoder::new();
        let is_of_one = approval_id.is_some();
        bytes.text(if is_of_one { "cofferdam connection 1" } else { "cofferdam remembered connection 1" });
        bytes.text(policy_digest);
        for text in [profile, image_id, principal, agent_id, role, run_id, host, scheme, rule] {
            bytes.text(text);
        }
        bytes.text(approval_id.unwrap_or_default());
        bytes.text(&port.to_string());
        bytes.length(methods.as_ref().map_or(usize::MAX, BTreeSet::len));
        for method in methods.iter().flatten() {
            bytes.text(method);
        }
        if let Some(name) = companion {
            bytes.text("companion");
            bytes.text(name);
        }
        if let Some(BoundPush { repository, statement }) = push {
            bytes.text("push");
            bytes.text(repository);
            bytes.text(statement);
        }
        bytes.finish()
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
