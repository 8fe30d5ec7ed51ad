//! `coffer workspace show`.

use clap::Args;
use wire::v1::KeptWorkspace;

use super::list;
use crate::client::Context;
use crate::failure::Ended;
use crate::output::Output;
use crate::{ids, quantity, time};

/// Show a directory that the daemon keeps.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer workspace show 3f2a9c01 --size")]
pub(crate) struct Show {
    /// The workspace: its id, or a unique beginning or end of it.
    #[arg(value_name = "WORKSPACE", value_parser = ids::part)]
    workspace: String,
    /// Also measure its size, with that of all other workspaces, which takes a while.
    #[arg(long)]
    size: bool,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let known = {
            let _spinner = context.ui.spinner("reading the workspaces…");
            list::all(&client, super::MOST, self.size).await?.workspaces
        };
        let workspace =
            ids::find(known, |workspace| &workspace.workspace_id, &self.workspace, "workspace", super::LIST)?;
        context.ui.answer(workspace, |workspace, page| render(&workspace, page))
    }
}

fn render(workspace: &KeptWorkspace, page: &mut Output) {
    page.facts(&[
        ("workspace", workspace.workspace_id.clone()),
        ("kind", workspace.kind.clone()),
        ("repository", workspace.repository.clone()),
        ("path", workspace.path.clone()),
        ("size", workspace.size_bytes.map(quantity::bytes).unwrap_or_default()),
        ("made by", workspace.principal.clone()),
        ("used by", workspace.used_by.clone()),
        ("created", time::known(workspace.created_at.as_ref())),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn facts_of_a_workspace_are_shown() {
        let workspace = KeptWorkspace {
            workspace_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            kind: "clone".into(),
            repository: "/srv/a".into(),
            principal: "uid:0".into(),
            path: "/var/lib/w".into(),
            size_bytes: Some(2048),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&workspace, &mut page);
        assert_eq!(
            page.as_str(),
            "workspace   0198a1b2-0000-7000-8000-00000000aaaa\n\
             kind        clone\n\
             repository  /srv/a\n\
             path        /var/lib/w\n\
             size        2.0 KiB\n\
             made by     uid:0\n"
        );
    }
}
