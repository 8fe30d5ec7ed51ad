//! `coffer call show` and `coffer call cancel`: calls by their id, also when their client has gone.

use clap::Args;
use wire::v1::{CancelCallRequest, GetCallRequest, Timings};

use super::outcome;
use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{ids, time};

/// Show what became of a call, with the exit code that the call itself would have given.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call show 0198a1b2-3c4d-7e5f-8a9b-0c1d2e3f4a5b")]
pub(crate) struct Show {
    /// The call's id.
    #[arg(value_name = "CALL", value_parser = whole_id)]
    call: String,
}

/// Cancel a call that waits or runs.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call cancel 0198a1b2-3c4d-7e5f-8a9b-0c1d2e3f4a5b")]
pub(crate) struct Cancel {
    /// The call's id.
    #[arg(value_name = "CALL", value_parser = whole_id)]
    call: String,
}

pub(super) fn whole_id(text: &str) -> Result<String, String> {
    if ids::is_whole(text) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a call is named by its whole id, as `coffer audit tail --output json` shows it".into())
    }
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let client = context.connect().await?;
        let request = GetCallRequest { call_id: self.call, ..Default::default() };
        let response = client.tools().get_call(quick(request)).await?.into_inner();
        let call = response.call.unwrap_or_default();
        if let Some(timings) = call.timings.as_ref().filter(|_| !context.ui.is_json()) {
            context.ui.note(&format!("{}: {}", call.status().as_str_name(), spent(timings)));
        }
        outcome::show(context.ui, &call)
    }
}

fn spent(timings: &Timings) -> String {
    let micros = |us| time::brief(std::time::Duration::from_micros(us));
    format!(
        "queue {}, policy {}, audit {}, execution {}",
        micros(timings.queue_us),
        micros(timings.policy_us),
        micros(timings.audit_us),
        micros(timings.execution_us)
    )
}

impl Cancel {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let client = context.connect().await?;
        let request = CancelCallRequest { call_id: self.call };
        let response = client.tools().cancel_call(quick(request)).await?.into_inner();
        if context.ui.is_json() {
            context.ui.json(&response)?;
        } else {
            let mut page = context.ui.page();
            page.own(if response.cancelled { "cancelled\n" } else { "it was over already\n" });
            context.ui.show(&page)?;
        }
        Ok(Exit::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_named_whole() {
        assert!(whole_id("0198A1B2-3c4d-7e5f-8a9b-0c1d2e3f4a5b").is_ok());
        assert!(whole_id("0198a1b2").is_err());
    }

    #[test]
    fn says_where_the_time_went() {
        let timings = Timings { queue_us: 5, policy_us: 80, audit_us: 1500, execution_us: 2_000_000 };
        assert_eq!(spent(&timings), "queue 5 µs, policy 80 µs, audit 1 ms, execution 2.0 s");
    }
}
