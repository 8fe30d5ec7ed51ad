//! The server of one call: what it advertises, gives and takes.

use std::time::Instant;

use git2::{Oid, Repository};
use operations::{Bounds, GitRefName};

use super::super::error::GitError;
use super::address::Address;

/// Most references that a server may advertise.
const MOST_REFS: u32 = 50_000;

/// The way to a server, and the time for it.
pub(crate) struct Way<'w> {
    pub(crate) dial: &'w dyn git_remote::Dial,
    pub(crate) deadline: Instant,
}

/// Reference of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advertised {
    pub(super) name: GitRefName,
    pub(super) id: Oid,
}

/// Update of a reference of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) name: GitRefName,
    /// Id that the server must have; `None`: the reference must not exist.
    pub(super) old: Option<Oid>,
    /// Id that it gets; `None` deletes the reference.
    pub(super) new: Option<Oid>,
}

pub(super) struct Server<'s> {
    url: &'s str,
    way: &'s Way<'s>,
    max_bytes: u64,
}
