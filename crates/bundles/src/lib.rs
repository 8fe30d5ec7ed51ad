#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod collect;
mod diff;
mod location;
mod send;
mod summary;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use audit::bundle::{self, Member, Origin, RECORDS, Sealed};
use audit::{Event, Kind, VerifierKey};
use audit_service::AuditLog;
use identity::{Principal, Role, RunId};
use node_id::NodeId;
use operations::Reason;
use refusal::{Refusal, chain};
use runs::Runs;
use runs::record::Record;
use serde_json::json;
use store::Store;
use tokio::sync::Semaphore;
use wire::v1;

use collect::{CollectError, Collected};
use location::Location;

pub use send::Events;

/// Maximum number of bundles that are made or sent at the same time.
const AT_ONCE: usize = 2;
/// Time that a client has to download a finished bundle.
const SENDING: Duration = Duration::from_secs(900);

/// Makes bundles, at most [`AT_ONCE`] at a time.
pub struct Bundles {
    location: Location,
    turns: Semaphore,
    runs: Arc<Runs>,
    audit: Arc<AuditLog>,
    store: Store,
}

impl Bundles {
    /// Opens the directory for bundles in the state directory. `min_free` bytes of its file system stay free.
    pub fn open(
        state_dir: &Path,
        min_free: u64,
        runs: Arc<Runs>,
        audit: Arc<AuditLog>,
        store: Store,
    ) -> io::Result<Self> {
        let location = Location::open(&state_dir.join("bundles"), min_free)?;
        Ok(Self { location, turns: Semaphore::new(AT_ONCE), runs, audit, store })
    }

    /// Makes a bundle and sends it to the client.
    pub async fn create(&self, principal: &Principal, wanted: Wanted, events: Events) -> Result<(), Refusal> {
        let record = self.runs.get(wanted.run).ok();
        if !may_have(principal, record.as_ref()) {
            return Err(no_run(wanted.run));
        }
        let Ok(_turn) = self.turns.try_acquire() else {
            return Err(Refusal::new(
                Reason::Overloaded,
                "other bundles are being made: try again when they are done",
            ));
        };
        let made = make(self, principal, wanted, record.as_ref(), &events).await?;
        let sent = tokio::time::timeout(SENDING, events.send_all(made)).await;
        sent.map_err(|_| Refusal::new(Reason::TimedOut, "the client did not read the bundle in time"))?
    }
}

/// A client's request for a bundle.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub run: RunId,
    pub with_diff: bool,
    pub allow_incomplete: bool,
}

impl Wanted {
    pub fn from_wire(request: &v1::CreateBundleRequest) -> Result<Self, Refusal> {
        Ok(Self {
            run: RunId::parse(&request.run_id)?,
            with_diff: !request.without_diff,
            allow_incomplete: request.allow_incomplete,
        })
    }
}

/// Returns true if the principal may have a bundle of the run. `record` is `None` if the run was deleted.
///
/// Operators and auditors may have bundles of any run, also of deleted ones. Other principals may have bundles of runs
/// that they may use. A principal with the token of a run may have none.
fn may_have(principal: &Principal, record: Option<&Record>) -> bool {
    let own = record.is_some_and(|record| principal.may_use(&record.spec.principal));
    principal.run.is_none() && (may_have_all(principal) || own)
}

/// Returns true if the principal may have bundles of any run.
fn may_have_all(principal: &Principal) -> bool {
    [Role::Operator, Role::Auditor].into_iter().any(|role| principal.roles.has(role))
}

fn no_run(id: RunId) -> Refusal {
    Refusal::absent("run", id, "there is no such run")
}

/// A finished bundle that has yet to be sent.
pub struct Made {
    archive: Member,
    summary: v1::BundleMade,
}

