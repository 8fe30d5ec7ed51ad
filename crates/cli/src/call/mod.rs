//! `coffer call`: one file for each operation, with its arguments, its request, and the output of its result. [`outcome`] prints the
//! outcome of a call and determines the exit code.

mod checkpoint;
mod delete;
mod dialect;
mod edit;
mod exchange;
mod exec;
mod exec_result;
mod explain;
mod git;
mod glob;
mod grep;
mod grep_lines;
mod inspect;
mod list;
mod live;
mod mcp;
mod outcome;
mod output;
mod patch;
mod read;
mod select;
mod shell;
mod stdin;
mod surroundings;
mod tools;
mod write;

use std::time::Duration;

use clap::Args;
use wire::v1::call_request::Request;
use wire::v1::{CallRequest, CallResponse};

pub(crate) use self::exec::Exec;
pub(crate) use self::explain::{show as show_explained, word as verdict};
pub(crate) use self::select::resolve;
pub(crate) use self::write::render as render_write;
use crate::client::{Client, Context};
use crate::failure::{Ended, Failure};
use crate::run_ref::RunRef;
use crate::time;

crate::verbs::verbs! {
    Read(read::Read),
    List(list::List),
    Glob(glob::Glob),
    Grep(grep::Grep),
    Exec(Exec),
    Shell(shell::Shell),
    Write(write::Write),
    Edit(edit::Edit),
    Patch(patch::Patch),
    Delete(delete::Delete),
    Git(git::Git),
    Mcp(mcp::Mcp),
    Dialect(dialect::ToolCall),
    Tools(tools::Tools),
    Show(inspect::Show),
    Output(output::Output),
    Cancel(inspect::Cancel),
}

/// The run of a call.
#[derive(Args, Debug)]
struct Target {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
}

/// Options of every call.
#[derive(Args, Debug)]
struct CallOptions {
    /// Wait for the approval if one is needed.
    #[arg(long, global = true)]
    wait: bool,
    /// Fail (AWAITING_APPROVAL) if the run waits for a reviewer of another call, instead of waiting for that too.
    #[arg(long, global = true)]
    refuse_awaiting_approval: bool,
    /// How long the execution may take, as in 30s. Default: the operation's own limit.
    #[arg(long, global = true, value_name = "DURATION", value_parser = time::parse)]
    timeout: Option<Duration>,
    /// Makes the command repeatable: the same id with the same content gives the stored outcome.
    #[arg(long, global = true, value_name = "ID")]
    request_id: Option<String>,
}

impl Command {
    /// Returns true if the command makes a call, and false if it only inspects existing calls or lists tools.
    pub(crate) fn is_operation(&self) -> bool {
        !matches!(self, Self::Tools(_) | Self::Show(_) | Self::Output(_) | Self::Cancel(_))
    }
}

/// Makes the call and prints its outcome.
async fn make(
    context: &Context,
    target: &Target,
    options: CallOptions,
    request: impl Into<Request>,
) -> Ended {
    if context.explains {
        return explain::explain(context, target, options, request).await;
    }
    let call = answer(context, target, options, request).await?;
    outcome::show(context.ui, &call)
}

async fn answer(
    context: &Context,
    target: &Target,
    options: CallOptions,
    request: impl Into<Request>,
) -> Result<CallResponse, Failure> {
    let client = context.connect().await?;
    let working = working(&options);
    let request = prepare(&client, target, options, request).await?;
    context.ui.wait(working, client.tools().call(request)).await
}

async fn prepare(
    client: &Client,
    target: &Target,
    options: CallOptions,
    request: impl Into<Request>,
) -> Result<CallRequest, Failure> {
    Ok(CallRequest {
        run_id: target.run.resolve(client).await?,
        request_id: options.request_id.unwrap_or_default(),
        wait_for_approval: options.wait,
        refuse_awaiting_approval: options.refuse_awaiting_approval,
        timeout: options.timeout.map(wire::duration),
        request: Some(request.into()),
        ..Default::default()
    })
}

/// Returns the text of the spinner.
fn working(options: &CallOptions) -> &'static str {
    if options.wait { "working, or waiting for an approval…" } else { "working…" }
}
