//! `coffer process send`.

use std::io::Read as _;

use clap::Args;
use wire::v1::{ListProcessesRequest, WriteStdinRequest};

use super::select;
use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::ids::Named;
use crate::run_ref::RunRef;

/// Size of one request, in bytes.
const PIECE: usize = 256 * 1024;
/// Length of the longest input that `coffer` reads, in bytes.
const MOST: u64 = 64 << 20;
const TOO_LONG: &str = "standard input is longer than 64 MiB, and nothing was sent: send it in parts";

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
                std::io::stdin().take(MOST + 1).read_to_end(&mut data).map_err(Failure::from)?;
                if data.len() as u64 > MOST {
                    return Err(Failure::usage(TOO_LONG));
                }
                data
            }
        };
        // Gets the present position of the process's input, so that this text comes after the texts of others.
        let listed = ListProcessesRequest { run_id: run_id.clone(), tag: String::new() };
        let listed = client.processes().list_processes(quick(listed)).await?.into_inner().processes;
        let known = listed.into_iter().find(|process| process.process_id == process_id);
        let mut offset = known.map_or(0, |process| process.stdin_bytes);
        let mut rest = &data[..];
        loop {
            let piece = &rest[..rest.len().min(PIECE)];
            let last = piece.len() == rest.len();
            let request = WriteStdinRequest {
                run_id: run_id.clone(),
                process_id: process_id.clone(),
                offset,
                data: piece.to_vec(),
                close: self.close && last,
            };
            let answer = client.processes().write_stdin(request).await?.into_inner();
            rest = unread(rest, piece.len(), offset, answer.offset)?;
            offset = answer.offset;
            if rest.is_empty() && (!self.close || !answer.open || last) {
                return Ok(Exit::Ok);
            }
            if !answer.open {
                return Err(Failure::failed("the process has closed its standard input"));
            }
        }
    }
}

/// Returns the part of `rest` that the process was not given yet, after a piece of it was sent to `offset` and the input reached `taken`.
fn unread(rest: &[u8], piece: usize, offset: u64, taken: u64) -> Result<&[u8], Failure> {
    // The daemon skips bytes at positions that the process was given already, also if another client wrote them.
    let given = taken.checked_sub(offset).and_then(|given| usize::try_from(given).ok());
    given.filter(|given| *given <= piece).and_then(|given| rest.get(given..)).ok_or_else(|| {
        Failure::failed(
            "another client wrote to the process at the same time: some of this input was not sent",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::unread;

    #[test]
    fn input_whose_offset_another_client_took_is_not_reported_as_given() {
        assert_eq!(unread(b"abcdef", 4, 10, 14).unwrap(), b"ef");
        assert_eq!(unread(b"abcdef", 4, 10, 11).unwrap(), b"bcdef");
        assert_eq!(unread(b"", 0, 10, 10).unwrap(), b"");
        for taken in [9, 15, 16, 17, u64::MAX] {
            let failure = unread(b"abcdef", 4, 10, taken).unwrap_err();
            assert!(failure.to_string().contains("another client"), "{failure}");
        }
    }
}
