//! `coffer call shell`.

use std::path::Path;

use clap::Args;
use wire::v1::ShellRequest;
use wire::v1::operation::Kind as Operation;

use super::live::Live;
use super::surroundings::{Surroundings, timeout_ms};
use super::{CallOptions, Target, stdin};
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};

/// Run a shell script, if the profile allows scripts.
///
/// Runs in a login shell: bash, or sh if the image has no bash. Prints the script's output as it arrives.
/// `coffer` exits as with `call exec`: with the script's exit code, or with 123 to 126. Ctrl-C ends the
/// script and every process that it started.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call shell 3f2a9c01 'make 2>&1 | tail -n 20'")]
pub(crate) struct Shell {
    #[command(flatten)]
    target: Target,
    /// The script; `-` for coffer's standard input.
    #[arg(value_name = "SCRIPT")]
    script: String,
    #[command(flatten)]
    surroundings: Surroundings,
    #[command(flatten)]
    live: Live,
    #[command(flatten)]
    options: CallOptions,
}

impl Shell {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (target, live, options, operation) = self.request()?;
        let made = live.make(context, &target, options, Operation::Shell(operation)).await;
        made.map(Exit::beside_a_command).map_err(Failure::beside_a_command)
    }

    fn request(self) -> Result<(Target, Live, CallOptions, ShellRequest), Failure> {
        let operation = ShellRequest {
            stdin: self.surroundings.stdin()?,
            script: script(self.script, self.surroundings.takes_stdin())?,
            stdin_file: self.surroundings.stdin_file,
            timeout_ms: timeout_ms(&self.options),
            cwd: self.surroundings.cwd.unwrap_or_default(),
            env: self.surroundings.env.into_iter().collect(),
        };
        // The script's own timeout gives a result with the output so far. The call's timeout would not.
        Ok((self.target, self.live, CallOptions { timeout: None, ..self.options }, operation))
    }
}

fn script(given: String, stdin_is_taken: bool) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given);
    }
    if stdin_is_taken {
        return Err(Failure::usage("standard input cannot be both the script and the script's input")
            .with_hint("give the script as an argument, or its input as a file"));
    }
    let bytes = stdin::read(Path::new("-"))?;
    String::from_utf8(bytes).map_err(|_| Failure::usage("the script on standard input is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        shell: Shell,
    }

    fn parse(line: &[&str]) -> Result<Shell, clap::Error> {
        Line::try_parse_from(line).map(|line| line.shell)
    }

    #[test]
    fn a_script_is_one_argument() {
        let line =
            ["shell", "r", "make && ls -l", "--cwd", "src", "--env", "A=1", "--timeout", "5s", "--wait"];
        let (_, _, options, request) = parse(&line).unwrap().request().unwrap();
        assert_eq!((options.timeout, options.wait), (None, true));
        assert_eq!(
            request,
            ShellRequest {
                script: "make && ls -l".into(),
                cwd: "src".into(),
                env: [("A".into(), "1".into())].into(),
                stdin: Vec::new(),
                stdin_file: String::new(),
                timeout_ms: Some(5000),
            }
        );
        assert!(parse(&["shell", "r"]).is_err());
        assert!(parse(&["shell", "r", "ls", "-l"]).is_err(), "not a command and its arguments");
        assert_eq!(parse(&["shell", "r", "--", "-x"]).unwrap().script, "-x");
    }

    #[test]
    fn standard_input_is_read_once() {
        let both = parse(&["shell", "r", "-", "--stdin", "-"]).unwrap();
        assert!(both.surroundings.takes_stdin());
        assert_eq!(script("-".into(), true).unwrap_err().exit(), Exit::Usage);
        assert_eq!(script("ls".into(), true).unwrap(), "ls");
    }
}
