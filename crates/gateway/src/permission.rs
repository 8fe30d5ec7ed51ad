//! The second check: the word of profile, role, teams, and permissions given at run time on an operation. The
//! strictest wins; unknown is denied.
//!
//! [`weigh`] is the one place that judges this. A decision uses it, an explanation shows all of it, and a proposed
//! policy is tried with it.

use jail::SandboxPath;
use ops::{Operation, Reason};

use crate::caller::Caller;
use crate::clock::UnixMillis;
use crate::decision::{Decision, Refusal, Risk, Verdict};
use crate::exec::{self, Applied, ExecRuling};
use crate::grants::{Holders, Permissions, Standing};
use crate::policy::{Grant, Policy, Profile, Role, RootMode, Team, paths};
use crate::risk::risk_of;
use crate::ruling::{Holder, How, Ruling, Says};
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

/// Everything that was said to a call.
#[derive(Debug)]
pub(crate) struct Weighed<'q> {
    /// What has a say in the verdict; of equally strict ones the last decides, for it is the most telling.
    pub(crate) rulings: Vec<Ruling<'q>>,
    /// What applies as well, and is looser than one of the same kind.
    pub(crate) beside: Vec<Applied>,
    pub(crate) risk: Risk,
    /// What a command reads that is known to do nothing else.
    pub(crate) reads: Vec<SandboxPath>,
}

impl Weighed<'_> {
    /// Which of the rulings decides.
    pub(crate) fn decisive(&self) -> Option<usize> {
        let strictest = self.rulings.iter().map(|ruling| ruling.verdict).max()?;
        self.rulings.iter().rposition(|ruling| ruling.verdict == strictest)
    }

    /// True if a rule for paths asks.
    pub(crate) fn asks_for_path(&self) -> bool {
        self.rulings
            .iter()
            .any(|ruling| ruling.verdict == Verdict::Ask && matches!(ruling.says, Says::Path { .. }))
    }

    /// The decision. Its verdict is never `deny`.
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

/// A verdict, and what it rests on.
type Said<'q> = (Verdict, Says<'q>);

/// Most that have a say: risk, consent, role, profile, command, paths.
const RULINGS: usize = 6;

/// Hears everything that has a say. An unknown profile or role is refused.
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
    let command = match operation {
        Operation::Exec(exec) => Some(exec::judge(profile, exec)),
        Operation::Shell(shell) => exec::judge_script(profile, shell),
        Operation::Process(process) => exec::judge_process(profile, process),
        Operation::Session(session) => exec::judge_session(profile, session),
        _ => None,
    };
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
    // Nothing in a script matters to one who may run none: "not this command" would invite to try another.
    let no_operation = of_role.0 == Verdict::Deny || of_profile.0 == Verdict::Deny;
    let no_script = no_operation
        && matches!(operation, Operation::Shell(_) | Operation::Process(_) | Operation::Session(_));
    let command = command.filter(|_| !no_script);
    let beside = command.as_ref().map_or_else(Vec::new, |ruling| {
        ruling.applied.iter().filter(|applied| applied.rule != ruling.rule).cloned().collect()
    });
    let ruling = |(verdict, says)| Ruling { verdict, operation: operation.name(), says };
    let mut rulings = Vec::with_capacity(RULINGS);
    rulings.extend(of_consent(profile, &caller.role, role, risk).map(ruling));
    rulings.extend([of_role, of_profile].map(ruling));
    rulings.extend(command.map(|command| ruling(of_command(question.profile, command))));
    // Consent that was given beforehand. It speaks to those that would ask, not to those that deny.
    if let Some(given) = standing.given.filter(|given| given.preapproved) {
        for ruling in rulings.iter_mut().filter(|ruling| ruling.verdict == Verdict::Ask) {
            ruling.preapprove(given.clone());
        }
    }
    // Consent that was given beforehand does not speak to these. An operation that is not held is the better reason.
    if let Some((number, rule, path)) = paths::judge(&profile.paths, operation, &read) {
        let says = Says::Path { profile: question.profile, number, justification: &rule.justification, path };
        let at = if no_operation { 0 } else { rulings.len() };
        rulings.insert(at, ruling((rule.decision, says)));
    }
    // First, so that it decides only where nothing else asks.
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

/// What the agent holds, by its role, its teams and by grants, less what is denied to it or was revoked.
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
    // The role where it is enough, then teams, then grants.
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

/// A role that has much may have to ask for what is risky, where somebody watches.
fn of_consent<'q>(profile: &Profile, name: &'q str, role: &Role, risk: Risk) -> Option<Said<'q>> {
    let from = role.consent_from.filter(|from| !profile.unattended && risk >= *from)?;
    Some((Verdict::Ask, Says::ConsentFrom { role: name, from, risk }))
}

/// Nothing critical runs without consent, whatever allows it.
fn of_risk(risk: Risk) -> Option<Said<'static>> {
    (risk == Risk::Critical).then_some((Verdict::Ask, Says::Critical))
}
