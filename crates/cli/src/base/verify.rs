//! `coffer base verify`.

use clap::Args;
use wire::v1::VerifyBaseRequest;

use super::resolve;
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Ended;

/// Read all files of a base and compare them with its digest; exits with 1 if the host has changed them.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer base verify 3f2a9c01")]
pub(crate) struct Verify {
    /// The base's id, or a unique beginning or end of it.
    #[arg(value_name = "BASE")]
    base: String,
}

impl Verify {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request = VerifyBaseRequest { base_id: resolve(&client, &self.base).await? };
        let verdict = context.ui.wait("verifying…", client.bases().verify_base(request)).await?;
        let exit = if verdict.intact { Exit::Ok } else { Exit::Failed };
        context.ui.answer(verdict, |verdict, page| {
            if verdict.intact {
                page.own("intact\n");
                return;
            }
            page.own("CHANGED on the host: no run begins on it; make a new base and delete this one\n");
            let digest = verdict.base.unwrap_or_default().digest;
            page.facts(&[("recorded", digest), ("now", verdict.digest), ("failure", verdict.failure)]);
        })?;
        Ok(exit)
    }
}
