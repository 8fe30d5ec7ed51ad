//! Finds the run or the checkpoint from which forks are made.

use command_context::client::{Client, pages, quick};
use command_context::run_ref::{RunRef, all_runs};
use presentation::failure::Failure;
use presentation::ids;
use tonic::Code;
use wire::v1::fork_run_request::Origin;
use wire::v1::run::State;
use wire::v1::{GetRunCheckpointRequest, ListCheckpointsRequest};

use crate::MOST_RUNS;

/// Number of checkpoints that are searched for a partial id.
const MOST_CHECKPOINTS: usize = 100_000;
const PAGE: u32 = 500;

/// Returns the run or the checkpoint that the command line names.
pub(crate) async fn find(named: &RunRef, client: &Client) -> Result<Origin, Failure> {
    match named {
        RunRef::Environment => named.resolve(client).await.map(Origin::RunId),
        RunRef::Id(id) => {
            let request = GetRunCheckpointRequest { checkpoint_id: id.clone() };
            match client.checkpoints().get_run_checkpoint(quick(request)).await {
                Ok(_) => Ok(Origin::CheckpointId(id.clone())),
                // The daemon says so if it is no run either.
                Err(status) if status.code() == Code::NotFound => Ok(Origin::RunId(id.clone())),
                Err(status) => Err(status.into()),
            }
        }
        RunRef::Part(part) => {
            let runs = all_runs(client, MOST_RUNS, State::Unspecified).await?.runs;
            let runs: Vec<String> = runs.into_iter().map(|run| run.run_id).collect();
            pick(&runs, &checkpoints(client).await?, part)
        }
    }
}

fn pick(runs: &[String], checkpoints: &[String], part: &str) -> Result<Origin, Failure> {
    let known = runs.iter().chain(checkpoints).map(String::as_str);
    let id = ids::pick(known, part, "run or checkpoint", "coffer run list")?.to_owned();
    Ok(if checkpoints.contains(&id) { Origin::CheckpointId(id) } else { Origin::RunId(id) })
}

async fn checkpoints(client: &Client) -> Result<Vec<String>, Failure> {
    let (found, _) = pages(MOST_CHECKPOINTS, PAGE, async |page_size, page_token| {
        let request = ListCheckpointsRequest { page_size, page_token, run_id: String::new() };
        let page = client.checkpoints().list_checkpoints(quick(request)).await?.into_inner();
        Ok((page.checkpoints, page.next_page_token))
    })
    .await?;
    Ok(found.into_iter().map(|checkpoint| checkpoint.checkpoint_id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_id_names_a_run_or_a_checkpoint() {
        let runs = ["0198a1b2-0000-7000-8000-00000000aaaa".to_owned()];
        let checkpoints = ["0198a1b2-0000-7000-8000-00000000bbbb".to_owned()];
        let picked = |part: &str| pick(&runs, &checkpoints, part);
        assert_eq!(picked("aaaa").unwrap(), Origin::RunId(runs[0].clone()));
        assert_eq!(picked("bbbb").unwrap(), Origin::CheckpointId(checkpoints[0].clone()));
        for part in ["0198", "cccc", "x"] {
            assert!(picked(part).is_err(), "{part}");
        }
    }
}
