//! `coffer run fork`.

use std::time::Duration;

use clap::Args;
use command_context::client::Context;
use command_context::run_ref::RunRef;
use command_context::variables::Variables;
use presentation::exit::Exit;
use presentation::failure::{Ended, Failure};
use presentation::output::Output;
use presentation::quantity::{count, parse_pair};
use presentation::time;
use wire::v1::fork_run_request::Origin;
use wire::v1::{ForkFailure, ForkRunRequest, ForkRunResponse};

use crate::origin;

/// Make runs that begin with the state of a run or of a checkpoint; prints their ids when they are ready.
///
/// A checkpoint of a run is made first. Each fork has its own id, record, approvals, limits and changes. Processes,
/// consents and secret variables are not inherited. As many forks are made as there is room for: if that is fewer,
/// `coffer` says why and exits with 1.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run fork 3f2a9c01 --count 3")]
pub struct Fork {
    /// A live run or a checkpoint: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN|CHECKPOINT")]
    origin: RunRef,
    /// Number of forks, at most 100.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
    #[command(flatten)]
    variables: Variables,
    /// A label beside those of the run; can be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_pair)]
    labels: Vec<(String, String)>,
    /// Stop each fork when it is this old, as in 10m. Default: as the run.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    ttl: Option<Duration>,
    /// Stop a fork when `coffer run keep-alive` was not called for this time, as in 2m. Default: as the run.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    lease: Option<Duration>,
    /// Issue a token for each fork, with which an agent can call its tools and nothing else. It is printed once,
    /// after the fork's id.
    #[arg(long)]
    issue_tokens: bool,
    /// Makes the command repeatable: the same id with the same content gives the same forks.
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

impl Fork {
    pub async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        let client = context.connect().await?;
        let origin = origin::find(&self.origin, &client).await?;
        let request = self.request(origin)?;
        let made = ui.wait("forking the run…", client.checkpoints().fork_run(request)).await?;
        let exit = if made.failures.is_empty() { Exit::Ok } else { Exit::Failed };
        if ui.is_data_only() && !ui.is_structured() {
            // Only the ids of the forks, and not that of the checkpoint.
            ui.document(&made.forks)?;
            let mut talk = ui.talk();
            tell(&made.failures, &mut talk);
            ui.say(&talk);
        } else {
            ui.answer_and_talk(made, |made, page, talk| render(&made, page, talk))?;
        }
        Ok(exit)
    }

    fn request(self, origin: Origin) -> Result<ForkRunRequest, Failure> {
        let (env, secret_env) = self.variables.read()?;
        Ok(ForkRunRequest {
            request_id: self.request_id.unwrap_or_default(),
            origin: Some(origin),
            count: self.count,
            env,
            secret_env,
            labels: self.labels.into_iter().collect(),
            limits: None,
            ttl: self.ttl.map(wire::duration),
            lease: self.lease.map(wire::duration),
            issue_tokens: self.issue_tokens,
        })
    }
}

fn render(made: &ForkRunResponse, page: &mut Output, talk: &mut Output) {
    for fork in &made.forks {
        page.word(fork.run.as_ref().map_or("", |run| run.run_id.as_str()));
        if !fork.token.is_empty() {
            page.own(" ").word(&fork.token);
        }
        page.end_line();
    }
    tell(&made.failures, talk);
    if let Some(checkpoint) = made.checkpoint.as_ref().filter(|_| made.forks.len() > 1) {
        talk.own("compare them: coffer run compare --of ").word(&checkpoint.run_id).end_line();
    }
}

/// Says why forks were not made.
fn tell(failures: &[ForkFailure], talk: &mut Output) {
    for failure in failures {
        let number = count(failure.count.into(), "fork was", "forks were");
        talk.word(&number).own(" not made: ").word(&failure.message);
        talk.own(" (").word(&failure.reason).own(")\n");
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use presentation::output::Look;
    use wire::v1::{Run, RunCheckpoint};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        fork: Fork,
    }

    fn parse(line: &str) -> Result<Fork, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.fork)
    }

    #[test]
    fn a_request_has_what_the_command_line_says() {
        let line = "fork r --count 3 --env A=1 --label try=yes --ttl 1m --issue-tokens --request-id x";
        let request = parse(line).unwrap().request(Origin::RunId("r".into())).unwrap();
        let expected = ForkRunRequest {
            request_id: "x".into(),
            origin: Some(Origin::RunId("r".into())),
            count: 3,
            env: [("A".to_owned(), "1".to_owned())].into(),
            labels: [("try".to_owned(), "yes".to_owned())].into(),
            ttl: Some(wire::duration(Duration::from_secs(60))),
            issue_tokens: true,
            ..ForkRunRequest::default()
        };
        assert_eq!(request, expected);
        assert_eq!(parse("fork r").unwrap().count, 1);
        assert!(parse("fork r --count 0").is_err() && parse("fork r --count 101").is_err());
    }

    #[test]
    fn forks_and_the_reasons_of_failures_are_printed() {
        let fork = |id: &str, token: &str| wire::v1::Fork {
            run: Some(Run { run_id: id.into(), ..Run::default() }),
            token: token.into(),
        };
        let made = ForkRunResponse {
            checkpoint: Some(RunCheckpoint { run_id: "origin".into(), ..RunCheckpoint::default() }),
            forks: vec![fork("one", ""), fork("two", "cft_x")],
            failures: vec![ForkFailure {
                reason: "OVERLOADED".into(),
                message: "the host is full".into(),
                count: 2,
            }],
        };
        let (mut page, mut talk) = (Output::new(Look::PIPE), Output::new(Look::PIPE));
        render(&made, &mut page, &mut talk);
        assert_eq!(page.as_str(), "one\ntwo cft_x\n");
        assert_eq!(
            talk.as_str(),
            "2 forks were not made: the host is full (OVERLOADED)\ncompare them: coffer run compare --of origin\n"
        );
    }
}
