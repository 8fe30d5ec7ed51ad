//! Address ranges that no public server has, and the exceptions of a policy.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Kinds of address ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Unspecified,
    Loopback,
    Private,
    LinkLocal,
    SiteLocal,
    Metadata,
    SharedByCarrier,
    Multicast,
    Broadcast,
    Documentation,
    Benchmarking,
    Protocol,
    Reserved,
    Mapped,
    Nat64,
    /// IPv4 within IPv6 in a form that no server uses.
    Embedded,
    /// The addresses that the run's names have.
    Pool,
    /// Not refused.
    Public,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Self::Unspecified => "an unspecified address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::SiteLocal => "a site-local address",
            Self::Metadata => "the address of a cloud's metadata service",
            Self::SharedByCarrier => "an address shared by a carrier's customers",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "a broadcast address",
            Self::Documentation => "an address for documentation",
            Self::Benchmarking => "an address for benchmarks",
            Self::Protocol => "an address of a protocol",
            Self::Reserved => "a reserved address",
            Self::Mapped => "an IPv4 address written as IPv6",
            Self::Nat64 => "an IPv4 address through NAT64",
            Self::Embedded => "an IPv6 address with an IPv4 address in it",
            Self::Pool => "an address of the run's own names",
            Self::Public => "a public address",
        }
    }

    /// Returns true if `networks` can make an exception.
    fn can_be_allowed(self) -> bool {
        match self {
            Self::Loopback
            | Self::Private
            | Self::LinkLocal
            | Self::SiteLocal
            | Self::Metadata
            | Self::SharedByCarrier
            | Self::Documentation
            | Self::Benchmarking
            | Self::Mapped
            | Self::Nat64 => true,
            Self::Unspecified
            | Self::Multicast
            | Self::Broadcast
            | Self::Protocol
            | Self::Reserved
            | Self::Embedded
            | Self::Pool
            | Self::Public => false,
        }
    }
}

/// A range of addresses, and the document that reserves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub kind: Kind,
    pub block: IpNet,
    /// Such as `RFC 1918`.
    source: &'static str,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.kind.words(), self.block, self.source)
    }
}

const fn four(kind: Kind, address: [u8; 4], prefix: u8, source: &'static str) -> Range {
    let [a, b, c, d] = address;
    Range { kind, block: IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)), source }
}

const fn six(kind: Kind, address: [u16; 8], prefix: u8, source: &'static str) -> Range {
    let [first, second, third, fourth, .., last] = address;
    let address = Ipv6Addr::new(first, second, third, fourth, address[4], address[5], address[6], last);
    Range { kind, block: IpNet::V6(Ipv6Net::new_assert(address, prefix)), source }
}

