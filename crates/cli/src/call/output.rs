//! `coffer call output`: the whole output of a command, also after its client has gone.

use std::time::Duration;

use clap::Args;
use wire::v1::call_response::Status;
use wire::v1::result::Kind as CallResult;
use wire::v1::{CallResponse, GetCallRequest, OutputChunk};

use super::select;
use crate::client::{Client, Context, quick};
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::ids;
use crate::output::Style;
use crate::quantity::{bytes, parse_offset};

/// Size of the largest piece in one answer, in bytes.
const PIECE: u32 = 1 << 20;
/// Shortest and longest pause between two requests for more output.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Print everything that a command wrote, byte for byte.
///
/// The daemon keeps it until the run is deleted, or until newer output needs the space.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call output 2e3f4a5b > build.log")]
pub(crate) struct Output {
    /// The call's id, or its end.
    #[arg(value_name = "CALL", value_parser = ids::part)]
    call: String,
    /// Print its standard error instead of its standard output.
    #[arg(long)]
    stderr: bool,
    /// Start at this byte, as in 4096 or 64K.
    #[arg(long, value_name = "BYTE", default_value = "0", value_parser = parse_offset)]
    offset: u64,
    /// Continue until the command has ended.
    #[arg(long, short)]
    follow: bool,
}

impl Output {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        let client = context.connect().await?;
        let id = select::resolve(&client, &self.call).await?;
        let [mut outlet, _] = ui.outlets();
        let mut offset = self.offset;
        let mut pause = PAUSES.0;
        loop {
            let (call, chunk) = self.next(&client, &id, offset).await?;
            let came = chunk.data.len() as u64;
            if came > 0 {
                if ui.is_structured() {
                    ui.line(&chunk)?;
                } else {
                    outlet.write(&chunk.data)?;
                }
                offset += came;
                pause = PAUSES.0;
                continue;
            }
            if chunk.complete || !self.follow {
                outlet.end()?;
                self.say_what_is_missing(context, &call, &chunk);
                return Ok(Exit::Ok);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    async fn next(
        &self,
        client: &Client,
        id: &str,
        offset: u64,
    ) -> Result<(CallResponse, OutputChunk), Failure> {
        let request = GetCallRequest {
            call_id: id.to_owned(),
            stdout_offset: (!self.stderr).then_some(offset),
            stderr_offset: self.stderr.then_some(offset),
            max_output_bytes: PIECE,
        };
        let response = client.tools().get_call(quick(request)).await?.into_inner();
        let chunk = if self.stderr { response.stderr } else { response.stdout };
        Ok((response.call.unwrap_or_default(), chunk.unwrap_or_default()))
    }

    fn say_what_is_missing(&self, context: &Context, call: &CallResponse, chunk: &OutputChunk) {
        let mut talk = context.ui.talk();
        if !chunk.complete {
            match call.status() {
                Status::PendingApproval => talk.own("the call waits for an approval\n"),
                _ => talk.own("the command is still running: use --follow to continue\n"),
            };
        }
        let missing = missing(call, chunk, self.stderr);
        if missing > 0 && chunk.kept_bytes == 0 {
            talk.styled(Style::Yellow, "gone").own(": ").word(&bytes(missing));
            talk.own(
                " were written but are not stored: newer output replaced them, or the disk had no space\n",
            );
        } else if missing > 0 {
            talk.styled(Style::Yellow, "cut short").own(": ").word(&bytes(missing));
            talk.own(" at the end are not stored: the disk had no space\n");
        }
        context.ui.say(&talk);
    }
}

/// Returns the number of bytes that the command wrote and the daemon no longer has.
fn missing(call: &CallResponse, chunk: &OutputChunk, stderr: bool) -> u64 {
    let Some(CallResult::Exec(result) | CallResult::Shell(result)) = call.kind() else { return 0 };
    let written = if stderr { result.stderr_bytes } else { result.stdout_bytes };
    written.saturating_sub(chunk.kept_bytes)
}

#[cfg(test)]
mod tests {
    use wire::v1::ExecResult;

    use super::*;

    #[test]
    fn output_that_is_not_stored_is_counted() {
        let result = ExecResult { stdout_bytes: 10, stderr_bytes: 3, ..Default::default() };
        let call = CallResponse { result: Some(CallResult::Exec(result).into()), ..Default::default() };
        let chunk = OutputChunk { kept_bytes: 4, ..Default::default() };
        assert_eq!((missing(&call, &chunk, false), missing(&call, &chunk, true)), (6, 0));
        assert_eq!(missing(&CallResponse::default(), &chunk, false), 0);
    }
}
