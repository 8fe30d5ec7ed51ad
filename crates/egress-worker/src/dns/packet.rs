//! Whole packets of answers: an answer must come from the address and port that were asked, which no socket of this process has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Port of DNS.
pub(crate) const DOMAIN: u16 = 53;

/// Number of UDP as the protocol of a packet.
const UDP: u8 = 17;
/// Bytes of the header of UDP.
const UDP_HEADER: u16 = 8;
const IPV4_HEADER: u16 = 20;
const HOPS: u8 = 64;

/// Returns the packet of a UDP message from port 53. `None` if the addresses are of two kinds, or the message is too long.
pub(crate) fn packet(from: IpAddr, to: IpAddr, to_port: u16, message: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(message.len()).ok()?.checked_add(UDP_HEADER)?;
    let ports = [DOMAIN, to_port].map(u16::to_be_bytes).concat();
    let udp = [&ports[..], &length.to_be_bytes(), &[0, 0], message].concat();
    let (mut packet, addresses) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            (ipv4(from, to, length)?, [from.octets(), to.octets()].concat())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => (ipv6(from, to, length), [from.octets(), to.octets()].concat()),
        _ => return None,
    };
    let pseudo = [&addresses[..], &u32::from(length).to_be_bytes(), &[0, 0, 0, UDP]].concat();
    let sum = checksum(&[&pseudo, &udp]);
    packet.extend(&ports);
    packet.extend(length.to_be_bytes());
    // A sum of zero is sent as all ones (RFC 768).
    packet.extend(if sum == 0 { u16::MAX } else { sum }.to_be_bytes());
    packet.extend(message);
    Some(packet)
}

/// Returns the header of IPv4. The kernel fills in its checksum.
fn ipv4(from: Ipv4Addr, to: Ipv4Addr, length: u16) -> Option<Vec<u8>> {
    let mut header = vec![0x45, 0];
    header.extend(length.checked_add(IPV4_HEADER)?.to_be_bytes());
    header.extend([0, 0, 0, 0, HOPS, UDP, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    Some(header)
}

fn ipv6(from: Ipv6Addr, to: Ipv6Addr, length: u16) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(length.to_be_bytes());
    header.extend([UDP, HOPS]);
    header.extend(from.octets());
    header.extend(to.octets());
    header
}

/// Returns the checksum of the internet protocols (RFC 1071). Each part but the last has an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2)).map(|word| match word {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.fold(0, u32::wrapping_add);
    while sum > u32::from(u16::MAX) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_packet_verifies() {
        for (from, to) in [("8.8.8.8", "127.0.0.1"), ("2001:db8::53", "2001:db8::1")] {
            for message in [&b"even"[..], b"odd"] {
                let packet = packet(from.parse().unwrap(), to.parse().unwrap(), 40_000, message).unwrap();
                let (addresses, udp) = if from.contains(':') {
                    (&packet[8..40], &packet[40..])
                } else {
                    (&packet[12..20], &packet[20..])
                };
                let length = u32::try_from(udp.len()).unwrap();
                let pseudo = [addresses, &length.to_be_bytes(), &[0, 0, 0, UDP]].concat();
                assert_eq!(checksum(&[&pseudo, udp]), 0, "{from}");
                assert_eq!(&udp[..6], [&[0, 53][..], &40_000_u16.to_be_bytes(), &udp[4..6]].concat());
                assert_eq!(&udp[8..], message);
            }
        }
    }

    #[test]
    fn mixed_addresses_and_long_messages_have_no_packet() {
        let [v4, v6] = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!(packet(v4, v6, 1, b""), None);
        assert_eq!(packet(v4, v4, 1, &vec![0; 65_510]), None);
    }
}
