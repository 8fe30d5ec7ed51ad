//! `coffer call exec`.

use std::path::PathBuf;

use clap::Args;
use wire::v1::call_request::Operation;
use wire::v1::call_response::Result as CallResult;
use wire::v1::{ExecRequest, ExecResult};

use super::{Manner, Target, make, stdin};
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::page::{Ink, Page};
use crate::quantity::{bytes, count, parse_pair};

/// Run one command, without a shell.
///
/// Its output goes where a command's output goes; `coffer` ends with 1 when the command fails.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call exec 3f2a9c01 -- wc -l README.md")]
pub(crate) struct Exec {
    #[command(flatten)]
    target: Target,
    /// Working directory. Default: @project.
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// A variable of its environment, if the profile allows the name; may be given many times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    env: Vec<(String, String)>,
    /// Its standard input; `-` for coffer's own. Default: none.
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    #[command(flatten)]
    manner: Manner,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    argv: Vec<String>,
}

impl Exec {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (target, manner, operation) = self.request()?;
        make(context, &target, manner, Operation::Exec(operation)).await
    }

    fn request(self) -> Result<(Target, Manner, ExecRequest), Failure> {
        let mut argv = self.argv.into_iter();
        let operation = ExecRequest {
            command: argv.next().unwrap_or_default(),
            args: argv.collect(),
            cwd: self.cwd.unwrap_or_default(),
            env: self.env.into_iter().collect(),
            stdin: self.stdin.as_deref().map(stdin::read).transpose()?.unwrap_or_default(),
            timeout_ms: self
                .manner
                .timeout
                .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
        };
        // The command's own timeout gives a result with the output so far; the call's would not.
        Ok((self.target, Manner { timeout: None, ..self.manner }, operation))
    }
}

/// Whether this is the result of a command that failed.
pub(super) fn went_wrong(result: Option<&CallResult>) -> bool {
    matches!(result, Some(CallResult::Exec(exec)) if exec.timed_out || exec.exit_code != Some(0))
}

pub(super) fn render(result: &ExecResult, data: &mut Page, talk: &mut Page) {
    data.raw(&result.stdout);
    talk.raw(&result.stderr);
    for (name, omitted) in
        [("standard output", result.stdout_omitted_bytes), ("standard error", result.stderr_omitted_bytes)]
    {
        if omitted > 0 {
            talk.end_line().ink(Ink::Yellow, "cut short").own(": ").word(&bytes(omitted));
            talk.own(" of ").word(name).own(" left out of the middle\n");
        }
    }
    if let Some(kill) = result.kill.as_ref().filter(|kill| kill.ended > 0 || kill.left > 0) {
        talk.end_line().word(&count(kill.ended.into(), "process", "processes"));
        talk.own(" that it left behind ended");
        if kill.left > 0 {
            talk.own(", ").ink(Ink::Red, &kill.left.to_string()).own(" still there");
        }
        talk.own("\n");
    }
    let end = match (result.timed_out, result.exit_code, result.signal) {
        (true, ..) => "the timeout ended the command".into(),
        (false, Some(0), _) => return,
        (false, Some(code), _) => format!("the command ended with exit code {code}"),
        (false, None, Some(signal)) => format!("signal {signal} ended the command"),
        (false, None, None) => "the command ended without an exit code".into(),
    };
    talk.end_line().ink(Ink::Red, "failed").own(": ").word(&end).own("\n");
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use wire::v1::KillEvidence;

    use super::*;
    use crate::page::Look;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        exec: Exec,
    }

    #[test]
    fn argv_stays_as_it_is() {
        let line = "exec r --cwd src --env A=1 --timeout 5s --wait -- grep -c --output x a.txt";
        let line = Line::try_parse_from(line.split(' ')).unwrap();
        let (_, manner, request) = line.exec.request().unwrap();
        assert_eq!((manner.timeout, manner.wait), (None, true));
        assert_eq!(
            request,
            ExecRequest {
                command: "grep".into(),
                args: ["-c", "--output", "x", "a.txt"].map(Into::into).into(),
                cwd: "src".into(),
                env: [("A".into(), "1".into())].into(),
                stdin: Vec::new(),
                timeout_ms: Some(5000),
            }
        );
    }

    #[test]
    fn a_command_is_needed_and_stands_behind_the_dashes() {
        assert!(Line::try_parse_from(["exec", "r"]).is_err());
        assert!(Line::try_parse_from(["exec", "r", "--"]).is_err());
        assert!(Line::try_parse_from(["exec", "r", "ls"]).is_err());
    }

    fn pages(result: &ExecResult) -> (String, String) {
        let (mut data, mut talk) = (Page::new(Look::PIPE), Page::new(Look::PIPE));
        render(result, &mut data, &mut talk);
        (data.as_str().into(), talk.as_str().into())
    }

    #[test]
    fn each_stream_goes_its_way() {
        let result = ExecResult {
            stdout: "out".into(),
            stderr: "err".into(),
            exit_code: Some(3),
            stderr_omitted_bytes: 2048,
            kill: Some(KillEvidence { ended: 2, left: 0, method: "cgroup-v2-kill".into() }),
            ..Default::default()
        };
        assert_eq!(
            pages(&result),
            (
                "out".into(),
                "err\ncut short: 2.0 KiB of standard error left out of the middle\n\
                 2 processes that it left behind ended\nfailed: the command ended with exit code 3\n"
                    .into()
            )
        );
    }

    #[test]
    fn every_end_has_its_words() {
        let talk = |result: ExecResult| pages(&result).1;
        assert_eq!(talk(ExecResult { exit_code: Some(0), ..Default::default() }), "");
        assert!(talk(ExecResult { signal: Some(9), ..Default::default() }).contains("signal 9"));
        assert!(
            talk(ExecResult { timed_out: true, signal: Some(9), ..Default::default() }).contains("timeout")
        );
        assert!(talk(ExecResult::default()).contains("without an exit code"));
    }
}
