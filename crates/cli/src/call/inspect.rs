//! `coffer call show` and `coffer call cancel`: calls by their id, also after their client has gone.

use clap::Args;
use wire::v1::{CancelCallRequest, GetCallRequest, Timings};

use super::{outcome, select};
use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::{ids, time};

/// Show the outcome of a call; exits with the code of its command, or as `call read` does.
///
/// 0: the call succeeded, or runs. 1: it failed. 3: it was denied. 4: it waits for an approval. A command or script
/// without an exit code has these codes, too.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call show 2e3f4a5b")]
pub(crate) struct Show {
    /// The call's id, or its end.
    #[arg(value_name = "CALL", value_parser = ids::part)]
    call: String,
}

/// Cancel a pending or running call.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call cancel 2e3f4a5b")]
pub(crate) struct Cancel {
    /// The call's id, or its end.
    #[arg(value_name = "CALL", value_parser = ids::part)]
    call: String,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request =
            GetCallRequest { call_id: select::resolve(&client, &self.call).await?, ..Default::default() };
        let response = client.tools().get_call(quick(request)).await?.into_inner();
        let call = response.call.unwrap_or_default();
        if let Some(timings) = call.timings.as_ref().filter(|_| !context.ui.is_structured()) {
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
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request = CancelCallRequest { call_id: select::resolve(&client, &self.call).await? };
        let response = client.tools().cancel_call(quick(request)).await?.into_inner();
        context.ui.answer(response, |response, page| {
            page.own(if response.cancelled { "cancelled\n" } else { "the call had already ended\n" });
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_shown_by_its_parts() {
        let timings = Timings { queue_us: 5, policy_us: 80, audit_us: 1500, execution_us: 2_000_000 };
        assert_eq!(spent(&timings), "queue 5 µs, policy 80 µs, audit 1 ms, execution 2.0 s");
    }
}
