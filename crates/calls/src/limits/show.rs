//! Serves `GetRateLimits` and `ThrottleAgent`.

use std::collections::BTreeSet;
use std::time::Duration;

use gateway::limits::concurrency::{Count, Reservations, Together};
use gateway::limits::{Agent, Scope, Throttle, Usage};
use identity::{Principal, RunId};
use operations::Reason;
use policy::Caps;
use refusal::Refusal;
use runs::Runs;
use serde_json::json;
use timestamp::{UnixMillis, duration_from_wire};
use wire::v1;

use super::Limits;

/// The longest throttle.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3_600);
const MAX_REASON: usize = 1_024;

/// Returns the used and the remaining part of each limit, for a run or an agent.
pub fn show(
    limits: &Limits,
    runs: &Runs,
    principal: &Principal,
    request: &v1::GetRateLimitsRequest,
) -> Result<v1::GetRateLimitsResponse, Refusal> {
    let (profile, owner, agent, run) = match (request.run_id.as_str(), request.agent_id.as_str()) {
        ("", "") => return Err(Refusal::invalid("run_id", "give a run, or an agent")),
        ("", agent) => {
            identity::check_client_name("agent_id", agent)?;
            let of_agent = |record: &runs::record::Record| {
                record.spec.agent_id == agent
                    && !record.state.has_ended()
                    && record.spec.principal == principal.name
            };
            let newest = runs.list().into_iter().find(of_agent);
            let profile = newest.map_or_else(|| "strict".to_owned(), |record| record.spec.profile);
            (profile, principal.name.clone(), agent.to_owned(), None)
        }
        (run, "") => {
            let record = runs.shown_to(RunId::parse(run)?, principal)?;
            let run = record.id.to_string();
            (record.spec.profile, record.spec.principal, record.spec.agent_id, Some(run))
        }
        _ => return Err(Refusal::invalid("agent_id", "give a run or an agent, not both")),
    };
    let policy = limits.gateway.policy();
    let Some(in_force) = policy.profile(&profile) else {
        return Err(Refusal::new(
            Reason::PreconditionFailed,
            format!("the policy no longer has the profile `{profile}`"),
        ));
    };
    let counters = limits.counters();
    let usages = counters.usages(&in_force.rate_limits, &owner, &agent, run.as_deref());
    let whose = Agent { principal: owner.clone(), id: agent.clone() };
    let throttles = counters.throttles().into_iter().filter(|(throttled, ..)| *throttled == whose);
    Ok(v1::GetRateLimitsResponse {
        profile,
        limits: usages.iter().map(limit).collect(),
        throttles: throttles.map(|(agent, _, throttle)| throttle_to_wire(agent, throttle)).collect(),
        concurrency: at_once(&limits.reservations, run.as_deref(), &owner, &in_force.concurrency),
    })
}

/// Returns the numbers of calls that run and wait now, with their limits.
fn at_once(
    reservations: &Reservations,
    run: Option<&str>,
    principal: &str,
    caps: &Caps,
) -> Vec<v1::ConcurrencyLimit> {
    let shown = |scope: Together, Count { running, waiting }, limit, max_waiting| v1::ConcurrencyLimit {
        scope: scope.as_str().to_owned(),
        running,
        limit,
        waiting,
        max_waiting,
    };
    let may_wait = |calls: u32| if caps.wait_s == 0 { 0 } else { calls };
    let (all, whole) = reservations.of_all();
    let of_run =
        run.map(|run| shown(Together::Run, reservations.of_run(run), caps.run, may_wait(caps.waiting)));
    let of_principal = reservations.of_principal(principal);
    of_run
        .into_iter()
        .chain([
            shown(Together::Principal, of_principal, caps.principal, may_wait(caps.principal)),
            shown(Together::Daemon, all, whole.running, whole.waiting),
        ])
        .collect()
}

