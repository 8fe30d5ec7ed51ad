//! Reads queries and writes answers. Trust boundary: any program of the run sends these bytes.

use std::net::Ipv4Addr;

use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, PTR, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

/// Bytes of the header of a message (RFC 1035, section 4.1.1).
const HEADER: usize = 12;
/// Most records beside the question that a query may have: those of EDNS, cookies and signatures.
const RECORDS: u16 = 4;
/// Time that a program may cache an address, seconds. The table of addresses only grows.
const TTL: u32 = 300;
/// Time that a program may cache a negative answer, seconds. A rule may come while the run lives.
const NEGATIVE_TTL: u32 = 5;
/// Largest UDP message that this process reads (RFC 9715).
const PAYLOAD: u16 = 1232;

/// The way in which a query is dealt with.
#[derive(Debug)]
pub enum Received {
    /// The daemon must be asked.
    Question(Box<Question>),
    /// The answer is known from the query alone.
    Answer(Vec<u8>),
    /// No query, or too little of one to answer.
    Nothing,
}

/// A well-formed query.
#[derive(Debug)]
pub struct Question {
    /// The subject of the query.
    pub asks: Asks,
    metadata: Metadata,
    query: Query,
    has_edns: bool,
}

/// The subject of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asks {
    /// This name, in canonical form.
    Name(String),
    /// The name of this address.
    Address(Ipv4Addr),
}

/// Reads a query.
pub fn read(bytes: &[u8]) -> Received {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Received::Nothing };
    let [first, second, flags, _, counts @ ..] = *header;
    if flags & 0x80 != 0 {
        // A response. An answer to it could begin a loop.
        return Received::Nothing;
    }
    let id = u16::from_be_bytes([first, second]);
    let refuse = |code| write(Message::error_msg(id, OpCode::Query, code));
    let [q1, q2, counts @ ..] = counts;
    let records = counts.chunks_exact(2).map(|count| match count {
        [high, low] => u16::from_be_bytes([*high, *low]),
        _ => u16::MAX,
    });
    if flags & 0x78 != 0 {
        return refuse(ResponseCode::NotImp);
    }
    if u16::from_be_bytes([q1, q2]) != 1 || records.into_iter().any(|count| count > RECORDS) {
        return refuse(ResponseCode::FormErr);
    }
    let Ok(mut message) = Message::from_vec(bytes) else { return refuse(ResponseCode::FormErr) };
    let Some(query) = message.queries.pop() else { return refuse(ResponseCode::FormErr) };
    let question = Question {
        asks: Asks::Name(String::new()),
        metadata: message.metadata,
        query,
        has_edns: message.edns.is_some(),
    };
    if question.query.query_class() != DNSClass::IN {
        return question.refusal(ResponseCode::Refused);
    }
    let Some(name) = canonical(question.query.name()) else {
        return question.refusal(ResponseCode::NXDomain);
    };
    if question.query.query_type() == RecordType::PTR {
        return match reversed(&name) {
            Some(address) => {
                Received::Question(Box::new(Question { asks: Asks::Address(address), ..question }))
            }
            None => question.refusal(ResponseCode::NXDomain),
        };
    }
    Received::Question(Box::new(Question { asks: Asks::Name(name), ..question }))
}

impl Question {
    /// Answers a question about a name, which has this address within the run if it exists.
    pub fn with_address(self, address: Option<Ipv4Addr>) -> Option<Vec<u8>> {
        let Some(address) = address else { return self.refuse(ResponseCode::NXDomain) };
        // A name that exists has an IPv4 address and nothing else.
        let data = (self.query.query_type() == RecordType::A).then_some(RData::A(A(address)));
        self.answer(ResponseCode::NoError, data)
    }

    /// Answers a question about an address.
    pub fn with_name(self, name: Option<&str>) -> Option<Vec<u8>> {
        match name.and_then(|name| Name::from_ascii(name).ok()) {
            Some(mut name) => {
                name.set_fqdn(true);
                self.answer(ResponseCode::NoError, Some(RData::PTR(PTR(name))))
            }
            None => self.refuse(ResponseCode::NXDomain),
        }
    }

    /// Answers with an error.
    pub fn refuse(self, code: ResponseCode) -> Option<Vec<u8>> {
        self.answer(code, None)
    }

    fn refusal(self, code: ResponseCode) -> Received {
        self.refuse(code).map_or(Received::Nothing, Received::Answer)
    }

    fn answer(self, code: ResponseCode, data: Option<RData>) -> Option<Vec<u8>> {
        let mut message = Message::response(self.metadata.id, OpCode::Query);
        message.metadata.recursion_desired = self.metadata.recursion_desired;
        message.metadata.recursion_available = true;
        message.metadata.response_code = code;
        let is_negative = data.is_none() && matches!(code, ResponseCode::NoError | ResponseCode::NXDomain);
        if let Some(data) = data {
            message.add_answer(Record::from_rdata(self.query.name().clone(), TTL, data));
        }
        if is_negative {
            // Says how long the answer may be cached (RFC 2308).
            let soa = SOA::new(Name::root(), Name::root(), 1, 3600, 3600, 3600, NEGATIVE_TTL);
            message.add_authority(Record::from_rdata(Name::root(), NEGATIVE_TTL, RData::SOA(soa)));
        }
        if self.has_edns {
            let mut edns = Edns::new();
            edns.set_max_payload(PAYLOAD);
            message.set_edns(edns);
        }
        message.add_query(self.query);
        message.to_vec().ok()
    }
}

/// Writes an error, for which no part of the query is needed.
fn write(mut message: Message) -> Received {
    message.metadata.message_type = MessageType::Response;
    message.to_vec().map_or(Received::Nothing, Received::Answer)
}

/// Returns the canonical form of a name: lower case, without the last dot. `None` if it has bytes other than letters, digits, hyphens
/// and underscores, or is the root. No such name can exist.
fn canonical(name: &Name) -> Option<String> {
    let mut text = String::with_capacity(name.len());
    for label in name {
        let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if label.is_empty() || label.len() > 63 || !label.iter().all(is_known) {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    }
    (1..=253).contains(&text.len()).then_some(text)
}

/// Reads the name under which the name of an IPv4 address is asked for.
fn reversed(name: &str) -> Option<Ipv4Addr> {
    let octets: Vec<u8> = name
        .strip_suffix(".in-addr.arpa")?
        .split('.')
        .map(|octet| octet.parse().ok().filter(|number: &u8| number.to_string() == octet))
        .collect::<Option<_>>()?;
    let [d, c, b, a] = octets[..] else { return None };
    Some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests;
