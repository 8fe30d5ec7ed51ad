//! Steering of real network namespaces. The tests need root, as the daemon does.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::io::IoSliceMut;
use std::os::fd::AsRawFd as _;

use super::*;

/// Runs a test in a new steered namespace.
fn steered(test: impl FnOnce(Steered) + Send) {
    let ran = in_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET).map_err(step("a namespace"))?;
        test(steer_thread(TRIED)?);
        Ok(())
    });
    ran.unwrap();
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn connect(to: &str) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address(to), Duration::from_secs(5))
}

const ELSEWHERE: [&str; 6] = [
    "93.184.216.34:443",
    "10.1.2.3:22",
    "169.254.169.254:80",
    "11.0.0.7:65535",
    "[2001:db8::1]:443",
    "[fe80::1%1]:25",
];

#[test]
fn connections_to_every_address_arrive_with_the_address_that_was_meant() {
    steered(|steered| {
        let listener = TcpListener::from(steered.tcp);
        for meant in ELSEWHERE.iter().take(5) {
            let mut client = connect(meant).unwrap();
            let (mut accepted, _) = listener.accept().unwrap();
            let local = accepted.local_addr().unwrap();
            assert_eq!(SocketAddr::new(local.ip().to_canonical(), local.port()), address(meant));
            client.write_all(b"x").unwrap();
            accepted.set_nonblocking(false).unwrap();
            let mut byte = [0];
            accepted.read_exact(&mut byte).unwrap();
            assert!(
                rustix::net::sockopt::socket_keepalive(&accepted).unwrap(),
                "a program that left is noticed"
            );
        }
    });
}

#[test]
fn the_loopback_and_ports_of_programs_stay_theirs() {
    steered(|steered| {
        let ours = TcpListener::from(steered.tcp);
        for loopback in ["127.0.0.1", "127.9.9.9", "[::1]"] {
            let refused = connect(&format!("{loopback}:443")).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{loopback}");
        }
        for own in ["0.0.0.0:443", "[::]:8443", "127.0.0.1:22"] {
            let server = TcpListener::bind(own).unwrap();
            let port = server.local_addr().unwrap().port();
            let _client = connect(&format!("127.0.0.1:{port}")).unwrap();
            server.accept().unwrap();
            let _elsewhere = connect(&format!("93.184.216.34:{port}")).unwrap();
            assert!(ours.accept().is_ok(), "{own}: a server of the program hears no connection to elsewhere");
        }
        UdpSocket::bind("0.0.0.0:53").unwrap();
        UdpSocket::bind("[::]:53").unwrap();
    });
}

#[test]
fn queries_to_every_resolver_arrive_and_other_packets_are_refused_at_once() {
    steered(|steered| {
        for resolver in ["8.8.8.8:53", "192.168.0.1:53", "[2001:db8::53]:53"] {
            let unspecified = if resolver.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
            let client = UdpSocket::bind(unspecified).unwrap();
            client.send_to(b"query", resolver).unwrap();
            let mut bytes = [0; 64];
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let mut space = nix::cmsg_space!(libc::in6_pktinfo);
            let message = recvmsg::<SockaddrStorage>(
                steered.dns.as_raw_fd(),
                &mut parts,
                Some(&mut space),
                MsgFlags::empty(),
            )
            .unwrap();
            let asked = message.cmsgs().unwrap().find_map(|part| match part {
                ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::from(info.ipi6_addr.s6_addr)),
                _ => None,
            });
            assert_eq!(asked.unwrap().to_canonical(), address(resolver).ip(), "{resolver}");
        }
        for other in ["93.184.216.34:443", "8.8.8.8:5353"] {
            let client = UdpSocket::bind("0.0.0.0:0").unwrap();
            client.connect(other).unwrap();
            client.send(b"packet").unwrap();
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let refused = client.recv(&mut [0; 16]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{other}");
        }
    });
}

#[test]
fn the_end_of_either_part_refuses_connections_and_opens_none() {
    steered(|steered| {
        let Steered { tcp, link, .. } = steered;
        let own = TcpListener::bind("0.0.0.0:443").unwrap();
        drop(tcp);
        let refused = connect("93.184.216.34:443").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "without its socket");
        own.set_nonblocking(true).unwrap();
        assert_eq!(own.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(link);
        let refused = connect("93.184.216.34:80").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "without the link");
    });
}

#[test]
fn a_namespace_can_be_steered_again() {
    steered(|first| {
        drop(first);
        let again = TcpListener::from(steer_thread(TRIED).unwrap().tcp);
        assert_eq!(connect("93.184.216.34:443").unwrap_err().kind(), ErrorKind::ConnectionRefused);
        drop(again);
        let Steered { tcp, link, .. } = steer_thread(TRIED).unwrap();
        let _client = connect("93.184.216.34:443").unwrap();
        assert_eq!(
            TcpListener::from(tcp).accept().unwrap().0.local_addr().unwrap().ip().to_canonical(),
            Ipv4Addr::new(93, 184, 216, 34)
        );
        drop(link);
    });
}

#[test]
fn a_c_library_finds_an_ipv4_address_of_this_host() {
    steered(|_steered| {
        let addresses = nix::ifaddrs::getifaddrs().unwrap();
        let addresses: Vec<_> =
            addresses.filter_map(|entry| Some(entry.address?.as_sockaddr_in()?.ip())).collect();
        assert!(addresses.contains(&TRIED), "{addresses:?}");
    });
}

#[test]
fn this_host_can_steer() {
    probe().unwrap();
}

#[test]
fn without_a_capability_the_error_names_what_to_give() {
    for missing in [CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW, CapabilitySet::SYS_ADMIN] {
        // The capabilities are those of a thread, and of the threads that it starts.
        let tried = thread::spawn(move || {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(missing);
            set_capabilities(None, sets).unwrap();
            probe()
        });
        let error = tried.join().unwrap().unwrap_err();
        let remedy = error.remedy();
        assert!(remedy.contains("CAP_NET_ADMIN, CAP_NET_RAW"), "{missing:?}: {error}: {remedy}");
    }
}