/// Throttles an agent, or lifts its throttle.
pub async fn throttle_agent(
    limits: &Limits,
    runs: &Runs,
    principal: &Principal,
    request: v1::ThrottleAgentRequest,
) -> Result<v1::ThrottleAgentResponse, Refusal> {
    let v1::ThrottleAgentRequest { agent_id, principal: of, per_minute, duration, reason } = request;
    if agent_id.is_empty() {
        return Err(Refusal::invalid("agent_id", "is missing"));
    }
    identity::check_client_name("agent_id", &agent_id)?;
    identity::check_principal_name("principal", &of)?;
    if reason.chars().count() > MAX_REASON {
        return Err(Refusal::invalid("reason", format!("must be at most {MAX_REASON} characters")));
    }
    let cause = json!({ "reason": reason });
    let agent = whose(limits, runs, agent_id, of)?;
    let duration = match duration.filter(|duration| duration.seconds != 0 || duration.nanos != 0) {
        None => {
            limits.lift(&agent, cause, &principal.name).await?;
            return Ok(v1::ThrottleAgentResponse { throttle: None });
        }
        Some(duration) => duration_from_wire(&duration).filter(|duration| *duration <= LONGEST),
    };
    let Some(duration) = duration else {
        return Err(Refusal::invalid("duration", "must be more than zero and at most 30 days"));
    };
    let throttle = Throttle { per_minute, until: UnixMillis::now().after(duration) };
    let in_force = limits.throttle(&agent, throttle, cause, &principal.name).await?;
    Ok(v1::ThrottleAgentResponse { throttle: Some(throttle_to_wire(agent, in_force)) })
}

/// Returns the agent that an operator means: the named principal's, or the only one of this name that has a living run or is
/// throttled.
///
/// Refuses a name that fits no agent, or more than one.
fn whose(limits: &Limits, runs: &Runs, id: String, principal: String) -> Result<Agent, Refusal> {
    if !principal.is_empty() {
        return Ok(Agent { principal, id });
    }
    let records = runs.list().into_iter();
    let living = records.filter(|record| record.spec.agent_id == id && !record.state.has_ended());
    let throttled = limits.counters().throttles().into_iter().filter(|(agent, ..)| agent.id == id);
    let mut principals: BTreeSet<String> = living.map(|record| record.spec.principal).collect();
    principals.extend(throttled.map(|(agent, ..)| agent.principal));
    match (principals.pop_first(), principals.pop_first()) {
        (Some(principal), None) => Ok(Agent { principal, id }),
        (None, _) => {
            let message = "no agent of this name has a live run: name its owner with `principal`";
            Err(Refusal::new(Reason::NotFound, message).with("resource", "agent"))
        }
        (Some(one), Some(other)) => Err(Refusal::new(
            Reason::PreconditionFailed,
            format!(
                "several principals have an agent of this name, such as {one} and {other}: name one with \
                 `principal`"
            ),
        )),
    }
}

fn throttle_to_wire(agent: Agent, throttle: Throttle) -> v1::Throttle {
    let Agent { principal, id } = agent;
    v1::Throttle {
        agent_id: id,
        principal,
        per_minute: throttle.per_minute,
        until: Some(throttle.until.to_wire()),
    }
}

fn limit(usage: &Usage) -> v1::RateLimit {
    use v1::rate_limit::Scope as Wire;
    let (scope, name) = match &usage.scope {
        Scope::Operation { operation, .. } => (Wire::Operation, operation),
        Scope::Run(run) => (Wire::Run, run),
        Scope::Principal(principal) => (Wire::Principal, principal),
        Scope::Throttled(agent) => (Wire::Throttle, &agent.id),
    };
    let windows = usage.windows.iter().map(|window| v1::RateWindow {
        length: Some(wire::duration(Duration::from_millis(window.span.millis()))),
        limit: window.limit.calls(),
        used: window.used,
        room_at: window.room_at.map(UnixMillis::to_wire),
        empty_at: window.empty_at.map(UnixMillis::to_wire),
    });
    v1::RateLimit { scope: scope.into(), name: name.clone(), windows: windows.collect() }
}
