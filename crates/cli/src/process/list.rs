//! `coffer process list`.

use clap::Args;
use command_context::failure::of_process;
use wire::v1::process::State;
use wire::v1::{ListProcessesRequest, Process};

use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::output::Output;
use crate::run_ref::RunRef;
use crate::{ids, time};

/// List the processes of a run, the oldest first.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer process list 3f2a9c01")]
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
        let request = ListProcessesRequest { run_id, tag: self.tag };
        let listed = client.processes().list_processes(quick(request)).await?.into_inner();
        context.ui.answer_and_talk(listed, |listed, page, talk| {
            render(&listed.processes, &time::now(), page);
            if listed.processes.is_empty() {
                talk.own("no processes\n");
            }
        })
    }
}

fn render(processes: &[Process], now: &wire::Timestamp, page: &mut Output) {
    if processes.is_empty() {
        return;
    }
    let end = ids::ends(processes.iter().map(|process| process.process_id.as_str()));
    let rows = processes.iter().map(|process| {
        let request = process.request.clone().unwrap_or_default();
        let until = process.ended_at.as_ref().unwrap_or(now);
        vec![
            end(&process.process_id),
            process.state().as_str_name().into(),
            how(process),
            ids::or_dash(&request.tag),
            time::span(process.started_at.as_ref(), Some(until)),
            command(&request) + if process.request_cut { "…" } else { "" },
        ]
    });
    page.table(&["PROCESS", "STATE", "END", "TAG", "AGE", "COMMAND"], rows);
    for process in processes.iter().filter(|process| !process.failure.is_empty()) {
        page.own("  ").word(&end(&process.process_id)).own(": ").word(&of_process(process)).own("\n");
    }
}

pub(crate) fn command(request: &wire::v1::ProcessRequest) -> String {
    if request.session {
        "(session)".to_owned()
    } else if request.script.is_empty() {
        std::iter::once(&request.command).chain(&request.args).cloned().collect::<Vec<_>>().join(" ")
    } else {
        request.script.clone()
    }
}

/// Describes in a word or two how a process ended, or that a call left it running.
pub(super) fn how(process: &Process) -> String {
    match (process.state(), process.ended_by().word(), process.exit_code) {
        (State::Running | State::Unspecified, ..) if process.left_behind > 0 => {
            format!("left by a call: {}", process.left_behind)
        }
        (State::Running | State::Unspecified, ..) => "-".to_owned(),
        (_, None, Some(code)) => format!("exit {code}"),
        (_, None, None) => "?".to_owned(),
        (_, Some(by), _) => by,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_process() {
        let request = wire::v1::ProcessRequest {
            command: "node".into(),
            args: vec!["a\x1b[2J.js".into()],
            tag: "web".into(),
            ..Default::default()
        };
        let running = Process {
            process_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            state: State::Running.into(),
            request: Some(request),
            started_at: Some(wire::Timestamp { seconds: 1000, nanos: 0 }),
            ..Default::default()
        };
        let ended = Process {
            process_id: "0198a1b2-0000-7000-8000-00000000bbbb".into(),
            state: State::Ended.into(),
            exit_code: Some(3),
            ..running.clone()
        };
        let cut = Process { request_cut: true, ..ended.clone() };
        let left = Process { left_behind: 2, ..running.clone() };
        let mut page = Output::new(Look::PIPE);
        render(&[running, ended, cut, left], &wire::Timestamp { seconds: 1090, nanos: 0 }, &mut page);
        let shown = page.as_str();
        assert!(shown.contains("0000aaaa  RUNNING  -") && shown.contains("exit 3"), "{shown}");
        assert!(shown.contains("RUNNING  left by a call: 2"), "{shown}");
        assert!(shown.contains("node a␛[2J.js") && shown.contains("web"), "{shown}");
        assert_eq!((shown.matches("[2J.js…").count(), shown.matches('…').count()), (1, 1), "{shown}");
    }
}
