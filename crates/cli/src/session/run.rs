//! `coffer session run`.

use std::time::Duration;

use clap::Args;
use wire::v1::{RunInSessionRequest, SessionRequest};

use super::{result, select};
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::ids::Named;
use crate::run_ref::RunRef;

/// Run a command in a session, and print its output.
///
/// Exits with the command's exit code, with 124 when the time is over first, in which case the command runs on, and with 123
/// to 126 as `call exec` does. Without a command it waits for the last one; with --input it types at that one first.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer session run 3f2a9c01 build -- 'cd src && make'")]
pub(crate) struct Run {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    target: RunRef,
    /// The session: its id, a unique beginning or end of it, or its tag.
    #[arg(value_name = "SESSION")]
    session: Named,
    /// Return when the output matches this regular expression. May be repeated.
    #[arg(long, value_name = "REGEX")]
    expect: Vec<String>,
    /// Send this line to the running program, instead of giving the shell a command.
    #[arg(long, value_name = "LINE", conflicts_with = "command")]
    input: Option<String>,
    /// How long to wait, such as 90s or 2h. Default: the profile's.
    #[arg(long, value_name = "TIME", value_parser = crate::time::parse)]
    timeout: Option<Duration>,
    /// Wait for the approval if one is needed.
    #[arg(long)]
    wait: bool,
    /// Shell code. Several words are joined with spaces.
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

impl Run {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let made = self.make(context).await;
        made.map(Exit::beside_a_command).map_err(Failure::beside_a_command)
    }

    async fn make(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.target).await?;
        let session_id = select::resolve(&self.session, &client, &run_id).await?;
        let request = RunInSessionRequest {
            run_id,
            wait_for_approval: self.wait,
            session: Some(self.request(session_id)),
            ..Default::default()
        };
        let answer = client.sessions().run_in_session(request).await?.into_inner();
        let exit = answer.result.as_ref().map_or(Exit::AwaitingApproval, result::exit);
        context.ui.answer_and_talk(answer, |answer, page, talk| match &answer.result {
            Some(shown) => result::render(shown, page, talk),
            None => {
                talk.own("awaiting approval ").word(&answer.approval_id).end_line();
            }
        })?;
        Ok(exit)
    }

    fn request(self, session_id: String) -> SessionRequest {
        SessionRequest {
            session_id,
            command: self.command.join(" "),
            input: self.input.map(|line| format!("{line}\n")).unwrap_or_default(),
            expect: self.expect,
            timeout_ms: self.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        run: Run,
    }

    #[test]
    fn session_options_reach_the_request() {
        let made = |line: &[&str]| Line::try_parse_from(line).map(|line| line.run.request("s".to_owned()));
        let words = ["x", "-", "build", "--timeout", "2m", "--expect", ">>> ", "--", "make", "-k", "all"];
        let expected = SessionRequest {
            session_id: "s".into(),
            command: "make -k all".into(),
            expect: vec![">>> ".into()],
            timeout_ms: Some(120_000),
            ..Default::default()
        };
        assert_eq!(made(&words).unwrap(), expected);
        let typed = made(&["x", "-", "build", "--input", "1 + 1"]).unwrap();
        assert_eq!((typed.input.as_str(), typed.command.as_str()), ("1 + 1\n", ""));
        assert!(made(&["x", "-", "build", "--input", "1", "--", "ls"]).is_err());
    }
}
