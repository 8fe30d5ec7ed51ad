use super::*;

/// Returns a query with this name in wire form, and these parts.
fn raw(name: &[u8], kind: u16, class: u16) -> Vec<u8> {
    let header = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&header[..], name, &kind.to_be_bytes(), &class.to_be_bytes()].concat()
}

/// Returns a name in wire form.
fn wire(labels: &[&[u8]]) -> Vec<u8> {
    let mut name: Vec<u8> =
        labels.iter().flat_map(|label| [&[u8::try_from(label.len()).unwrap()][..], label].concat()).collect();
    name.push(0);
    name
}

fn asked(bytes: &[u8]) -> Asks {
    match read(bytes) {
        Received::Question(question) => question.asks,
        other => panic!("{other:?}"),
    }
}

/// Returns the code with which a query is answered at once.
fn code(bytes: &[u8]) -> ResponseCode {
    match read(bytes) {
        Received::Answer(answer) => {
            assert_eq!(answer[..2], [0x12, 0x34]);
            assert!(answer.len() <= 512);
            Message::from_vec(&answer).unwrap().metadata.response_code
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_are_asked_for_in_canonical_form() {
    let name = wire(&[b"_Service", b"FILES-1", b"Example", b"org"]);
    for kind in [1, 28, 65, 64, 16, 255] {
        assert_eq!(asked(&raw(&name, kind, 1)), Asks::Name("_service.files-1.example.org".to_owned()));
    }
}

#[test]
fn the_answer_repeats_the_question_as_it_was_written() {
    let name = wire(&[b"FiLeS", b"example", b"org"]);
    let Received::Question(question) = read(&raw(&name, 1, 1)) else { panic!() };
    let answer = question.with_address(Some(Ipv4Addr::new(11, 0, 0, 7))).unwrap();
    let message = Message::from_vec(&answer).unwrap();
    assert!(message.queries[0].name().eq_case(&Name::from_ascii("FiLeS.example.org.").unwrap()));
    let record = &message.answers[0];
    assert_eq!((record.ttl, record.data.to_string()), (TTL, "11.0.0.7".to_owned()));
    assert!(message.metadata.recursion_desired && message.metadata.recursion_available);
}

#[test]
fn every_other_type_of_a_name_is_empty_or_does_not_exist() {
    let name = wire(&[b"files", b"example", b"org"]);
    for kind in [28, 65, 64, 16, 15, 33, 255] {
        for (address, expected) in
            [(Some(Ipv4Addr::LOCALHOST), ResponseCode::NoError), (None, ResponseCode::NXDomain)]
        {
            let Received::Question(question) = read(&raw(&name, kind, 1)) else { panic!() };
            let message = Message::from_vec(&question.with_address(address).unwrap()).unwrap();
            assert_eq!((message.metadata.response_code, message.answers.len()), (expected, 0), "{kind}");
            assert_eq!(message.authorities[0].record_type(), RecordType::SOA);
            assert_eq!(message.authorities[0].ttl, NEGATIVE_TTL);
        }
    }
}

#[test]
fn names_that_cannot_exist_are_not_asked_for() {
    let strange: [&[&[u8]]; 8] = [
        &[b"files\0", b"example", b"org"],
        &[b"files.example", b"org"],
        &[b"100%", b"example"],
        &["f\u{456}les".as_bytes(), b"example"],
        &[b"files example"],
        &[b"files/..", b"example"],
        &[b"*", b"example", b"org"],
        &[],
    ];
    for labels in strange {
        assert_eq!(code(&raw(&wire(labels), 1, 1)), ResponseCode::NXDomain, "{labels:?}");
    }
}

#[test]
fn the_longest_name_fits_and_a_longer_one_is_malformed() {
    let label = [b'a'; 63];
    let longest = wire(&[&label, &label, &label, &label[..61]]);
    assert_eq!(longest.len(), 255);
    let Received::Question(question) = read(&raw(&longest, 1, 1)) else { panic!() };
    assert!(matches!(&question.asks, Asks::Name(name) if name.len() == 253));
    assert!(question.with_address(Some(Ipv4Addr::LOCALHOST)).unwrap().len() <= 512);
    let longer = wire(&[&label, &label, &label, &label[..62]]);
    assert_eq!(code(&raw(&longer, 1, 1)), ResponseCode::FormErr);
}

#[test]
fn malformed_queries_get_an_error_and_no_question() {
    let name = wire(&[b"files", b"example", b"org"]);
    let good = raw(&name, 1, 1);
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = good.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let bad = [
        good[..good.len() - 1].to_vec(),
        good[..13].to_vec(),
        // A pointer to itself, one forward, one into the header, and the reserved kinds of labels.
        raw(&[0xc0, 12], 1, 1),
        raw(&[0xc0, 40], 1, 1),
        raw(&[0x40, 1, 0], 1, 1),
        raw(&[0x80, 1, 0], 1, 1),
        // No question, two, and very many.
        with(4, &[0, 0]),
        with(4, &[0, 2]),
        with(4, &[0xff, 0xff]),
        // Records that are not there, and very many.
        with(6, &[0, 1]),
        with(10, &[0xff, 0xff]),
    ];
    for bytes in bad {
        assert_eq!(code(&bytes), ResponseCode::FormErr, "{bytes:?}");
    }
    assert_eq!(code(&with(2, &[0x28])), ResponseCode::NotImp);
    for class in [3, 4, 254, 255, 0, 4711] {
        assert_eq!(code(&raw(&name, 16, class)), ResponseCode::Refused, "{class}");
    }
}

#[test]
fn a_loop_of_pointers_ends() {
    // Two labels that point to each other.
    let bytes = raw(&[1, b'a', 0xc0, 16, 1, b'b', 0xc0, 12], 1, 1);
    assert_eq!(code(&bytes), ResponseCode::FormErr);
}

#[test]
fn what_is_no_query_is_not_answered() {
    let mut response = raw(&wire(&[b"a"]), 1, 1);
    response[2] |= 0x80;
    for bytes in [&response[..], &response[..11], b"", b"\0"] {
        assert!(matches!(read(bytes), Received::Nothing), "{bytes:?}");
    }
}

#[test]
fn pointers_of_addresses_are_read_strictly() {
    let pointer = |labels: &[&[u8]]| raw(&wire(&[labels, &[b"in-addr", b"arpa"]].concat()), 12, 1);
    assert_eq!(asked(&pointer(&[b"7", b"0", b"0", b"11"])), Asks::Address(Ipv4Addr::new(11, 0, 0, 7)));
    for labels in [
        &[&b"07"[..], b"0", b"0", b"11"][..],
        &[b"256", b"0", b"0", b"11"],
        &[b"0", b"0", b"11"],
        &[b"1", b"7", b"0", b"0", b"11"],
        &[b"-1", b"0", b"0", b"11"],
    ] {
        assert_eq!(code(&pointer(labels)), ResponseCode::NXDomain, "{labels:?}");
    }
    let Received::Question(question) = read(&pointer(&[b"7", b"0", b"0", b"11"])) else { panic!() };
    let answer = Message::from_vec(&question.with_name(Some("files.example.org")).unwrap()).unwrap();
    assert_eq!(answer.answers[0].data.to_string(), "files.example.org.");
}

#[test]
fn edns_is_answered_without_options() {
    let mut bytes = raw(&wire(&[b"a"]), 1, 1);
    bytes[11] = 1;
    // An OPT record with a cookie.
    bytes.extend([0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
    let Received::Question(question) = read(&bytes) else { panic!() };
    let answer = Message::from_vec(&question.with_address(None).unwrap()).unwrap();
    let edns = answer.edns.unwrap();
    assert_eq!((edns.max_payload(), edns.options().as_ref().len()), (PAYLOAD, 0));
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic_and_every_answer_is_small(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600),
    ) {
        let mut query = raw(&[], 1, 1);
        query.truncate(12);
        query.extend(&bytes);
        for bytes in [&bytes, &query] {
            let answer = match read(bytes) {
                Received::Nothing => None,
                Received::Answer(answer) => Some(answer),
                Received::Question(question) => question.with_address(Some(Ipv4Addr::LOCALHOST)),
            };
            proptest::prop_assert!(answer.is_none_or(|answer| answer.len() <= 512));
        }
    }
}
