//! The digest that an approval is bound to: SHA-256 over everything that the reviewer consented to.
//!
//! The operation is hashed as its canonical message, whose maps are sorted: equal operations have equal bytes, and no
//! field can be left out. Every other value is written with its length. Structures are destructured without `..`, so
//! that a field that is added later cannot be left out by oversight.

use operations::{Bound, FileState, Operation};
use prost::Message as _;
use sha2::{Digest, Sha256};

use policy::{Caller, RunScope};

/// Everything that an approval covers.
pub(crate) struct Covered<'c> {
    pub(crate) policy_digest: &'c str,
    pub(crate) run: &'c RunScope,
    pub(crate) caller: &'c Caller,
    /// Id of the call. `None` for a remembered consent, which covers every such call of the run.
    pub(crate) call_id: Option<&'c str>,
    /// Result of [`of_message`].
    pub(crate) message: &'c [u8; 32],
    pub(crate) bound: &'c Bound,
}

/// Returns the SHA-256 of an operation's canonical message.
pub(crate) fn of_message(operation: &Operation) -> [u8; 32] {
    Sha256::digest(operation.message().encode_to_vec()).into()
}

/// Returns the digest in lower-case hex.
pub(crate) fn digest(covered: &Covered<'_>) -> String {
    let Covered { policy_digest, run, caller, call_id, message, bound } = covered;
    let RunScope { profile, image_id } = run;
    let Caller { principal, agent_id, role, run_id } = caller;
    let mut bytes = Encoder::new();
    bytes.text(if call_id.is_some() { "cofferdam approval 4" } else { "cofferdam consent 4" });
    for text in [policy_digest, profile.as_str(), image_id, principal, agent_id, role, run_id] {
        bytes.text(text);
    }
    bytes.text(call_id.unwrap_or_default());
    bytes.bytes(&message[..]);
    // The time of reading and the remarks are not part of the call, so they are not hashed.
    let Bound { digest, files, since: _, remarks: _ } = bound;
    bytes.text(digest);
    bytes.length(files.len());
    for (path, state) in files {
        bytes.text(&path.to_string());
        match state {
            FileState::Absent => bytes.text("absent"),
            FileState::Sha256(hash) => {
                bytes.text("sha256");
                bytes.text(hash);
            }
            FileState::Unreadable(why) => {
                bytes.text("unreadable");
                bytes.text(why);
            }
        }
    }
    bytes.finish()
}

/// Hashes values, each with its length.
pub(crate) struct Encoder(Sha256);

impl Encoder {
    pub(crate) fn new() -> Self {
        Self(Sha256::new())
    }

    /// Returns the hash in lower-case hex.
    pub(crate) fn finish(self) -> String {
        hex::encode(self.0.finalize())
    }

    pub(crate) fn length(&mut self, length: usize) {
        self.0.update((length as u64).to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.0.update(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jail::SandboxPath;
    use operations::{Delete, Exec, Git, GitRevision, GitRevisions, Shell, Write};

    use super::*;
    use crate::testing::{caller, delete, exec, front_matter, run, shell, write};

    fn log(max_count: u32, without: Option<GitRevision>) -> Operation {
        let revisions = GitRevisions { of: GitRevision::default(), without };
        Operation::Git(Git::Log { flags: vec![], max_count, revisions, paths: vec![] })
    }

    fn show(file: Option<SandboxPath>, paths: Vec<SandboxPath>) -> Operation {
        Operation::Git(Git::Show { flags: vec![], revision: GitRevision::default(), file, paths })
    }

    fn of(operation: &Operation, bound: &Bound) -> String {
        let (caller, run) = (caller("worker"), run("review"));
        digest(&Covered {
            policy_digest: "p",
            run: &run,
            caller: &caller,
            call_id: Some("c"),
            message: &of_message(operation),
            bound,
        })
    }

    #[test]
    fn neighbours_do_not_run_into_each_other() {
        let none = Bound::default();
        let digests = [
            Operation::Exec(exec(&["a", "bc"])),
            Operation::Exec(exec(&["ab", "c"])),
            Operation::Exec(exec(&["a", "b", "c"])),
            Operation::Exec(Exec { stdin: b"c".to_vec(), ..exec(&["a", "b"]) }),
            Operation::Exec(Exec { env: [("b".into(), "c".into())].into(), ..exec(&["a"]) }),
            Operation::Shell(shell("a")),
            Operation::Shell(Shell { stdin: b"c".to_vec(), ..shell("a") }),
            Operation::Shell(Shell { env: [("b".into(), "c".into())].into(), ..shell("a") }),
            Operation::Shell(Shell { cwd: SandboxPath::parse("b").unwrap(), ..shell("a") }),
            Operation::Shell(Shell { timeout: Duration::from_secs(31), ..shell("a") }),
            Operation::Write(write("a")),
            Operation::Write(Write { create_only: true, ..write("a") }),
            Operation::Git(Git::Status),
            Operation::Git(Git::Diff { flags: vec![], paths: vec![] }),
            log(100, None),
            log(99, None),
            log(100, Some(GitRevision::default())),
            show(None, vec![]),
            show(Some(SandboxPath::parse("a").unwrap()), vec![]),
            show(None, vec![SandboxPath::parse("a").unwrap()]),
            Operation::Delete(delete("a")),
            Operation::Delete(Delete { if_match_sha256: Some("a".into()), ..delete("a") }),
            front_matter(|_| ()),
            front_matter(|update| update.if_match_sha256 = Some("a".into())),
            front_matter(|update| update.steps_completed_append = vec!["a".into()]),
            front_matter(|update| update.artifacts_append = vec!["a".into()]),
            front_matter(|update| update.artifacts_append = vec!["a".into(), "b".into()]),
            front_matter(|update| update.updated_at = Some("a".into())),
            front_matter(|update| drop(update.variables_set.insert("a".into(), "b".into()))),
            front_matter(|update| {
                update.decision_log_append = vec![[("a".into(), "b".into())].into_iter().collect()];
            }),
        ]
        .map(|operation| of(&operation, &none));
        for (i, digest) in digests.iter().enumerate() {
            assert_eq!(digests.iter().position(|other| other == digest), Some(i));
        }
    }

    #[test]
    fn remembered_digest_omits_the_call_id() {
        let (caller, run, message) =
            (caller("worker"), run("review"), of_message(&Operation::Exec(exec(&["make"]))));
        let bound = Bound::default();
        let of = |call_id| {
            digest(&Covered {
                policy_digest: "p",
                run: &run,
                caller: &caller,
                call_id,
                message: &message,
                bound: &bound,
            })
        };
        assert_ne!(of(Some("c")), of(Some("d")));
        assert_ne!(of(None), of(Some("")));
    }

    #[test]
    fn files_are_covered() {
        let operation = Operation::Exec(exec(&["make"]));
        let with = |state| {
            let files = [(SandboxPath::parse("Makefile").unwrap(), state)].into();
            of(&operation, &Bound { files, ..Bound::default() })
        };
        let digests = [
            of(&operation, &Bound::default()),
            of(&operation, &Bound { digest: "ab".into(), ..Bound::default() }),
            with(FileState::Absent),
            with(FileState::Sha256("aa".into())),
            with(FileState::Sha256("ab".into())),
            with(FileState::Unreadable("ab".into())),
        ];
        for (i, digest) in digests.iter().enumerate() {
            assert_eq!(digests.iter().position(|other| other == digest), Some(i));
        }
    }
}
