//! `coffer completions`: a shell's completion script.

use std::io::Write;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Exit;
use crate::failure::Failure;

/// Print a shell's completion script.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer completions bash > /etc/bash_completion.d/coffer")]
pub(crate) struct Completions {
    /// For which shell.
    shell: Supported,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Supported {
    Bash,
    Zsh,
    Fish,
}

impl Completions {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        std::io::stdout().write_all(&self.script())?;
        Ok(Exit::Ok)
    }

    fn script(&self) -> Vec<u8> {
        let shell = match self.shell {
            Supported::Bash => Shell::Bash,
            Supported::Zsh => Shell::Zsh,
            Supported::Fish => Shell::Fish,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "coffer", &mut script);
        script
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_learns_the_verbs() {
        for shell in [Supported::Bash, Supported::Zsh, Supported::Fish] {
            let script = String::from_utf8(Completions { shell }.script()).unwrap();
            assert!(script.contains("approval") && script.contains("doctor"), "{shell:?}");
        }
    }
}
