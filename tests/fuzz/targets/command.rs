//! The command rules answer to any command line and any script, in bounded time and in one short line: a program that is
//! denied by its name never runs, and what the read-only rule lets through is what it says.
//!
//! Input: one byte of flags; the arguments, with a NUL byte between them, or a script.

#![no_main]

use std::sync::LazyLock;

use fuzz::{is_one_line, text};
use gateway::{Admission, Gateway};
use libfuzzer_sys::fuzz_target;
use operations::deny::{DenyList, NAMES, base_name, is_denied};
use operations::{Exec, Operation};
use wire::v1;
use wire::v1::operation::Kind;

static GATEWAY: LazyLock<Gateway> = LazyLock::new(fuzz::door::gateway);

/// The actions of `find`.
const ACTIONS: [&str; 9] =
    ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprintf", "-fprint0", "-fls"];

fuzz_target!(|data: &[u8]| {
    let Some((flags, rest)) = data.split_first() else { return };
    let text = text(rest);
    if flags & 4 != 0 {
        let request = v1::ShellRequest { script: text.into_owned(), ..v1::ShellRequest::default() };
        return fuzz::parsed(Kind::Shell(request)).map_or((), |operation| judged(&operation));
    }
    let mut words = text.split('\0').map(str::to_owned);
    let request = v1::ExecRequest {
        command: words.next().unwrap_or_default(),
        // What a shell may read, too.
        stdin: if flags & 8 != 0 { words.next_back().unwrap_or_default().into() } else { Vec::new() },
        args: words.collect(),
        cwd: if flags & 1 != 0 { ".git/hooks".into() } else { String::new() },
        env: if flags & 2 != 0 { [("PATH".to_owned(), "/workspace".to_owned())].into() } else { [].into() },
        ..v1::ExecRequest::default()
    };
    let Ok(operation) = fuzz::parsed(Kind::Exec(request)) else { return };
    judged(&operation);
    if let Operation::Exec(exec) = &operation {
        denied_by_name(&exec.command);
        if let Admission::Permit(_) = fuzz::door::admit(&GATEWAY, "open", operation.clone()) {
            assert!(!is_denied(&exec.command), "{exec:?}");
        }
        if let Admission::Permit(_) = fuzz::door::admit(&GATEWAY, "review", operation.clone()) {
            only_reads(exec);
        }
    }
});

fn judged(operation: &Operation) {
    for profile in ["open", "build", "review"] {
        if let Admission::Refuse(refusal) = fuzz::door::admit(&GATEWAY, profile, operation.clone()) {
            assert!(is_one_line(&refusal.message) && refusal.message.len() < 4_000, "{refusal:?}");
        }
    }
}

fn only_reads(exec: &Exec) {
    let name = base_name(&exec.command);
    assert!(
        ["cat", "head", "tail", "find", "wc"].contains(&name.as_str()) && exec.env.is_empty(),
        "{exec:?}"
    );
    if name == "find" {
        // The operand of `-name` may look like an action.
        let acts = |pair: &[String]| ACTIONS.contains(&pair[1].as_str()) && !pair[0].starts_with('-');
        assert!(!exec.args.windows(2).any(acts), "{exec:?}");
    } else if !exec.args.iter().any(|arg| arg.starts_with('-')) {
        // Without options all of them are files.
        let leaves = |arg: &String| arg.split('/').any(|part| part == "..") || arg.starts_with("/etc");
        assert!(!exec.args.iter().any(leaves), "{exec:?}");
    }
}

/// The deny list against what its documentation says.
fn denied_by_name(program: &str) {
    let last = program.split('/').rfind(|part| !part.is_empty()).unwrap_or_default().to_ascii_lowercase();
    let listed = NAMES.contains(&last.as_str()) || last.starts_with("mkfs");
    // Beside these: `grm`, `uu-rm`, and what is one of them to a file system without case.
    let remade = last.starts_with('g') || last.starts_with("uu") || !last.is_ascii();
    assert!(is_denied(program) == listed || remade && !listed, "{program:?}");
    assert!(DenyList::On.denies(program, &[&last]) && DenyList::On.denies(program, &["*"]));
}
