//! `coffer base delete`.

use clap::Args;
use wire::v1::DeleteBaseRequest;

use super::resolve;
use crate::client::Context;
use crate::ending::Ending;
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
        let mut ending = Ending::new(context.ui, "baseId", "deleted");
        for base in &self.bases {
            let _spinner = context.ui.spinner("deleting the base…");
            let deleted = async {
                let base_id = resolve(&client, base).await?;
                client.bases().delete_base(DeleteBaseRequest { base_id: base_id.clone() }).await?;
                Ok(base_id)
            };
            ending.tell(deleted.await)?;
        }
        ending.exit()
    }
}