async fn make(
    bundles: &Bundles,
    principal: &Principal,
    wanted: Wanted,
    record: Option<&Record>,
    events: &Events,
) -> Result<Made, Refusal> {
    let run_id = wanted.run.to_string();
    let diff = diff::of(bundles, principal, record, wanted.with_diff).await?;

    bundles.audit.settle().await;
    // Keeps segments from being compressed or removed while the log is read.
    let _held = bundles.audit.hold_segments().await;
    let head = bundles.audit.head().map_or(0, |head| head.sequence);
    let log = bundles.audit.directory().to_owned();
    let location = bundles.location.clone();
    let (run, told) = (run_id.clone(), events.clone());
    let owner = record.filter(|_| !may_have_all(principal)).map(|record| record.spec.principal.clone());
    let collected = blocking(move || {
        collect::read(&log, (&run, owner.as_deref()), head, &location, |at| told.progress(at, head))
    });
    let collected = collected.await?;
    let Collected { mut log, records, summary } = collected;
    if !summary.is_whole() && !wanted.allow_incomplete {
        return Err(incomplete(wanted.run, &summary, log.removed()));
    }

    let mut members = BTreeMap::from([(RECORDS.to_owned(), records)]);
    if let Some(record) = record {
        let redactor = bundles.audit.redactor().of(&record.id.to_string());
        members.insert("run.json".to_owned(), Member::of(summary::run(record, &redactor)?));
    }
    let policies: Vec<_> = summary.policies().map(str::to_owned).collect();
    let found = bundles.store.with(move |store| store.policies(&policies)).await;
    let found = found.map_err(|error| Refusal::internal("looking the policies up", &chain(&error)))?;
    for (digest, canonical) in &found {
        members.insert(bundle::policy_member(digest), Member::of(canonical.clone().into_bytes()));
    }
    let missing: Vec<_> = summary.policies().filter(|digest| !found.contains_key(*digest)).collect();
    let text = summary.text(principal, record, &missing, &diff, log.removed());
    let notes = summary.notes(&missing, &diff, log.removed());
    members.insert("summary.json".to_owned(), Member::of(text));
    members.extend(diff.members.into_iter().map(|(name, content)| (name, Member::of(content))));

    let node = NodeId::own().and_then(|node| NonZeroU16::new(node.get()));
    let origin = Origin { node, instance: &bundles.runs.launcher.instance };
    let manifest = bundle::manifest(log.id(), &run_id, origin, &members);
    let (manifest, hash) = manifest.map_err(|error| Refusal::internal("making the manifest", &error))?;
    let event = Event::new(Kind::BundleCreated).run(&run_id).principal(&principal.name).details(json!({
        "manifest_sha256": hash.to_string(),
        "records": summary.records(),
        "members": members.keys().collect::<Vec<_>>(),
    }));
    let sequence = bundles.audit.record(event).await?.record.sequence;
    let (checkpoint, key) = bundles.audit.checkpoint().await?;
    let key: VerifierKey =
        key.parse().map_err(|error| Refusal::internal("reading the audit log's key", &error))?;

    let location = bundles.location.clone();
    let records = summary.records();
    let made = blocking(move || {
        let (line, proof) = log.prove(sequence, &checkpoint)?;
        let sealed = Sealed { seal: &line, checkpoint: &checkpoint, key: &key, proof: &proof };
        let archive = collect::archive(&location, &manifest, &members, &sealed)?;
        Ok::<_, CollectError>((archive, checkpoint.size))
    });
    let (archive, log_size) = made.await?;
    let summary = v1::BundleMade {
        size_bytes: archive.bytes(),
        sha256: archive.sha256().to_string(),
        manifest_sha256: hash.to_string(),
        sequence,
        records,
        log_size,
        complete: summary.is_whole(),
        notes,
    };
    Ok(Made { archive, summary })
}

/// Refuses a bundle whose first records are no longer in the log.
fn incomplete(run: RunId, summary: &summary::Summary, removed: u64) -> Refusal {
    if summary.records() == 0 && removed == 0 {
        return no_run(run);
    }
    let what = if summary.records() == 0 {
        "all records of this run, if it had any"
    } else {
        "the first records of this run"
    };
    Refusal::new(
        Reason::PreconditionFailed,
        format!(
            "the audit log no longer has {what}: its records up to {removed} were removed by `audit.remove_after` or \
             `audit.keep`. With allow_incomplete a bundle of the rest is created, which notes the gap"
        ),
    )
    .with("removed_records", removed.to_string())
    .with("records", summary.records().to_string())
}

async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, CollectError> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(job).await;
    done.map_err(|error| Refusal::internal("making a bundle", &error))?.map_err(Refusal::from)
}
