use super::*;
use crate::capabilities::Report;
use crate::ref_name::BadRefName;
use crate::testing::{ONE, TWO, ZERO, command, packets};

fn read(bytes: &[u8]) -> Result<(CommandList, usize), Fault> {
    let mut reader = CommandReader::default();
    let step = reader.push(bytes)?;
    let (list, raw) = reader.finish()?;
    assert_eq!(step, Step::Complete(raw.len()));
    assert_eq!(raw, bytes[..raw.len()]);
    Ok((list, raw.len()))
}

fn fault(lines: &[&str]) -> Fault {
    read(&packets(lines)).unwrap_err()
}

#[test]
fn a_list_ends_where_its_pack_begins() {
    let head = packets(&[
        format!("shallow {ONE}\n"),
        format!("{ONE} {TWO} refs/heads/x\0 report-status side-band-64k\n"),
        format!("{ZERO} {ONE} refs/tags/v1\n"),
        format!("{ONE} {ZERO} refs/heads/old"),
    ]);
    let (list, length) = read(&[&head[..], b"PACK0000"].concat()).unwrap();
    assert_eq!(length, head.len());
    let expected = CommandList {
        commands: vec![
            command(ONE, TWO, "refs/heads/x"),
            command(ZERO, ONE, "refs/tags/v1"),
            command(ONE, ZERO, "refs/heads/old"),
        ],
        capabilities: Capabilities { report: Report::V1, has_side_band: true, ..Capabilities::default() },
        shallow: vec![ObjectId::parse(ONE.as_bytes(), ObjectFormat::Sha1).unwrap()],
        options: vec![],
    };
    assert_eq!(list, expected);
}

#[test]
fn options_come_after_the_commands() {
    let commands = packets(&[format!("{ZERO} {ONE} refs/heads/x\0push-options")]);
    let options = packets(&["ci.skip", "title=Fix für alle\n"]);
    let (list, length) = read(&[&commands[..], &options, b"PACK"].concat()).unwrap();
    assert_eq!(
        (length, list.options),
        (commands.len() + options.len(), vec!["ci.skip".into(), "title=Fix für alle".into()])
    );
    assert_eq!(read(&commands), Err(Fault::Truncated));
    let (list, _) = read(&[&commands[..], b"0000"].concat()).unwrap();
    assert_eq!(list.options, Vec::<String>::new());
    for option in ["", "a\nb", "a\0b", "\u{1b}[2J", &"x".repeat(1_025)] {
        let options = [&format!("{:04x}", option.len() + 4), option, "0000"].concat();
        assert_eq!(read(&[&commands[..], options.as_bytes()].concat()), Err(Fault::Option), "{option:?}");
    }
    let options = packets(&["x"; 65]);
    assert_eq!(read(&[&commands[..], &options].concat()), Err(Fault::Option));
}

#[test]
fn ids_of_sha256_are_read_if_the_capabilities_name_it() {
    let (one, zero) = ("1".repeat(64), "0".repeat(64));
    let line = format!("{zero} {one} refs/heads/x\0object-format=sha256");
    let (list, _) = read(&packets(&[format!("shallow {one}"), line])).unwrap();
    assert_eq!(list.commands[0].new_id().as_str(), one);
    assert_eq!(fault(&[&format!("{zero} {one} refs/heads/x\0report-status")]), BadCommand::Form.into());
    assert_eq!(
        fault(&[&format!("{ZERO} {ONE} refs/heads/x\0object-format=sha256")]),
        BadCommand::Form.into()
    );
    assert_eq!(fault(&[&format!("shallow {one}"), &format!("{ZERO} {ONE} refs/heads/x\0")]), Fault::Shallow);
}

#[test]
fn a_request_without_a_command_is_a_probe() {
    let (list, length) = read(b"0000").unwrap();
    assert!(list.is_probe() && length == 4);
    assert_eq!(fault(&[&format!("shallow {ONE}")]), Fault::NoCommand);
}

