//! A run, its workspace, and the canaries beside it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::v1::operation::Kind as Operation;
use harness::v1::{self, CallRequest, git_request};
use harness::{Daemon, RunHandle, calls, reason};

use super::{Case, Does, Expect};

/// A call that may not end by itself is ended then.
const DEADLINE: Duration = Duration::from_millis(1500);
/// Longer than any call takes that ends by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// What every script begins with.
const BEGIN: &str = r#"
set -eu
export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
sings() { printf '#!/bin/sh\necho sung >%s/SUNG-%s\necho sung >%s/SUNG-%s\ncat\n' "$OUT" "$1" "$W" "$1"; }
last() { :; }
find "$W" "$OUT" -mindepth 1 -delete
cd "$OUT"
echo 'the canary sings' >secret
git init -q -b main
git add secret
git commit -q -m 'the canary sings'
git rev-parse HEAD >ref
git rev-parse HEAD:secret >blob
mkdir empty
cd "$W"
git init -q -b main
mkdir d
echo one >a
echo two >d/b
git add .
git commit -q -m first
echo changed >a
echo new >new
"#;

const END: &str = r#"
chown -Rh 4321:4321 "$W" "$OUT"
chmod -R a+rwX "$OUT"
last
"#;

/// See the module.
pub(super) struct Stage {
    daemon: Daemon,
    run: RunHandle,
    workspace: PathBuf,
    pub(super) canaries: PathBuf,
}

impl Stage {
    pub(super) async fn set() -> Self {
        let daemon = Daemon::start().await;
        let workspace = daemon.workspace("w", &[]);
        let canaries = daemon.outside().join("canaries");
        std::fs::create_dir(&canaries).unwrap();
        // Nothing but the jail is to be in the way.
        daemon.expose();
        let run = daemon.run("open", &workspace).await;
        Self { daemon, run, workspace, canaries }
    }

    /// Makes the workspace of this case.
    pub(super) fn prepare(&self, case: &Case) {
        let output = Command::new("sh")
            .arg("-c")
            .arg(format!("{BEGIN}{}{END}", case.script))
            .env("W", &self.workspace)
            .env("OUT", &self.canaries)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", case.name, String::from_utf8_lossy(&output.stderr));
    }

    /// Makes the call, and judges what comes of it.
    pub(super) async fn call(&mut self, case: &Case, does: Does) {
        let what = format!("{}, {does:?}", case.name);
        let deadline = match case.expect {
            Expect::Ends => DEADLINE,
            Expect::Done | Expect::Refused(..) => PATIENCE,
        };
        let request = CallRequest {
            request: Some(operation(does).into()),
            timeout: Some(wire::duration(deadline)),
            ..Default::default()
        };
        let answer = self.run.call_with(request).await;
        let said = format!("{answer:?}");
        for secret in ["canary sings", "root:x:0", &self.daemon.outside().display().to_string()] {
            assert!(!said.contains(secret), "{what}: {secret:?} is in the answer: {said}");
        }
        let refused = match &answer {
            Ok(response) => {
                response.error.as_ref().map(|error| (error.reason.clone(), error.message.clone()))
            }
            Err(status) => Some((reason(status), status.message().to_owned())),
        };
        match (case.expect, refused) {
            (Expect::Refused(reason, words), Some((given, message))) => {
                assert_eq!(given, reason, "{what}: {message}");
                assert!(message.contains(words), "{what}: {message}");
            }
            (Expect::Refused(..), None) => panic!("{what}: {said}"),
            (Expect::Done, Some((reason, message))) => panic!("{what}: {reason}: {message}"),
            (Expect::Done, None) => {}
            (Expect::Ends, refused) => {
                // A fault of ours is no way to end.
                let reason = refused.map(|(reason, _)| reason).unwrap_or_default();
                assert_ne!(reason, "INTERNAL", "{what}: {said}");
            }
        }
    }

    /// Nothing that was planted has run.
    pub(super) fn is_silent(&self, case: &Case) {
        for place in [&self.workspace, &self.canaries] {
            for entry in std::fs::read_dir(place).unwrap() {
                let name = entry.unwrap().file_name();
                assert!(
                    !name.to_string_lossy().starts_with("SUNG-"),
                    "{}: {} ran",
                    case.name,
                    name.display()
                );
            }
        }
    }

    /// The lane serves the next call.
    pub(super) async fn still_works(&mut self, case: &Case) {
        let response = self.run.call(calls::write("@state/still", "works\n")).await.unwrap();
        assert!(response.error.is_none(), "{}: {:?}", case.name, response.error);
    }
}

fn operation(does: Does) -> Operation {
    match does {
        Does::Status => calls::git(git_request::Command::Status(v1::GitStatus {})),
        Does::Diff => calls::git_diff(&[]),
        Does::Cached => calls::git_diff(&["--cached"]),
        Does::Add(path) => calls::git_add(&[path]),
        Does::Commit => calls::git_commit("hostile"),
        Does::Read(path) => calls::read(path),
        Does::Write(path) => calls::write(path, "written\n"),
        Does::List(path) => calls::list(path),
        Does::Grep(path) => calls::grep(path, "canary"),
    }
}

/// A path with its mode, owner, time of the last writing, and content.
type Listed = (PathBuf, u32, u32, (i64, i64), Vec<u8>);

/// Everything below a directory: equal before and after means that nothing was written.
pub(super) fn tree(directory: &Path) -> Vec<Listed> {
    let mut found = Vec::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(path) = todo.pop() {
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let content = if metadata.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let written = (metadata.mtime(), metadata.mtime_nsec());
        found.push((path, metadata.mode(), metadata.uid(), written, content));
    }
    found.sort();
    found
}
