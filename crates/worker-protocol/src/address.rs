//! Addresses in the messages of `coffer-egress`.

use std::net::IpAddr;

/// Most addresses of one order to connect.
pub const MAX_ADDRESSES: usize = 8;

/// Returns the bytes of an address: four or 16.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Reads an address of four or 16 bytes. A mapped one is the IPv4 address that it maps.
pub fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_bytes_and_other_lengths_are_none() {
        for (given, read) in
            [("192.0.2.1", "192.0.2.1"), ("2001:db8::1", "2001:db8::1"), ("::ffff:192.0.2.1", "192.0.2.1")]
        {
            assert_eq!(address(&octets(given.parse().unwrap())), Some(read.parse().unwrap()), "{given}");
        }
        for length in [0, 3, 5, 15, 17] {
            assert_eq!(address(&vec![0; length]), None, "{length}");
        }
    }
}
