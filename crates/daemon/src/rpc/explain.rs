//! Serves `ExplainPolicy`: judges a call without making it.

use calls::{Approvals, verdict};
use gateway::{Explanation, Gateway};
use identity::{Principal, RunId};
use policy::{Caller, DecisionTime, RunScope};
use refusal::Refusal;
use runs::Runs;
use wire::v1;

/// Returns the decision of the policy in force on a call, in a run that the principal may see.
pub(super) fn explain(
    (gateway, runs, approvals): (&Gateway, &Runs, &Approvals),
    principal: &Principal,
    request: v1::ExplainPolicyRequest,
) -> Result<v1::ExplainPolicyResponse, Refusal> {
    let call = request.call.ok_or_else(|| Refusal::invalid("call", "is missing"))?;
    let record = runs.shown_to(RunId::parse(&call.run_id)?, principal)?;
    let policy = gateway.policy();
    let limits = policy.profile(&record.spec.profile).map(calls::limits).unwrap_or_default();
    let operation = calls::operation(call, &limits, &policy)?;
    let image_id = record.started.as_ref().map(|started| started.image_id.clone()).unwrap_or_default();
    let scope = RunScope { profile: record.spec.profile.clone(), image_id };
    let caller = Caller {
        principal: principal.name.clone(),
        agent_id: record.spec.agent_id.clone(),
        role: record.spec.role.clone(),
        run_id: record.id.to_string(),
    };
    let explanation = gateway.explain(&policy, &scope, &caller, &operation);
    let time = explanation.terms.as_ref().map(|terms| approvals.decision_time(terms, &scope.profile));
    Ok(to_wire(explanation, time, policy.digest(), operation.name()))
}

fn to_wire(
    explanation: Explanation,
    time: Option<DecisionTime>,
    digest: &str,
    operation: &str,
) -> v1::ExplainPolicyResponse {
    let verdict = verdict(explanation.verdict());
    let considered = explanation
        .considered
        .into_iter()
        .map(|considered| v1::ConsideredRule {
            stage: considered.stage.as_str().to_owned(),
            rule: considered.rule,
            verdict: calls::verdict(considered.verdict).into(),
            justification: considered.justification,
            decides: considered.decides,
        })
        .collect();
    let mut response = v1::ExplainPolicyResponse {
        verdict: verdict.into(),
        policy_digest: digest.to_owned(),
        considered,
        operation: operation.to_owned(),
        decision_time: time.as_ref().map(|decision| wire::duration(decision.time)),
        decision_time_from: time.map(|decision| decision.from).unwrap_or_default(),
        ..Default::default()
    };
    match explanation.outcome {
        Ok(decision) => {
            response.rule = decision.rule;
            response.justification = decision.justification;
            decision.risk.as_str().clone_into(&mut response.risk);
        }
        Err(refusal) => {
            response.rule = refusal.rule;
            response.justification = refusal.message;
            refusal.reason.as_str().clone_into(&mut response.reason);
        }
    }
    response
}
