//! Properties of everything that a client can send.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::capabilities::Report;
use crate::decision::Decision;
use crate::judgement::Ancestry;
use crate::packet::Packet;
use crate::ref_name::{RefName, RefPattern};
use crate::refusal::Refusal;
use crate::repository::{Repository, RepositoryPattern};
use crate::request::{Head, Request};
use crate::rules::{Push, Rules};
use crate::testing::{ONE, TWO, ZERO, packets};
use crate::{CommandList, CommandReader, Fault, MAX_LIST, Step};

const PACKETS: [&[u8]; 8] = [b"0000", b"0001", b"0002", b"0003", b"0004", b"fff1", b"PACK", b"000"];

const NAMES: [&str; 7] = [
    "refs/heads/main",
    "refs/heads/agent/a",
    "refs/heads/agent/b/c",
    "refs/tags/v1",
    "refs/for/main",
    "refs/heads/ü",
    "refs/heads/x.lock",
];

fn a_line() -> impl Strategy<Value = String> {
    let ids = select(&[ZERO, ONE, TWO][..]);
    let end = select(
        &["", "\n", "\0", "\0report-status", "\0report-status-v2 side-band-64k\n", "\0push-options atomic"][..],
    );
    prop_oneof![
        8 => (ids.clone(), ids, select(&NAMES[..]), end).prop_map(|(old, new, name, end)| format!("{old} {new} {name}{end}")),
        1 => Just(format!("shallow {ONE}")),
        1 => "[ -~]{0,20}",
        1 => any::<String>(),
    ]
}

/// Bodies that are lists, or nearly so.
fn a_body() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        6 => vec(a_line(), 0..5).prop_map(|lines| packets(&lines)),
        1 => vec(any::<u8>(), 0..40),
        1 => select(&PACKETS[..]).prop_map(<[u8]>::to_vec),
    ];
    vec(part, 1..4).prop_map(|parts| parts.concat())
}

fn read(body: &[u8], size: usize) -> Result<(CommandList, usize), Fault> {
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
    assert_eq!(raw, body[..taken]);
    assert!(raw.len() <= MAX_LIST);
    Ok((list, taken))
}

/// Writes a list in its plainest form.
fn write(list: &CommandList) -> Vec<u8> {
    let report = match list.capabilities.report {
        Report::None => "",
        Report::V1 => "report-status",
        Report::V2 => "report-status-v2",
    };
    let mut words = vec![report.to_owned(), format!("object-format={}", list.capabilities.format.as_str())];
    let flags = [
        (list.capabilities.has_side_band, "side-band-64k"),
        (list.capabilities.is_atomic, "atomic"),
        (list.capabilities.has_options, "push-options"),
    ];
    words.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| (*word).to_owned()));
    words.extend(list.capabilities.agent.iter().map(|agent| format!("agent={agent}")));
    let mut lines: Vec<String> = list.shallow.iter().map(|id| format!("shallow {id}")).collect();
    for (number, command) in list.commands.iter().enumerate() {
        let end = if number == 0 { format!("\0{}", words.join(" ")) } else { String::new() };
        lines.push(format!("{} {} {}{end}", command.old(), command.new_id(), command.name()));
    }
    let mut body = packets(&lines);
    if list.capabilities.has_options {
        body.extend(packets(&list.options));
    }
    body
}

fn a_decision() -> impl Strategy<Value = Decision> {
    select(&[Decision::Allow, Decision::Ask, Decision::Deny][..])
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let refs = vec(select(&["refs/heads/agent/*", "refs/heads/*", "refs/*", "refs/tags/v1"][..]), 1..3);
    let push = (a_decision(), refs, a_decision(), a_decision(), a_decision()).prop_map(
        |(decision, refs, force, delete, options)| Push {
            decision,
            refs: refs.into_iter().map(|text| RefPattern::parse(text).unwrap()).collect(),
            force,
            delete,
            options,
        },
    );
    let repositories =
        select(&["org/app", "org/*", "*"][..]).prop_map(|text| RepositoryPattern::parse(text).unwrap());
    (repositories, push)
        .prop_map(|(pattern, push)| Rules::new([pattern].into(), Decision::Ask, push).unwrap())
}

