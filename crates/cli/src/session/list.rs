//! `coffer session list`.

use clap::Args;
use wire::v1::{ListSessionsRequest, Session};

use super::select::tag;
use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::output::Output;
use crate::run_ref::RunRef;
use crate::{ids, time};

/// List the sessions of a run, the oldest first.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer session list 3f2a9c01")]
pub(crate) struct List {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// Only those with this tag.
    #[arg(long, value_name = "TAG", default_value = "", hide_default_value = true)]
    tag: String,
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let request = ListSessionsRequest { run_id, tag: self.tag };
        let listed = client.sessions().list_sessions(quick(request)).await?.into_inner();
        context.ui.answer_and_talk(listed, |listed, page, talk| {
            render(&listed.sessions, &time::now(), page);
            if listed.sessions.is_empty() {
                talk.own("no sessions\n");
            }
        })
    }
}

fn render(sessions: &[Session], now: &wire::Timestamp, page: &mut Output) {
    if sessions.is_empty() {
        return;
    }
    let end = ids::ends(sessions.iter().map(|session| session.session_id.as_str()));
    let rows = sessions.iter().map(|session| {
        let process = session.process.clone().unwrap_or_default();
        let until = process.ended_at.as_ref().unwrap_or(now);
        vec![
            end(&session.session_id),
            session.state().as_str_name().into(),
            ids::or_dash(tag(session)),
            time::span(process.started_at.as_ref(), Some(until)),
        ]
    });
    page.table(&["SESSION", "STATE", "TAG", "AGE"], rows);
}

#[cfg(test)]
mod tests {
    use wire::v1::session::State;
    use wire::v1::{Process, ProcessRequest};

    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_session() {
        let request = ProcessRequest { tag: "build".into(), ..Default::default() };
        let process = Process {
            request: Some(request),
            started_at: Some(wire::Timestamp { seconds: 1000, nanos: 0 }),
            ..Default::default()
        };
        let session = Session {
            session_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            state: State::Busy.into(),
            process: Some(process),
        };
        let mut page = Output::new(Look::PIPE);
        render(&[session], &wire::Timestamp { seconds: 1090, nanos: 0 }, &mut page);
        let shown = page.as_str();
        assert!(shown.contains("0000aaaa  BUSY   build"), "{shown}");
    }
}
