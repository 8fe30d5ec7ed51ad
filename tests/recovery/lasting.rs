//! Tests settings of a run that outlive the daemon: variables, secret ones among them, its ttl and its lease.

use std::time::Duration;

use harness::v1::run::{EndCause, State};
use harness::v1::{self, CreateRunRequest};
use harness::{Bearer, Daemon, RunHandle, outlives, reason, record, requests};
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_keeps_its_variables_and_its_longer_ttl_under_the_next_daemon() {
    let mut daemon = Daemon::start().await;
    let request = CreateRunRequest {
        env: [("MODE".to_owned(), "plain".to_owned())].into(),
        secret_env: [("KEY".to_owned(), "open sesame".to_owned())].into(),
        ttl: Some(wire::duration(Duration::from_secs(300))),
        ..requests::managed("harness")
    };
    let mut run = daemon.run_on(request).await;
    let ttl = Some(wire::duration(Duration::from_secs(400)));
    let extend = v1::ExtendRunRequest { run_id: run.id().to_owned(), ttl };
    run.clients.runs.extend_run(extend).await.unwrap();
    let mut run = outlives(&mut daemon, run).await;
    for _ in 0..3 {
        assert_eq!(run.exec(&["sh", "-c", "echo $MODE $KEY"]).await.stdout, "plain open sesame\n");
    }
    let id = run.start(harness::process::command(&["sh", "-c", "echo $KEY"])).await.process_id;
    assert_eq!(run.all_of(&id).await.text(), "open sesame\n");
    assert_eq!(run.show().await.ttl, ttl);
}

/// Another one may be had at any time, and then it alone opens the run, also under the next daemon.
#[tokio::test(flavor = "multi_thread")]
async fn a_living_run_gets_another_token_which_outlives_the_daemon() {
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(CreateRunRequest { issue_token: true, ..requests::managed("open") }).await;
    let id = run.id().to_owned();
    let opens = async |run: &mut RunHandle, token: &str| {
        let request = Some(harness::calls::exec(&["true"]).into());
        let call = v1::CallRequest { run_id: run.id().to_owned(), request, ..Default::default() };
        let answer = run.clients.tools.call(Bearer::new(token).shows(call)).await;
        answer.map(drop).map_err(|status| status.code())
    };
    let issue = v1::IssueRunTokenRequest { run_id: id.clone() };
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let answer = run.clients.runs.issue_run_token(issue.clone()).await.unwrap().into_inner();
        assert_eq!(answer.run.unwrap().run_id, id);
        tokens.push(answer.token);
        for (number, token) in tokens.iter().enumerate() {
            let expected = if number + 1 == tokens.len() { Ok(()) } else { Err(Code::PermissionDenied) };
            assert_eq!(opens(&mut run, token).await, expected, "{number}");
        }
    }
    // A token gives no other, and a replaced one is no attempt at anything.
    let refused = run.clients.runs.issue_run_token(Bearer::new(&tokens[2]).shows(issue.clone())).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let states = run.clients.events(&id, "run_state").await;
    let issued = states.iter().filter(|event| record(event)["details"]["token_issued"] == true);
    assert_eq!(issued.count(), 3);

    let mut run = outlives(&mut daemon, run).await;
    assert_eq!(opens(&mut run, &tokens[2]).await, Ok(()));
    assert_eq!(opens(&mut run, &tokens[1]).await, Err(Code::PermissionDenied));
    run.stop().await;
    assert_eq!(reason(&run.clients.runs.issue_run_token(issue).await.unwrap_err()), "RUN_NOT_READY");
    assert_eq!(opens(&mut run, &tokens[2]).await, Err(Code::PermissionDenied));
}

/// Nobody could renew it while there was no daemon.
#[tokio::test(flavor = "multi_thread")]
async fn lease_restarts_with_the_next_daemon_and_expires() {
    let mut daemon = Daemon::start().await;
    let lease = Some(wire::duration(Duration::from_secs(10)));
    let run = daemon.run_on(CreateRunRequest { lease, ..requests::managed("harness") }).await;
    daemon.kill().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    assert_eq!(run.show().await.state(), State::Ready);
    let ended = run.ended().await;
    assert_eq!(ended.end_cause(), EndCause::Lease);
    // Of the one that it had under the previous daemon, six seconds were left at most.
    let lasted = ended.ended_at.unwrap().seconds - ended.adopted_at.unwrap().seconds;
    assert!(lasted > 7, "{lasted} s");
}

/// What was sealed under another key is gone, and no run goes on with half its variables.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_secrets_cannot_be_opened_ends_with_that_reason() {
    let mut daemon = Daemon::start().await;
    let secret_env = [("KEY".to_owned(), "open sesame".to_owned())].into();
    let run = daemon.run_on(CreateRunRequest { secret_env, ..requests::managed("harness") }).await;
    daemon.kill().await;
    std::fs::write(daemon.state_dir().join("seal.key"), [7; 32]).unwrap();
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    let shown = run.show().await;
    assert_eq!(shown.state(), State::Failed);
    assert!(shown.failure.contains("secret variables"), "{}", shown.failure);
    assert_eq!(daemon.containers(), Vec::<String>::new());
}
