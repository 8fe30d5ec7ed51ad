//! The options that select records. `tail`, `query` and `export` share them.

use clap::Args;
use fleet_view::is_of_one_node;
use jiff::Timestamp;
use wire::v1::EventFilter;

use crate::client::Client;
use crate::failure::Failure;
use crate::run_ref::{RunRef, one_or_all};
use crate::{approval, call, ids, time};

/// Options that select records. A record must match all of them.
#[derive(Args, Debug, Default)]
pub(super) struct Filter {
    /// Only records of this run.
    #[arg(long, value_name = "RUN", help_heading = "Which records")]
    run: Option<RunRef>,
    /// Only records of this call: its id, or the end of it.
    #[arg(long, value_name = "CALL", value_parser = ids::part, help_heading = "Which records")]
    call: Option<String>,
    /// Only records of this kind, such as call_receipt; can be repeated.
    #[arg(long = "kind", value_name = "KIND", help_heading = "Which records")]
    kinds: Vec<String>,
    /// Only records about this agent.
    #[arg(long, value_name = "AGENT", help_heading = "Which records")]
    agent: Option<String>,
    /// Only records of this principal, such as uid:1000.
    #[arg(long, value_name = "PRINCIPAL", help_heading = "Which records")]
    principal: Option<String>,
    /// Only records of this operation, such as write or git.commit.
    #[arg(long, value_name = "OPERATION", help_heading = "Which records")]
    operation: Option<String>,
    /// Only receipts of calls with this status.
    #[arg(
        long,
        value_name = "STATUS",
        value_parser = ["succeeded", "failed", "denied", "interrupted"],
        help_heading = "Which records"
    )]
    status: Option<String>,
    /// Only records with this reason, such as COMMAND_NOT_ALLOWED.
    #[arg(long, value_name = "REASON", help_heading = "Which records")]
    reason: Option<String>,
    /// Only records about this approval: its id, or a unique beginning or end of it.
    #[arg(long, value_name = "APPROVAL", help_heading = "Which records")]
    approval: Option<String>,
    /// Only records from this time on: 2026-01-31T12:00:00Z, or 2h for two hours ago.
    #[arg(long, value_name = "TIME", value_parser = moment, help_heading = "Which records")]
    from: Option<Timestamp>,
    /// Only records before this time.
    #[arg(long, value_name = "TIME", value_parser = moment, help_heading = "Which records")]
    until: Option<Timestamp>,
    /// Only records that contain this text; case is ignored.
    #[arg(long, value_name = "TEXT", help_heading = "Which records")]
    text: Option<String>,
}

impl Filter {
    pub(super) fn of_run(run: RunRef) -> Self {
        Self { run: Some(run), ..Self::default() }
    }

    /// Converts the options to the filter of the API. Asks the daemon only to complete a partial id.
    pub(super) async fn resolve(self, client: &Client) -> Result<EventFilter, Failure> {
        let run_id = one_or_all(self.run.as_ref(), client).await?;
        let call_id = match &self.call {
            Some(call) => call::resolve(client, call).await?,
            None => String::new(),
        };
        let approval_id = match &self.approval {
            Some(approval) => approval::resolve(client, approval).await?,
            None => String::new(),
        };
        Ok(EventFilter { run_id, call_id, approval_id, ..self.of_any() })
    }

    /// Converts the options to the filter of the API for all nodes of a fleet.
    pub(super) fn of_all_nodes(self) -> Result<EventFilter, Failure> {
        if self.run.is_some() || self.call.is_some() || self.approval.is_some() {
            return Err(is_of_one_node("a run, a call and an approval are"));
        }
        Ok(self.of_any())
    }

    /// Converts the options that name nothing of one daemon.
    fn of_any(self) -> EventFilter {
        let wire = |time: Timestamp| wire::Timestamp {
            seconds: time.as_second(),
            nanos: time.subsec_nanosecond().max(0),
        };
        EventFilter {
            kinds: self.kinds,
            agent_id: self.agent.unwrap_or_default(),
            principal: self.principal.unwrap_or_default(),
            operation: self.operation.unwrap_or_default(),
            status: self.status.unwrap_or_default(),
            reason: self.reason.unwrap_or_default(),
            from: self.from.map(wire),
            until: self.until.map(wire),
            text: self.text.unwrap_or_default(),
            ..EventFilter::default()
        }
    }
}

/// Parses a point in time, or the time that has passed since then.
fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(past) = time::parse(text) {
        return Timestamp::now().checked_sub(past).map_err(|error| error.to_string());
    }
    let wrong = "write a time as in 2026-01-31T12:00:00Z, or how long ago, as in 90s, 10m or 2h";
    text.parse().map_err(|_| wrong.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_given_or_past() {
        assert_eq!(moment("2026-01-31T12:00:00Z").unwrap().to_string(), "2026-01-31T12:00:00Z");
        let ago = Timestamp::now().duration_since(moment("2h").unwrap()).as_secs();
        assert!((7199..7300).contains(&ago), "{ago}");
        for wrong in ["yesterday", "12:00", "-2h", "99999999999h"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }
}
