//! `coffer process start`.

use std::time::Duration;

use clap::Args;
use wire::v1::{ProcessRequest, StartProcessRequest, TerminalSize};

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Ended;
use crate::run_ref::RunRef;

/// Start a process that stays, and print its id.
///
/// It lives until its program ends, it is killed, its timeout passes or its run ends. Neither `coffer` nor the
/// daemon has to stay for it. The policy decides as it does for `coffer call exec`, by the operation `process`.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a flag of the command line
#[command(before_help = "Example: coffer process start 3f2a9c01 --tag web -- node server.js")]
pub(crate) struct Start {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// Give it a terminal instead of pipes.
    #[arg(long)]
    tty: bool,
    /// Keep its standard input open for `coffer process send`.
    #[arg(long)]
    stdin: bool,
    /// A name to find it by.
    #[arg(long, value_name = "TAG", default_value = "", hide_default_value = true)]
    tag: String,
    /// Working directory. Default: @project.
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    cwd: String,
    /// A variable of its environment. May be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = crate::quantity::parse_pair)]
    env: Vec<(String, String)>,
    /// Time after which it is ended, such as 90s or 2h. Default: when its run ends.
    #[arg(long, value_name = "TIME", value_parser = crate::time::parse)]
    timeout: Option<Duration>,
    /// Run the words as a shell script, joined with spaces.
    #[arg(long)]
    script: bool,
    /// Wait for the approval if one is needed.
    #[arg(long)]
    wait: bool,
    /// The command and its arguments.
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<String>,
}

impl Start {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let wait_for_approval = self.wait;
        let process = Some(self.request());
        let request = StartProcessRequest { run_id, process, wait_for_approval, ..Default::default() };
        let answer = client.processes().start_process(request).await?.into_inner();
        let pending = answer.process.is_none();
        context.ui.answer_and_talk(answer, |answer, page, talk| match &answer.process {
            Some(process) => {
                page.word(&process.process_id).end_line();
            }
            None => {
                talk.own("awaiting approval ").word(&answer.approval_id).end_line();
            }
        })?;
        Ok(if pending { Exit::AwaitingApproval } else { Exit::Ok })
    }

    fn request(self) -> ProcessRequest {
        let mut words = self.command.into_iter();
        let program = if self.script {
            ProcessRequest { script: words.collect::<Vec<_>>().join(" "), ..Default::default() }
        } else {
            let command = words.next().unwrap_or_default();
            ProcessRequest { command, args: words.collect(), ..Default::default() }
        };
        let size = || {
            let (rows, columns) = console::Term::stdout().size();
            TerminalSize { rows: rows.into(), columns: columns.into() }
        };
        ProcessRequest {
            cwd: self.cwd,
            env: self.env.into_iter().collect(),
            stdin: self.stdin,
            terminal: self.tty.then(size),
            tag: self.tag,
            timeout_ms: self.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            ..program
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        start: Start,
    }

    #[test]
    fn start_options_reach_the_request() {
        let line = "x - --stdin --tag web --env A=b=c --timeout 2h --cwd src -- node server.js --port 80";
        let made = Line::parse_from(line.split(' ')).start.request();
        let expected = ProcessRequest {
            command: "node".into(),
            args: ["server.js", "--port", "80"].map(str::to_owned).into(),
            cwd: "src".into(),
            env: [("A".to_owned(), "b=c".to_owned())].into(),
            stdin: true,
            tag: "web".into(),
            timeout_ms: Some(7_200_000),
            ..Default::default()
        };
        assert_eq!(made, expected);
        let script = Line::parse_from(["x", "-", "--script", "--", "a && b"]).start.request();
        assert_eq!(script, ProcessRequest { script: "a && b".into(), ..Default::default() });
    }
}
