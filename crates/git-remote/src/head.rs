//! Heads of responses.

use crate::error::RemoteError;
use crate::stream::Stream;

/// Most bytes of a head.
const HEAD: usize = 32 * 1024;
/// Most fields of a head.
const FIELDS: usize = 100;
/// Most interim responses (status 1xx).
const INTERIM: usize = 4;

/// The way in which the length of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
    /// To the end of the stream.
    End,
}

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) framing: Framing,
    /// True if the stream serves another request after this response.
    pub(crate) is_kept: bool,
}

impl Head {
    /// Reads the head of the next response that is not an interim one.
    pub(crate) fn read(stream: &mut Stream) -> Result<Self, RemoteError> {
        let mut interim = 0;
        loop {
            if let Some((head, length)) = parse(stream.bytes())? {
                stream.take(length);
                if head.status >= 200 {
                    return Ok(head);
                }
                interim += 1;
                if head.status == 101 || interim > INTERIM {
                    return Err(RemoteError::Malformed("an interim response that was not asked for"));
                }
            } else if stream.bytes().len() >= HEAD {
                return Err(RemoteError::Malformed("the head of the response is too long"));
            } else if !stream.fill()? {
                return Err(RemoteError::Closed);
            }
        }
    }
}

/// Parses a head. `None` if it is not complete.
fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, RemoteError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let malformed = |_| RemoteError::Malformed("the head of the response");
    let bytes = bytes.get(..HEAD).unwrap_or(bytes);
    let httparse::Status::Complete(length) = response.parse(bytes).map_err(malformed)? else {
        return Ok(None);
    };
    let status = response.code.unwrap_or_default();
    let is_old = response.version != Some(1);
    let value = |name: &str| one(response.headers, name);
    let content_type = value("content-type")?.unwrap_or_default();
    if value("content-encoding")?.is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
        return Err(RemoteError::NotGit("it is compressed, and nothing asked for that"));
    }
    let framing = match (value("transfer-encoding")?, value("content-length")?) {
        _ if status < 200 || status == 204 || status == 304 => Framing::Length(0),
        (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") && !is_old => Framing::Chunked,
        (None, Some(length)) => Framing::Length(parse_length(&length)?),
        (None, None) => Framing::End,
        _ => return Err(RemoteError::Malformed("the length of the response is not clear")),
    };
    let closes = value("connection")?.is_some_and(|value| value.to_ascii_lowercase().contains("close"));
    let is_kept = !closes && !is_old && framing != Framing::End;
    Ok(Some((Head { status, content_type, framing, is_kept }, length)))
}

/// Returns the value of a field that may be there once.
fn one(fields: &[httparse::Header<'_>], name: &str) -> Result<Option<String>, RemoteError> {
    let mut values = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(field), None) => match std::str::from_utf8(field.value) {
            Ok(value) => Ok(Some(value.trim().to_owned())),
            Err(_) => Err(RemoteError::Malformed("a field of the head")),
        },
        (Some(_), Some(_)) => Err(RemoteError::Malformed("a field of the head is there twice")),
    }
}

fn parse_length(text: &str) -> Result<u64, RemoteError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or(RemoteError::Malformed("the length of the response"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &str) -> Result<Option<Head>, RemoteError> {
        let text = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
        parse(text.as_bytes()).map(|head| {
            head.map(|(head, length)| {
                assert_eq!(length, text.len());
                head
            })
        })
    }

    #[test]
    fn the_length_of_a_response_has_one_reading() {
        for (lines, framing, is_kept) in [
            ("Content-Length: 7\r\n", Framing::Length(7), true),
            ("Transfer-Encoding: chunked\r\n", Framing::Chunked, true),
            ("Transfer-Encoding: Chunked\r\nConnection: close\r\n", Framing::Chunked, false),
            ("", Framing::End, false),
        ] {
            let head = head(lines).unwrap().unwrap();
            assert_eq!((head.framing, head.is_kept), (framing, is_kept), "{lines}");
        }
        for lines in [
            "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 7\r\nContent-Length: 7\r\n",
            "Content-Length: +7\r\n",
            "Content-Length: 7, 7\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Content-Encoding: gzip\r\n",
            "Content-Type: \u{ff}\r\nContent-Type: a\r\n",
            "A B: c\r\n",
        ] {
            assert!(head(lines).is_err(), "{lines}");
        }
        assert!(parse(b"HTTP/1.1 200").unwrap().is_none());
        assert!(parse(b"SSH-2.0-x\r\n\r\n").is_err());
        let old = parse(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap().unwrap().0;
        assert!(!old.is_kept);
    }
}
