//! Parts of pushes for tests.

use crate::commands::{Command, CommandList};
use crate::object_id::ObjectFormat;
use crate::packet;

pub(crate) const ZERO: &str = "0000000000000000000000000000000000000000";
pub(crate) const ONE: &str = "11111111111111111111aaaaaaaaaaaaaaaaaaaa";
pub(crate) const TWO: &str = "22222222222222222222bbbbbbbbbbbbbbbbbbbb";

pub(crate) fn command(old: &str, new: &str, name: &str) -> Command {
    Command::parse(format!("{old} {new} {name}").as_bytes(), ObjectFormat::Sha1).unwrap()
}

pub(crate) fn list(commands: Vec<Command>) -> CommandList {
    CommandList { commands, ..CommandList::default() }
}

/// Returns these lines as packets, and a flush after them.
pub(crate) fn packets<T: AsRef<[u8]>>(lines: &[T]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines {
        packet::append(&mut out, line.as_ref());
    }
    out.extend_from_slice(packet::FLUSH);
    out
}
