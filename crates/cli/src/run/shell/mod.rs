//! `coffer run shell`: the local terminal becomes one in the run.
//!
//! All other commands of `coffer` make output from a run harmless before they print it. This one does not, because the program in the run
//! must be able to control the terminal, as with `ssh`. Keys are sent to it as bytes, including Ctrl-C.

mod escape;
mod raw;
mod session;
mod threads;

use clap::Args;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use wire::v1::open_terminal_request::Event as Said;
use wire::v1::open_terminal_response::Event as Shown;
use wire::v1::terminal_closed::Reason;
use wire::v1::{OpenTerminalRequest, TerminalClosed, TerminalStart};

use self::session::{End, Session};
use super::RunRef;
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};

/// Number of messages to the daemon that can wait.
const WAITING: usize = 64;
/// Length of the longest TERM that the daemon accepts.
const MAX_TERM: usize = 64;

/// Open a terminal in a run. For operators.
///
/// All input and output is recorded, including passwords. Processes of the run have the shell's user: they can read what you type
/// and draw on the terminal, so type no secret and believe no prompt. With --paused they are frozen until the session ends.
/// `~.` at the beginning of a line leaves the session, `~?` lists the other escapes. `coffer` exits with the command's exit
/// code, or with 128 plus the number of the signal that ended it.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run shell 3f2a9c01")]
pub(crate) struct Shell {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// Working directory. Default: @project.
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Pause the run, but for the terminal, until the session ends.
    ///
    /// All other processes of the run are frozen before the command starts, and calls are refused as after `coffer run pause`.
    /// Only what runs in the terminal can read what you type; a program that the run has written is no safer than before.
    /// The default shell reads no startup file and keeps no history. Refused where a run cannot be paused (gVisor, a rootless
    /// engine), and while it is paused already.
    #[arg(long)]
    paused: bool,
    /// The command to run. Default: a login shell.
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

impl Shell {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        raw::needed()?;
        let client = context.connect().await?;
        let start = TerminalStart {
            run_id: self.run.resolve(&client).await?,
            command: self.command,
            cwd: self.cwd.unwrap_or_default(),
            term: term(std::env::var("TERM").ok()),
            size: raw::size(),
            paused: self.paused,
        };
        let (say, said) = mpsc::channel(WAITING);
        // The empty channel has capacity for the first message.
        let _ = say.try_send(OpenTerminalRequest { event: Some(Said::Start(start)) });
        let mut shown = client.terminals().open_terminal(ReceiverStream::new(said)).await?.into_inner();
        let opened = shown.message().await?.and_then(|response| response.event);
        let Some(Shown::Opened(opened)) = opened else {
            return Err(Failure::failed("the daemon opened no session"));
        };
        if self.paused && !opened.paused {
            // The session ends with its stream.
            return Err(Failure::failed(
                "this daemon cannot pause a run for a terminal; no session was used",
            )
            .with_hint("update the daemon, or leave --paused out and type no secret"));
        }
        let paused = if opened.paused { "; the rest of the run is frozen until it ends" } else { "" };
        ui.note(&format!(
            "session {}, recorded; ~. at the beginning of a line leaves it{paused}",
            opened.session_id
        ));

        let ended = Session::new(say, shown)?.attend().await;
        match ended? {
            End::Closed(closed) => closing(&closed).map_or(Ok(exit(&closed)), Err),
            End::Left => {
                ui.note("left the session; its processes are ended");
                Ok(Exit::Ok)
            }
            End::Signalled(number) => Ok(Exit::Command(128 + number)),
        }
    }
}

/// Returns the failure of a session whose program did not end by itself.
fn closing(closed: &TerminalClosed) -> Option<Failure> {
    let why = match closed.reason() {
        Reason::Exited => return None,
        Reason::Disconnected => "the daemon considered the connection lost",
        Reason::RunEnded => "the run ended, or the daemon was stopped",
        Reason::TimedOut => "it was idle for too long, or reached the maximum lifetime of a session",
        Reason::RecordingFull => "its recording is full, and a session must be recorded: open another one",
        Reason::Lost => "the worker in the run crashed and is restarting: open another session",
        Reason::Unspecified => "for a reason that this version of coffer does not know",
    };
    Some(Failure::failed(format!("the session ended: {why}")))
}

/// Returns the exit code as a shell does: 128 plus the number of a signal.
fn exit(closed: &TerminalClosed) -> Exit {
    let code = match (closed.exit_code, closed.signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => return Exit::Failed,
    };
    u8::try_from(code).map_or(Exit::Failed, Exit::Command)
}

/// Returns the local TERM, or an empty text if the daemon would not accept it.
fn term(term: Option<String>) -> String {
    let plain = |term: &String| {
        term.len() <= MAX_TERM
            && term.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-+.".contains(&byte))
    };
    term.filter(plain).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(reason: Reason, exit_code: Option<i32>, signal: Option<i32>) -> TerminalClosed {
        TerminalClosed { reason: reason.into(), exit_code, signal }
    }

    #[test]
    fn the_exit_code_is_the_commands() {
        let code = |exit_code, signal| exit(&closed(Reason::Exited, exit_code, signal));
        assert_eq!(code(Some(0), None), Exit::Command(0));
        assert_eq!(code(Some(7), None), Exit::Command(7));
        assert_eq!(code(None, Some(9)), Exit::Command(137));
        assert_eq!(code(Some(-1), None), Exit::Failed);
        assert_eq!(code(None, None), Exit::Failed);
    }

    #[test]
    fn an_end_with_the_run_is_reported() {
        assert!(closing(&closed(Reason::Exited, Some(7), None)).is_none());
        let said = closing(&closed(Reason::RunEnded, None, Some(9))).unwrap();
        assert_eq!(
            (said.to_string().as_str(), said.exit()),
            ("the session ended: the run ended, or the daemon was stopped", Exit::Failed)
        );
    }

    #[test]
    fn a_terminal_that_the_daemon_would_refuse_is_left_out() {
        assert_eq!(term(Some("screen.xterm-256color".into())), "screen.xterm-256color");
        for odd in ["a b", "../x", "ä"] {
            assert_eq!(term(Some(odd.into())), "");
        }
        assert_eq!(term(None), "");
    }
}
