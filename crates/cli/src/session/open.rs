//! `coffer session open`.

use std::time::Duration;

use clap::Args;
use wire::v1::OpenSessionRequest;

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Ended;
use crate::run_ref::RunRef;

/// Open a shell that stays, and print its id.
///
/// It is bash, or `sh` where the image has no bash. Its directory, variables, functions and jobs last from one `coffer
/// session run` to the next, until it is closed, its timeout passes or its run ends.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer session open 3f2a9c01 --tag build")]
pub(crate) struct Open {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// A name to find it by.
    #[arg(long, value_name = "TAG", default_value = "", hide_default_value = true)]
    tag: String,
    /// Working directory to begin with. Default: @project.
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    cwd: String,
    /// A variable of its environment. May be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = crate::quantity::parse_pair)]
    env: Vec<(String, String)>,
    /// Time after which it is ended, such as 90s or 2h. Default: when its run ends.
    #[arg(long, value_name = "TIME", value_parser = crate::time::parse)]
    timeout: Option<Duration>,
    /// Wait for the approval if one is needed.
    #[arg(long)]
    wait: bool,
}

impl Open {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let request = OpenSessionRequest {
            run_id,
            cwd: self.cwd,
            env: self.env.into_iter().collect(),
            tag: self.tag,
            timeout: self.timeout.map(wire::duration),
            wait_for_approval: self.wait,
            ..Default::default()
        };
        let answer = client.sessions().open_session(request).await?.into_inner();
        let pending = answer.session.is_none();
        context.ui.answer_and_talk(answer, |answer, page, talk| match &answer.session {
            Some(session) => {
                page.word(&session.session_id).end_line();
            }
            None => {
                talk.own("awaiting approval ").word(&answer.approval_id).end_line();
            }
        })?;
        Ok(if pending { Exit::AwaitingApproval } else { Exit::Ok })
    }
}
