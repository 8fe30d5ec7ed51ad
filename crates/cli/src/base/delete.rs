//! `coffer base delete`.

use clap::Args;
use wire::v1::DeleteBaseRequest;

use super::resolve;
use crate::client::Context;
use crate::ending::each;
use crate::failure::Ended;

/// Delete bases that no run needs.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer base delete 3f2a9c01")]
pub(crate) struct Delete {
    /// The bases' ids, or unique beginnings or ends of them.
    #[arg(value_name = "BASE", required = true)]
    bases: Vec<String>,
}

impl Delete {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        each(context.ui, "baseId", ("deleting the base…", "deleted"), &self.bases, async |base| {
            let base_id = resolve(&client, base).await?;
            client.bases().delete_base(DeleteBaseRequest { base_id: base_id.clone() }).await?;
            Ok(base_id)
        })
        .await
    }
}