/// The ranges. The longest prefix that has an address decides; IPv4 that is not here is public.
static RANGES: &[Range] = &[
    four(Kind::Unspecified, [0, 0, 0, 0], 8, "RFC 791"),
    four(Kind::Private, [10, 0, 0, 0], 8, "RFC 1918"),
    four(Kind::Private, [172, 16, 0, 0], 12, "RFC 1918"),
    four(Kind::Private, [192, 168, 0, 0], 16, "RFC 1918"),
    four(Kind::SharedByCarrier, [100, 64, 0, 0], 10, "RFC 6598"),
    four(Kind::Loopback, [127, 0, 0, 0], 8, "RFC 1122"),
    four(Kind::LinkLocal, [169, 254, 0, 0], 16, "RFC 3927"),
    four(Kind::Protocol, [192, 0, 0, 0], 24, "RFC 6890"),
    four(Kind::Documentation, [192, 0, 2, 0], 24, "RFC 5737"),
    four(Kind::Documentation, [198, 51, 100, 0], 24, "RFC 5737"),
    four(Kind::Documentation, [203, 0, 113, 0], 24, "RFC 5737"),
    four(Kind::Protocol, [192, 88, 99, 0], 24, "RFC 7526"),
    four(Kind::Benchmarking, [198, 18, 0, 0], 15, "RFC 2544"),
    four(Kind::Multicast, [224, 0, 0, 0], 4, "RFC 5771"),
    four(Kind::Reserved, [240, 0, 0, 0], 4, "RFC 1112"),
    four(Kind::Broadcast, [255, 255, 255, 255], 32, "RFC 919"),
    // Metadata services and the like, within the ranges above and, the second, outside of them.
    four(Kind::Metadata, [169, 254, 169, 254], 32, "instance metadata"),
    four(Kind::Metadata, [168, 63, 129, 16], 32, "host agent of a cloud"),
    four(Kind::Metadata, [169, 254, 170, 2], 32, "credentials of containers"),
    four(Kind::Metadata, [169, 254, 170, 23], 32, "credentials of containers"),
    four(Kind::Metadata, [169, 254, 169, 253], 32, "resolver of a cloud"),
    four(Kind::Metadata, [100, 100, 100, 200], 32, "instance metadata"),
    four(Kind::Metadata, [192, 0, 0, 192], 32, "instance metadata"),
    six(Kind::Metadata, [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, "instance metadata"),
    six(Kind::Metadata, [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x253], 128, "resolver of a cloud"),
    six(Kind::Metadata, [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128, "credentials of containers"),
    six(Kind::Metadata, [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, "instance metadata"),
    // All of IPv6 is reserved, but for global unicast.
    six(Kind::Reserved, [0; 8], 0, "RFC 4291"),
    six(Kind::Public, [0x2000, 0, 0, 0, 0, 0, 0, 0], 3, "RFC 4291"),
    six(Kind::Unspecified, [0; 8], 128, "RFC 4291"),
    six(Kind::Loopback, [0, 0, 0, 0, 0, 0, 0, 1], 128, "RFC 4291"),
    six(Kind::Embedded, [0; 8], 96, "RFC 4291, IPv4-compatible"),
    six(Kind::Mapped, [0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "RFC 4291"),
    six(Kind::Embedded, [0, 0, 0, 0, 0xffff, 0, 0, 0], 96, "RFC 2765, IPv4-translated"),
    six(Kind::Nat64, [0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "RFC 6052"),
    six(Kind::Embedded, [0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "RFC 8215, local NAT64"),
    six(Kind::Reserved, [0x100, 0, 0, 0, 0, 0, 0, 0], 64, "RFC 6666"),
    six(Kind::Reserved, [0x100, 0, 0, 1, 0, 0, 0, 0], 64, "RFC 9780"),
    six(Kind::Protocol, [0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "RFC 2928"),
    six(Kind::Embedded, [0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "RFC 4380, Teredo"),
    six(Kind::Benchmarking, [0x2001, 2, 0, 0, 0, 0, 0, 0], 48, "RFC 5180"),
    six(Kind::Protocol, [0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28, "RFC 4843"),
    six(Kind::Protocol, [0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28, "RFC 7343"),
    six(Kind::Documentation, [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "RFC 3849"),
    six(Kind::Documentation, [0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "RFC 9637"),
    six(Kind::Embedded, [0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "RFC 3056, 6to4"),
    six(Kind::Reserved, [0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, "RFC 9602"),
    six(Kind::Private, [0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "RFC 4193"),
    six(Kind::LinkLocal, [0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "RFC 4291"),
    six(Kind::SiteLocal, [0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "RFC 3879"),
    six(Kind::Multicast, [0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "RFC 4291"),
];

/// Returns the smallest known range that has all of `network`, public ones included.
fn range_of(network: IpNet) -> Option<Range> {
    let around = RANGES.iter().filter(|range| range.block.contains(&network));
    around.max_by_key(|range| range.block.prefix_len()).copied()
}

/// Refuses an address that no public server has. Call it with each address just before the connection goes there.
///
/// `networks` are the exceptions of the policy. An exception counts if it is within the refused range, so that a network that is
/// wider than a private range opens nothing. Addresses in `pool` are refused in every case.
pub fn check(address: IpAddr, networks: &[IpNet], pool: Option<Ipv4Net>) -> Result<(), Range> {
    if let Some(block) = pool
        && matches!(address, IpAddr::V4(address) if block.contains(&address))
    {
        return Err(Range { kind: Kind::Pool, block: block.into(), source: "the daemon's configuration" });
    }
    if let Some(range) = range_of(address.into())
        && range.kind != Kind::Public
        && !(range.kind.can_be_allowed() && networks.iter().any(|network| within(address, *network, range)))
    {
        return Err(range);
    }
    match address {
        IpAddr::V6(six) => embedded(six).map_or(Ok(()), |four| check(four.into(), networks, pool)),
        IpAddr::V4(_) => Ok(()),
    }
}

fn within(address: IpAddr, network: IpNet, range: Range) -> bool {
    range.block.contains(&network) && network.contains(&address)
}

/// Returns the IPv4 address that a packet to a mapped address or through NAT64 arrives at.
///
/// Ranges with other embedded addresses have no exceptions.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let range = range_of(IpAddr::V6(address).into())?;
    let [.., a, b, c, d] = address.octets();
    matches!(range.kind, Kind::Mapped | Kind::Nat64).then(|| Ipv4Addr::new(a, b, c, d))
}

/// Returns the problem of an exception that would have no effect.
pub(crate) fn problem_of_exception(network: IpNet) -> Option<String> {
    if network.trunc() != network {
        return Some(format!("the address has bits beyond its prefix; write `{}`", network.trunc()));
    }
    match range_of(network) {
        Some(range) if range.kind.can_be_allowed() => None,
        Some(range) if range.kind != Kind::Public => {
            Some(format!("`{network}` is in a range that cannot be allowed: {range}"))
        }
        _ => Some(format!(
            "`{network}` is not within one of the refused ranges, such as 10.0.0.0/8; public addresses need no exception"
        )),
    }
}

#[cfg(test)]
#[path = "range_tests.rs"]
mod tests;
