//! `coffer process signal`, `wait` and `resize`.

use std::time::Duration;

use clap::Args;
use wire::v1::exec_result::EndedBy;
use wire::v1::process::State;
use wire::v1::signal_process_request::Signal as Kind;
use wire::v1::{Process, ResizeTerminalRequest, SignalProcessRequest, TerminalSize, WaitProcessRequest};

use super::{select, signals};
use crate::client::{Context, quick};
use crate::exit::{Exit, TIMED_OUT};
use crate::failure::Ended;
use crate::ids::Named;
use crate::run_ref::RunRef;

/// Longest time that the daemon waits at once.
const ONCE: Duration = Duration::from_secs(600);

/// Send a signal to a process.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer process signal 3f2a9c01 web TERM")]
pub(crate) struct Signal {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The process: its id, a unique beginning or end of it, or its tag.
    #[arg(value_name = "PROCESS")]
    process: Named,
    /// The signal: HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT, STOP or TSTP, in any case, also as SIGTERM or 15. KILL
    /// ends everything that it started.
    #[arg(value_name = "SIGNAL", default_value = "TERM", value_parser = signals::parse)]
    which: Kind,
}

/// Wait until a process has ended.
///
/// Exits with its exit code, or with 124 when a time is over first: that of `--timeout`, or its own. One that was
/// cut short and exited with 0 all the same is a failure, 1.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer process wait 3f2a9c01 web --timeout 5m")]
pub(crate) struct Wait {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The process: its id, a unique beginning or end of it, or its tag.
    #[arg(value_name = "PROCESS")]
    process: Named,
    /// How long to wait. Default: until it has ended.
    #[arg(long, value_name = "TIME", value_parser = crate::time::parse)]
    timeout: Option<Duration>,
}

/// Change the size of a process's terminal.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer process resize 3f2a9c01 shell 40 120")]
pub(crate) struct Resize {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The process: its id, a unique beginning or end of it, or its tag.
    #[arg(value_name = "PROCESS")]
    process: Named,
    /// Number of rows.
    #[arg(value_name = "ROWS")]
    rows: u32,
    /// Number of columns.
    #[arg(value_name = "COLUMNS")]
    columns: u32,
}

impl Signal {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let process_id = select::resolve(&self.process, &client, &run_id).await?;
        let request = SignalProcessRequest { run_id, process_id, signal: self.which.into() };
        client.processes().signal_process(quick(request)).await?;
        Ok(Exit::Ok)
    }
}

impl Wait {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let process_id = select::resolve(&self.process, &client, &run_id).await?;
        let began = std::time::Instant::now();
        loop {
            let left = self.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            let once = left.unwrap_or(ONCE).min(ONCE).max(Duration::from_millis(1));
            let request = WaitProcessRequest {
                run_id: run_id.clone(),
                process_id: process_id.clone(),
                timeout: Some(wire::duration(once)),
            };
            let process =
                client.processes().wait_process(request).await?.into_inner().process.unwrap_or_default();
            let over = process.state() != State::Running;
            if !over && left.is_none_or(|left| left > once) {
                continue;
            }
            let code = process.exit_code.and_then(|code| u8::try_from(code).ok());
            context.ui.answer_line(&process, |process, page| {
                page.own(process.state().as_str_name()).own(" ").word(&process.process_id).end_line();
            })?;
            return Ok(exit(&process, over, code));
        }
    }
}

/// Returns the exit code of `wait`. A process that was ended early has not succeeded, even if it exited with 0.
fn exit(process: &Process, over: bool, code: Option<u8>) -> Exit {
    match (over, process.ended_by(), code) {
        (false, ..) | (true, EndedBy::Timeout, _) => Exit::Command(TIMED_OUT),
        (true, EndedBy::Unspecified, Some(code)) | (true, _, Some(code @ 1..)) => Exit::Command(code),
        (true, _, Some(0) | None) => Exit::Failed,
    }
}

impl Resize {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let process_id = select::resolve(&self.process, &client, &run_id).await?;
        let size = Some(TerminalSize { rows: self.rows, columns: self.columns });
        client.processes().resize_terminal(quick(ResizeTerminalRequest { run_id, process_id, size })).await?;
        Ok(Exit::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_was_cut_short_fails() {
        let of = |by: EndedBy, code| exit(&Process { ended_by: by.into(), ..Default::default() }, true, code);
        assert_eq!(of(EndedBy::Unspecified, Some(0)), Exit::Command(0));
        assert_eq!(of(EndedBy::Unspecified, Some(3)), Exit::Command(3));
        assert_eq!(of(EndedBy::Timeout, Some(0)), Exit::Command(TIMED_OUT));
        assert_eq!(of(EndedBy::Killed, Some(0)), Exit::Failed);
        assert_eq!(of(EndedBy::MemoryLimit, Some(137)), Exit::Command(137));
        assert_eq!(of(EndedBy::Interrupted, None), Exit::Failed);
    }
}
