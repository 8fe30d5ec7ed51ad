//! `coffer manual`: the manual pages, for packages.

use std::path::PathBuf;

use clap::{Args, Command};

use crate::exit::Exit;
use crate::failure::Ended;

/// Write a manual page for each command.
#[derive(Args, Debug)]
#[command(hide = true, before_help = "Example: coffer manual /usr/local/share/man/man1")]
pub(crate) struct Manual {
    /// An existing directory for the pages.
    directory: PathBuf,
}

impl Manual {
    pub(crate) fn run(self, coffer: Command) -> Ended {
        clap_mangen::generate_to(coffer, self.directory)?;
        Ok(Exit::Ok)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_shown_command_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        Manual { directory: directory.path().into() }.run(Cli::command()).unwrap();
        let page = std::fs::read_to_string(directory.path().join("coffer-run-create.1")).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && page.contains("profile"), "{page}");
        assert!(directory.path().join("coffer.1").exists());
        assert!(!directory.path().join("coffer-manual.1").exists(), "hidden commands have none");
    }
}
