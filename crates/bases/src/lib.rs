#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod asked;
mod limits;
mod make;
mod record;
mod socket;
mod table;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use admission::Turns;
use audit::{Event, Kind};
use audit_service::AuditLog;
use disk_quotas::Quotas;
use host_launch::TreeBounds;
use identity::{BaseId, Principal, RunId};
use operations::Reason;
use parking_lot::Mutex;
use refusal::Refusal;
use runs::{Runs, no_such_base, remove_tree};
use serde_json::json;
use store::{Store, StoreError};
use timestamp::Timestamp;
use wire::v1;

use asked::Asked;
pub use limits::BaseBounds;
use make::Tree;
use record::{Base, Source};
pub use socket::{Pieces, Sender};
use table::Table;

/// Bases that are made or verified at the same time. Each needs a process that reads many files.
const AT_ONCE: usize = 2;
/// Most runs that a base names as its users.
const USERS: usize = 100;

/// The bases of the daemon.
pub struct Bases {
    table: Arc<Table>,
    runs: Arc<Runs>,
    audit: Arc<AuditLog>,
    quotas: Arc<Quotas>,
    bounds: BaseBounds,
    /// Free space that no base takes, bytes.
    warn_free: u64,
    /// Turns to make or verify a base.
    turns: Turns,
    /// Turns to look for a base of a clone, which are short.
    looks: Turns,
    /// Bases that are being made or deleted. Their trees are there, and they are not in the table.
    busy: Mutex<BTreeSet<BaseId>>,
    /// Held from the search for room until the new base is in the table.
    settling: tokio::sync::Mutex<()>,
}

/// The cause of a deletion.
#[derive(Clone, Copy)]
pub(crate) enum Cause<'a> {
    Principal(&'a Principal),
    /// `max_age`.
    Age,
    /// `max_count`, `max_per_principal` or `max_bytes`, for a new base.
    Limit,
}

/// Keeps the sweep from the tree of a base that is being made or deleted.
struct Busy<'a>(&'a Bases, BaseId);

impl Busy<'_> {
    /// Deletes the trees of bases that were taken out of the table. The sweep deletes those that a dropped future leaves.
    async fn delete_trees(taken: Vec<Self>) {
        for busy in taken {
            let Self(bases, id) = &busy;
            remove_tree(bases.runs.launcher.directories.base(*id)).await;
        }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().remove(&self.1);
    }
}

impl Bases {
    /// Reads the bases of the store, and lets runs begin on them.
    pub fn open(
        (runs, audit, store): (Arc<Runs>, Arc<AuditLog>, Store),
        (quotas, warn_free): (Arc<Quotas>, u64),
        bounds: BaseBounds,
    ) -> Result<Self, StoreError> {
        let table = Arc::new(Table::open(store)?);
        runs.set_bases(table.clone());
        Ok(Self {
            table,
            runs,
            audit,
            quotas,
            bounds,
            warn_free,
            turns: Turns::new(AT_ONCE),
            looks: Turns::new(AT_ONCE),
            busy: Mutex::default(),
            settling: tokio::sync::Mutex::default(),
        })
    }

    /// Makes a base, whole or not at all, or finds one that may be reused or that the same request made before.
    pub async fn create(
        &self,
        request: v1::CreateBaseRequest,
        principal: &Principal,
    ) -> Result<v1::CreateBaseResponse, Refusal> {
        self.audit.check()?;
        let source = Source::parse(request.source, self.audit.redactor())?;
        if request.reuse && !matches!(source, Source::Clone { .. }) {
            return Err(Refusal::invalid("reuse", "is only for a clone: nothing else has a revision"));
        }
        let asked = Asked::of(request.request_id, &(&source, request.reuse))?;
        if let Some(base) = self.table.made_before(principal, asked.as_ref())? {
            return Ok(self.found(&base));
        }
        needs_root()?;
        let launcher = &self.runs.launcher;
        let before = match source {
            Source::Directory { .. } | Source::Checkpoint { .. } | Source::Copy { .. } => None,
            Source::Clone { .. } => {
                let _look = self.looks.wait(&principal.name).await.ok_or_else(too_many)?;
                make::identity(launcher, &source, principal).await?
            }
        };
        let reused = before.as_deref().filter(|_| request.reuse);
        let reused = reused.and_then(|identity| self.table.clone_of(principal, identity, asked.as_ref()));
        if let Some(base) = reused {
            return Ok(self.found(&base));
        }
        let _turn = self.turns.wait(&principal.name).await.ok_or_else(too_many)?;
        // The same request may have come twice at the same time, and the other one had its turn first.
        if let Some(base) = self.table.made_before(principal, asked.as_ref())? {
            return Ok(self.found(&base));
        }
        let (most, id) = (self.most()?, BaseId::new());
        let _busy = self.busy(id);
        let tree = make::tree(&self.runs, id, &source, principal, most).await?;
        // A repository that changed meanwhile may have given another clone.
        let after = make::identity(launcher, &source, principal).await.unwrap_or_default();
        let clone_of = before.filter(|before| after.as_ref() == Some(before));
        let kept = self.keep_tree(id, (source, clone_of, asked), tree, principal).await;
        if kept.is_err() {
            remove_tree(launcher.directories.base(id)).await;
        }
        let base = Some(kept?.to_wire(&[]));
        Ok(v1::CreateBaseResponse { base, reused: false })
    }

