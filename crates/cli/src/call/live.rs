//! Prints a command's output as it arrives, for operations that have output.

use clap::Args;
use tonic::Streaming;
use wire::v1::call_output::Stream;
use wire::v1::call_request::Request;
use wire::v1::call_stream_response::Event;
use wire::v1::result::Kind as CallResult;
use wire::v1::{CallResponse, CallStreamResponse};

use super::{CallOptions, Target, exec_result, make, outcome, prepare, working};
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::outlet::Outlet;
use crate::output::Style;
use crate::quantity::bytes;
use crate::ui::{Spinner, Ui};

/// Options that determine when the output is printed.
#[derive(Args, Debug)]
pub(super) struct Live {
    /// With `--output json`: print each event on a line as it arrives, instead of only the result. Output for
    /// people always appears as it arrives.
    #[arg(long, conflicts_with = "no_stream")]
    stream: bool,
    /// Print the output only when the call has ended. The middle of long output is then left out, and Ctrl-C
    /// does not cancel the call.
    #[arg(long)]
    no_stream: bool,
}

impl Live {
    /// Makes the call, and prints its output and then its outcome. If `coffer` is ended, the call is cancelled.
    pub(super) async fn make(
        &self,
        context: &Context,
        target: &Target,
        options: CallOptions,
        request: impl Into<Request>,
    ) -> Ended {
        let ui = context.ui;
        if context.explains || self.no_stream || (ui.is_structured() && !self.stream) {
            return make(context, target, options, request).await;
        }
        let client = context.connect().await?;
        let (wait, working) = (options.wait, working(&options));
        let mut request = prepare(&client, target, options, request).await?;
        request.cancel_on_disconnect = true;
        let spinner = ui.spinner(working);
        let events = client.tools().call_stream(request).await?.into_inner();
        let mut told = LiveOutput { ui, spinner: Some(spinner), wait, outlets: ui.outlets(), bytes: [0; 2] };
        told.all(events).await
    }
}

/// Output that the user has seen.
struct LiveOutput {
    ui: Ui,
    /// Removed as soon as there is output.
    spinner: Option<Spinner>,
    wait: bool,
    outlets: [Outlet; 2],
    /// Numbers of bytes printed from stdout and from stderr.
    bytes: [u64; 2],
}

impl LiveOutput {
    async fn all(&mut self, mut events: Streaming<CallStreamResponse>) -> Ended {
        let mut call_id = String::new();
        loop {
            let next = match events.message().await {
                Ok(next) => next,
                Err(status) => return Err(self.broken(status.into(), &call_id)?),
            };
            let Some(response) = next else {
                let failure = Failure::unreachable("the daemon ended the stream without a result");
                return Err(self.broken(failure, &call_id)?);
            };
            if self.ui.is_structured() {
                self.spinner.take();
                self.ui.line(&response)?;
            }
            match response.event {
                Some(Event::Accepted(accepted)) => call_id = accepted.call_id,
                Some(Event::Pending(pending)) => self.pending(&pending.approval_id),
                Some(Event::Output(output)) => self.output(output.stream(), &output.data)?,
                Some(Event::Result(call)) => return self.result(&call),
                None => {}
            }
        }
    }

    /// Handles a stream without a result: the daemon refused the call, or has gone.
    fn broken(&mut self, failure: Failure, call_id: &str) -> Result<Failure, Failure> {
        self.spinner.take();
        self.end_lines()?;
        if failure.exit() == Exit::Unreachable && !call_id.is_empty() {
            return Ok(failure.and_hint(&format!("`coffer call output {call_id}` prints what it wrote")));
        }
        Ok(failure)
    }

    /// Notes that the call waits for an approval. Without --wait, the result has the same note.
    fn pending(&mut self, approval_id: &str) {
        if self.wait && !self.ui.is_structured() {
            self.spinner.take();
            self.ui.note(&format!("awaiting approval {approval_id}"));
            self.spinner = Some(self.ui.spinner("waiting for the approval…"));
        }
    }

    fn output(&mut self, stream: Stream, data: &[u8]) -> Result<(), Failure> {
        let at = match stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
            Stream::Unspecified => return Ok(()),
        };
        self.bytes[at] += data.len() as u64;
        if !self.ui.is_structured() {
            self.spinner.take();
            self.outlets[at].write(data)?;
        }
        Ok(())
    }

    fn result(&mut self, call: &CallResponse) -> Ended {
        self.spinner.take();
        let mut exit = outcome::exit(call);
        let command = match call.kind() {
            Some(CallResult::Exec(result) | CallResult::Shell(result)) => Some(result),
            _ => None,
        };
        // A script must not mistake a part of the output for the whole.
        if exit == Exit::Ok && command.is_some_and(|result| exec_result::lacks(result, self.bytes)) {
            exit = Exit::Failed;
        }
        if self.ui.is_structured() {
            return Ok(exit);
        }
        let mut talk = self.ui.talk();
        if let Some(result) = command {
            exec_result::render_end(result, self.bytes, &mut talk);
            if call.output_not_kept_bytes > 0 {
                talk.end_line()
                    .styled(Style::Yellow, "not kept")
                    .own(": ")
                    .word(&bytes(call.output_not_kept_bytes));
                talk.own(" of its output, because the daemon's disk had no space: `coffer call output` cannot print them\n");
            }
        }
        outcome::status(call, &mut talk);
        if !talk.as_str().is_empty() {
            self.end_lines()?;
            self.ui.say(&talk);
        }
        Ok(exit)
    }

    /// Ends unfinished lines of output, so that `coffer`'s own messages begin on a new line.
    fn end_lines(&mut self) -> Result<(), Failure> {
        let [stdout, stderr] = &mut self.outlets;
        let (stdout, mid_line) = (stdout.end()?, stderr.end()?);
        if mid_line || (stdout && self.ui.is_terminal()) {
            self.ui.end_line();
        }
        Ok(())
    }
}
