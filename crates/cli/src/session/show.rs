//! `coffer session show`.

use clap::Args;
use wire::v1::{ListSessionsRequest, Session};

use super::select;
use crate::client::{Context, quick};
use crate::failure::{Ended, Failure};
use crate::ids::Named;
use crate::output::Output;
use crate::process::show;
use crate::run_ref::RunRef;

/// Show a session of a run, with the process of its shell.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer session show 3f2a9c01 build")]
pub(crate) struct Show {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The session: its id, a unique beginning or end of it, or its tag.
    #[arg(value_name = "SESSION")]
    session: Named,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let id = select::resolve(&self.session, &client, &run_id).await?;
        let request = ListSessionsRequest { run_id, tag: String::new() };
        let listed = client.sessions().list_sessions(quick(request)).await?.into_inner();
        let found = listed.sessions.into_iter().find(|session| session.session_id == id);
        let session = found.ok_or_else(|| {
            Failure::failed(format!("the run has no session {id}"))
                .with_hint("`coffer session list RUN` shows its sessions")
        })?;
        context.ui.answer(session, |session, page| render(&session, page))
    }
}

fn render(session: &Session, page: &mut Output) {
    let mut facts =
        vec![("session", session.session_id.clone()), ("shell", session.state().as_str_name().to_owned())];
    if let Some(process) = &session.process {
        facts.extend(show::facts(process));
    }
    page.facts(&facts);
}

#[cfg(test)]
mod tests {
    use wire::v1::session::State;
    use wire::v1::{Process, ProcessRequest};

    use super::*;
    use crate::output::Look;

    #[test]
    fn a_session_is_shown_with_its_process() {
        let request = ProcessRequest { tag: "build".into(), session: true, ..Default::default() };
        let process = Process { process_id: "p".into(), request: Some(request), ..Default::default() };
        let session = Session { session_id: "s".into(), state: State::Busy.into(), process: Some(process) };
        let mut page = Output::new(Look::PIPE);
        render(&session, &mut page);
        let shown = page.as_str();
        assert!(shown.starts_with("session      s\nshell        BUSY\nprocess      p\n"), "{shown}");
        assert!(shown.contains("\ntag          build\n"), "{shown}");
    }
}
