//! `coffer completions`: a shell's completion script.

use std::io::Write;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Exit;
use crate::failure::Ended;

/// Print a shell's completion script.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer completions bash > /etc/bash_completion.d/coffer")]
pub(crate) struct Completions {
    /// The shell that will run the script.
    #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]).try_map(|shell| shell.parse::<Shell>()))]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, coffer: &mut Command) -> Ended {
        std::io::stdout().write_all(&self.script(coffer))?;
        Ok(Exit::Ok)
    }

    fn script(&self, coffer: &mut Command) -> Vec<u8> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, coffer, "coffer", &mut script);
        script
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_shell_learns_the_verbs() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(Completions { shell }.script(&mut Cli::tree())).unwrap();
            assert!(script.contains("approval") && script.contains("doctor"), "{shell:?}");
        }
    }
}
