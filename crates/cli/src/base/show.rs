//! `coffer base show`.

use clap::Args;
use wire::v1::GetBaseRequest;

use super::resolve;
use crate::client::Context;
use crate::failure::Ended;
use crate::{ids, quantity, time};

/// Show a base: its source, its digest and the runs that need it.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer base show 3f2a9c01")]
pub(crate) struct Show {
    /// The base's id, or a unique beginning or end of it.
    #[arg(value_name = "BASE")]
    base: String,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request = GetBaseRequest { base_id: resolve(&client, &self.base).await? };
        let got = client.bases().get_base(request).await?.into_inner();
        context.ui.answer(got, |got, page| {
            let base = got.base.unwrap_or_default();
            let users: Vec<&str> = base.used_by.iter().map(|run| ids::short(run)).collect();
            page.facts(&[
                ("base", base.base_id.clone()),
                ("made by", base.principal.clone()),
                ("made at", time::moment(base.created_at.as_ref())),
                ("last used", time::moment(base.used_at.as_ref())),
                ("source", super::source(&base)),
                ("digest", format!("sha256:{}", base.digest)),
                ("size", quantity::bytes(base.size_bytes)),
                ("files", base.files.to_string()),
                ("left out", base.left_out.to_string()),
                ("state", super::state(&base).to_owned()),
                ("runs", ids::or_dash(&users.join(", "))),
            ]);
        })
    }
}
