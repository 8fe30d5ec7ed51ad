//! The state that a consent is bound to, which the call's effect then has to use.
//!
//! ```text
//! preview: one look ─► what is shown
//!              └─────► Bound ─► approval ─► Bounds::held_to ─► compared by the lane, within the effect
//! ```
//!
//! The state is read once, both for the reviewer and for the digest that the consent is bound to. The lane computes the same digest
//! from the state that it is about to use, and refuses the call if the two differ. No earlier comparison is relied on.

use std::collections::BTreeMap;

use jail::SandboxPath;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::{OpResult, Reason, ToolFailure};

/// The fact by which such a failure is known.
const VOID: &str = "approval";

/// States of the files that a call's reviewer is shown, by path in alias form.
pub type FileStates = BTreeMap<SandboxPath, FileState>;

/// State of one file at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// The file does not exist.
    Absent,
    /// SHA-256 of the file's content, lower-case hex.
    Sha256(String),
    /// The content cannot be read, for this stable reason.
    Unreadable(String),
}

/// State that a call will use, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bound {
    /// SHA-256 over the whole state, lower-case hex; empty if the call uses nothing that could change.
    pub digest: String,
    /// Time at which reading the state began, in nanoseconds since 1970; 0 if the time does not matter.
    pub since: u64,
    /// The part of the state that concerns files which the call names.
    pub files: FileStates,
    /// Further facts for the reviewer, one line each.
    pub remarks: Vec<String>,
}

/// State that a reviewer consented to, and that the effect must still find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Same as [`Bound::digest`].
    pub digest: String,
    /// Same as [`Bound::since`]; serves to name what changed after it.
    pub since: u64,
}

/// Result that a call would have, and the state that it would use.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// The result, as the call itself would return it.
    pub result: OpResult,
    /// The state, read together with `result`.
    pub bound: Bound,
}

/// Builder of a [`Bound`]. Every part is hashed with its length.
pub struct Binder {
    digest: Digest,
    files: FileStates,
}

impl Binder {
    /// Starts a digest for the operation with this name.
    pub fn new(operation: &str) -> Self {
        let mut binder = Self { digest: Digest::default(), files: FileStates::new() };
        binder.bytes(b"cofferdam bound 1");
        binder.bytes(operation.as_bytes());
        binder
    }

    /// Adds text or a name.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.digest.update(bytes);
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) {
        self.digest.update(&number.to_be_bytes());
    }

    /// Adds a file whose state the reviewer is shown.
    pub fn file(&mut self, path: &SandboxPath, state: FileState) {
        self.bytes(path.to_string().as_bytes());
        let (what, text) = match &state {
            FileState::Absent => (0, ""),
            FileState::Sha256(hash) => (1, hash.as_str()),
            FileState::Unreadable(why) => (2, why.as_str()),
        };
        self.number(what);
        self.bytes(text.as_bytes());
        self.files.insert(path.clone(), state);
    }

    /// Returns the finished state.
    pub fn finish(self) -> Bound {
        Bound { digest: self.digest.hex(), since: 0, files: self.files, remarks: Vec::new() }
    }
}

impl Bound {
    /// Refuses an effect that would use a state other than the one that was consented to.
    pub fn demand(&self, held_to: Option<&Held>) -> Result<(), ToolFailure> {
        match held_to {
            Some(held_to) if held_to.digest != self.digest => Err(changed(None)),
            _ => Ok(()),
        }
    }

    /// Returns the state that the effect must find, or `None` if the call uses nothing that could change.
    pub fn held(&self) -> Option<Held> {
        let held = || Held { digest: self.digest.clone(), since: self.since };
        (!self.digest.is_empty()).then(held)
    }
}

