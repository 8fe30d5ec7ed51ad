//! `coffer process logs`.

use clap::Args;
use wire::v1::attach_process_response::Event;
use wire::v1::{AttachProcessRequest, ProcessStream};

use super::select;
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::ids::Named;
use crate::quantity::bytes;
use crate::run_ref::RunRef;

/// Print what a process has written.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer process logs 3f2a9c01 web --follow")]
pub(crate) struct Logs {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The process: its id, a unique beginning or end of it, or its tag.
    #[arg(value_name = "PROCESS")]
    process: Named,
    /// Go on until the process has ended.
    #[arg(long, short)]
    follow: bool,
}

impl Logs {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        let (client, run_id) = context.connect_to(&self.run).await?;
        let process_id = select::resolve(&self.process, &client, &run_id).await?;
        let request = AttachProcessRequest { run_id, process_id, follow: self.follow, ..Default::default() };
        let mut events = client.processes().attach_process(request).await?.into_inner();
        let [mut stdout, mut stderr] = ui.outlets();
        while let Some(response) = events.message().await? {
            if ui.is_structured() {
                ui.line(&response)?;
                continue;
            }
            match response.event {
                Some(Event::Output(output)) => {
                    let outlet =
                        if output.stream() == ProcessStream::Stderr { &mut stderr } else { &mut stdout };
                    outlet.write(&output.data).map_err(Failure::from)?;
                }
                Some(Event::Gap(gap)) => ui.note(&format!("{} are not kept", bytes(gap.bytes))),
                Some(Event::Process(_)) | None => {}
            }
        }
        if !ui.is_structured() {
            for outlet in [&mut stdout, &mut stderr] {
                outlet.end().map_err(Failure::from)?;
            }
        }
        Ok(Exit::Ok)
    }
}
