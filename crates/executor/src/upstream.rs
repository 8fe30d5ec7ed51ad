//! A program in the container with which the daemon communicates over its standard streams while it runs: an MCP server.
//!
//! It is the only thing that is started here without a separate permit. Only the operator's policy determines the program. It is started
//! for a permitted call to it, or for an agent that may call it and asks for its tools.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mcp_upstream::{Fault, Output, Pipes};
use operations::{Bounds, Exec, Exit};
use policy::McpStdio;
use tokio::sync::mpsc;
use worker_protocol::client::{Finished, LaneError, OutputSink, OutputStream, TerminalSize, TerminalSpec};
use worker_protocol::convert::Reply;

use crate::lanes::Lanes;
use crate::placement::unique;

/// Longest time that a server runs. The next call starts another.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Most bytes that it may write in that time.
const MOST: u64 = 64 << 30;

/// Sink for the program's output.
struct Ear(mpsc::Sender<Output>);

impl OutputSink for Ear {
    fn take(
        &self,
        stream: OutputStream,
        _: u64,
        data: Bytes,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let output = match stream {
            OutputStream::Stdout => Output::Stdout(data),
            OutputStream::Stderr => Output::Stderr(data),
        };
        // An error means that the receiver is gone, and the program is about to end.
        Box::pin(async move { drop(self.0.send(output).await) })
    }
}

impl Lanes {
    /// Starts a server's program in the workspace, and in a leaf cgroup named after `name`.
    pub fn speak(&self, name: &str, program: &McpStdio, pipes: Pipes) -> Result<(), Fault> {
        let Pipes { mut input, output, end } = pipes;
        let (Some((command, args)), Some(size)) = (program.command.split_first(), TerminalSize::new(1, 1))
        else {
            return Err(Fault::Absent("it has no program".to_owned()));
        };
        let exec = Exec { env: program.env.clone(), ..Exec::new(command, args) };
        let spec = TerminalSpec {
            exec: &exec,
            login_shell: false,
            bounds: &Bounds { max_spool_bytes: MOST, max_output_bytes: 0, ..Bounds::default() },
            size,
            pipes: true,
            deadline: LONGEST,
            output: &(Arc::new(Ear(output.clone())) as _),
        };
        let placement = self.guest.leaf(&unique(name)).map(|leaf| Arc::new(leaf) as _);
        let terminal = self.guest.client().terminal(spec, placement, &end);
        let terminal = terminal.map_err(|error| not_started(&error))?;
        tokio::spawn(async move {
            let keyboard = terminal.keyboard();
            let written = async {
                while let Some(mut line) = input.recv().await {
                    line.push('\n');
                    if keyboard.write(line.as_bytes()).await.is_err() {
                        break;
                    }
                }
                // The program's end gives the reason.
                std::future::pending().await
            };
            let finished = tokio::select! {
                finished = terminal.finished() => finished,
                never = written => never,
            };
            drop(output.send(Output::Ended(ended(&finished))).await);
        });
        Ok(())
    }
}

fn not_started(error: &LaneError) -> Fault {
    Fault::Absent(match error {
        LaneError::Busy => {
            "this run has its maximum of MCP servers; end one first, or use another run".to_owned()
        }
        LaneError::Lost(_) => "the run's worker is lost".to_owned(),
        _ => "it could not be started".to_owned(),
    })
}

fn ended(finished: &Result<Finished<Reply>, LaneError>) -> Fault {
    match finished.as_ref().map(|finished| &finished.outcome) {
        Ok(Ok(Reply::Command(report))) => Fault::Lost(match report.exit {
            Exit::Code(code) => format!("its program ended with exit code {code}"),
            Exit::Signal(signal) => format!("its program was ended by signal {signal}"),
            Exit::Unknown => "its program ended".to_owned(),
        }),
        Ok(Ok(_)) => Fault::Lost("its program ended".to_owned()),
        Ok(Err(failure)) => Fault::Absent(format!("its program could not be run: {}", failure.message)),
        Err(LaneError::TimedOut) => {
            Fault::Lost("it reached the maximum lifetime of a server and was ended".to_owned())
        }
        Err(_) => Fault::Lost("the run's worker is lost".to_owned()),
    }
}