/// Returns the refusal of a call whose consent was given to another state. `what` names the change.
pub fn changed(what: Option<&str>) -> ToolFailure {
    let what = what.map(|what| format!(": {what}")).unwrap_or_default();
    ToolFailure::new(
        Reason::PreconditionFailed,
        format!(
            "the content that the reviewer saw has changed{what}. Nothing was done, and the approval is \
             void; make the call again to ask for another"
        ),
    )
    .with(VOID, "void")
}

/// Turns a failure before any effect into a refusal if the call is bound to a consent.
///
/// The call worked when the reviewer saw it, so its failure now means that the state has changed. Faults of the machine and timeouts are
/// returned as they are.
pub fn before_effect(held_to: Option<&Held>, failure: ToolFailure) -> ToolFailure {
    let of_the_state = matches!(
        failure.reason,
        Reason::SandboxViolation
            | Reason::PermissionDenied
            | Reason::ReadLimit
            | Reason::WriteLimit
            | Reason::PreconditionFailed
            | Reason::InvalidFrontmatter
            | Reason::InvalidArgument
            | Reason::NotFound
            | Reason::AlreadyExists
    );
    if held_to.is_none() || !of_the_state || is_void(&failure) {
        return failure;
    }
    let why = changed(Some(&failure.message));
    failure.details.into_iter().fold(why, |why, (name, value)| why.with(&name, value))
}

/// Returns true if a call failed because its consent was given to another state. Such a call has done nothing.
pub fn is_void(failure: &ToolFailure) -> bool {
    failure.details.contains_key(VOID)
}

/// Returns the failure of a call that was bound to no consent, without the claim that one is void.
#[must_use]
pub fn unbound(mut failure: ToolFailure) -> ToolFailure {
    failure.details.remove(VOID);
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let of = |fill: &dyn Fn(&mut Binder)| {
            let mut binder = Binder::new("write");
            fill(&mut binder);
            binder.finish().digest
        };
        let path = SandboxPath::parse("a").unwrap();
        let digests = [
            of(&|_| ()),
            of(&|binder| binder.bytes(b"ab")),
            of(&|binder| ["a", "b"].map(|part| binder.bytes(part.as_bytes())).into_iter().collect()),
            of(&|binder| binder.number(1)),
            of(&|binder| binder.file(&path, FileState::Absent)),
            of(&|binder| binder.file(&path, FileState::Sha256("aa".to_owned()))),
            of(&|binder| binder.file(&path, FileState::Unreadable("aa".to_owned()))),
            Binder::new("edit").finish().digest,
        ];
        for (i, digest) in digests.iter().enumerate() {
            assert_eq!(digests.iter().position(|other| other == digest), Some(i));
        }
    }

    #[test]
    fn only_another_state_is_refused() {
        let bound = Binder::new("write").finish();
        assert_eq!(bound.demand(None), Ok(()));
        let held = bound.held().unwrap();
        assert_eq!(bound.demand(Some(&held)), Ok(()));
        let refused = bound.demand(Some(&Held { digest: "ab".to_owned(), ..held })).unwrap_err();
        assert_eq!(refused.reason, Reason::PreconditionFailed);
    }

    #[test]
    fn new_failure_before_the_effect_voids_the_approval() {
        let held = Held { digest: "ab".to_owned(), since: 0 };
        let failed = |reason| ToolFailure::new(reason, "a.txt: why").with("path", "a.txt");
        let changed = before_effect(Some(&held), failed(Reason::NotFound));
        assert!(is_void(&changed) && changed.message.contains("a.txt: why"), "{changed:?}");
        assert_eq!(changed.details["path"], "a.txt");
        for reason in [Reason::Internal, Reason::TimedOut, Reason::Cancelled, Reason::Overloaded] {
            assert_eq!(before_effect(Some(&held), failed(reason)), failed(reason));
        }
        assert_eq!(before_effect(None, failed(Reason::NotFound)), failed(Reason::NotFound));
        let unbound = unbound(changed);
        assert!(!is_void(&unbound) && unbound.details["path"] == "a.txt", "{unbound:?}");
    }
}
