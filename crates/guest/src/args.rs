//! The command line. Only the daemon writes it, so there is no help and no guessing.

use std::ffi::OsString;
use std::path::PathBuf;

use jail::Mount;
use thiserror::Error;

/// Directories, other than the mounts, that every run can write to.
pub(crate) const IN_MEMORY: [&str; 2] = ["/tmp", "/dev/shm"];

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Process 1 of a container.
    Hold,
    /// The guest of a run.
    Serve(Serve),
    /// The keeper of a process that outlives its call.
    Keep,
    /// The relay, which holds the engine's streams for a guest.
    Relay,
    /// Ends all other processes of its user.
    Sweep,
    /// Empties the pipes of a command for the processes that it left running.
    Drain,
    /// Becomes the program of a companion.
    Companion,
}

/// Options of `serve`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Serve {
    pub(crate) mounts: Mounts,
    /// True if the guest uses a relay, instead of descriptors 0 and 1.
    pub(crate) relayed: bool,
}

/// Directories of the mounts. The default is their path in every container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounts {
    at: [(Mount, PathBuf); 3],
}

/// An error in the command line. The daemon never writes such a line.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ArgsError {
    #[error("say `hold`, `serve`, `keep`, `relay`, `sweep`, `drain` or `companion`")]
    NoCommand,
    #[error("an unknown argument; `serve` takes --relayed, --project DIR, --pkg DIR and --state DIR")]
    Unknown,
    #[error("a directory is missing after the last argument")]
    NoValue,
}

impl Default for Mounts {
    fn default() -> Self {
        Self { at: Mount::ALL.map(|mount| (mount, PathBuf::from(mount.container_path()))) }
    }
}

impl Mounts {
    /// Returns each mount and its directory, which need not exist.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Mount, &PathBuf)> {
        self.at.iter().map(|(mount, at)| (*mount, at))
    }

    fn set(&mut self, mount: Mount, to: OsString) {
        for (known, at) in &mut self.at {
            if *known == mount {
                *at = to.into();
                return;
            }
        }
    }
}

/// Parses the arguments after the program's name.
pub(crate) fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Command, ArgsError> {
    let command = args.next().ok_or(ArgsError::NoCommand)?;
    let alone = match command.to_str() {
        Some("hold") => Command::Hold,
        Some("serve") => return serve(args).map(Command::Serve),
        Some("keep") => Command::Keep,
        Some("relay") => Command::Relay,
        Some("sweep") => Command::Sweep,
        Some("drain") => Command::Drain,
        Some("companion") => Command::Companion,
        _ => return Err(ArgsError::NoCommand),
    };
    args.next().map_or(Ok(alone), |_| Err(ArgsError::Unknown))
}

fn serve(mut args: impl Iterator<Item = OsString>) -> Result<Serve, ArgsError> {
    let mut serve = Serve::default();
    while let Some(name) = args.next() {
        let mount = match name.to_str() {
            Some("--relayed") => {
                serve.relayed = true;
                continue;
            }
            Some("--project") => Mount::Project,
            Some("--pkg") => Mount::Pkg,
            Some("--state") => Mount::State,
            _ => return Err(ArgsError::Unknown),
        };
        serve.mounts.set(mount, args.next().ok_or(ArgsError::NoValue)?);
    }
    Ok(serve)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, ArgsError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn arguments_of_the_daemon_are_parsed() {
        assert_eq!(parsed("hold"), Ok(Command::Hold));
        assert_eq!(parsed("keep"), Ok(Command::Keep));
        assert_eq!(parsed("relay"), Ok(Command::Relay));
        assert_eq!(parsed("sweep"), Ok(Command::Sweep));
        assert_eq!(parsed("drain"), Ok(Command::Drain));
        assert_eq!(parsed("companion"), Ok(Command::Companion));
        let relayed = Serve { relayed: true, ..Serve::default() };
        assert_eq!(parsed("serve --relayed"), Ok(Command::Serve(relayed)));
        let Ok(Command::Serve(serve)) = parsed("serve --state /s") else { panic!("not serve") };
        assert!(!serve.relayed);
        let at: Vec<_> = serve.mounts.iter().map(|(mount, at)| (mount, at.to_str().unwrap())).collect();
        assert_eq!(at, [(Mount::Project, "/workspace"), (Mount::Pkg, "/pkg"), (Mount::State, "/s")]);
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(parsed(""), Err(ArgsError::NoCommand));
        assert_eq!(parsed("run"), Err(ArgsError::NoCommand));
        assert_eq!(parsed("hold on"), Err(ArgsError::Unknown));
        assert_eq!(parsed("keep --state /s"), Err(ArgsError::Unknown));
        assert_eq!(parsed("sweep all"), Err(ArgsError::Unknown));
        assert_eq!(parsed("companion db"), Err(ArgsError::Unknown));
        assert_eq!(parsed("serve --root /"), Err(ArgsError::Unknown));
        assert_eq!(parsed("serve --state"), Err(ArgsError::NoValue));
    }
}
