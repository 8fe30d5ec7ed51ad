//! The second check: the verdicts of profile, role, teams and run-time permissions on an operation. The strictest
//! decides; unknown operations are denied.
//!
//! [`weigh`] is the one place that judges this. A decision uses it, an explanation shows all of it, and a proposed
//! policy is tried with it.

use jail::{RootMode, SandboxPath};
use operations::{Operation, Reason};
use timestamp::UnixMillis;

use crate::decision::{Decision, Refusal};
use crate::exec::{self, Applied, ExecRuling};
use crate::grants::{Holders, Permissions, Standing};
use crate::risk::risk_of;
use crate::ruling::{Holder, How, Ruling, Says};
use policy::{Caller, Grant, Policy, Profile, Risk, Role, Team, Verdict, paths};
use text::excerpt;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'q> {
    pub(crate) policy: &'q Policy,
    pub(crate) permissions: &'q Permissions,
    pub(crate) now: UnixMillis,
    pub(crate) profile: &'q str,
    pub(crate) caller: &'q Caller,
    pub(crate) operation: &'q Operation,
}

/// All rulings on a call.
#[derive(Debug)]
pub(crate) struct Weighed<'q> {
    /// The rulings that determine the verdict. Among equally strict ones the last decides, because it is the most
    /// specific.
    pub(crate) rulings: Vec<Ruling<'q>>,
    /// Command rules that apply too, but do not decide among the command rules.
    pub(crate) beside: Vec<Applied>,
    pub(crate) risk: Risk,
    /// The paths that a command reads, if it is known to do nothing else.
    pub(crate) reads: Vec<SandboxPath>,
}

impl Weighed<'_> {
    /// Returns the index of the ruling that decides.
    pub(crate) fn decisive(&self) -> Option<usize> {
        let strictest = self.rulings.iter().map(|ruling| ruling.verdict).max()?;
        self.rulings.iter().rposition(|ruling| ruling.verdict == strictest)
    }

    /// Returns true if a rule for paths asks.
    pub(crate) fn asks_for_path(&self) -> bool {
        self.rulings
            .iter()
            .any(|ruling| ruling.verdict == Verdict::Ask && matches!(ruling.says, Says::Path { .. }))
    }

    /// Returns the decision, whose verdict is `allow` or `ask`, or the refusal.
    pub(crate) fn decide(mut self, policy: &Policy) -> Result<Decision, Refusal> {
        let Some(decisive) = self.decisive() else {
            return Err(refusal(policy, Reason::PermissionDenied, "no rule applies".to_owned(), "none"));
        };
        let ruling = self.rulings.swap_remove(decisive);
        if ruling.verdict == Verdict::Deny {
            let refused = refusal(policy, ruling.reason(), ruling.message(), &ruling.rule());
            return Err(Refusal { not_held: ruling.says.is_not_held(), ..refused });
        }
        Ok(Decision {
            verdict: ruling.verdict,
            rule: ruling.rule(),
            risk: self.risk,
            policy_digest: policy.digest().to_owned(),
            justification: ruling.justification(),
        })
    }
}

/// A verdict and its source.
type Said<'q> = (Verdict, Says<'q>);

/// Most rulings on a call: risk, consent, role, profile, command, paths.
const RULINGS: usize = 6;

/// Collects all rulings on a call. An unknown profile or role is refused.
pub(crate) fn weigh<'q>(question: &Question<'q>) -> Result<Weighed<'q>, Refusal> {
    let Question { policy, operation, caller, .. } = *question;
    let Some(profile) = policy.profile(question.profile) else {
        let message = format!("no such profile: `{}`", excerpt(question.profile));
        return Err(refusal(policy, Reason::NotFound, message, "profile"));
    };
    let Some(role) = policy.role(&caller.role) else {
        let message = format!("the role `{}` is not in the policy", excerpt(&caller.role));
        return Err(refusal(policy, Reason::PermissionDenied, message, "role"));
    };
    let command = exec::judge_operation(profile, operation);
    let reads = command.as_ref().and_then(|ruling| ruling.reads.as_deref());
    let read_only = reads.is_some();
    let read = reads.unwrap_or_default().to_vec();
    let risk = risk_of(profile, operation, reads);
    let teams: Vec<(&str, &Team)> = policy.teams_of(&caller.agent_id).collect();
    let standing = standing(question, &teams, read_only);
    let standing = match profile.root {
        RootMode::ReadOnly => standing,
        RootMode::WritableLayer => standing.without_commands(),
    };

    let of_role = of_holder(question, (profile, role, &teams), &standing, read_only);
    let of_profile = of_profile(profile, question.profile, operation);
    // A refusal of the operation hides rulings on the script: "not this command" would invite the agent to try another.
    let no_operation = of_role.0 == Verdict::Deny || of_profile.0 == Verdict::Deny;
    let command = command.filter(|_| !no_operation || operation.command().is_some());
    let beside = command.as_ref().map_or_else(Vec::new, |ruling| {
        ruling.applied.iter().filter(|applied| applied.rule != ruling.rule).cloned().collect()
    });
    let ruling = |(verdict, says)| Ruling { verdict, operation: operation.name(), says };
    let mut rulings = Vec::with_capacity(RULINGS);
    rulings.extend(of_consent(profile, &caller.role, role, risk).map(ruling));
    rulings.extend([of_role, of_profile].map(ruling));
    rulings.extend(command.map(|command| ruling(of_command(question.profile, command))));
    // Preapproval answers the rulings that would ask, not those that deny.
    if let Some(given) = standing.given.filter(|given| given.preapproved) {
        for ruling in rulings.iter_mut().filter(|ruling| ruling.verdict == Verdict::Ask) {
            ruling.preapprove(given.clone());
        }
    }
    // Preapproval does not answer rules for paths. If the agent does not hold the operation, that is the better reason.
    if let Some((number, rule, path)) = paths::judge(&profile.paths, operation, &read) {
        let says = Says::Path { profile: question.profile, number, justification: &rule.justification, path };
        let at = if no_operation { 0 } else { rulings.len() };
        rulings.insert(at, ruling((rule.decision, says)));
    }
    // The ruling on risk comes first, so that it decides only if no other ruling asks.
    rulings.splice(0..0, of_risk(risk).map(ruling));
    Ok(Weighed { rulings, beside, risk, reads: read })
}

