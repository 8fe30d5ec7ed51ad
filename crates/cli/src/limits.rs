//! `coffer limits`: the use of the rate limits and of the bounds of tenants; and `coffer throttle`.

use clap::Args;
use wire::v1::rate_limit::Scope;
use wire::v1::resource_use::Resource;
use wire::v1::{
    GetRateLimitsRequest, GetRateLimitsResponse, GetTenantsRequest, GetTenantsResponse, RateLimit,
    ThrottleAgentRequest,
};

use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::output::Output;
use crate::run_ref::RunRef;
use crate::time;

/// Show limits and their use: of a run's or an agent's calls, or of tenants.
///
/// With a run or an agent, each line is one window of a rate limit: how much of it is used, when a full window admits a call
/// again, and when it is empty. Without either, each line is a bound of a tenant: the amount in use, the largest amount, and
/// the rest. Operators and auditors see all tenants, all others their own.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer limits\n         coffer limits 3f2a9c01")]
pub(crate) struct Limits {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: Option<RunRef>,
    /// Show the limits of this agent of yours instead, under the profile of its newest live run.
    #[arg(long, value_name = "AGENT", conflicts_with = "run")]
    agent: Option<String>,
    /// Show the tenant of this principal alone, such as `uid:1000`.
    #[arg(long, value_name = "PRINCIPAL", conflicts_with_all = ["run", "agent"])]
    tenant_of: Option<String>,
}

/// Limit an agent's calls for a time. For operators.
///
/// If the agent is already throttled, the lower rate and the later end apply. --lift ends the throttle.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer throttle alice --per-minute 5 --for 1h --reason 'runs in circles'")]
pub(crate) struct Throttle {
    /// The agent to throttle.
    #[arg(value_name = "AGENT")]
    agent: String,
    /// The agent's principal, such as `uid:1000`. Needed if agents of several principals have this name, or
    /// if the agent has no live run.
    #[arg(long, value_name = "PRINCIPAL", default_value = "", hide_default_value = true)]
    principal: String,
    /// Maximum number of calls per minute, over all operations; 0 allows none. Required without --lift.
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "lift",
        default_value_t = 0,
        hide_default_value = true
    )]
    per_minute: u32,
    /// Duration of the throttle, such as `90s`, `5m`, `2h`; at most 30 days. Required without --lift.
    #[arg(long = "for", value_name = "TIME", required_unless_present = "lift", value_parser = time::parse)]
    duration: Option<std::time::Duration>,
    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// End the agent's throttle.
    #[arg(long, conflicts_with_all = ["per_minute", "duration"])]
    lift: bool,
}

impl Limits {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        if self.run.is_none() && self.agent.is_none() {
            let request = GetTenantsRequest { principal: self.tenant_of.unwrap_or_default() };
            let client = context.connect().await?;
            let response = client.limits().get_tenants(quick(request)).await?.into_inner();
            return context.ui.answer(response, |response, page| render_tenants(&response, page));
        }
        let (client, run_id) = context.connect_to(self.run.as_ref()).await?;
        let request = GetRateLimitsRequest { run_id, agent_id: self.agent.unwrap_or_default() };
        let response = client.limits().get_rate_limits(quick(request)).await?.into_inner();
        context.ui.answer(response, |response, page| render(&response, &time::now(), page))
    }
}

impl Throttle {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request = ThrottleAgentRequest {
            agent_id: self.agent.clone(),
            principal: self.principal,
            per_minute: self.per_minute,
            duration: self.duration.filter(|_| !self.lift).map(wire::duration),
            reason: self.reason,
        };
        let response = client.limits().throttle_agent(quick(request)).await?.into_inner();
        context.ui.answer(response, |response, page| {
            if let Some(throttle) = response.throttle {
                let until = time::moment(throttle.until.as_ref());
                page.own("throttled ").word(&throttle.agent_id).own(" of ").word(&throttle.principal);
                page.own(" to ").word(&throttle.per_minute.to_string()).own(" a minute until ").word(&until);
            } else {
                page.own("not throttled ").word(&self.agent);
            }
            page.end_line();
        })
    }
}

