//! The beginning of a push, and how it is divided: the same list is read, or the same fault, within its bounds. A refusal names each ref.
//!
//! Input: the size of the parts, then the body.

#![no_main]

use git_wire::{
    Ancestry, CommandList, CommandReader, Decision, Fault, MAX_COMMANDS, MAX_LIST, Packet, Push, RefPattern, Refusal,
    Report, Repository, RepositoryPattern, Rules, Step,
};
use libfuzzer_sys::fuzz_target;

fn read(body: &[u8], size: usize) -> Result<CommandList, Fault> {
    let (mut reader, mut taken) = (CommandReader::default(), 0);
    for part in body.chunks(size) {
        match reader.push(part)? {
            Step::More => taken += part.len(),
            Step::Complete(length) => {
                taken += length;
                break;
            }
        }
    }
    let (list, raw) = reader.finish()?;
    assert!(raw == body[..taken] && raw.len() <= MAX_LIST && list.commands.len() <= MAX_COMMANDS);
    Ok(list)
}

fn rules() -> Rules {
    let refs = [RefPattern::parse("refs/heads/agent/*").expect("a pattern")].into();
    let push = Push { decision: Decision::Allow, refs, ..Push::default() };
    Rules::new([RepositoryPattern::parse("org/app").expect("a path")].into(), Decision::Allow, push).expect("rules")
}

/// Returns the data of the packets, and checks that nothing comes after them.
fn lines(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    while let Some((packet, length)) = Packet::read(bytes).expect("a packet") {
        if let Packet::Data(data) = packet {
            lines.push(data);
        }
        bytes = &bytes[length..];
    }
    assert!(bytes.is_empty());
    lines
}

fuzz_target!(|data: &[u8]| {
    let Some((size, body)) = data.split_first() else { return };
    let result = read(body, usize::from(*size).max(1));
    assert_eq!(result, read(body, 1));
    let Ok(list) = result else { return };
    let repository = Repository::parse("org/app.git").expect("a path");
    let ruling = rules().judge(&repository, &list).settle(&list, |_| Ancestry::Unknown);
    let is_open = list.commands.iter().all(|command| command.name().as_str().starts_with("refs/heads/agent/"));
    assert!(is_open || ruling.decision == Decision::Deny);
    assert_eq!(list.statement(&repository).lines().count() - 1, {
        usize::from(list.capabilities.is_atomic) + list.commands.len() + list.options.len()
    });
    let refusal = Refusal::of_push(&list, &ruling.whys(), "refused");
    if list.capabilities.report == Report::None {
        return;
    }
    let mut report = refusal.body;
    if list.capabilities.has_side_band {
        report = lines(&report).iter().filter_map(|line| line.strip_prefix(&[1])).collect::<Vec<_>>().concat();
    }
    assert_eq!(lines(&report).iter().filter(|line| line.starts_with(b"ng ")).count(), list.commands.len());
});
