//! The request of a fetch.
//!
//! One request says all: what is wanted, and which commits are there. The commits are the tips of all refs, then the newest ones, then
//! fewer and fewer of the older ones. A server that knows one of them sends nothing that is beneath it. If it knows none, the pack is
//! larger than it has to be, and right.

use std::collections::BTreeSet;

use git2::{ObjectType, Oid, Repository, Sort};

use crate::advertisement::Advertised;
use crate::error::RemoteError;
use crate::packets::line;

/// Most refs that are looked at.
const REFS: usize = 4_096;
/// Most commits that are walked.
const WALKED: usize = 20_000;
/// Newest commits that are all named. After them, every 16th is named, and later every 256th.
const NEWEST: usize = 256;
/// Most commits that are named.
const NAMED: usize = 1_024;

/// A fetch.
#[derive(Debug)]
pub(crate) struct Wants<'a> {
    pub(crate) ids: &'a BTreeSet<Oid>,
    pub(crate) depth: Option<u32>,
    /// Ends of the history of the repository.
    pub(crate) shallow: &'a BTreeSet<Oid>,
}

impl Wants<'_> {
    /// Returns the body of the request.
    pub(crate) fn request(&self, list: &Advertised, haves: &[Oid]) -> Result<Vec<u8>, RemoteError> {
        list.needs("side-band-64k")?;
        if self.depth.is_some() || !self.shallow.is_empty() {
            list.needs("shallow")?;
        }
        let wished = ["multi_ack_detailed", "thin-pack", "ofs-delta", "no-progress"];
        let capabilities: Vec<&str> = wished.into_iter().filter(|wish| list.has(wish)).collect();
        let mut capabilities = format!(" side-band-64k {}", capabilities.join(" "));
        capabilities.truncate(capabilities.trim_end().len());
        let mut body = Vec::new();
        for id in self.ids {
            line(&mut body, &format!("want {id}{capabilities}"));
            capabilities.clear();
        }
        for id in self.shallow {
            line(&mut body, &format!("shallow {id}"));
        }
        if let Some(depth) = self.depth {
            line(&mut body, &format!("deepen {depth}"));
        }
        body.extend_from_slice(b"0000");
        for id in haves {
            line(&mut body, &format!("have {id}"));
        }
        line(&mut body, "done");
        Ok(body)
    }
}

/// Returns commits of a repository, the tips of its refs first.
pub(crate) fn haves(repository: &Repository) -> Result<Vec<Oid>, git2::Error> {
    let odb = repository.odb()?;
    let mut named = Vec::new();
    let mut seen = BTreeSet::new();
    let mut walk = repository.revwalk()?;
    walk.set_sorting(Sort::TIME)?;
    // A ref that cannot be read is no reason to fetch nothing.
    for reference in repository.references()?.take(REFS).flatten() {
        let Some(id) = reference.target() else { continue };
        let is_commit = odb.read_header(id).is_ok_and(|(_, kind)| kind == ObjectType::Commit);
        if is_commit && seen.insert(id) {
            // Some of its parents may be missing.
            let _ = walk.push(id);
            if named.len() < NEWEST {
                named.push(id);
            }
        }
    }
    for (number, id) in walk.take(WALKED).map_while(Result::ok).enumerate() {
        let every = match number {
            0..NEWEST => 1,
            NEWEST..4_096 => 16,
            _ => 256,
        };
        if named.len() >= NAMED {
            break;
        }
        if number % every == 0 && !named.contains(&id) {
            named.push(id);
        }
    }
    Ok(named)
}
