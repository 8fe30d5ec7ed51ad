//! What a consent is bound to: the state that the call's effect will use.
//!
//! ```text
//! preview: one look ─► what is shown
//!              └─────► Bound ─► approval ─► Bounds::held_to ─► compared by the lane, within the effect
//! ```
//!
//! One look serves what a reviewer is shown and what the consent is bound to. The lane that has the effect works out the same
//! digest from what it is about to use, and refuses where the two differ; nothing is compared before that and trusted then.

use std::collections::BTreeMap;

use jail::SandboxPath;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::{OpResult, Reason, ToolFailure};

/// The fact by which such a failure is known.
const VOID: &str = "approval";

/// What the files of a call look like, as far as its reviewer is shown: by path in alias form.
pub type FileStates = BTreeMap<SandboxPath, FileState>;

/// One file at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// There is none.
    Absent,
    /// SHA-256 of its content, lower-case hex.
    Sha256(String),
    /// There is something whose content cannot be told, for this stable reason.
    Unreadable(String),
}

/// What a call will use, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bound {
    /// SHA-256 over all of it, lower-case hex; empty: the call uses nothing that could change.
    pub digest: String,
    /// When the look began, nanoseconds since 1970; 0 where that is of no use.
    pub since: u64,
    /// Of that, the files that the call names.
    pub files: FileStates,
    /// What else the reviewer has to know of it, a line each.
    pub remarks: Vec<String>,
}

/// What a consent was given to, as the effect is held to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// As [`Bound::digest`].
    pub digest: String,
    /// As [`Bound::since`]: what changed after that can be named.
    pub since: u64,
}

/// What a call would do, and what it would use.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// As the call itself would answer.
    pub result: OpResult,
    /// From the same look.
    pub bound: Bound,
}

/// A [`Bound`] in the making. Every part is written with its length.
pub struct Binder {
    digest: Digest,
    files: FileStates,
}

impl Binder {
    /// For an operation of this name.
    pub fn new(operation: &str) -> Self {
        let mut binder = Self { digest: Digest::default(), files: FileStates::new() };
        binder.bytes(b"cofferdam bound 1");
        binder.bytes(operation.as_bytes());
        binder
    }

    /// A text, or a name.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.digest.update(bytes);
    }

    /// A number.
    pub fn number(&mut self, number: u64) {
        self.digest.update(&number.to_be_bytes());
    }

    /// A file whose state the reviewer is shown.
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

    /// All of it.
    pub fn finish(self) -> Bound {
        Bound { digest: self.digest.hex(), since: 0, files: self.files, remarks: Vec::new() }
    }
}

impl Bound {
    /// Refuses an effect that would use something else than what its consent was given to.
    pub fn demand(&self, held_to: Option<&Held>) -> Result<(), ToolFailure> {
        match held_to {
            Some(held_to) if held_to.digest != self.digest => Err(changed(None)),
            _ => Ok(()),
        }
    }

    /// To hold the effect to. `None`: there is nothing to be held to.
    pub fn held(&self) -> Option<Held> {
        let held = || Held { digest: self.digest.clone(), since: self.since };
        (!self.digest.is_empty()).then(held)
    }
}

/// The refusal of a call whose consent was given to another state. `what` has changed.
pub fn changed(what: Option<&str>) -> ToolFailure {
    let what = what.map(|what| format!(": {what}")).unwrap_or_default();
    ToolFailure::new(
        Reason::PreconditionFailed,
        format!(
            "what the reviewer saw has changed{what}. Nothing was done, and the approval is void; call again for another"
        ),
    )
    .with(VOID, "void")
}

/// The failure of a call before it had any effect. Where it is held to what a reviewer saw it had worked then, so that what it
/// fails for now is what has changed; a fault of the machine and the end of its time are not.
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

/// Whether a call failed because its consent was given to another state: nothing was done.
pub fn is_void(failure: &ToolFailure) -> bool {
    failure.details.contains_key(VOID)
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
    fn what_fails_only_now_has_changed() {
        let held = Held { digest: "ab".to_owned(), since: 0 };
        let failed = |reason| ToolFailure::new(reason, "a.txt: why").with("path", "a.txt");
        let changed = before_effect(Some(&held), failed(Reason::NotFound));
        assert!(is_void(&changed) && changed.message.contains("a.txt: why"), "{changed:?}");
        assert_eq!(changed.details["path"], "a.txt");
        for reason in [Reason::Internal, Reason::TimedOut, Reason::Cancelled, Reason::Overloaded] {
            assert_eq!(before_effect(Some(&held), failed(reason)), failed(reason));
        }
        assert_eq!(before_effect(None, failed(Reason::NotFound)), failed(Reason::NotFound));
    }
}
