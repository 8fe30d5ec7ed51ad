//! `coffer workspace list`.

use clap::Args;
use wire::v1::{KeptWorkspace, ListWorkspacesRequest, ListWorkspacesResponse};

use crate::client::{Client, Context, MORE, pages};
use crate::failure::{Ended, Failure};
use crate::output::Output;
use crate::{ids, quantity, time};

const PAGE: u32 = 1000;

/// List the directories that the daemon keeps, newest first.
///
/// Managed and cloned workspaces stay until they are deleted, also after their runs are deleted. The changes of an
/// overlay stay until they are accepted or discarded.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer workspace list --size")]
pub(crate) struct List {
    /// Also measure the size of each directory, which takes a while.
    #[arg(long)]
    size: bool,
    /// Maximum number of workspaces.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let all = {
            let _spinner = context.ui.spinner("reading the workspaces…");
            all(&client, self.limit, self.size).await?
        };
        context.ui.answer_and_talk(all, |all, page, talk| {
            render(&all.workspaces, &time::now(), self.size, page);
            if all.workspaces.is_empty() {
                talk.own("no workspaces\n");
            } else if !all.next_page_token.is_empty() {
                talk.own(MORE);
            }
        })
    }
}

/// Returns up to `limit` workspaces.
pub(super) async fn all(
    client: &Client,
    limit: usize,
    measure: bool,
) -> Result<ListWorkspacesResponse, Failure> {
    let (workspaces, next_page_token) = pages(limit, PAGE, async |page_size, page_token| {
        let request = ListWorkspacesRequest { page_size, page_token, measure };
        let page = client.runs().list_workspaces(request).await?.into_inner();
        Ok((page.workspaces, page.next_page_token))
    })
    .await?;
    Ok(ListWorkspacesResponse { workspaces, next_page_token })
}

fn render(workspaces: &[KeptWorkspace], now: &wire::Timestamp, size: bool, page: &mut Output) {
    if workspaces.is_empty() {
        return;
    }
    let mut header = vec!["WORKSPACE", "KIND", "MADE BY", "USED BY", "AGE", "PATH"];
    if size {
        header.insert(5, "SIZE");
    }
    let end = ids::ends(workspaces.iter().map(|workspace| workspace.workspace_id.as_str()));
    let rows = workspaces.iter().map(|workspace| row(workspace, end(&workspace.workspace_id), now, size));
    page.table(&header, rows);
}

fn row(workspace: &KeptWorkspace, end: String, now: &wire::Timestamp, size: bool) -> Vec<String> {
    let mut row = vec![
        end,
        workspace.kind.clone(),
        workspace.principal.clone(),
        ids::or_dash(ids::short(&workspace.used_by)),
        time::span(workspace.created_at.as_ref(), Some(now)),
        workspace.path.clone(),
    ];
    if size {
        row.insert(5, workspace.size_bytes.map_or_else(|| "?".into(), quantity::bytes));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_workspace() {
        let workspace = KeptWorkspace {
            workspace_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            kind: "managed".into(),
            principal: "uid:0".into(),
            created_at: Some(wire::Timestamp { seconds: 1000, nanos: 0 }),
            path: "/var/lib/w".into(),
            used_by: "0198a1b2-0000-7000-8000-00000000bbbb".into(),
            size_bytes: Some(2048),
            repository: String::new(),
        };
        let now = wire::Timestamp { seconds: 1090, nanos: 0 };
        let mut page = Output::new(Look::PIPE);
        render(&[workspace], &now, true, &mut page);
        let lines: Vec<Vec<&str>> = page
            .as_str()
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1][1..4], ["managed", "uid:0", "0000bbbb"]);
        assert_eq!(lines[1].last(), Some(&"/var/lib/w"));
    }

    #[test]
    fn no_workspaces_no_header() {
        let mut page = Output::new(Look::PIPE);
        render(&[], &wire::Timestamp::default(), true, &mut page);
        assert_eq!(page.as_str(), "");
    }
}
