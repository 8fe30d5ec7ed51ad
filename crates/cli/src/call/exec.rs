//! `coffer call exec`.

use clap::Args;
use wire::v1::ExecRequest;
use wire::v1::operation::Kind as Operation;

use super::live::Live;
use super::surroundings::{Surroundings, timeout_ms};
use super::{CallOptions, Target};
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};

/// Run one command, without a shell.
///
/// Prints the command's output as it arrives. `coffer` exits with the command's exit code, or with 128 plus
/// the number of the signal that ended it. 123: the call waits for an approval. 124: the command timed out.
/// 125: the call failed, or a part of its output was lost. 126: the call was denied, or the program cannot be run.
/// 127: there is no such program. Ctrl-C ends the command
/// and every process that it started.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call exec 3f2a9c01 -- wc -l README.md")]
pub(crate) struct Exec {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    surroundings: Surroundings,
    #[command(flatten)]
    live: Live,
    #[command(flatten)]
    options: CallOptions,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    argv: Vec<String>,
}

impl Exec {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (target, live, options, operation) = self.request()?;
        let made = live.make(context, &target, options, Operation::Exec(operation)).await;
        made.map(Exit::beside_a_command).map_err(Failure::beside_a_command)
    }

    fn request(self) -> Result<(Target, Live, CallOptions, ExecRequest), Failure> {
        let mut argv = self.argv.into_iter();
        let operation = ExecRequest {
            command: argv.next().unwrap_or_default(),
            args: argv.collect(),
            stdin: self.surroundings.stdin()?,
            stdin_file: self.surroundings.stdin_file,
            timeout_ms: timeout_ms(&self.options),
            cwd: self.surroundings.cwd.unwrap_or_default(),
            env: self.surroundings.env.into_iter().collect(),
            only_reads: false,
        };
        // The command's own timeout gives a result with the output so far. The call's timeout would not.
        Ok((self.target, self.live, CallOptions { timeout: None, ..self.options }, operation))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        exec: Exec,
    }

    #[test]
    fn argv_stays_as_it_is() {
        let line = "exec r --cwd src --env A=1 --timeout 5s --wait -- grep -c --output x a.txt";
        let line = Line::try_parse_from(line.split(' ')).unwrap();
        let (_, _, options, request) = line.exec.request().unwrap();
        assert_eq!((options.timeout, options.wait), (None, true));
        assert_eq!(
            request,
            ExecRequest {
                command: "grep".into(),
                args: ["-c", "--output", "x", "a.txt"].map(Into::into).into(),
                cwd: "src".into(),
                env: [("A".into(), "1".into())].into(),
                stdin: Vec::new(),
                stdin_file: String::new(),
                timeout_ms: Some(5000),
                only_reads: false,
            }
        );
    }

    #[test]
    fn standard_input_is_a_file_here_or_a_file_of_the_run() {
        let parse = |line: &str| Line::try_parse_from(line.split(' ')).map(|line| line.exec);
        let (.., request) = parse("exec r --stdin-file @state/in -- wc -c").unwrap().request().unwrap();
        assert_eq!((request.stdin_file.as_str(), request.stdin.len()), ("@state/in", 0));
        assert!(parse("exec r --stdin-file in --stdin - -- wc").is_err());
    }

    #[test]
    fn command_is_required_after_the_dashes() {
        assert!(Line::try_parse_from(["exec", "r"]).is_err());
        assert!(Line::try_parse_from(["exec", "r", "--"]).is_err());
        assert!(Line::try_parse_from(["exec", "r", "ls"]).is_err());
    }
}
