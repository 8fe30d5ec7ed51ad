//! Pkt-lines, the frames of git's protocols (gitprotocol-common(5)).

/// Most bytes of a packet, with the four digits of its length.
pub const MAX_PACKET: usize = 65_520;

/// Digits of the length.
const DIGITS: usize = 4;

/// One packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Bytes, which may be none.
    Data(&'a [u8]),
    /// `0000`, the end of a part.
    Flush,
    /// `0001`, between the sections of a message of version 2.
    Delimiter,
    /// `0002`, the end of a response of version 2.
    ResponseEnd,
}

impl<'a> Packet<'a> {
    /// Reads the first packet, and returns it with its length. `None` means that it needs more bytes.
    ///
    /// A length has to be in lower case, as every client writes it.
    pub fn read(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, BadPacket> {
        let Some(digits) = bytes.first_chunk::<DIGITS>() else { return Ok(None) };
        let mut length = 0;
        for digit in digits {
            length = length * 16 + value(*digit).ok_or(BadPacket::NotHexadecimal)?;
        }
        let packet = match length {
            0 => Self::Flush,
            1 => Self::Delimiter,
            2 => Self::ResponseEnd,
            3 => return Err(BadPacket::TooShort),
            length if length > MAX_PACKET => return Err(BadPacket::TooLong),
            length => {
                return Ok(bytes.get(DIGITS..length).map(|data| (Self::Data(data), length)));
            }
        };
        Ok(Some((packet, DIGITS)))
    }
}

fn value(digit: u8) -> Option<usize> {
    match digit {
        b'0'..=b'9' => Some(usize::from(digit - b'0')),
        b'a'..=b'f' => Some(usize::from(digit - b'a') + 10),
        _ => None,
    }
}

/// Most bytes that one packet carries.
pub(crate) const MAX_DATA: usize = MAX_PACKET - DIGITS;

pub(crate) const FLUSH: &[u8] = b"0000";

/// Appends these bytes as one packet, or as several if they are too many for one.
pub(crate) fn append(out: &mut Vec<u8>, data: &[u8]) {
    for part in data.chunks(MAX_DATA) {
        out.extend_from_slice(format!("{:04x}", part.len() + DIGITS).as_bytes());
        out.extend_from_slice(part);
    }
}

/// Bytes that are no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPacket {
    #[error("the length of a packet is not four hexadecimal digits in lower case")]
    NotHexadecimal,
    #[error("the length of a packet is 3, which does not exist")]
    TooShort,
    #[error("a packet is longer than 65520 bytes")]
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_specification_are_read() {
        for (bytes, packet, length) in [
            (&b"0006a\n"[..], Packet::Data(b"a\n"), 6),
            (b"0005a", Packet::Data(b"a"), 5),
            (b"000bfoobar\nmore", Packet::Data(b"foobar\n"), 11),
            (b"0004", Packet::Data(b""), 4),
            (b"0000PACK", Packet::Flush, 4),
            (b"0001", Packet::Delimiter, 4),
            (b"0002", Packet::ResponseEnd, 4),
        ] {
            assert_eq!(Packet::read(bytes), Ok(Some((packet, length))), "{bytes:?}");
        }
    }

    #[test]
    fn a_part_of_a_packet_needs_more() {
        for bytes in [&b""[..], b"0", b"000", b"0005", b"fff0abc"] {
            assert_eq!(Packet::read(bytes), Ok(None), "{bytes:?}");
        }
    }

    #[test]
    fn every_other_length_is_a_fault() {
        for (bytes, fault) in [
            (b"0003", BadPacket::TooShort),
            (b"fff1", BadPacket::TooLong),
            (b"ffff", BadPacket::TooLong),
            (b"000A", BadPacket::NotHexadecimal),
            (b"0x05", BadPacket::NotHexadecimal),
            (b"+005", BadPacket::NotHexadecimal),
            (b" 005", BadPacket::NotHexadecimal),
            (b"-001", BadPacket::NotHexadecimal),
            (b"00\x005", BadPacket::NotHexadecimal),
            (b"PACK", BadPacket::NotHexadecimal),
        ] {
            assert_eq!(Packet::read(bytes), Err(fault), "{bytes:?}");
        }
    }

    #[test]
    fn long_data_are_several_packets() {
        let mut out = Vec::new();
        append(&mut out, &vec![b'x'; MAX_DATA + 1]);
        let (first, length) = Packet::read(&out).unwrap().unwrap();
        assert_eq!((first, length), (Packet::Data(&vec![b'x'; MAX_DATA]), MAX_PACKET));
        assert_eq!(Packet::read(&out[length..]), Ok(Some((Packet::Data(b"x"), 5))));
    }
}
