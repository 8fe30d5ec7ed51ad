//! The report of a server about a push (gitprotocol-pack(5), report-status).

use std::collections::BTreeMap;

use git_wire::Packet;

use crate::advertisement::trimmed;
use crate::error::{RemoteError, shown};
use crate::packets::{Owned, Packets, said};

/// Most bytes of a report.
const MOST: usize = 16 * 1024 * 1024;

/// A report.
#[derive(Debug)]
pub(crate) struct Report {
    /// The reason why the server refused the pack.
    pub(crate) unpack: Result<(), String>,
    /// The refs, each with the reason if it was refused.
    pub(crate) refs: BTreeMap<String, Result<(), String>>,
    /// Messages of the server for people.
    pub(crate) messages: String,
}

impl Report {
    /// Reads a report, which is within the first band if the two sides agreed on bands.
    pub(crate) fn read(packets: &mut Packets, has_bands: bool) -> Result<Self, RemoteError> {
        let mut lines = Lines::default();
        let mut within = Vec::new();
        let mut count = 0;
        while let Some(packet) = packets.next()? {
            let Owned::Data(packet) = packet else { continue };
            count += packet.len();
            if count > MOST {
                return Err(RemoteError::Malformed("the report of the push is too long"));
            }
            if let Some(error) = said(&packet) {
                return Err(error);
            }
            if !has_bands {
                lines.take(&packet)?;
                continue;
            }
            within.extend(packets.band(&packet)?);
            let mut taken = 0;
            while let Some((packet, length)) = Packet::read(within.get(taken..).unwrap_or_default())? {
                if let Packet::Data(line) = packet {
                    lines.take(line)?;
                }
                taken += length;
            }
            within.drain(..taken);
        }
        let unpack = lines.unpack.ok_or(RemoteError::Malformed("the push has no report"))?;
        Ok(Self { unpack, refs: lines.refs, messages: packets.messages() })
    }
}

#[derive(Debug, Default)]
struct Lines {
    unpack: Option<Result<(), String>>,
    refs: BTreeMap<String, Result<(), String>>,
}

impl Lines {
    fn take(&mut self, line: &[u8]) -> Result<(), RemoteError> {
        let malformed = || RemoteError::Malformed("a line of the report of the push");
        let line = std::str::from_utf8(trimmed(line)).map_err(|_| malformed())?;
        let (kind, rest) = line.split_once(' ').ok_or_else(malformed)?;
        match kind {
            "unpack" if self.unpack.is_none() => {
                self.unpack = Some(if rest == "ok" { Ok(()) } else { Err(shown(rest)) });
            }
            "ok" => drop(self.refs.insert(rest.to_owned(), Ok(()))),
            "ng" => {
                let (name, why) = rest.split_once(' ').unwrap_or((rest, "refused"));
                self.refs.insert(name.to_owned(), Err(shown(why)));
            }
            _ => return Err(malformed()),
        }
        Ok(())
    }
}
