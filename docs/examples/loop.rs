//! Repairs a program in a clone of a repository, and exports the change.
//!
//! loop REPOSITORY

use cofferdam_client::{Client, Connect, tonic::Status, v1};
use tonic_types::StatusExt as _;
use v1::operation::Kind;

const PROGRAM: &str = "area() { echo $(($1 * $2)); }\n";

/// Makes one call in the run.
async fn call(client: &Client, run: &str, operation: Kind) -> Result<v1::CallResponse, Status> {
    let request =
        v1::CallRequest { run_id: run.into(), request: Some(operation.into()), ..Default::default() };
    Ok(client.tools().call(request).await?.into_inner())
}

/// Returns the operation that runs a program.
fn exec(command: &str, args: &[&str]) -> Kind {
    let args = args.iter().map(|&word| word.into()).collect();
    Kind::Exec(v1::ExecRequest { command: command.into(), args, ..Default::default() })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Connect::from_env()?.connect().await?;
    let repository = std::env::args().nth(1).ok_or("name a repository")?;
    let source = v1::workspace::Source::Clone(v1::CloneWorkspace { repository, ..Default::default() });
    let workspace = Some(v1::Workspace { source: Some(source) });
    let (profile, agent_id) = ("open".into(), "repairer".into());
    let request = v1::CreateRunRequest { profile, agent_id, workspace, ..Default::default() };
    let run = client.runs().create_run(request).await?.into_inner().run.ok_or("there is no run")?.run_id;

    let test = exec("sh", &["test.sh"]);
    let before = call(&client, &run, test.clone()).await?;
    println!("before: {:?}", before.kind().and_then(|kind| kind.command()?.exit_code));
    let write = v1::WriteRequest { path: "area.sh".into(), content: PROGRAM.into(), ..Default::default() };
    call(&client, &run, Kind::Write(write)).await?;
    let after = call(&client, &run, test).await?;
    let output = after.kind().and_then(v1::result::Kind::command).ok_or("the test did not run")?;
    println!("after: {}", output.stdout.trim());
    if let Err(refusal) = call(&client, &run, exec("rm", &["-rf", "."])).await {
        println!("refused: {}", refusal.get_details_error_info().ok_or(refusal)?.reason);
    }

    let (run_id, kinds) = (run.clone(), vec!["call_receipt".into()]);
    let filter = Some(v1::EventFilter { run_id, kinds, ..Default::default() });
    let request = v1::StreamEventsRequest { filter, ..Default::default() };
    let mut events = client.audit().stream_events(request).await?.into_inner();
    while let Some(event) = events.message().await?.and_then(|message| message.event) {
        println!("event: {}", event.operation);
    }

    let diff = v1::GitRequest { command: Some(v1::git_request::Command::Diff(v1::GitDiff::default())) };
    if let Some(v1::result::Kind::Git(diff)) = call(&client, &run, Kind::Git(diff)).await?.into_kind() {
        std::fs::write("change.diff", diff.output)?;
    }
    client.runs().stop_run(v1::StopRunRequest { run_id: run }).await?;
    Ok(())
}