    /// Returns the bounds of the next base.
    fn most(&self) -> Result<TreeBounds, Refusal> {
        let free = self.quotas.free().map_err(|error| Refusal::internal("looking at the disk", &error))?;
        limits::most(&self.bounds, free, self.warn_free)
    }

    fn busy(&self, id: BaseId) -> Busy<'_> {
        self.busy.lock().insert(id);
        Busy(self, id)
    }

    /// Records and stores a base whose tree is complete.
    async fn keep_tree(
        &self,
        id: BaseId,
        (source, clone_of, asked): (Source, Option<String>, Option<Asked>),
        tree: Tree,
        principal: &Principal,
    ) -> Result<Base, Refusal> {
        let now = Timestamp::now();
        let Tree { digest, bytes, files, left_out } = tree;
        let base = Base {
            id,
            principal: principal.name.clone(),
            created_at: now,
            used_at: now,
            source,
            clone_of,
            digest,
            bytes,
            files,
            left_out,
            changed: false,
            requests: asked.into_iter().collect(),
        };
        let takes = limits::takes(&base);
        limits::check_size(&self.bounds, takes)?;
        let mut displaced = Vec::new();
        let settled = self.settle(base, takes, principal, &mut displaced).await;
        Busy::delete_trees(displaced).await;
        settled
    }

    /// Puts a base on record and into the table, one after the other, so that all of them are within the limits.
    ///
    /// `displaced` gets those that are deleted for it. Their trees can be large, so the caller deletes them when others can go on.
    async fn settle<'b>(
        &'b self,
        base: Base,
        takes: u64,
        principal: &Principal,
        displaced: &mut Vec<Busy<'b>>,
    ) -> Result<Base, Refusal> {
        let _settling = self.settling.lock().await;
        self.make_room(principal, takes, displaced).await?;
        self.audit.record(created(&base)).await?;
        self.table.insert(base.clone()).await?;
        Ok(base)
    }

    /// Returns the answer with a base that was there already.
    fn found(&self, base: &Base) -> v1::CreateBaseResponse {
        let base = Some(shown(base, &self.runs.users_of_bases()));
        v1::CreateBaseResponse { base, reused: true }
    }

    /// Returns a page of the bases that `principal` may use, newest first, after `after`. Also returns whether there are more.
    pub fn list(&self, principal: &Principal, after: Option<BaseId>, size: usize) -> (Vec<v1::Base>, bool) {
        let mut bases: Vec<Base> = {
            let bases = self.table.lock();
            let newest_first = bases.values().rev();
            let shown = newest_first.filter(|base| {
                principal.may_use(&base.principal) && after.is_none_or(|after| base.id < after)
            });
            shown.take(size + 1).cloned().collect()
        };
        let more = bases.len() > size;
        bases.truncate(size);
        let users = self.runs.users_of_bases();
        (bases.iter().map(|base| shown(base, &users)).collect(), more)
    }

    /// Returns the newest bases that `principal` may use, with the digests of their trees.
    pub fn at_hand(&self, principal: &Principal, most: usize) -> Vec<(BaseId, String)> {
        let bases = self.table.lock();
        let own = bases.values().rev().filter(|base| principal.may_use(&base.principal) && !base.changed);
        own.take(most).map(|base| (base.id, base.digest.clone())).collect()
    }

    pub fn get(&self, id: BaseId, principal: &Principal) -> Result<v1::Base, Refusal> {
        Ok(shown(&self.table.of(id, principal)?, &self.runs.users_of_bases()))
    }

    /// Computes the digest of the base's files anew. While they are changed, no run begins on the base.
    pub async fn verify(&self, id: BaseId, principal: &Principal) -> Result<v1::VerifyBaseResponse, Refusal> {
        let base = self.table.of(id, principal)?;
        let _turn = self.turns.wait(&principal.name).await.ok_or_else(too_many)?;
        let found = make::digest(&self.runs.launcher, id).await;
        // It may have been deleted meanwhile.
        let base = self.table.of(base.id, principal)?;
        let (digest, failure) = match found {
            Ok(tree) => (tree.digest, String::new()),
            // The host has removed files or taken rights from their owner.
            Err(refusal) if refusal.reason == Reason::PreconditionFailed => (String::new(), refusal.message),
            Err(refusal) => return Err(refusal),
        };
        let intact = digest == base.digest;
        self.table.set_changed(id, !intact).await?;
        if !intact {
            tracing::error!(base = %id, failure, "the files of a base were changed on the host");
            self.audit.record(changed(&base, &digest, &failure).principal(&principal.name)).await?;
        }
        let base = Some(shown(&Base { changed: !intact, ..base }, &self.runs.users_of_bases()));
        Ok(v1::VerifyBaseResponse { base, intact, digest, failure })
    }

    /// Deletes a base, unless a run needs it.
    pub async fn delete(&self, id: BaseId, principal: &Principal) -> Result<(), Refusal> {
        self.table.of(id, principal)?;
        self.remove(id, Cause::Principal(principal)).await
    }

    async fn remove(&self, id: BaseId, cause: Cause<'_>) -> Result<(), Refusal> {
        let taken = self.take_out(id, cause).await?;
        Busy::delete_trees(vec![taken]).await;
        Ok(())
    }

    /// Takes a base out of the table, on record. Its tree is still there.
    async fn take_out(&self, id: BaseId, cause: Cause<'_>) -> Result<Busy<'_>, Refusal> {
        // From here on no run begins on it.
        let taken = self.runs.if_unused(id, || {
            self.table.lock().remove(&id).inspect(|_| {
                self.busy.lock().insert(id);
            })
        });
        let base = taken.map_err(|run| {
            let message = format!(
                "run {run} needs the base: stop it, discard its changes and delete its checkpoints first"
            );
            Refusal::new(Reason::PreconditionFailed, message).with("run_id", run.to_string())
        })?;
        let base = base.ok_or_else(|| no_such_base(id))?;
        let busy = Busy(self, id);
        // Its row goes only after its record.
        let forgotten = match self.audit.record_removal(deleted(&base, cause)).await {
            Ok(()) => self.table.forget(id).await,
            Err(_) => Err(audit_service::Unavailable.into()),
        };
        if let Err(refusal) = forgotten {
            self.table.lock().insert(id, base);
            return Err(refusal);
        }
        Ok(busy)
    }
}

