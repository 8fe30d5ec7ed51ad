//! `coffer process show`.

use clap::Args;
use command_context::failure::of_process;
use wire::v1::{ListProcessesRequest, Process};

use super::{list, select};
use crate::client::{Context, quick};
use crate::failure::{Ended, Failure};
use crate::ids::Named;
use crate::run_ref::RunRef;
use crate::{quantity, time};

/// Show a process of a run.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer process show 3f2a9c01 web")]
pub(crate) struct Show {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The process: its id, a unique beginning or end of it, or its tag.
    #[arg(value_name = "PROCESS")]
    process: Named,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let id = select::resolve(&self.process, &client, &run_id).await?;
        let request = ListProcessesRequest { run_id, tag: String::new() };
        let listed = client.processes().list_processes(quick(request)).await?.into_inner();
        let found = listed.processes.into_iter().find(|process| process.process_id == id);
        let process = found.ok_or_else(|| {
            Failure::failed(format!("the run has no process {id}"))
                .with_hint("`coffer process list RUN` shows its processes")
        })?;
        context.ui.answer(process, |process, page| {
            page.facts(&facts(&process));
        })
    }
}

/// Returns the facts about a process, by their names.
pub(crate) fn facts(process: &Process) -> Vec<(&'static str, String)> {
    let request = process.request.clone().unwrap_or_default();
    let cut = if process.request_cut { "…" } else { "" };
    let size = |bytes: u64| if bytes == 0 { String::new() } else { quantity::bytes(bytes) };
    vec![
        ("process", process.process_id.clone()),
        ("run", process.run_id.clone()),
        ("state", process.state().as_str_name().into()),
        ("end", Some(list::how(process)).filter(|end| end != "-").unwrap_or_default()),
        ("failure", of_process(process)),
        ("tag", request.tag.clone()),
        ("command", list::command(&request) + cut),
        ("directory", request.cwd),
        ("started", time::known(process.started_at.as_ref())),
        ("ended", time::known(process.ended_at.as_ref())),
        ("output", size(process.stdout_bytes)),
        ("errors", size(process.stderr_bytes)),
        ("input", size(process.stdin_bytes)),
        ("peak memory", size(process.peak_memory_bytes)),
    ]
}

#[cfg(test)]
mod tests {
    use wire::v1::ProcessRequest;
    use wire::v1::process::State;

    use super::*;
    use crate::output::{Look, Output};

    #[test]
    fn facts_of_a_process_are_shown() {
        let process = Process {
            process_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            run_id: "r".into(),
            state: State::Ended.into(),
            request: Some(ProcessRequest {
                command: "node".into(),
                args: vec!["a\n.js".into()],
                tag: "web".into(),
                ..Default::default()
            }),
            exit_code: Some(3),
            stdout_bytes: 2048,
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        page.facts(&facts(&process));
        assert_eq!(
            page.as_str(),
            "process      0198a1b2-0000-7000-8000-00000000aaaa\n\
             run          r\n\
             state        ENDED\n\
             end          exit 3\n\
             tag          web\n\
             command      node a␊.js\n\
             output       2.0 KiB\n"
        );
    }
}
