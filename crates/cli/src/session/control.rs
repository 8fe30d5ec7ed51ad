//! `coffer session interrupt` and `close`.

use std::time::Duration;

use clap::Args;
use wire::v1::{CloseSessionRequest, InterruptSessionRequest};

use super::{result, select};
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Ended;
use crate::ids::Named;
use crate::run_ref::RunRef;

/// Interrupt the command that runs in a session.
///
/// As Ctrl-C does, three times if need be; then what has the terminal is killed. Prints what was shown, and exits with the
/// exit code of what was interrupted.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer session interrupt 3f2a9c01 build")]
pub(crate) struct Interrupt {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The session: its id, a unique beginning or end of it, or its tag.
    #[arg(value_name = "SESSION")]
    session: Named,
    /// How often to interrupt it, at most 10.
    #[arg(long, value_name = "N", default_value_t = 3)]
    attempts: u32,
    /// How long to wait after each.
    #[arg(long, value_name = "TIME", value_parser = crate::time::parse, default_value = "1s")]
    timeout: Duration,
    /// Return when the output matches this regular expression. May be repeated.
    #[arg(long, value_name = "REGEX")]
    expect: Vec<String>,
}

/// End a session and everything in it.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer session close 3f2a9c01 build")]
pub(crate) struct Close {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The session: its id, a unique beginning or end of it, or its tag.
    #[arg(value_name = "SESSION")]
    session: Named,
}

impl Interrupt {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let session_id = select::resolve(&self.session, &client, &run_id).await?;
        let request = InterruptSessionRequest {
            run_id,
            session_id,
            attempts: Some(self.attempts),
            timeout: Some(wire::duration(self.timeout)),
            expect: self.expect,
        };
        let answer = client.sessions().interrupt_session(request).await?.into_inner();
        let shown = answer.result.unwrap_or_default();
        let exit = result::exit(&shown);
        context.ui.answer_and_talk(shown, |shown, page, talk| result::render(&shown, page, talk))?;
        Ok(exit)
    }
}

impl Close {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let session_id = select::resolve(&self.session, &client, &run_id).await?;
        let request = CloseSessionRequest { run_id, session_id };
        let answer = client.sessions().close_session(request).await?.into_inner();
        let session = answer.session.unwrap_or_default();
        context.ui.answer_and_talk(session, |session, _, talk| {
            talk.own("closed ").word(&session.session_id).end_line();
        })?;
        Ok(Exit::Ok)
    }
}
