//! `coffer checkpoint list`.

use clap::Args;
use wire::v1::{ListCheckpointsRequest, ListCheckpointsResponse, RunCheckpoint};

use crate::client::{Client, Context, MORE, pages};
use crate::failure::{Ended, Failure};
use crate::output::Output;
use crate::run_ref::RunRef;
use crate::{ids, quantity, time};

const PAGE: u32 = 500;

/// List checkpoints, newest first.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer checkpoint list --run 3f2a9c01")]
pub(crate) struct List {
    /// Only those of this run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(long, value_name = "RUN")]
    run: Option<RunRef>,
    /// Maximum number of checkpoints.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let run = match &self.run {
            Some(run) => run.resolve(&client).await?,
            None => String::new(),
        };
        context.ui.answer_and_talk(all(&client, &run, self.limit).await?, |all, page, talk| {
            render(&all.checkpoints, &time::now(), page);
            if all.checkpoints.is_empty() {
                talk.own("no checkpoints\n");
            } else if !all.next_page_token.is_empty() {
                talk.own(MORE);
            }
        })
    }
}

/// Returns up to `limit` checkpoints of a run, or of all runs if it is empty.
pub(super) async fn all(
    client: &Client,
    run: &str,
    limit: usize,
) -> Result<ListCheckpointsResponse, Failure> {
    let (checkpoints, next_page_token) = pages(limit, PAGE, async |page_size, page_token| {
        let request = ListCheckpointsRequest { page_size, page_token, run_id: run.to_owned() };
        let page = client.checkpoints().list_checkpoints(request).await?.into_inner();
        Ok((page.checkpoints, page.next_page_token))
    })
    .await?;
    Ok(ListCheckpointsResponse { checkpoints, next_page_token })
}

fn render(checkpoints: &[RunCheckpoint], now: &wire::Timestamp, page: &mut Output) {
    if checkpoints.is_empty() {
        return;
    }
    let end = ids::ends(checkpoints.iter().map(|checkpoint| checkpoint.checkpoint_id.as_str()));
    let rows = checkpoints.iter().map(|checkpoint| {
        vec![
            end(&checkpoint.checkpoint_id),
            ids::short(&checkpoint.run_id).to_owned(),
            checkpoint.made_by.clone(),
            quantity::bytes(checkpoint.size_bytes),
            time::span(checkpoint.created_at.as_ref(), Some(now)),
            ids::or_dash(&checkpoint.label),
        ]
    });
    page.table(&["CHECKPOINT", "RUN", "MADE BY", "SIZE", "AGE", "LABEL"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_checkpoint() {
        let checkpoint = RunCheckpoint {
            checkpoint_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            run_id: "0198a1b2-0000-7000-8000-00000000bbbb".into(),
            made_by: "uid:0".into(),
            created_at: Some(wire::Timestamp { seconds: 1000, nanos: 0 }),
            label: "turn 3".into(),
            size_bytes: 2048,
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&[checkpoint], &wire::Timestamp { seconds: 1090, nanos: 0 }, &mut page);
        let line = page.as_str().lines().nth(1).unwrap();
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!((cells[0], cells[2]), ("0000aaaa", "uid:0"));
        assert_eq!(cells.last(), Some(&"turn 3"));
        let mut empty = Output::new(Look::PIPE);
        render(&[], &wire::Timestamp::default(), &mut empty);
        assert_eq!(empty.as_str(), "");
    }
}
