//! Tests sessions that the next daemon continues.

use harness::session::{command, typed};
use harness::v1::session::State as Session;
use harness::v1::session_result::State;
use harness::v1::{CreateRunRequest, SessionRequest};
use harness::{Daemon, debian, outlives, processes, requests};

use crate::adopted::IDLE;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_continues_under_the_next_daemon() {
    let mut daemon = Daemon::start().await;
    for image in [String::new(), debian()] {
        let mut run = daemon.run_on(CreateRunRequest { image, ..requests::managed("harness") }).await;
        let id = run.open().await;
        run.said(&id, "cd /tmp; x=5").await;
        let mut run = outlives(&mut daemon, run).await;
        assert_eq!(run.said(&id, "pwd; echo $x").await, ("/tmp\n5\n".to_owned(), 0));

        // One that was busy is so under the next daemon, until it is not.
        let slow = "echo begun; read line; echo got $line";
        let late = run.in_session(SessionRequest { timeout_ms: Some(300), ..command(&id, slow) }).await;
        assert_eq!(late.state(), State::Running);
        let mut run = outlives(&mut daemon, run).await;
        assert_eq!(run.sessions().await[0].state(), Session::Busy);
        let answer = run.in_session(typed(&id, "it\n", &[])).await;
        assert_eq!(
            (answer.state(), answer.exit_code),
            (State::Done, None),
            "its code is nobody's to know: {answer:?}"
        );
        assert!(answer.output.contains("got it\n"), "{answer:?}");
        assert_eq!(run.said(&id, "(exit 4)").await.1, 4);

        // And one in whose call the daemon is killed is interrupted by the next.
        let (mut caller, session) = (run.clone(), id.clone());
        let call =
            tokio::spawn(
                async move { caller.try_in_session(command(&session, "echo on; sleep 1000")).await },
            );
        run.until(&id, "on\n").await;
        let mut run = outlives(&mut daemon, run).await;
        assert!(call.await.unwrap().is_err());
        assert_eq!(run.interrupt(&id, &[]).await.state(), State::Done);
        assert_eq!(run.said(&id, "echo usable").await.0, "usable\n");
        assert_eq!(run.close(&id).await.process.unwrap().kill.unwrap().left, 0);
        assert_eq!(processes(&run.run.container_id), IDLE);
        run.stop().await;
    }
}
