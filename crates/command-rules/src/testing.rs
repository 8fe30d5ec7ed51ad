//! Common parts of this crate's tests.

use std::time::Duration;

use jail::SandboxPath;
use operations::deny::is_denied;
use operations::{Exec, Shell};

use crate::{Seen, TooIntricate};

pub(crate) fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

pub(crate) fn exec<S: AsRef<str>>(argv: &[S]) -> Exec {
    let mut words = argv.iter().map(|word| word.as_ref().to_owned());
    Exec {
        command: words.next().unwrap(),
        args: words.collect(),
        cwd: path("."),
        env: [].into(),
        stdin: Vec::new(),
        stdin_file: None,
        timeout: Duration::from_secs(30),
        only_reads: false,
    }
}

pub(crate) fn shell(script: &str) -> Shell {
    Shell {
        script: script.to_owned(),
        cwd: path("."),
        env: [].into(),
        stdin: Vec::new(),
        stdin_file: None,
        timeout: Duration::from_secs(30),
    }
}

pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Returns true if a program of the deny list is seen, or if it is too intricate to see any.
pub(crate) fn is_refused(seen: Result<Seen, TooIntricate>) -> bool {
    seen.map_or(true, |seen| seen.programs().any(is_denied))
}
