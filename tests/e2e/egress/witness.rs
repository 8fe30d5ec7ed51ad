//! A packet socket of the host, which sees each packet that leaves the host or passes its loopback.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

/// The number of every protocol (packet(7)).
const ALL: u16 = 3;
/// The number of ICMP in the header of IPv4 (RFC 792).
const ICMP: u8 = 1;
/// An address for documentation, to which only this test sends.
const MARK: &str = "203.0.113.77:9";

/// The start of a name in a query that no name server outside may get.
pub(super) const SECRET: &[u8] = b"\x06secret\x04evil";

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Destinations of all packets.
    pub(super) destinations: BTreeSet<IpAddr>,
    /// Destinations of packets with the secret name.
    pub(super) told: BTreeSet<IpAddr>,
}

/// Collects what it sees until it is asked.
pub(super) struct Witness {
    seen: Arc<Mutex<Seen>>,
    over: Arc<AtomicBool>,
    watching: Option<JoinHandle<()>>,
}

impl Witness {
    pub(super) fn start() -> Self {
        let protocol = NonZeroU32::new(ALL.to_be().into()).map(Protocol::from_raw);
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, protocol);
        let socket = socket.unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(50))).unwrap();
        set_socket_recv_buffer_size(&socket, 16 << 20).unwrap();
        let (seen, over) = (Arc::<Mutex<Seen>>::default(), Arc::new(AtomicBool::new(false)));
        let watching = {
            let (seen, over) = (Arc::clone(&seen), Arc::clone(&over));
            thread::spawn(move || watch(&socket, &seen, &over))
        };
        Self { seen, over, watching: Some(watching) }
    }

    /// Returns all since the start. The witness proves first that it sees what leaves the host, with its content.
    pub(super) fn seen(mut self) -> Seen {
        let (began, mark) = (Instant::now(), MARK.parse::<SocketAddr>().unwrap().ip());
        while !self.seen.lock().told.remove(&mark) {
            assert!(began.elapsed() < Duration::from_secs(10), "a packet that left was not seen");
            UdpSocket::bind("0.0.0.0:0").unwrap().send_to(SECRET, MARK).unwrap();
            thread::sleep(Duration::from_millis(10));
        }
        self.over.store(true, Ordering::SeqCst);
        self.watching.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.seen.lock())
    }
}

fn watch(socket: &OwnedFd, seen: &Mutex<Seen>, over: &AtomicBool) {
    let mut packet = [0; 512];
    while !over.load(Ordering::SeqCst) {
        let Ok((length, _)) = recv(socket, &mut packet, RecvFlags::empty()) else { continue };
        let packet = &packet[..length.min(packet.len())];
        let Some(to) = destination(packet) else { continue };
        let mut seen = seen.lock();
        seen.destinations.insert(to);
        // A router's error about the packet to the mark comes back with its content.
        let is_error = packet.first().is_some_and(|first| first >> 4 == 4) && packet.get(9) == Some(&ICMP);
        if !is_error && memchr::memmem::find(packet, SECRET).is_some() {
            seen.told.insert(to);
        }
    }
}

/// Returns the destination of an IP packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => <[u8; 4]>::try_from(packet.get(16..20)?).ok().map(IpAddr::from),
        6 => <[u8; 16]>::try_from(packet.get(24..40)?).ok().map(IpAddr::from),
        _ => None,
    }
}