#[test]
fn a_list_that_servers_could_read_in_another_way_is_a_fault() {
    let first = format!("{ONE} {TWO} refs/heads/x\0report-status");
    for (lines, expected) in [
        (vec![first.clone(), format!("{ONE} {TWO} refs/heads/y\0atomic")], Fault::LateCapabilities),
        (vec![first.clone(), format!("{ONE} {TWO} refs/heads/y\0")], Fault::LateCapabilities),
        (vec![format!("{ONE} {TWO} refs/heads/x"), first.clone()], Fault::LateCapabilities),
        (vec![format!("shallow {ONE}\0report-status"), first.clone()], BadCommand::Form.into()),
        (vec![first.clone(), format!("shallow {ONE}")], Fault::Shallow),
        (
            vec![first.clone(), format!("{ONE} {ONE} refs/heads/x")],
            Fault::Repeated(RefName::parse(b"refs/heads/x").unwrap()),
        ),
        (vec!["push-cert\0report-status".to_owned()], Fault::Certificate),
        (vec!["push-cert".to_owned()], Fault::Certificate),
        (vec![format!("shallow {ONE}"), "push-cert\0\n".to_owned()], Fault::Certificate),
        (vec![format!("{first}\0side-band-64k")], BadCapability::Character.into()),
        (
            vec![format!("{ONE} {TWO} refs/heads/x\n\0report-status")],
            BadCommand::Name(BadRefName::Character).into(),
        ),
        (vec![format!("{ONE} {TWO} refs/heads/x\n\n")], BadCommand::Name(BadRefName::Character).into()),
        (vec!["ERR stop".to_owned()], BadCommand::Form.into()),
        (vec!["command=push".to_owned()], BadCommand::Form.into()),
        (vec!["want ".to_owned() + ONE], BadCommand::Form.into()),
    ] {
        assert_eq!(read(&packets(&lines)), Err(expected), "{lines:?}");
    }
    let head = packets(&[first]);
    let commands = &head[..head.len() - 4];
    for (end, expected) in [
        (&b"0001"[..], Fault::Packet),
        (b"0002", Fault::Packet),
        (b"0003", BadPacket::TooShort.into()),
        (b"0004", BadCommand::Form.into()),
        (b"ffff", BadPacket::TooLong.into()),
        (b"PACK", BadPacket::NotHexadecimal.into()),
        (b"", Fault::Truncated),
        (b"00", Fault::Truncated),
        (b"0010abc", Fault::Truncated),
    ] {
        assert_eq!(read(&[commands, end].concat()), Err(expected), "{end:?}");
    }
}

#[test]
fn the_form_of_the_refusal_is_known_after_a_fault() {
    for line in ["push-cert\0report-status side-band-64k", "not a command\0report-status side-band-64k"] {
        let mut reader = CommandReader::default();
        reader.push(&packets(&[line])).unwrap_err();
        let capabilities = reader.capabilities().unwrap();
        assert!(capabilities.report == Report::V1 && capabilities.has_side_band, "{line}");
    }
    let mut reader = CommandReader::default();
    reader.push(b"what").unwrap_err();
    assert_eq!(reader.capabilities(), None);
}

#[test]
fn a_hundred_thousand_refs_are_a_fault_within_the_bounds() {
    let mut reader = CommandReader::default();
    let mut lines = Vec::new();
    for number in 0..100_000 {
        lines.extend_from_slice(&packets(&[format!("{ZERO} {ONE} refs/heads/{number}")])[..]);
        lines.truncate(lines.len() - 4);
    }
    assert_eq!(reader.push(&lines), Err(Fault::TooMany));
    assert!(reader.raw.len() <= MAX_LIST && reader.list.commands.len() == MAX_COMMANDS);
}

#[test]
fn a_list_is_as_long_as_it_may_be_and_no_longer() {
    let name = "x".repeat(1_000);
    let lines: Vec<_> = (0..2_000).map(|number| format!("{ZERO} {ONE} refs/heads/{name}{number}")).collect();
    let mut reader = CommandReader::default();
    assert_eq!(reader.push(&packets(&lines)), Err(Fault::TooLong));
    assert_eq!(reader.raw.len(), MAX_LIST);
    let (list, _) = read(&packets(&lines[..900])).unwrap();
    assert_eq!(list.commands.len(), 900);
    let lines: Vec<_> = (0..10_001).map(|_| format!("shallow {ONE}")).collect();
    assert_eq!(read(&packets(&lines)), Err(Fault::TooMany));
}

#[test]
fn a_complete_list_takes_no_further_bytes() {
    let mut reader = CommandReader::default();
    let head = packets(&[format!("{ZERO} {ONE} refs/heads/x\0report-status")]);
    assert_eq!(reader.push(&head[..7]), Ok(Step::More));
    assert_eq!(reader.push(&[&head[7..], b"PACK"].concat()), Ok(Step::Complete(head.len() - 7)));
    assert_eq!(reader.push(b"PACK"), Ok(Step::Complete(0)));
    assert_eq!(reader.finish().unwrap().1, head);
}

#[test]
fn nothing_is_read_after_a_fault() {
    let good = packets(&[format!("{ZERO} {ONE} refs/heads/x\0report-status")]);
    let mut reader = CommandReader::default();
    assert_eq!(reader.push(b"0001"), Err(Fault::Packet));
    assert_eq!(reader.push(&good), Err(Fault::Packet));
    assert_eq!(reader.finish(), Err(Fault::Packet));
}
