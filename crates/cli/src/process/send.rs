//! `coffer process send`.

use std::io::Read as _;

use clap::Args;
use wire::v1::{ListProcessesRequest, WriteStdinRequest, WriteStdinResponse};

use super::select;
use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::ids::Named;
use crate::run::RunRef;

/// Size of one request, in bytes.
const PIECE: usize = 256 * 1024;
/// Length of the longest input that `coffer` reads, in bytes.
const MOST: u64 = 64 << 20;

/// Send input to a process.
///
/// Sends TEXT and a line break, or standard input where there is no TEXT.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer process send 3f2a9c01 repl 'print(6 * 7)'")]
pub(crate) struct Send {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The process: its id, a unique beginning or end of it, or its tag.
    #[arg(value_name = "PROCESS")]
    process: Named,
    /// The text to send.
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// Send no line break after TEXT.
    #[arg(long, short = 'n')]
    no_newline: bool,
    /// Close its standard input afterwards.
    #[arg(long)]
    close: bool,
}

impl Send {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let process_id = select::resolve(&self.process, &client, &run_id).await?;
        let data = match self.text {
            Some(text) if self.no_newline => text.into_bytes(),
            Some(text) => format!("{text}\n").into_bytes(),
            None => {
                let mut data = Vec::new();
                std::io::stdin().take(MOST).read_to_end(&mut data).map_err(Failure::from)?;
                data
            }
        };
        // Gets the present position of the process's input, so that this text comes after the texts of others.
        let listed = ListProcessesRequest { run_id: run_id.clone(), tag: String::new() };
        let listed = client.processes().list_processes(quick(listed)).await?.into_inner().processes;
        let known = listed.into_iter().find(|process| process.process_id == process_id);
        let mut offset = known.map_or(0, |process| process.stdin_bytes);
        let end = offset + data.len() as u64;
        loop {
            let start = data.len() - usize::try_from(end - offset).unwrap_or_default();
            let piece = &data[start..data.len().min(start + PIECE)];
            let last = start + piece.len() == data.len();
            let request = WriteStdinRequest {
                run_id: run_id.clone(),
                process_id: process_id.clone(),
                offset,
                data: piece.to_vec(),
                close: self.close && last,
            };
            let WriteStdinResponse { offset: taken, open } =
                client.processes().write_stdin(request).await?.into_inner();
            offset = taken;
            if offset >= end && (!self.close || !open || last) {
                return Ok(Exit::Ok);
            }
            if !open {
                return Err(Failure::failed("the process has closed its standard input"));
            }
        }
    }
}
