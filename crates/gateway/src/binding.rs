//! The digest that an approval is bound to: SHA-256 over everything that the reviewer consented to.
//!
//! Every value is written with its length, and every choice with its name, so that no two different calls have the
//! same bytes. Structures are taken apart without `..`: a field that is added later cannot be left out by oversight.

use std::collections::BTreeMap;
use std::time::Duration;

use jail::SandboxPath;
use ops::{
    Bound, Delete, Edit, EditChange, Encoding, Exec, FileState, FrontMatter, Git, Glob, Grep, List, Mcp,
    Operation, PatchChange, Read, ReadPart, Shell, Write,
};
use sha2::{Digest, Sha256};

use crate::caller::{Caller, RunScope};

/// Everything that an approval covers.
pub(crate) struct Covered<'c> {
    pub(crate) policy_digest: &'c str,
    pub(crate) run: &'c RunScope,
    pub(crate) caller: &'c Caller,
    /// `None`: whichever call of the run it is, for a consent that is remembered.
    pub(crate) call_id: Option<&'c str>,
    pub(crate) operation: &'c Operation,
    pub(crate) bound: &'c Bound,
}

/// The digest over it, lower-case hex.
pub(crate) fn digest(covered: &Covered<'_>) -> String {
    let Covered { policy_digest, run, caller, call_id, operation, bound } = covered;
    let RunScope { profile, image_id } = run;
    let Caller { principal, agent_id, role, run_id } = caller;
    let mut bytes = Encoder(Sha256::new());
    bytes.text(if call_id.is_some() { "cofferdam approval 2" } else { "cofferdam consent 2" });
    for text in [policy_digest, profile.as_str(), image_id, principal, agent_id, role, run_id] {
        bytes.text(text);
    }
    bytes.optional(*call_id, Encoder::text);
    bytes.operation(operation);
    // When it was looked at, and what else there was to say, is not what it is.
    let Bound { digest, files, since: _, remarks: _ } = bound;
    bytes.text(digest);
    bytes.length(files.len());
    for (path, state) in files {
        bytes.path(path);
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
    hex::encode(bytes.0.finalize())
}

struct Encoder(Sha256);

impl Encoder {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn length(&mut self, length: usize) {
        self.number(length as u64);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn flag(&mut self, flag: bool) {
        self.number(u64::from(flag));
    }

    fn texts(&mut self, texts: &[String]) {
        self.length(texts.len());
        for text in texts {
            self.text(text);
        }
    }

    fn path(&mut self, path: &SandboxPath) {
        self.text(&path.to_string());
    }

    fn paths(&mut self, paths: &[SandboxPath]) {
        self.length(paths.len());
        for path in paths {
            self.path(path);
        }
    }

    fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn operation(&mut self, operation: &Operation) {
        self.text(operation.name());
        match operation {
            Operation::Read(Read { path, part, encoding }) => {
                self.path(path);
                self.part(part);
                self.text(match encoding {
                    Encoding::Utf8 => "utf8",
                    Encoding::Base64 => "base64",
                });
            }
            Operation::List(List { path, depth, include_hidden, include_symlinks, max_entries }) => {
                self.path(path);
                self.number(u64::from(*depth));
                self.flag(*include_hidden);
                self.flag(*include_symlinks);
                self.number(u64::from(*max_entries));
            }
            Operation::Glob(Glob { path, pattern, include_ignored, max_results }) => {
                self.path(path);
                self.text(pattern);
                self.flag(*include_ignored);
                self.number(u64::from(*max_results));
            }
            Operation::Grep(grep) => self.grep(grep),
            Operation::Exec(exec) => self.exec(exec),
            Operation::Shell(shell) => self.shell(shell),
            Operation::Write(Write { path, content, if_match_sha256, create_only }) => {
                self.path(path);
                self.bytes(content);
                self.optional(if_match_sha256.as_deref(), Self::text);
                self.flag(*create_only);
            }
            Operation::Edit(Edit { path, change, if_match_sha256 }) => {
                self.path(path);
                self.change(change);
                self.optional(if_match_sha256.as_deref(), Self::text);
            }
            // Its paths are what its text says.
            Operation::Patch(patch) => self.patch(patch.change()),
            Operation::Delete(Delete { path, if_match_sha256 }) => {
                self.path(path);
                self.optional(if_match_sha256.as_deref(), Self::text);
            }
            Operation::Git(git) => self.git(git),
            Operation::Mcp(Mcp { tool, arguments }) => {
                self.text(tool.canonical());
                self.json(arguments);
            }
        }
    }

    /// In the order of the keys, whatever order they are kept in.
    fn json(&mut self, members: &serde_json::Map<String, serde_json::Value>) {
        let mut members: Vec<_> = members.iter().collect();
        members.sort_by_key(|(name, _)| *name);
        self.length(members.len());
        for (name, value) in members {
            self.text(name);
            self.value(value);
        }
    }

    fn value(&mut self, value: &serde_json::Value) {
        match value {
            serde_json::Value::Object(members) => {
                self.text("object");
                self.json(members);
            }
            serde_json::Value::Array(items) => {
                self.text("array");
                self.length(items.len());
                for item in items {
                    self.value(item);
                }
            }
            // A string is quoted here, so that none is a number.
            plain => self.text(&plain.to_string()),
        }
    }

    fn patch(&mut self, change: &PatchChange) {
        match change {
            PatchChange::Unified(diff) => {
                self.text("unified_diff");
                self.text(diff);
            }
            PatchChange::Envelope(envelope) => {
                self.text("envelope");
                self.text(envelope);
            }
            PatchChange::FrontMatter(update) => {
                self.text("front_matter");
                self.front_matter(update);
            }
        }
    }

    fn front_matter(&mut self, update: &FrontMatter) {
        let FrontMatter {
            path,
            if_match_sha256,
            steps_completed_append,
            variables_set,
            decision_log_append,
            artifacts_append,
            current_node_id,
            updated_at,
        } = update;
        self.path(path);
        self.optional(if_match_sha256.as_deref(), Self::text);
        self.texts(steps_completed_append);
        // With sorted keys, as `serde_json` has them.
        self.length(variables_set.len());
        for (name, value) in variables_set {
            self.text(name);
            self.text(&value.to_string());
        }
        self.length(decision_log_append.len());
        for decision in update.decisions_json() {
            self.text(&decision);
        }
        self.texts(artifacts_append);
        self.optional(current_node_id.as_deref(), Self::text);
        self.optional(updated_at.as_deref(), Self::text);
    }

    fn part(&mut self, part: &ReadPart) {
        match part {
            ReadPart::Whole => self.text("whole"),
            ReadPart::Lines { first, last } => {
                self.text("lines");
                self.number(*first);
                self.optional(*last, Self::number);
            }
            ReadPart::Bytes { offset, limit } => {
                self.text("bytes");
                self.number(*offset);
                self.optional(*limit, Self::number);
            }
        }
    }

    fn grep(&mut self, grep: &Grep) {
        let Grep {
            path,
            pattern,
            regex,
            case_insensitive,
            before,
            after,
            glob,
            max_matches,
            include_ignored,
        } = grep;
        self.path(path);
        self.text(pattern);
        self.flag(*regex);
        self.flag(*case_insensitive);
        self.number(u64::from(*before));
        self.number(u64::from(*after));
        self.optional(glob.as_deref(), Self::text);
        self.number(u64::from(*max_matches));
        self.flag(*include_ignored);
    }

    fn shell(&mut self, shell: &Shell) {
        let Shell { script, cwd, env, stdin, timeout } = shell;
        self.text(script);
        self.surroundings(cwd, env, stdin, *timeout);
    }

    fn exec(&mut self, exec: &Exec) {
        let Exec { command, args, cwd, env, stdin, timeout, only_reads } = exec;
        self.text(command);
        self.texts(args);
        self.flag(*only_reads);
        self.surroundings(cwd, env, stdin, *timeout);
    }

    fn surroundings(
        &mut self,
        cwd: &SandboxPath,
        env: &BTreeMap<String, String>,
        stdin: &[u8],
        timeout: Duration,
    ) {
        self.path(cwd);
        self.length(env.len());
        for (name, value) in env {
            self.text(name);
            self.text(value);
        }
        self.bytes(stdin);
        self.number(timeout.as_secs());
        self.number(u64::from(timeout.subsec_nanos()));
    }

    fn change(&mut self, change: &EditChange) {
        match change {
            EditChange::StrReplace { old, new, replace_all } => {
                self.text("str_replace");
                self.text(old);
                self.text(new);
                self.flag(*replace_all);
            }
            EditChange::Create { content } => {
                self.text("create");
                self.text(content);
            }
            EditChange::Insert { after_line, text } => {
                self.text("insert");
                self.number(*after_line);
                self.text(text);
            }
        }
    }

    fn git(&mut self, git: &Git) {
        match git {
            Git::Status => {}
            Git::Diff { flags, paths } => {
                self.length(flags.len());
                for flag in flags {
                    self.text(flag.as_str());
                }
                self.paths(paths);
            }
            Git::Log { flags, max_count, revisions, paths } => {
                self.length(flags.len());
                for flag in flags {
                    self.text(flag.as_str());
                }
                self.number((*max_count).into());
                self.text(&revisions.to_string());
                self.paths(paths);
            }
            Git::Show { flags, revision, file, paths } => {
                self.length(flags.len());
                for flag in flags {
                    self.text(flag.as_str());
                }
                self.text(revision.as_str());
                self.paths(file.as_slice());
                self.paths(paths);
            }
            Git::Add { paths } => self.paths(paths),
            Git::Commit { message } => self.text(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use ops::{GitRevision, GitRevisions};

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
            operation,
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
    fn what_is_remembered_does_not_say_which_call() {
        let (caller, run, operation) = (caller("worker"), run("review"), Operation::Exec(exec(&["make"])));
        let bound = Bound::default();
        let of = |call_id| {
            digest(&Covered {
                policy_digest: "p",
                run: &run,
                caller: &caller,
                call_id,
                operation: &operation,
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