fn needs_root() -> Result<(), Refusal> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let message = "a base needs a daemon that runs as root, as an overlay does";
    Err(Refusal::new(Reason::PreconditionFailed, message))
}

fn too_many() -> Refusal {
    Refusal::new(Reason::Overloaded, "too many bases are being made or verified; try again later")
}

fn shown(base: &Base, users: &BTreeMap<BaseId, Vec<RunId>>) -> v1::Base {
    let users = users.get(&base.id).map_or(&[][..], Vec::as_slice);
    base.to_wire(&users[..users.len().min(USERS)])
}

fn created(base: &Base) -> Event {
    let details = json!({
        "base": base.id,
        "source": base.source,
        "digest": base.digest,
        "bytes": base.bytes,
        "files": base.files,
        "left_out": base.left_out,
    });
    Event::new(Kind::BaseCreated).principal(&base.principal).details(details)
}

fn changed(base: &Base, found: &str, failure: &str) -> Event {
    let details = json!({
        "base": base.id,
        "digest": base.digest,
        "found": found,
        "failure": failure,
        "owner": base.principal,
    });
    Event::new(Kind::BaseChanged).details(details)
}

fn deleted(base: &Base, cause: Cause<'_>) -> Event {
    let (by, cause) = match cause {
        Cause::Principal(principal) => (Some(&principal.name), "request"),
        Cause::Age => (None, "max_age"),
        Cause::Limit => (None, "limit"),
    };
    let details = json!({
        "base": base.id,
        "digest": base.digest,
        "bytes": base.bytes,
        "files": base.files,
        "owner": base.principal,
        "cause": cause,
    });
    let event = Event::new(Kind::BaseDeleted).details(details);
    match by {
        Some(by) => event.principal(by),
        None => event,
    }
}
