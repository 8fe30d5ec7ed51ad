//! `coffer policy replay`.

use std::path::{Path, PathBuf};

use clap::Args;
use policy::Policy;
use wire::v1::{PolicyFile, ReplayPolicyRequest, ReplayPolicyResponse};

use super::read;
use crate::call;
use crate::client::Context;
use crate::failure::{Ended, Failure};
use crate::ids;
use crate::output::Output;
use crate::run_ref::RunRef;

/// Evaluate recorded calls under another policy and list those whose verdict would change. The policy in force stays.
///
/// The calls are read from the audit log. A call whose relevant arguments were cut or redacted is counted but
/// not evaluated.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer policy replay ./policy --run 3f2a9c01")]
pub(crate) struct Replay {
    /// The proposed policy: a directory, or one file that is a whole policy.
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// Only calls of this run.
    #[arg(long, value_name = "RUN")]
    run: Option<RunRef>,
    /// Only calls that were recorded after this sequence number of the audit log.
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
    after: u64,
    /// Maximum number of calls to evaluate.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_calls: u32,
}

impl Replay {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let files = files(&self.path)?;
        let (client, run_id) = context.connect_to(self.run.as_ref()).await?;
        let request =
            ReplayPolicyRequest { files, run_id, after_sequence: self.after, max_calls: self.max_calls };
        let response =
            context.ui.wait("evaluating recorded calls…", client.policy().replay_policy(request)).await?;
        context.ui.answer_and_talk(response, |response, page, talk| render(&response, page, talk))
    }
}

fn files(path: &Path) -> Result<Vec<PolicyFile>, Failure> {
    let read = if path.is_dir() {
        Policy::read_dir(path).map_err(|problems| Failure::usage(problems.to_string()))?
    } else {
        let text = read(path)?;
        vec![(path.file_name().unwrap_or_default().to_string_lossy().into_owned(), text)]
    };
    Ok(read.into_iter().map(|(name, content)| PolicyFile { name, content }).collect())
}

fn render(response: &ReplayPolicyResponse, page: &mut Output, talk: &mut Output) {
    let rows = response.changes.iter().map(|change| {
        vec![
            change.sequence.to_string(),
            ids::short(&change.run_id).to_owned(),
            change.agent_id.clone(),
            change.operation.clone(),
            call::verdict(change.was()).to_owned(),
            call::verdict(change.becomes()).to_owned(),
            change.rule.clone(),
            change.input.chars().take(60).collect(),
        ]
    });
    page.table(&["SEQUENCE", "RUN", "AGENT", "OPERATION", "WAS", "BECOMES", "RULE", "INPUT"], rows);
    let said = format!(
        "{} of {} calls change, {} stay; not judged: {} cut, {} redacted, {} without a decision of the policy, {} unreadable",
        response.changed,
        response.calls,
        response.unchanged,
        response.cut,
        response.redacted,
        response.undecided,
        response.unreadable
    );
    talk.word(&said).end_line();
    if response.changes.len() < response.changed as usize {
        talk.word(&format!("only the first {} changes are listed", response.changes.len())).end_line();
    }
    if !response.complete {
        talk.word(&format!("the log goes on: --after {}", response.last_sequence)).end_line();
    }
}
