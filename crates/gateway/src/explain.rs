//! Explains the decision that a call would get, and everything that was considered for it. No permit or approval is
//! made, and no call is counted.

use operations::Operation;

use crate::decision::{Decision, Refusal};
use crate::gateway::Gateway;
use crate::permission::{Question, refusal, weigh};
use crate::ruling::Ruling;
use crate::validate::validate;
use policy::{Caller, Policy, RunScope, Terms, Verdict};

/// The check that considered a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The call has to be well-formed and within the profile's bounds.
    Validation,
    /// Profile, role, teams, permissions and command rules.
    Permission,
}

impl Stage {
    /// Returns the name used in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::Permission => "permission",
        }
    }
}

/// One rule that applies to the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Considered {
    /// The check that the rule belongs to.
    pub stage: Stage,
    /// Name of the rule, as in decisions.
    pub rule: String,
    pub verdict: Verdict,
    pub justification: String,
    /// This rule decides.
    pub decides: bool,
}

/// The decision that a call would get, and its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The decision, or the refusal that the agent would get.
    pub outcome: Result<Decision, Refusal>,
    /// Every rule that applies, in the order of the checks.
    pub considered: Vec<Considered>,
    /// Terms of the approval, if the call needs consent.
    pub terms: Option<Terms>,
}

impl Explanation {
    /// Returns the verdict of the decision.
    pub fn verdict(&self) -> Verdict {
        self.outcome.as_ref().map_or(Verdict::Deny, |decision| decision.verdict)
    }

    /// Returns the rule that decides.
    pub fn rule(&self) -> &str {
        self.outcome.as_ref().map_or_else(|refusal| &refusal.rule, |decision| &decision.rule)
    }
}

impl Gateway {
    /// Returns the answer of [`Gateway::admit`] to this call under `policy` and the permissions in force now.
    ///
    /// Rate limits and measures of alerts are left out: they depend on other events.
    pub fn explain(
        &self,
        policy: &Policy,
        run: &RunScope,
        caller: &Caller,
        operation: &Operation,
    ) -> Explanation {
        let refused = |refused: Refusal| {
            let considered = Considered {
                stage: Stage::Validation,
                rule: refused.rule.clone(),
                verdict: Verdict::Deny,
                justification: refused.message.clone(),
                decides: true,
            };
            Explanation { outcome: Err(refused), considered: vec![considered], terms: None }
        };
        if let Some(profile) = policy.profile(&run.profile)
            && let Err(invalid) = validate(profile, operation)
        {
            return refused(refusal(policy, invalid.reason, invalid.message, "validation"));
        }
        let permissions = self.permissions();
        let now = self.now();
        let question =
            Question { policy, permissions: &permissions, now, profile: &run.profile, caller, operation };
        let weighed = match weigh(&question) {
            Ok(weighed) => weighed,
            Err(unknown) => return refused(unknown),
        };
        let decisive = weighed.decisive();
        let shown = |(index, ruling): (usize, &Ruling<'_>)| Considered {
            stage: Stage::Permission,
            rule: ruling.rule(),
            verdict: ruling.verdict,
            justification: ruling.justification(),
            decides: Some(index) == decisive,
        };
        let mut considered: Vec<Considered> = weighed.rulings.iter().enumerate().map(shown).collect();
        considered.extend(weighed.beside.iter().map(|applied| Considered {
            stage: Stage::Permission,
            rule: format!("profile {}: {}", run.profile, applied.rule),
            verdict: applied.verdict,
            justification: applied.justification.clone(),
            decides: false,
        }));
        let outcome = weighed.decide(policy);
        let asks = outcome.as_ref().ok().filter(|decision| decision.verdict == Verdict::Ask);
        let terms = asks
            .zip(policy.profile(&run.profile))
            .map(|(decision, profile)| profile.approvals.terms(decision.risk, operation));
        Explanation { outcome, considered, terms }
    }
}
