//! Network namespaces: hosts on this machine, with one address each.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Networks that one process may make.
const NETWORKS: u32 = 16;
/// Ranges of addresses in 198.18.0.0/15 (RFC 2544), which no other host has. The range of a process follows from its id.
const RANGES: u32 = 0x2_0000 / (2 * NETWORKS);

/// Number of networks that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Returns a port of this host for a server that begins later.
///
/// It is one below those that outgoing connections and listeners on port 0 are given, so that none of them takes it meanwhile.
pub fn free_port() -> u16 {
    const LOWEST: u64 = 1_024;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let first: u64 = range.split_whitespace().next().unwrap().parse().unwrap();
    let end = first.max(LOWEST + 1_000);
    loop {
        let random = RandomState::new().build_hasher().finish();
        let port = u16::try_from(LOWEST + random % (end - LOWEST)).unwrap();
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return port;
        }
    }
}

/// A network namespace that is connected with this one. It ends with the value, and with the last process in it.
#[derive(Debug)]
pub struct Network {
    /// Keeps the namespace until its standard input ends, which it does with this process as well.
    holder: Child,
    address: Ipv4Addr,
}

impl Network {
    /// Makes a namespace with its loopback and one more interface.
    pub fn make() -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        assert!(number < NETWORKS, "this process has made {NETWORKS} networks");
        let process = std::process::id();
        let ours = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + 2 * (process % RANGES * NETWORKS + number);
        let (ours, theirs) = (Ipv4Addr::from(ours), Ipv4Addr::from(ours + 1));
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo made && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "made\n", "no network namespace was made");
        let network = Self { holder, address: theirs };
        let (name, id) = (format!("cf{process}n{number}"), network.holder.id().to_string());
        succeeds(&["ip", "link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &id]);
        succeeds(&["ip", "address", "add", &format!("{ours}/31"), "dev", &name]);
        succeeds(&["ip", "link", "set", &name, "up"]);
        let (enter, theirs) = (network.enter(), format!("{theirs}/31"));
        for inside in [
            &["link", "set", "lo", "up"][..],
            &["address", "add", &theirs, "dev", "eth0"],
            &["link", "set", "eth0", "up"],
        ] {
            succeeds(&[&enter.each_ref().map(String::as_str)[..], &["ip"], inside].concat());
        }
        network
    }

    /// Returns the address of this host.
    pub fn address(&self) -> IpAddr {
        self.address.into()
    }

    /// Returns the words before a command that runs it there, as the same process.
    pub(crate) fn enter(&self) -> [String; 3] {
        ["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", self.holder.id()), "--".to_owned()]
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

fn succeeds(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
