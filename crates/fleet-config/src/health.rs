//! A gRPC health check as bytes of HTTP/2, for a balancer that sends bytes and looks for bytes.
//!
//! RFC 9113 has the preface and the frames, RFC 7541 the header fields, and `grpc.health.v1` the messages.

/// Bytes that each client of HTTP/2 sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Answer `SERVING`, in hex: the prefix of a message of two bytes, and field 1 with the value 1.
pub(crate) const SERVING: &str = "00000000020801";

/// Returns the request, in hex, that asks for the health of a service.
pub(crate) fn request(service: &'static str) -> String {
    let fields = [
        (":method", "POST"),
        (":scheme", "https"),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", "cofferd"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    // A literal field that is not indexed, whose name is a literal, too.
    let fields = fields.iter().flat_map(|(name, value)| [&[0][..], &counted(name), &counted(value)].concat());
    let message = [&[0x0a][..], &counted(service)].concat();
    let message = [&[0, 0, 0, 0, length(&message)][..], &message].concat();
    let whole = [
        PREFACE,
        &frame(SETTINGS, 0, 0, &[]),
        &frame(HEADERS, END_HEADERS, 1, &fields.collect::<Vec<u8>>()),
        &frame(DATA, END_STREAM, 1, &message),
    ];
    hex::encode(whole.concat())
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, length(payload), kind, flags, 0, 0, 0, stream][..], payload].concat()
}

/// Returns a text after its length. Both formats have one byte for lengths below 127.
fn counted(text: &str) -> Vec<u8> {
    [&[length(text.as_bytes())][..], text.as_bytes()].concat()
}

/// Returns the length of one of the short texts above.
fn length(bytes: &[u8]) -> u8 {
    u8::try_from(bytes.len()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CREATION, LIVENESS};

    /// Takes a frame from the front.
    fn next<'b>(bytes: &mut &'b [u8]) -> (u8, u8, u8, &'b [u8]) {
        let (head, rest) = bytes.split_at(9);
        assert_eq!(head[..2], [0, 0]);
        let (payload, rest) = rest.split_at(head[2].into());
        *bytes = rest;
        (head[3], head[4], head[8], payload)
    }

    #[test]
    fn a_request_is_a_whole_stream_with_every_length_right() {
        for service in [CREATION, LIVENESS] {
            let bytes = hex::decode(request(service)).unwrap();
            let mut rest = bytes.strip_prefix(PREFACE).unwrap();
            assert_eq!(next(&mut rest), (SETTINGS, 0, 0, &[][..]));
            let (kind, flags, stream, mut fields) = next(&mut rest);
            assert_eq!((kind, flags, stream), (HEADERS, END_HEADERS, 1));
            let mut read = Vec::new();
            while let Some((0, after)) = fields.split_first() {
                fields = after;
                for _ in 0..2 {
                    let (length, after) = fields.split_first().unwrap();
                    // Below 127, and the bit of Huffman's code is not set.
                    assert!(*length < 127);
                    let (text, after) = after.split_at((*length).into());
                    read.push(std::str::from_utf8(text).unwrap());
                    fields = after;
                }
            }
            assert!(fields.is_empty());
            assert_eq!(read[..4], [":method", "POST", ":scheme", "https"]);
            assert_eq!(read[4..6], [":path", "/grpc.health.v1.Health/Check"]);
            let (kind, flags, stream, message) = next(&mut rest);
            assert_eq!((kind, flags, stream), (DATA, END_STREAM, 1));
            let body = &message[5..];
            assert_eq!(message[..5], [0, 0, 0, 0, u8::try_from(body.len()).unwrap()]);
            assert_eq!(body[..2], [0x0a, u8::try_from(service.len()).unwrap()]);
            assert_eq!(&body[2..], service.as_bytes());
            assert!(rest.is_empty());
        }
    }
}