fn render(response: &GetRateLimitsResponse, now: &wire::Timestamp, page: &mut Output) {
    page.facts(&[("profile", response.profile.clone())]);
    let rows = response.limits.iter().flat_map(|limit| rows(limit, now));
    page.table(&["SCOPE", "WINDOW", "USED", "LIMIT", "NEXT IN", "EMPTY IN"], rows);
    for throttle in &response.throttles {
        page.own("throttled: ").word(&throttle.agent_id).own(" to ");
        page.word(&throttle.per_minute.to_string()).own(" a minute until ");
        page.word(&time::moment(throttle.until.as_ref())).end_line();
    }
    if !response.concurrency.is_empty() {
        page.own("\n");
        let rows = response.concurrency.iter().map(|cap| {
            let mut row = vec![cap.scope.clone()];
            row.extend([cap.running, cap.limit, cap.waiting, cap.max_waiting].map(|count| count.to_string()));
            row
        });
        page.table(&["AT ONCE", "RUNNING", "LIMIT", "WAITING", "LIMIT"], rows);
    }
}

/// Shows each bound, and amounts in use that have none.
fn render_tenants(response: &GetTenantsResponse, page: &mut Output) {
    let mut rows = Vec::new();
    for tenant in &response.tenants {
        for one in &tenant.resources {
            if one.limit.is_none() && one.used == Some(0) {
                continue;
            }
            let left = one.used.zip(one.limit).map(|(used, limit)| limit.saturating_sub(used));
            let shown = |number: Option<u64>, absent: &str| {
                number.map_or_else(|| absent.to_owned(), |number| number.to_string())
            };
            let bound = one.limit.map_or("-", |_| tenant.section.as_str());
            rows.push(vec![
                tenant.tenant.clone(),
                bound.to_owned(),
                named(one.resource()).to_owned(),
                shown(one.used, "unknown"),
                shown(one.limit, "-"),
                shown(left, "-"),
            ]);
        }
    }
    if rows.is_empty() {
        page.own("no tenant has bounds or uses anything (section `tenants` of the policy)").end_line();
        return;
    }
    page.table(&["TENANT", "BOUNDS OF", "RESOURCE", "USED", "LIMIT", "LEFT"], rows);
    for tenant in response.tenants.iter().filter(|tenant| !tenant.groups.is_empty()) {
        page.word(&tenant.tenant).own(" has the members of ").word(&tenant.groups.join(", ")).end_line();
    }
    if response.left_out > 0 {
        page.own("and ")
            .word(&response.left_out.to_string())
            .own(" tenants more: see one with --tenant-of")
            .end_line();
    }
}

/// Returns the name of a resource with its unit.
fn named(resource: Resource) -> &'static str {
    match resource {
        Resource::Unspecified => "?",
        Resource::Runs => "runs",
        Resource::MemoryMib => "memory, MiB",
        Resource::CpuMillis => "processor, thousandths",
        Resource::DiskMib => "disk, MiB",
        Resource::EgressMibToday => "egress today, MiB",
        Resource::PoolLastMinute => "pool, last minute",
    }
}

