//! Queries of programs, over UDP and TCP.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, UdpSocket};

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use wire::worker::v1::from_egress::Body as From;

use crate::support::{DEADLINE, Egress, Script};

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

/// Asks a resolver, with a connected socket or with one that compares addresses itself, as C libraries do.
fn ask(egress: &Egress, resolver: &str, query: &Message, connected: bool) -> Message {
    let bytes = query.to_vec().unwrap();
    let answer = egress.inside(|| {
        let any = if resolver.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut answer = [0; 2048];
        let length = if connected {
            socket.connect(resolver).unwrap();
            socket.send(&bytes).unwrap();
            socket.recv(&mut answer).unwrap()
        } else {
            socket.send_to(&bytes, resolver).unwrap();
            let (length, from) = socket.recv_from(&mut answer).unwrap();
            assert_eq!(from, resolver.parse().unwrap());
            length
        };
        answer[..length].to_vec()
    });
    assert!(answer.len() <= 512);
    Message::from_vec(&answer).unwrap()
}

fn address(answer: &Message) -> Option<Ipv4Addr> {
    match &answer.answers.first()?.data {
        RData::A(address) => Some(address.0),
        _ => None,
    }
}

#[test]
fn names_resolve_from_the_address_that_was_asked() {
    let egress = Egress::start(Script::new(16).name("files.example.org", [11, 0, 0, 7]));
    for resolver in ["8.8.8.8:53", "192.168.0.1:53", "[2001:db8::53]:53"] {
        for connected in [true, false] {
            let answer = ask(&egress, resolver, &query("Files.Example.ORG.", RecordType::A), connected);
            assert_eq!(address(&answer), Some(Ipv4Addr::new(11, 0, 0, 7)), "{resolver}");
        }
    }
    let empty = ask(&egress, "8.8.8.8:53", &query("files.example.org.", RecordType::AAAA), true);
    assert_eq!((empty.metadata.response_code, empty.answers.len()), (ResponseCode::NoError, 0));
    let none = ask(&egress, "8.8.8.8:53", &query("other.example.org.", RecordType::A), true);
    assert_eq!(none.metadata.response_code, ResponseCode::NXDomain);
    let pointer = ask(&egress, "8.8.8.8:53", &query("7.0.0.11.in-addr.arpa.", RecordType::PTR), true);
    assert_eq!(pointer.answers[0].data.to_string(), "files.example.org.");
    let asked: Vec<_> = egress
        .messages()
        .into_iter()
        .filter_map(|message| match message.body {
            Some(From::Resolve(question)) => Some(question.name),
            _ => None,
        })
        .collect();
    assert_eq!(asked, ["files.example.org", "other.example.org"], "each name is asked for once");
}

#[test]
fn names_resolve_over_tcp() {
    let egress = Egress::start(Script::new(16).name("files.example.org", [11, 0, 0, 7]));
    let mut stream = egress.connect("8.8.8.8:53");
    for _ in 0..2 {
        let bytes = query("files.example.org.", RecordType::A).to_vec().unwrap();
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        for byte in [&length[..], &bytes].concat() {
            stream.write_all(&[byte]).unwrap();
        }
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(address(&Message::from_vec(&answer).unwrap()), Some(Ipv4Addr::new(11, 0, 0, 7)));
    }
    assert!(!egress.messages().iter().any(|message| matches!(message.body, Some(From::Opened(_)))));
}
