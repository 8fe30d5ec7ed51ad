//! Bytes that clients of a well-made library never send by themselves.

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame of HTTP/2, RFC 9113, 4.1.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// A string literal without Huffman coding, RFC 7541, 5.2.
pub fn text(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text].concat()
}

/// A request's header block, RFC 7541: `:method POST`, `:scheme http`, a path, an authority, and a token.
pub fn request(path: &str, token: &str) -> Vec<u8> {
    let literal =
        |name: &str, value: &str| [&[0x00][..], &text(name.as_bytes()), &text(value.as_bytes())].concat();
    [
        vec![0x83, 0x86],
        [&[0x04][..], &text(path.as_bytes())].concat(),
        [&[0x01][..], &text(b"localhost")].concat(),
        literal("content-type", "application/grpc"),
        literal("te", "trailers"),
        literal("authorization", &format!("Bearer {token}")),
    ]
    .concat()
}

/// A ClientHello of TLS 1.3 with one X25519 share, RFC 8446, 4.1.2.
pub fn client_hello() -> Vec<u8> {
    let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
    let extension = |kind: u16, body: &[u8]| [&kind.to_be_bytes()[..], &sized(body)].concat();
    let key: Vec<u8> = (1..=32).collect();
    let share = [&[0x00, 0x1d][..], &sized(&key)].concat();
    let extensions = [
        extension(0x2b, &[2, 0x03, 0x04]),
        extension(0x0a, &sized(&[0x00, 0x1d])),
        extension(0x0d, &sized(&[0x04, 0x03, 0x08, 0x04])),
        extension(0x33, &sized(&share)),
        extension(0x10, &sized(&[2, b'h', b'2'])),
    ]
    .concat();
    let random = [7; 32];
    let body =
        [&[0x03, 0x03][..], &random, &[0], &sized(&[0x13, 0x01]), &[1, 0], &sized(&extensions)].concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1][..], &length[1..], &body].concat();
    [&[0x16, 0x03, 0x01][..], &sized(&message)].concat()
}