fn rows(limit: &RateLimit, now: &wire::Timestamp) -> Vec<Vec<String>> {
    let name = match limit.scope() {
        Scope::Operation => limit.name.clone(),
        Scope::Run => "run".to_owned(),
        Scope::Principal => format!("principal {}", limit.name),
        Scope::Throttle => "throttle".to_owned(),
        Scope::Unspecified => "?".to_owned(),
    };
    let windows = limit.windows.iter().filter(|window| window.used > 0 || window.limit.is_some());
    windows
        .map(|window| {
            let length = match window.length.as_ref().map_or(0, |length| length.seconds) {
                60 => "minute",
                3_600 => "hour",
                86_400 => "day",
                _ => "?",
            };
            vec![
                name.clone(),
                length.to_owned(),
                window.used.to_string(),
                window.limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string()),
                time::span(Some(now), window.room_at.as_ref()),
                time::span(Some(now), window.empty_at.as_ref()),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use wire::v1::{ConcurrencyLimit, RateWindow, ResourceUse, TenantUse};

    use super::*;
    use crate::output::Look;

    #[test]
    fn a_throttle_has_a_rate_and_a_time_unless_it_is_lifted() {
        let is_whole = |line: &str| crate::cli::Cli::tree().try_get_matches_from(line.split(' ')).is_ok();
        assert!(
            is_whole("coffer throttle a --per-minute 0 --for 1h") && is_whole("coffer throttle a --lift")
        );
        for line in ["", " --for 1h", " --per-minute 0", " --per-minute 0 --for 1h --lift"] {
            assert!(!is_whole(&format!("coffer throttle a{line}")), "{line}");
        }
    }

    #[test]
    fn a_line_a_window() {
        let at = |seconds| Some(wire::Timestamp { seconds, nanos: 0 });
        let window = |length, limit, used, free, empty| RateWindow {
            length: Some(wire::Duration { seconds: length, nanos: 0 }),
            limit,
            used,
            room_at: free,
            empty_at: empty,
        };
        let limit =
            |scope: Scope, name: &str, windows| RateLimit { scope: scope.into(), name: name.into(), windows };
        let response = GetRateLimitsResponse {
            profile: "strict".into(),
            limits: vec![
                limit(
                    Scope::Operation,
                    "read",
                    vec![
                        window(60, Some(30), 30, at(1_012), at(1_050)),
                        window(3_600, Some(500), 31, None, at(4_000)),
                    ],
                ),
                limit(
                    Scope::Principal,
                    "uid:0",
                    vec![window(86_400, None, 31, None, at(4_000)), window(60, None, 0, None, None)],
                ),
            ],
            concurrency: vec![ConcurrencyLimit {
                scope: "run".into(),
                running: 8,
                limit: 8,
                waiting: 3,
                max_waiting: 64,
            }],
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&response, &wire::Timestamp { seconds: 1_000, nanos: 0 }, &mut page);
        assert_eq!(
            page.as_str(),
            "profile  strict\n\
             SCOPE            WINDOW  USED  LIMIT  NEXT IN  EMPTY IN\n\
             read             minute  30    30     12.0 s   50.0 s\n\
             read             hour    31    500    -        50m 0s\n\
             principal uid:0  day     31    -      -        50m 0s\n\
             \n\
             AT ONCE  RUNNING  LIMIT  WAITING  LIMIT\n\
             run      8        8      3        64\n"
        );
    }

    #[test]
    fn a_line_a_bound_of_a_tenant() {
        let one = |resource: Resource, used, limit| ResourceUse { resource: resource.into(), used, limit };
        let tenant = |tenant: &str, section: &str, resources| TenantUse {
            tenant: tenant.into(),
            section: section.into(),
            resources,
            groups: Vec::new(),
        };
        let mut response = GetTenantsResponse {
            tenants: vec![
                tenant(
                    "ml",
                    "ml",
                    vec![
                        one(Resource::Runs, Some(3), Some(2)),
                        one(Resource::MemoryMib, Some(512), None),
                        one(Resource::DiskMib, Some(0), None),
                        one(Resource::EgressMibToday, None, Some(9)),
                    ],
                ),
                tenant("uid:7", "default", vec![one(Resource::Runs, Some(0), Some(4))]),
            ],
            left_out: 2,
        };
        response.tenants[0].groups = vec!["corp:ml".into(), "lab:ml".into()];
        let mut page = Output::new(Look::PIPE);
        render_tenants(&response, &mut page);
        assert_eq!(
            page.as_str(),
            "TENANT  BOUNDS OF  RESOURCE           USED     LIMIT  LEFT\n\
             ml      ml         runs               3        2      0\n\
             ml      -          memory, MiB        512      -      -\n\
             ml      ml         egress today, MiB  unknown  9      -\n\
             uid:7   default    runs               0        4      4\n\
             ml has the members of corp:ml, lab:ml\n\
             and 2 tenants more: see one with --tenant-of\n"
        );
        response.tenants.clear();
        let mut page = Output::new(Look::PIPE);
        render_tenants(&response, &mut page);
        assert!(page.as_str().starts_with("no tenant has bounds"));
    }
}
