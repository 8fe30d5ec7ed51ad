//! Fetches refs and their objects.

use std::collections::BTreeSet;

use git_wire::Service;
use git2::{Oid, Repository};

use crate::advertisement::{parse_id, trimmed};
use crate::error::{RemoteError, said_by};
use crate::negotiation::{Wants, haves};
use crate::pack::{Pack, missing};
use crate::packets::{Owned, Packets};
use crate::refs::Fetched;
use crate::refspec::{Refspec, Selected, select};
use crate::server::Server;
use crate::url::RemoteUrl;
use crate::{Bounds, Dial, shallow};

/// Most packets before the pack.
const ANSWERS: usize = 2 * shallow::MOST;

/// Fetches the refs that `wanted` names, with their history or the newest `depth` commits of it, and updates the refs of the repository.
///
/// A ref is updated only after the pack is complete, checked and stored. After an error no ref has changed; objects may have been added.
pub fn fetch(
    repository: &Repository,
    url: &RemoteUrl,
    wanted: &[Refspec],
    depth: Option<u32>,
    dial: &dyn Dial,
    bounds: Bounds,
) -> Result<Fetched, RemoteError> {
    let mut server = Server::new(url, dial, bounds);
    let list = server.discover(Service::UploadPack)?;
    let selected = select(wanted, &list)?;
    let odb = repository.odb()?;
    let ends = shallow::read(repository)?;
    let depth = depth.filter(|depth| *depth > 0);
    // With a depth, the server decides how much more of a known commit is sent.
    let is_wanted = |one: &&Selected| depth.is_some() || odb.read_header(one.id).is_err();
    let ids: BTreeSet<Oid> = selected.iter().filter(is_wanted).map(|one| one.id).collect();
    if !ids.is_empty() {
        if list.is_shallow {
            return Err(RemoteError::Shallow);
        }
        let wants = Wants { ids: &ids, depth, shallow: &ends };
        let body = wants.request(&list, &haves(repository)?)?;
        let mut packets = Packets::new(server.post(Service::UploadPack, &body)?);
        let (first, new_ends) = answers(&mut packets, &ends, depth.is_some())?;
        receive(&mut packets, first, Pack::begin(&odb)?)?;
        if let Some(id) = missing(&odb, &ids) {
            return Err(RemoteError::Missing(id.to_string()));
        }
        if new_ends != ends {
            shallow::write(repository, &new_ends)?;
        }
    }
    let mut fetched =
        Fetched { head: list.head.clone(), bytes: server.budget.received(), ..Fetched::default() };
    for one in selected {
        fetched.update(repository, one);
    }
    Ok(fetched)
}

/// Reads the answers before the pack. Returns the first packet of the pack, and the ends of the history.
fn answers(
    packets: &mut Packets,
    ends: &BTreeSet<Oid>,
    may_change: bool,
) -> Result<(Vec<u8>, BTreeSet<Oid>), RemoteError> {
    let mut ends = ends.clone();
    for _ in 0..ANSWERS {
        let packet = match packets.next()?.ok_or(RemoteError::Closed)? {
            // The end of the ends.
            Owned::Flush if may_change => continue,
            Owned::Flush => return Err(RemoteError::Malformed("a part of the answer is empty")),
            Owned::Data(packet) => packet,
        };
        if let Some(error) = said_by(&packet) {
            return Err(error);
        }
        let line = trimmed(&packet);
        let id = |prefix: &[u8]| line.strip_prefix(prefix).map(parse_id);
        let malformed = || RemoteError::Malformed("an end of the history");
        if let Some(end) = id(b"shallow ") {
            ends.insert(end.filter(|_| may_change).ok_or_else(malformed)?);
            if ends.len() > shallow::MOST {
                return Err(malformed());
            }
        } else if let Some(end) = id(b"unshallow ") {
            ends.remove(&end.filter(|_| may_change).ok_or_else(malformed)?);
        } else if matches!(packet.first(), Some(1..=3)) {
            return Ok((packet, ends));
        } else if line != b"NAK" && !line.starts_with(b"ACK ") {
            return Err(RemoteError::Malformed("the answer to the commits that are here"));
        }
    }
    Err(RemoteError::Malformed("too many answers before the pack"))
}

/// Receives the pack, from its first packet to the end of the response.
fn receive(packets: &mut Packets, first: Vec<u8>, mut pack: Pack<'_>) -> Result<(), RemoteError> {
    let mut next = Some(Owned::Data(first));
    let mut is_over = false;
    while let Some(packet) = next {
        match packet {
            Owned::Data(_) if is_over => return Err(RemoteError::Malformed("packets come after the pack")),
            Owned::Data(packet) => pack.write(&packets.band(&packet)?)?,
            Owned::Flush => is_over = true,
        }
        next = packets.next()?;
    }
    if is_over { pack.end() } else { Err(RemoteError::Closed) }
}
