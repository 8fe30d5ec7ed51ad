//! The loopback interface, its address, and the route that makes every address local to a network namespace (rtnetlink(7)).

use std::io;
use std::net::Ipv4Addr;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Index of the loopback interface, which is the first of each namespace.
const LOOPBACK: u32 = 1;

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of an attribute with a value of four bytes.
const ATTRIBUTE: u16 = 8;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_OIF: u16 = 4;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;

/// Makes every IPv4 address, and every IPv6 address where the namespace has IPv6, local to this thread's network namespace.
pub(crate) fn make_all_local() -> io::Result<()> {
    raise_loopback()?;
    add_local_default(libc::AF_INET)?;
    match add_local_default(libc::AF_INET6).map_err(|error| (error.raw_os_error(), error)) {
        // Without IPv6 in the kernel or on the interface, no program can use it either.
        Err((Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::ENODEV | libc::EACCES), _)) | Ok(()) => {
            Ok(())
        }
        Err((_, error)) => Err(error),
    }
}

/// Adds an IPv4 address to the loopback interface of this thread's network namespace.
pub(crate) fn add_address(address: Ipv4Addr) -> io::Result<()> {
    let family = u8::try_from(libc::AF_INET).map_err(io::Error::other)?;
    // `struct ifaddrmsg`: family, length of the prefix, flags, scope; index.
    let mut entry = vec![family, 32, 0, 0];
    entry.extend(LOOPBACK.to_ne_bytes());
    entry.extend(attribute(IFA_LOCAL, address.octets()));
    unless_there(request(RTM_NEWADDR, NLM_F_CREATE, &entry))
}

fn raise_loopback() -> io::Result<()> {
    // `struct ifinfomsg`: family and type, index, flags, mask of changed flags.
    let link = [0, LOOPBACK, IFF_UP, IFF_UP].map(u32::to_ne_bytes).concat();
    request(RTM_NEWLINK, 0, &link)
}

fn add_local_default(family: libc::c_int) -> io::Result<()> {
    let family = u8::try_from(family).map_err(io::Error::other)?;
    // `struct rtmsg`: family, lengths of destination and source, type of service, table, protocol, scope, type; flags.
    let mut route = vec![family, 0, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_HOST, RTN_LOCAL, 0, 0, 0, 0];
    route.extend(attribute(RTA_OIF, LOOPBACK.to_ne_bytes()));
    unless_there(request(RTM_NEWROUTE, NLM_F_CREATE, &route))
}

fn attribute(kind: u16, value: [u8; 4]) -> impl Iterator<Item = u8> {
    ATTRIBUTE.to_ne_bytes().into_iter().chain(kind.to_ne_bytes()).chain(value)
}

/// Returns success also for what an earlier daemon added.
fn unless_there(added: io::Result<()>) -> io::Result<()> {
    match added {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        added => added,
    }
}

/// Sends a request to the kernel, and waits for its acknowledgement.
fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(u32::try_from(HEADER + body.len()).map_err(io::Error::other)?.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    // Sequence number, and port of the sender, which the kernel fills in.
    message.extend([0; 8]);
    message.extend(body);
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 512];
    let (received, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    acknowledged(&answer[..received.min(answer.len())])
}

/// Reads an acknowledgement: a header, and an error number that is zero for success.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(HEADER..HEADER + 4).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, code) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel gave no acknowledgement")),
    }
}
