//! The refs that a server lists (gitprotocol-http(5), gitprotocol-pack(5)).

use std::collections::BTreeSet;

use git_wire::{ObjectFormat, ObjectId, Packet, RefName, Service};
use git2::Oid;

use crate::error::{RemoteError, shown};
use crate::packets::said;

/// One ref of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteRef {
    /// Full name, valid by the rules of git.
    pub name: String,
    pub id: Oid,
}

/// The refs of a server, and its capabilities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advertised {
    /// In the order of the server, without HEAD and without the peeled values of tags.
    pub refs: Vec<RemoteRef>,
    /// The commit of HEAD, if there is one.
    pub head_id: Option<Oid>,
    /// The branch that HEAD names, if the server says so.
    pub head: Option<String>,
    /// Number of refs that were left out because their names are not valid.
    pub left_out: u32,
    capabilities: BTreeSet<String>,
}

impl Advertised {
    /// Returns the commit or tag of a ref.
    pub fn id_of(&self, name: &str) -> Option<Oid> {
        self.refs.iter().find(|known| known.name == name).map(|known| known.id)
    }

    pub(crate) fn has(&self, capability: &str) -> bool {
        self.capabilities.contains(capability)
    }

    pub(crate) fn needs(&self, capability: &'static str) -> Result<(), RemoteError> {
        if self.has(capability) { Ok(()) } else { Err(RemoteError::Lacks(capability)) }
    }
}

/// Parses the list of a service.
pub(crate) fn parse(bytes: &[u8], service: Service, most: u32) -> Result<Advertised, RemoteError> {
    let mut packets = Packets(bytes);
    let announced = format!("# service={}", service.as_str());
    match packets.next()? {
        Packet::Data(data) if trimmed(data) == announced.as_bytes() => {}
        Packet::Data(data) => return Err(said(data).unwrap_or(RemoteError::NotGit("it begins differently"))),
        _ => return Err(RemoteError::NotGit("it begins differently")),
    }
    if packets.next()? != Packet::Flush {
        return Err(RemoteError::Malformed("the list of refs has a first part of several lines"));
    }
    let (mut list, mut names, mut is_first) = (Advertised::default(), BTreeSet::new(), true);
    loop {
        let data = match packets.next()? {
            Packet::Data(data) => data,
            Packet::Flush => break,
            _ => return Err(RemoteError::Malformed("the list of refs is of another version")),
        };
        if let Some(error) = said(data) {
            return Err(error);
        }
        let line = trimmed(data);
        if is_first {
            let (entry, capabilities) = split_at_nul(line)?;
            list.take_capabilities(capabilities)?;
            is_first = false;
            list.add(entry, &mut names, true, most)?;
        } else {
            list.add(line, &mut names, false, most)?;
        }
    }
    if packets.0.is_empty() {
        Ok(list)
    } else {
        Err(RemoteError::Malformed("bytes come after the list of refs"))
    }
}

impl Advertised {
    fn take_capabilities(&mut self, text: &[u8]) -> Result<(), RemoteError> {
        let text = std::str::from_utf8(text).map_err(|_| RemoteError::Malformed("the capabilities"))?;
        for capability in text.split(' ').filter(|capability| !capability.is_empty()) {
            if let Some(target) = capability.strip_prefix("symref=HEAD:") {
                self.head = RefName::parse(target.as_bytes()).ok().map(|name| name.to_string());
            } else if let Some(format) = capability.strip_prefix("object-format=") {
                if format != ObjectFormat::Sha1.as_str() {
                    return Err(RemoteError::Format(shown(format)));
                }
            } else {
                self.capabilities.insert(capability.to_owned());
            }
        }
        Ok(())
    }

    /// Adds the ref of a line.
    fn add(
        &mut self,
        line: &[u8],
        names: &mut BTreeSet<String>,
        is_first: bool,
        most: u32,
    ) -> Result<(), RemoteError> {
        // The ends of a shallow history of the server's.
        if line.starts_with(b"shallow ") {
            return Ok(());
        }
        let malformed = || RemoteError::Malformed("a line of the list of refs");
        let (digits, rest) = line.split_at_checked(ObjectFormat::Sha1.digits()).ok_or_else(malformed)?;
        let name = rest.strip_prefix(b" ").ok_or_else(malformed)?;
        let id = parse_id(digits).ok_or_else(malformed)?;
        if id.is_zero() {
            return if is_first && name == b"capabilities^{}" { Ok(()) } else { Err(malformed()) };
        }
        if names.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
            return Err(RemoteError::TooManyRefs(most));
        }
        if name == b"HEAD" {
            if !names.insert("HEAD".to_owned()) {
                return Err(RemoteError::Malformed("a ref is listed twice"));
            }
            self.head_id = Some(id);
            return Ok(());
        }
        if name.ends_with(b"^{}") {
            return Ok(());
        }
        let Ok(name) = RefName::parse(name) else {
            self.left_out = self.left_out.saturating_add(1);
            return if self.left_out > most { Err(RemoteError::TooManyRefs(most)) } else { Ok(()) };
        };
        if !names.insert(name.to_string()) {
            return Err(RemoteError::Malformed("a ref is listed twice"));
        }
        self.refs.push(RemoteRef { name: name.to_string(), id });
        Ok(())
    }
}

/// Parses an id in full.
pub(crate) fn parse_id(digits: &[u8]) -> Option<Oid> {
    let id = ObjectId::parse(digits, ObjectFormat::Sha1)?;
    Oid::from_str(id.as_str()).ok()
}

/// Returns a line without its end.
pub(crate) fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

fn split_at_nul(line: &[u8]) -> Result<(&[u8], &[u8]), RemoteError> {
    let at = line.iter().position(|byte| *byte == 0);
    let at = at.ok_or(RemoteError::Malformed("the list of refs has no capabilities"))?;
    Ok((line.get(..at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default()))
}

/// The packets of a whole list.
struct Packets<'a>(&'a [u8]);

impl<'a> Packets<'a> {
    fn next(&mut self) -> Result<Packet<'a>, RemoteError> {
        let (packet, length) = Packet::read(self.0)?.ok_or(RemoteError::Closed)?;
        self.0 = self.0.get(length..).unwrap_or_default();
        Ok(packet)
    }
}
