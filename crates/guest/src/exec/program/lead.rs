//! Follows a program's path to the files that it leads to, and checks that each may be run.
//!
//! A path leads through symlinks to a file, and a script leads through its first line to an interpreter. Each of them has a name, which is
//! checked against the deny list and the protected paths.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jail::{Access, Jail, PathRefusal, SandboxPath};
use operations::{Bounds, Reason, ToolFailure, deny};
use rustix::fs::OFlags;
use text::excerpt;

use crate::args::IN_MEMORY;

/// Most links that the kernel follows.
const MAX_LINKS: usize = 40;
/// Most levels of scripts that are interpreted by scripts.
const MAX_INTERPRETERS: usize = 5;
/// Bytes of a first line that the kernel reads.
const FIRST_LINE: u64 = 256;
/// First bytes of a binary.
const ELF: &[u8] = b"\x7fELF";
/// Program that runs a text file whose first line names no interpreter.
const SHELL: &str = "/bin/sh";

/// Rules for each file on the way.
pub(super) struct Rules<'r> {
    /// The command as the call names it, for messages.
    pub(super) command: &'r str,
    /// Working directory of the command, against which the kernel resolves an interpreter.
    pub(super) cwd: &'r Path,
    /// Bounds of the call, with the programs that are denied.
    pub(super) bounds: &'r Bounds,
    pub(super) jail: &'r Jail,
}

impl Rules<'_> {
    /// Follows `path` to its end. Returns an interpreter if it does not exist.
    pub(super) fn follow(&self, path: &Path, args: &[String]) -> Result<Option<PathBuf>, ToolFailure> {
        self.file(path, args)?;
        let mut path = path.to_owned();
        for _ in 0..MAX_INTERPRETERS {
            let Some((interpreter, option)) = interpreter(&path) else { break };
            let interpreter = self.cwd.join(interpreter);
            let words: Vec<String> = option.split_whitespace().map(str::to_owned).collect();
            // Example: `#!/usr/bin/env rm`.
            words.iter().try_for_each(|word| self.name(word))?;
            self.file(&interpreter, &words)?;
            if matches!(fs::metadata(&interpreter), Err(error) if error.kind() == ErrorKind::NotFound) {
                return Ok(Some(interpreter));
            }
            path = interpreter;
        }
        Ok(None)
    }

    /// Checks a file: its path, the target of each link in its last component, and its canonical path.
    fn file(&self, path: &Path, args: &[String]) -> Result<(), ToolFailure> {
        let names = names(path);
        for name in &names {
            let text = name.to_string_lossy();
            if deny::is_magic_link(&text) {
                let message = format!(
                    "{}: leads through /proc, where a name does not identify a program; name the program \
                     itself",
                    excerpt(self.command)
                );
                return Err(ToolFailure::new(Reason::SandboxViolation, message));
            }
            self.name(&text)?;
            if let Some(place) = name.to_str().and_then(|name| SandboxPath::parse(name).ok()) {
                match self.jail.check(&place, Access::Execute) {
                    // With `deny_list: off` the names of programs do not matter, so this check does not apply either.
                    Err(PathRefusal::PackageBinaries { .. }) if !self.bounds.deny_list.is_on() => {}
                    checked => checked?,
                }
            }
        }
        if names.iter().any(|name| deny::is_multi_call(&name.to_string_lossy())) {
            self.multi_call(path, args)?;
        }
        Ok(())
    }

    fn name(&self, name: &str) -> Result<(), ToolFailure> {
        if self.bounds.deny_list.denies(name, &self.bounds.denied_programs) {
            let message = format!("Command not allowed: {}", excerpt(self.command));
            return Err(ToolFailure::new(Reason::CommandNotAllowed, message));
        }
        Ok(())
    }

    /// Checks a multi-call binary, which runs the program that it is called by.
    ///
    /// Some use a part of that name (`x-rm`), and some use the first argument if they do not know the name. A link that a run has made may
    /// have any name, so every argument is checked.
    fn multi_call(&self, path: &Path, args: &[String]) -> Result<(), ToolFailure> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.name(name.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default())?;
        // Only a link of the image itself has a reliable name.
        let made = IN_MEMORY.iter().any(|place| path.starts_with(place))
            || path.to_str().is_some_and(|path| SandboxPath::parse(path).is_ok());
        if !made {
            return Ok(());
        }
        args.iter().try_for_each(|arg| self.name(arg.strip_prefix("--coreutils-prog=").unwrap_or(arg)))
    }
}

fn names(path: &Path) -> Vec<PathBuf> {
    let mut names = vec![path.to_owned()];
    let mut current = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&current) else { break };
        current = current.parent().unwrap_or(Path::new("/")).join(target);
        names.push(current.clone());
    }
    names.extend(fs::canonicalize(path));
    names
}

/// Returns the interpreter of a file and its option: from the first line, or `sh` for text without one, like `execvp(3)`.
///
/// Returns `None` for a binary, and for a file that cannot be read.
fn interpreter(path: &Path) -> Option<(PathBuf, String)> {
    let mut start = Vec::new();
    // The file may have been replaced by a FIFO, on which the open must not wait.
    let options = OFlags::NONBLOCK.bits().cast_signed();
    let file: File = OpenOptions::new().read(true).custom_flags(options).open(path).ok()?;
    file.take(FIRST_LINE).read_to_end(&mut start).ok()?;
    if start.starts_with(ELF) {
        return None;
    }
    let Some(line) = start.strip_prefix(b"#!") else { return Some((PathBuf::from(SHELL), String::new())) };
    let line = String::from_utf8_lossy(line.split(|byte| *byte == b'\n').next()?);
    // The kernel removes only these two: a carriage return is part of the name.
    let line = line.trim_matches([' ', '\t']);
    let (interpreter, option) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let interpreter = if interpreter.is_empty() { SHELL } else { interpreter };
    Some((PathBuf::from(interpreter), option.to_owned()))
}