fn an_ancestry() -> impl Strategy<Value = Ancestry> {
    select(&[Ancestry::FastForward, Ancestry::Forced, Ancestry::Unknown][..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn a_body_is_read_in_the_same_way_however_it_is_divided(body in a_body(), size in 1..70_usize) {
        prop_assert_eq!(read(&body, size), read(&body, usize::MAX));
        prop_assert_eq!(read(&body, 1), read(&body, usize::MAX));
    }

    #[test]
    fn a_list_that_is_taken_is_the_same_once_it_is_written_again(body in a_body()) {
        if let Ok((list, _)) = read(&body, 4_096) {
            let plain = write(&list);
            let again = read(&plain, 4_096);
            prop_assert_eq!(again, Ok((list, plain.len())));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = Packet::read(&bytes);
        let _ = read(&bytes, 64);
        let _ = RefName::parse(&bytes);
    }

    #[test]
    fn any_head_is_a_request_or_a_reason_on_one_line(
        method in "GET|POST|[A-Z]{0,9}",
        target in prop_oneof![
            "(/[a-z.%*-]{0,8}){0,4}(\\.git)?(/info/refs\\?service=git-(upload|receive)-pack|/git-receive-pack)",
            any::<String>(),
        ],
        git_protocol in proptest::option::of("(version=[0-9]|:|[a-z]){0,4}"),
    ) {
        let head = Head { method: &method, target: &target, git_protocol: git_protocol.as_deref(), ..Head::default() };
        match Request::parse(&head) {
            Ok(request) => {
                let repository = request.repository().as_str();
                prop_assert!(target.strip_prefix('/').is_some_and(|path| path.starts_with(repository)));
                prop_assert_eq!(Repository::parse(repository), Ok(request.repository().clone()));
                prop_assert!(!repository.split('/').any(|part| part.is_empty() || part.starts_with('.')));
            }
            Err(kind) => {
                let words = kind.to_string();
                prop_assert!(words.len() < 500 && !words.contains(char::is_control), "{}", words);
            }
        }
    }

    #[test]
    fn a_push_is_judged_as_the_strictest_of_its_parts(body in a_body(), rules in any_rules(), ancestry in an_ancestry()) {
        let Ok((list, _)) = read(&body, 4_096) else { return Ok(()) };
        let app = Repository::parse("org/app").unwrap();
        let judgement = rules.judge(&app, &list);
        let is_refused = judgement.is_refused();
        let ruling = judgement.clone().settle(&list, |_| ancestry);
        prop_assert!(!is_refused || ruling.decision == Decision::Deny);
        prop_assert_eq!(ruling.commands.len(), list.commands.len());
        for ruled in &ruling.commands {
            prop_assert!(ruling.decision >= ruled.decision);
            prop_assert_eq!(ruled.decision == Decision::Deny, ruled.reason.is_some());
        }
        let best = judgement.settle(&list, |_| Ancestry::FastForward);
        prop_assert!(ruling.decision >= best.decision);
        let met = ruling.clone().meet(best);
        prop_assert_eq!(met.decision, ruling.decision);
    }

    #[test]
    fn a_refusal_names_each_ref_once_and_nothing_else(body in a_body(), why in any::<String>()) {
        let Ok((list, _)) = read(&body, 4_096) else { return Ok(()) };
        let whys = vec![why.clone(); list.commands.len()];
        let refusal = Refusal::of_push(&list, &whys, &why);
        if refusal.status == 403 {
            prop_assert_eq!(list.capabilities.report, Report::None);
            return Ok(());
        }
        let (mut rest, mut report) = (&refusal.body[..], Vec::new());
        while let Some((packet, length)) = Packet::read(rest).unwrap() {
            match packet {
                Packet::Data([1, part @ ..]) if list.capabilities.has_side_band => report.extend_from_slice(part),
                Packet::Data(_) if list.capabilities.has_side_band => {}
                _ => report.extend_from_slice(&rest[..length]),
            }
            rest = &rest[length..];
        }
        prop_assert!(rest.is_empty());
        if list.capabilities.report == Report::None {
            return Ok(());
        }
        let (mut rest, mut names) = (&report[..], Vec::new());
        while let Some((packet, length)) = Packet::read(rest).unwrap() {
            if let Packet::Data(line) = packet {
                let line = std::str::from_utf8(line).unwrap();
                prop_assert!(line == "unpack ok\n" || line.starts_with("ng "), "{}", line);
                prop_assert_eq!(line.matches(char::is_control).count(), 1);
                names.extend(line.strip_prefix("ng ").and_then(|line| line.split(' ').next()).map(str::to_owned));
            }
            rest = &rest[length..];
        }
        prop_assert!(rest.is_empty());
        prop_assert_eq!(names, list.commands.iter().map(|command| command.name().to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn the_generators_reach_lists_and_faults() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut lists, mut faults) = (0, std::collections::BTreeSet::new());
    for _ in 0..2_000 {
        let body = a_body().new_tree(&mut runner).unwrap().current();
        match read(&body, 4_096) {
            Ok((list, _)) => lists += usize::from(list.commands.len() > 1),
            Err(fault) => drop(faults.insert(format!("{fault:?}").chars().take(9).collect::<String>())),
        }
    }
    assert!(lists > 20 && faults.len() > 8, "{lists} {faults:?}");
}
