//! Sessions, as clients see them.

use tonic::Status;
use wire::v1::session_result::State;
use wire::v1::{self, Session, SessionRequest, SessionResult};

use crate::run::RunHandle;
use crate::waiting::until;

/// A command for a session, without more.
pub fn command(session: &str, command: &str) -> SessionRequest {
    SessionRequest { session_id: session.to_owned(), command: command.to_owned(), ..Default::default() }
}

/// Something to type, until one of these expressions matches.
pub fn typed(session: &str, input: &str, expect: &[&str]) -> SessionRequest {
    SessionRequest {
        session_id: session.to_owned(),
        input: input.to_owned(),
        expect: expect.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

impl RunHandle {
    /// Opens a session; a refusal is an error.
    pub async fn try_open(
        &mut self,
        request: v1::OpenSessionRequest,
    ) -> Result<v1::OpenSessionResponse, Status> {
        let request = v1::OpenSessionRequest { run_id: self.id().to_owned(), ..request };
        Ok(self.clients.sessions.open_session(request).await?.into_inner())
    }

    /// Opens a session, which must succeed: its id.
    pub async fn open(&mut self) -> String {
        self.try_open(v1::OpenSessionRequest::default()).await.unwrap().session.unwrap().session_id
    }

    /// Waits until the run's first session has something to do.
    pub async fn first_session_is_busy(&mut self) {
        let is_busy = async || self.sessions().await[0].state() == v1::session::State::Busy;
        until("the session has nothing to do", is_busy).await;
    }

    /// Uses a session; a refusal is an error.
    pub async fn try_in_session(
        &mut self,
        session: SessionRequest,
    ) -> Result<v1::RunInSessionResponse, Status> {
        let request = v1::RunInSessionRequest {
            run_id: self.id().to_owned(),
            session: Some(session),
            ..Default::default()
        };
        Ok(self.clients.sessions.run_in_session(request).await?.into_inner())
    }

    /// Uses a session, which must succeed.
    pub async fn in_session(&mut self, session: SessionRequest) -> SessionResult {
        self.try_in_session(session).await.unwrap().result.unwrap()
    }

    /// Runs a command in a session to its end: its output and its exit code.
    pub async fn said(&mut self, session: &str, words: &str) -> (String, i32) {
        let result = self.in_session(command(session, words)).await;
        assert_eq!(result.state(), State::Done, "{words}: {result:?}");
        (result.output, result.exit_code.unwrap())
    }

    /// Interrupts a session.
    pub async fn interrupt(&mut self, session: &str, expect: &[&str]) -> SessionResult {
        let request = v1::InterruptSessionRequest {
            run_id: self.id().to_owned(),
            session_id: session.to_owned(),
            expect: expect.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        self.clients.sessions.interrupt_session(request).await.unwrap().into_inner().result.unwrap()
    }

    /// Closes a session.
    pub async fn close(&mut self, session: &str) -> Session {
        let (run_id, session_id) = (self.id().to_owned(), session.to_owned());
        let request = v1::CloseSessionRequest { run_id, session_id };
        self.clients.sessions.close_session(request).await.unwrap().into_inner().session.unwrap()
    }

    /// The sessions of the run.
    pub async fn sessions(&mut self) -> Vec<Session> {
        let request = v1::ListSessionsRequest { run_id: self.id().to_owned(), tag: String::new() };
        self.clients.sessions.list_sessions(request).await.unwrap().into_inner().sessions
    }
}
