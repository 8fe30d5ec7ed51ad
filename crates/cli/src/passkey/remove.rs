//! `coffer passkey remove`.

use clap::Args;
use wire::v1::RemovePasskeyRequest;

use super::list;
use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::ids;

/// End a passkey. Its owner can then register another without it. Prints the passkey's id.
///
/// For operators on the Unix socket or with a client certificate.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer passkey remove 9c01d4e2")]
pub(crate) struct Remove {
    /// The passkey: its id, or a unique beginning or end of it.
    #[arg(value_name = "PASSKEY", value_parser = ids::part)]
    id: String,
}

impl Remove {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let known = list::all(&client).await?.into_iter().map(|one| (list::id(&one), one)).collect();
        let (_, passkey) = ids::find(known, |(id, _)| id, &self.id, "passkey", "coffer passkey list")?;
        let request = RemovePasskeyRequest { credential_id: passkey.credential_id };
        let removed = client.passkeys().remove_passkey(quick(request)).await?.into_inner();
        context.ui.answer(removed.passkey.unwrap_or_default(), |passkey, page| {
            page.word(&list::id(&passkey)).end_line();
        })
    }
}