pub(crate) fn refusal(policy: &Policy, reason: Reason, message: String, rule: &str) -> Refusal {
    Refusal {
        reason,
        message,
        rule: rule.to_owned(),
        retry_after: None,
        not_held: false,
        policy_digest: policy.digest().to_owned(),
    }
}

fn standing(question: &Question<'_>, teams: &[(&str, &Team)], read_only: bool) -> Standing {
    let Question { permissions, now, caller, operation, .. } = *question;
    let teams = teams.iter().map(|(name, _)| *name);
    let holders = Holders { agent: &caller.agent_id, role: &caller.role, teams };
    permissions.standing(holders, operation, read_only, now)
}

/// Returns the verdict on the operations that the agent holds.
///
/// It holds them by its role, its teams and by grants, unless the operation is denied to it or was revoked.
fn of_holder<'q>(
    question: &Question<'q>,
    (profile, role, teams): (&Profile, &Role, &[(&'q str, &Team)]),
    standing: &Standing,
    read_only: bool,
) -> Said<'q> {
    let (name, operation) = (question.caller.role.as_str(), question.operation.name());
    if let Some(taken) = &standing.taken {
        return (Verdict::Deny, Says::Revoked(taken.clone()));
    }
    if role.denies(operation, read_only) {
        return (Verdict::Deny, Says::RoleDenies(name));
    }
    if let Some((team, _)) = teams.iter().find(|(_, team)| team.denies(operation, read_only)) {
        return (Verdict::Deny, Says::TeamDenies(team));
    }

    let of_role = role.grant(operation, read_only).map(|grant| (grant, Holder::Role(name)));
    let of_teams =
        teams.iter().filter_map(|(team, of)| Some((of.grant(operation, read_only)?, Holder::Team(team))));
    let given = standing.given.as_ref().map(|given| (Grant::AsProfile, Holder::Permission(given.clone())));
    // The role if it suffices, then teams, then grants.
    let best = of_role
        .into_iter()
        .chain(of_teams)
        .chain(given)
        .reduce(|best, next| if next.0 > best.0 { next } else { best });
    match best {
        None => (Verdict::Deny, Says::NotHeld(name)),
        Some((Grant::AsProfile, holder)) => (Verdict::Allow, Says::Held(holder, How::AsProfile)),
        Some((Grant::Ask, holder)) if profile.unattended => {
            (Verdict::Allow, Says::Held(holder, How::Unattended))
        }
        Some((Grant::Ask, holder)) => (Verdict::Ask, Says::Held(holder, How::WithConsent)),
    }
}

fn of_profile<'q>(profile: &'q Profile, name: &'q str, operation: &'q Operation) -> Said<'q> {
    let operation = operation.name();
    let (key, verdict) = profile.operation(operation).unwrap_or((operation, Verdict::Deny));
    (verdict, Says::Profile { name, key })
}

fn of_command(profile: &str, ruling: ExecRuling) -> Said<'_> {
    (ruling.verdict, Says::Command { profile, ruling: Box::new(ruling) })
}

/// Asks for consent to a risky call if the role requires that, unless the profile is unattended.
fn of_consent<'q>(profile: &Profile, name: &'q str, role: &Role, risk: Risk) -> Option<Said<'q>> {
    let from = role.consent_from.filter(|from| !profile.unattended && risk >= *from)?;
    Some((Verdict::Ask, Says::ConsentFrom { role: name, from, risk }))
}

/// Asks for consent to every critical call.
fn of_risk(risk: Risk) -> Option<Said<'static>> {
    (risk == Risk::Critical).then_some((Verdict::Ask, Says::Critical))
}
