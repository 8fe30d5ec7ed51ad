//! `ExplainPolicy`: a call that is judged and not made.

use calls::verdict;
use gateway::{Caller, Explanation, Gateway, RunScope};
use identity::{Principal, RunId};
use refusal::Refusal;
use runs::Runs;
use wire::v1;

/// What the policy in force says to a call in a run that the principal may look at.
pub(super) fn explain(
    gateway: &Gateway,
    runs: &Runs,
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
    Ok(to_wire(explanation, policy.digest(), operation.name()))
}

fn to_wire(explanation: Explanation, digest: &str, operation: &str) -> v1::ExplainPolicyResponse {
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
