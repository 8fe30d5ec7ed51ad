//! `coffer transcript step`: reads a model's text from standard input, and prints the next message to the model.

use std::io::{self, Read as _};

use clap::Args;
use wire::v1::step_transcript_response::Status;
use wire::v1::{StepTranscriptRequest, StepTranscriptResponse};

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::output::{Output, Style};
use crate::run_ref::RunRef;

/// Length of the longest text that the daemon accepts, in bytes.
const LONGEST: u64 = 4 << 20;

/// Read a model's text from standard input, run the first ```forge:… block in it, and print what to send to it next.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer transcript step 3f2a9c01 --session chat-1 < reply.md > next.md")]
pub(crate) struct Step {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// Name of the conversation, whose turns are counted.
    #[arg(long, value_name = "NAME", default_value = "default")]
    session: String,
    /// Maximum number of turns of the session, 1 to 10; its first step decides. Default: 10.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    max_turns: u32,
    /// Wait if the call needs an approval, instead of exiting with code 4.
    #[arg(long)]
    wait: bool,
    /// Fail (AWAITING_APPROVAL) if the run waits for a reviewer of another call, instead of waiting for that too.
    #[arg(long)]
    refuse_awaiting_approval: bool,
    /// Makes the step repeatable: the same id with the same text is the same turn and gives its outcome.
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

impl Step {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let text = text(&mut io::stdin().lock())?;
        let client = context.connect().await?;
        let request = StepTranscriptRequest {
            run_id: self.run.resolve(&client).await?,
            session_id: self.session,
            text,
            request_id: self.request_id.unwrap_or_default(),
            max_turns: self.max_turns,
            wait_for_approval: self.wait,
            refuse_awaiting_approval: self.refuse_awaiting_approval,
            ..Default::default()
        };
        let step = context.ui.wait("working…", client.tools().step_transcript(request)).await?;
        let exit = exit(&step);
        context.ui.answer_and_talk(step, |step, data, talk| {
            data.raw(&step.message);
            told(&step, talk);
        })?;
        Ok(exit)
    }
}

/// Reads a model's text, which must be UTF-8.
fn text(stream: &mut impl io::Read) -> Result<String, Failure> {
    let mut text = Vec::new();
    stream
        .take(LONGEST + 1)
        .read_to_end(&mut text)
        .map_err(|error| Failure::usage(format!("standard input cannot be read: {error}")))?;
    if text.len() as u64 > LONGEST {
        return Err(Failure::usage("the text is larger than 4 MiB"));
    }
    String::from_utf8(text).map_err(|_| Failure::usage("the text is not UTF-8"))
}

/// Returns the exit code. A text without a tool call is a success, and a call gives the same code as `coffer call`.
fn exit(step: &StepTranscriptResponse) -> Exit {
    match (step.status(), step.call_status.as_str()) {
        (Status::PlainText, _) | (Status::ToolResult, "SUCCEEDED") => Exit::Ok,
        (Status::PendingApproval, _) => Exit::AwaitingApproval,
        (Status::ToolResult, "DENIED") => Exit::Denied,
        (Status::ToolResult | Status::MaxTurns | Status::Unspecified, _) => Exit::Failed,
    }
}

fn told(step: &StepTranscriptResponse, talk: &mut Output) {
    talk.end_line();
    match step.status() {
        Status::PlainText => {
            talk.own("no tool was called\n");
        }
        Status::ToolResult => {
            talk.own("called ").word(&step.tool).own(": ").word(&step.call_status).own("\n");
        }
        Status::PendingApproval => {
            talk.styled(Style::Yellow, "awaiting approval").own(" ").word(&step.approval_id).own("\n");
            talk.own("its outcome: coffer call show ").word(&step.call_id).own("\n");
        }
        Status::MaxTurns => {
            talk.styled(Style::Red, "no turn left").own("\n");
        }
        Status::Unspecified => {
            talk.styled(Style::Red, "failed")
                .own(": the daemon gave a status that this version of coffer does not know\n");
        }
    }
    talk.own("turn ").word(&step.turn.to_string()).own(" of ").word(&step.max_turns.to_string()).own("\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_bounded_and_utf8() {
        assert_eq!(text(&mut &b"a\xc3\xa9"[..]).unwrap(), "aé");
        assert_eq!(text(&mut &b"a\xff"[..]).unwrap_err().exit(), Exit::Usage);
        assert_eq!(text(&mut io::repeat(b'a')).unwrap_err().exit(), Exit::Usage);
    }

    #[test]
    fn the_exit_code_follows_the_call() {
        let step = |status: Status, call_status: &str| StepTranscriptResponse {
            status: status.into(),
            call_status: call_status.into(),
            ..Default::default()
        };
        for (status, call, expected) in [
            (Status::PlainText, "", Exit::Ok),
            (Status::ToolResult, "SUCCEEDED", Exit::Ok),
            (Status::ToolResult, "FAILED", Exit::Failed),
            (Status::ToolResult, "DENIED", Exit::Denied),
            (Status::PendingApproval, "PENDING_APPROVAL", Exit::AwaitingApproval),
            (Status::MaxTurns, "", Exit::Failed),
        ] {
            assert_eq!(exit(&step(status, call)), expected, "{status:?} {call}");
        }
    }
}
