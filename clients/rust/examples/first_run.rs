//! Makes a run, calls a tool in it, lists the runs, and ends its own. The daemon is at `COFFERDAM_ENDPOINT`.

use cofferdam_client::{Connect, v1};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Connect::from_env()?.connect().await?;
    let source = v1::workspace::Source::Managed(v1::ManagedWorkspace::default());
    let workspace = Some(v1::Workspace { source: Some(source) });
    let (profile, agent_id) = ("open".into(), "example".into());
    let request = v1::CreateRunRequest { profile, agent_id, workspace, ..Default::default() };
    let run = client.runs().create_run(request).await?.into_inner().run.ok_or("there is no run")?;

    let echo = v1::ExecRequest { command: "echo".into(), args: vec!["hello".into()], ..Default::default() };
    let request = Some(v1::operation::Kind::Exec(echo).into());
    let call = v1::CallRequest { run_id: run.run_id.clone(), request, ..Default::default() };
    let answer = client.tools().call(call).await?.into_inner();
    let result = answer.kind().and_then(v1::result::Kind::command).ok_or("the command did not run")?;
    print!("{}", result.stdout);

    for run in client.runs().list_runs(v1::ListRunsRequest::default()).await?.into_inner().runs {
        println!("{} {:?}", run.run_id, run.state());
    }
    client.runs().stop_run(v1::StopRunRequest { run_id: run.run_id }).await?;
    Ok(())
}
