//! The beginning of a push, up to its pack.
//!
//! ```text
//! shallow* command⁰ NUL capabilities, command*, flush          always
//! option* flush                                                if `push-options` is a capability
//! PACK …                                                       not read here
//! ```
//!
//! The client is hostile. A list that servers could read in another way than this one is a fault: capabilities after a later
//! command, a ref that is there twice, a push certificate, which has its own commands.

use std::collections::BTreeSet;

use crate::capabilities::{BadCapability, Capabilities};
use crate::commands::{BadCommand, Command, CommandList};
use crate::object_id::{ObjectFormat, ObjectId};
use crate::packet::{BadPacket, Packet};
use crate::ref_name::RefName;

/// Most bytes before the pack.
pub const MAX_LIST: usize = 1024 * 1024;
/// Most commands of a push, and most shallow commits.
pub const MAX_COMMANDS: usize = 10_000;
/// Most options of a push.
const MAX_OPTIONS: usize = 64;
/// Most bytes of an option.
const MAX_OPTION: usize = 1_024;

/// State of a reader after some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The list goes on.
    More,
    /// The list is complete. The number of bytes that belong to it, of those that were pushed last.
    Complete(usize),
}

/// Part of the list that comes next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Commands,
    Options,
    End,
}

/// Reads the commands of a push from the body of its request, in pieces of any size.
///
/// It keeps at most [`MAX_LIST`] bytes of the body, so that they can go out once the push is allowed.
#[derive(Debug, Default)]
pub struct CommandReader {
    raw: Vec<u8>,
    /// Bytes of `raw` that have been read.
    at: usize,
    part: Part,
    list: CommandList,
    names: BTreeSet<RefName>,
    has_capabilities: bool,
    fault: Option<Fault>,
}

impl CommandReader {
    /// Takes bytes of the body. After a fault every call returns it, and a complete list takes no further bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Step, Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        self.take(bytes).inspect_err(|fault| self.fault = Some(fault.clone()))
    }

    fn take(&mut self, bytes: &[u8]) -> Result<Step, Fault> {
        let before = self.raw.len();
        let room = MAX_LIST - before;
        self.raw.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        // The bytes are moved out while packets borrow them.
        let raw = std::mem::take(&mut self.raw);
        let read = self.read(&raw);
        self.raw = raw;
        read?;
        if self.part == Part::End {
            self.raw.truncate(self.at);
            return Ok(Step::Complete(self.at.saturating_sub(before)));
        }
        if self.raw.len() == MAX_LIST { Err(Fault::TooLong) } else { Ok(Step::More) }
    }

    /// Returns the capabilities, if they have been read. A refusal has the form that they ask for.
    pub fn capabilities(&self) -> Option<&Capabilities> {
        self.has_capabilities.then_some(&self.list.capabilities)
    }

    /// Returns the list and its bytes, or a fault if the body ended before the list.
    pub fn finish(self) -> Result<(CommandList, Vec<u8>), Fault> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.part == Part::End => Ok((self.list, self.raw)),
            None => Err(Fault::Truncated),
        }
    }

    fn read(&mut self, raw: &[u8]) -> Result<(), Fault> {
        while self.part != Part::End {
            let rest = raw.get(self.at..).unwrap_or_default();
            let Some((packet, length)) = Packet::read(rest)? else { break };
            self.at += length;
            match (packet, self.part) {
                (Packet::Data(line), Part::Commands) => self.read_line(line)?,
                (Packet::Data(line), _) => self.read_option(line)?,
                (Packet::Flush, Part::Commands) => self.end_commands()?,
                (Packet::Flush, _) => self.part = Part::End,
                (Packet::Delimiter | Packet::ResponseEnd, _) => return Err(Fault::Packet),
            }
        }
        Ok(())
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let (line, capabilities) = match line.iter().position(|byte| *byte == 0) {
            Some(at) => (&line[..at], Some(&line[at + 1..])),
            None => (line, None),
        };
        if let (Some(id), None) = (line.strip_prefix(b"shallow "), capabilities) {
            return self.read_shallow(id);
        }
        if self.has_capabilities || !self.list.commands.is_empty() {
            if capabilities.is_some() {
                return Err(Fault::LateCapabilities);
            }
        } else {
            let (capabilities, result) = Capabilities::scan(capabilities.unwrap_or_default());
            self.list.capabilities = capabilities;
            self.has_capabilities = true;
            if line == b"push-cert" {
                return Err(Fault::Certificate);
            }
            result?;
        }
        let command = Command::parse(line, self.list.capabilities.format)?;
        if self.list.commands.len() == MAX_COMMANDS {
            return Err(Fault::TooMany);
        }
        if !self.names.insert(command.name().clone()) {
            return Err(Fault::Repeated(command.name().clone()));
        }
        self.list.commands.push(command);
        Ok(())
    }

    /// Reads the id of a commit without parents. Its format is known only with the first command.
    fn read_shallow(&mut self, id: &[u8]) -> Result<(), Fault> {
        if self.has_capabilities {
            return Err(Fault::Shallow);
        }
        if self.list.shallow.len() == MAX_COMMANDS {
            return Err(Fault::TooMany);
        }
        let formats = [ObjectFormat::Sha1, ObjectFormat::Sha256];
        let id = formats.into_iter().find_map(|format| ObjectId::parse(id, format));
        self.list.shallow.push(id.ok_or(Fault::Shallow)?);
        Ok(())
    }

    fn end_commands(&mut self) -> Result<(), Fault> {
        let digits = self.list.capabilities.format.digits();
        if self.list.shallow.iter().any(|id| id.as_str().len() != digits) {
            return Err(Fault::Shallow);
        }
        if self.list.commands.is_empty() && !self.list.shallow.is_empty() {
            return Err(Fault::NoCommand);
        }
        self.part = if self.list.capabilities.has_options { Part::Options } else { Part::End };
        Ok(())
    }

    fn read_option(&mut self, line: &[u8]) -> Result<(), Fault> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let option = std::str::from_utf8(line).map_err(|_| Fault::Option)?;
        if option.is_empty() || option.len() > MAX_OPTION || option.contains(char::is_control) {
            return Err(Fault::Option);
        }
        if self.list.options.len() == MAX_OPTIONS {
            return Err(Fault::Option);
        }
        self.list.options.push(option.to_owned());
        Ok(())
    }
}

/// A list of commands that is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Length(#[from] BadPacket),
    #[error("the list of commands has a packet that belongs to another version of the protocol")]
    Packet,
    #[error(
        "a push has more than 10000 commands, or more than 10000 shallow commits; push fewer refs at once"
    )]
    TooMany,
    #[error("the list of commands is longer than 1 MiB; push fewer refs at once")]
    TooLong,
    #[error("the body ended before the list of commands")]
    Truncated,
    #[error("the list of commands names shallow commits and no command")]
    NoCommand,
    #[error(
        "a push with a certificate is not taken, because it has its commands in another form; push without `--signed`"
    )]
    Certificate,
    #[error("capabilities are possible with the first command alone")]
    LateCapabilities,
    #[error(transparent)]
    Capability(#[from] BadCapability),
    #[error(transparent)]
    Command(#[from] BadCommand),
    #[error("a push has two commands for {0}")]
    Repeated(RefName),
    #[error("the id of a shallow commit is no id of the format, or comes after a command")]
    Shallow,
    #[error("a push has at most 64 options, each of one line of at most 1024 bytes of UTF-8")]
    Option,
}

#[cfg(test)]
mod tests;
