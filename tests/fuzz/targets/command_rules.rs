//! Any words and any script are read in bounded time, without a policy. A command line that only reads names no other
//! program, deletes nothing and is seen through; what is named is in the mounts.
//!
//! Input: one byte of flags; the arguments, with a NUL byte between them, or a script.

#![no_main]

use command_rules::{Seen, argv, deletes, named_files, only_reads, read_only};
use fuzz::text;
use jail::{GitReads, Protection};
use libfuzzer_sys::fuzz_target;
use operations::{Exec, Operation};
use wire::v1;
use wire::v1::operation::Kind;

fuzz_target!(|data: &[u8]| {
    let Some((flags, rest)) = data.split_first() else { return };
    let text = text(rest);
    let kind = if flags & 1 != 0 {
        Kind::Shell(v1::ShellRequest { script: text.into_owned(), ..v1::ShellRequest::default() })
    } else {
        let mut words = text.split('\0').map(str::to_owned);
        let command = words.next().unwrap_or_default();
        Kind::Exec(v1::ExecRequest { command, args: words.collect(), ..v1::ExecRequest::default() })
    };
    let Ok(operation) = fuzz::parsed(kind) else { return };
    assert!(named_files(&operation).len() <= 16_384);
    match &operation {
        Operation::Exec(exec) => command(exec),
        Operation::Shell(shell) => drop(Seen::of_script(shell)),
        _ => {}
    }
});

fn command(exec: &Exec) {
    let only = only_reads(&exec.command, &exec.args);
    let reads = read_only(exec, Protection { git_reads: GitReads::Guarded }).is_ok();
    if !only && !reads {
        return;
    }
    let seen = Seen::of_command(exec).expect("a line without wrappers is not intricate");
    assert_eq!(seen.programs().count(), 1, "{exec:?}");
    assert!(seen.is_plain_to(argv(exec).len()), "{exec:?}");
    assert_eq!(deletes(&exec.command, &exec.args), None, "{exec:?}");
}
