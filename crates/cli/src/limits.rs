//! `coffer limits`: the use of the rate limits; and `coffer throttle`.

use clap::Args;
use wire::v1::rate_limit::Scope;
use wire::v1::{GetRateLimitsRequest, GetRateLimitsResponse, RateLimit, ThrottleAgentRequest};

use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::output::Output;
use crate::run_ref::RunRef;
use crate::time;

/// Show the rate limits: calls made, calls that run now, and the maximum of each.
///
/// Each line is one window: how much of the limit is used, when a full window admits a call again, and when it is empty.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer limits 3f2a9c01")]
pub(crate) struct Limits {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", required_unless_present = "agent")]
    run: Option<RunRef>,
    /// Show the limits of this agent of yours instead, under the profile of its newest live run.
    #[arg(long, value_name = "AGENT", conflicts_with = "run")]
    agent: Option<String>,
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
    /// Maximum number of calls per minute, over all operations; 0 allows none.
    #[arg(long, value_name = "N", required_unless_present = "lift", default_value_t = 0)]
    per_minute: u32,
    /// Duration of the throttle, such as `90s`, `5m`, `2h`; at most 30 days.
    #[arg(long = "for", value_name = "TIME", required_unless_present = "lift", value_parser = time::parse)]
    duration: Option<std::time::Duration>,
    /// The reason, for the audit log.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// End the agent's throttle.
    #[arg(long, conflicts_with_all = ["per_minute", "duration"])]
    lift: bool,
}

impl Limits {
    pub(crate) async fn run(self, context: &Context) -> Ended {
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
    use wire::v1::{ConcurrencyLimit, RateWindow};

    use super::*;
    use crate::output::Look;

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
}
