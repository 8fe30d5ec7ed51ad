//! Opens connections and sends DNS queries, inside a run or on the host, and prints the time of each: nanoseconds, a line each.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// Time between two measurements. The daemon handles a bounded number of messages of a run in a second.
const PAUSE: Duration = Duration::from_millis(3);
/// An answer that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["connect", host, port, count, file] => {
            connect(address(host, port), number(count), &fs::read(file).unwrap());
        }
        ["download", host, port, mebibytes] => download(address(host, port), number(mebibytes)),
        ["hold", host, port, count] => hold(address(host, port), number(count)),
        ["streams", host, port, count] => streams(host, port, number(count)),
        ["names", prefix, count] => names(prefix, number(count)),
        _ => panic!("caller connect|download|hold|streams HOST PORT … or names PREFIX COUNT"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn address(host: &str, port: &str) -> SocketAddr {
    let address = host.parse().unwrap_or_else(|_| IpAddr::V4(query(&name_server(), 1, host)));
    SocketAddr::new(address, port.parse().expect("a port"))
}

/// Connects, sends bytes, and waits for the first byte of the answer, which is the same bytes. The first time does not count.
fn connect(to: SocketAddr, count: u64, bytes: &[u8]) {
    let mut answer = vec![0; bytes.len()];
    for turn in 0..=count {
        let began = Instant::now();
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(bytes).unwrap();
        let read = stream.read(&mut answer).unwrap();
        let took = began.elapsed();
        assert_ne!(read, 0, "the connection was closed");
        stream.read_exact(&mut answer[read..]).unwrap();
        drop(stream);
        if turn > 0 {
            println!("{}", took.as_nanos());
        }
        thread::sleep(PAUSE);
    }
}

/// Downloads so many MiB, from the connection to the last byte.
fn download(to: SocketAddr, mebibytes: u64) {
    let (mut buffer, mut bytes) = (vec![0; 1 << 20], 0);
    let began = Instant::now();
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(&mebibytes.to_be_bytes()).unwrap();
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            read => bytes += read as u64,
        }
    }
    let took = began.elapsed();
    assert_eq!(bytes, mebibytes << 20);
    println!("{}", took.as_nanos());
}

/// Holds connections, each of which has passed a byte both ways, until a signal ends the program.
fn hold(to: SocketAddr, count: u64) -> ! {
    let open = |_| {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    };
    let streams: Vec<TcpStream> = (0..count).map(open).collect();
    println!("{} held", streams.len());
    loop {
        thread::park();
    }
}

/// Holds streams of events, each of which has sent one, until a signal ends the program.
fn streams(host: &str, port: &str, count: u64) -> ! {
    let to = address(host, port);
    let open = |_| {
        let mut stream = TcpStream::connect(to).unwrap();
        write!(stream, "GET /v1/events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").unwrap();
        let (mut answer, mut buffer) = (Vec::new(), [0; 512]);
        while !answer.windows(5).any(|part| part == b"data:") {
            let read = stream.read(&mut buffer).unwrap();
            assert_ne!(read, 0, "the connection was closed");
            answer.extend_from_slice(&buffer[..read]);
        }
        stream
    };
    let mut streams: Vec<TcpStream> = (0..count).map(open).collect();
    println!("{} held", streams.len());
    let mut buffer = [0; 4096];
    loop {
        for stream in &mut streams {
            let _ = stream.read(&mut buffer).unwrap();
        }
    }
}

/// Asks for names that were not asked for before.
fn names(prefix: &str, count: u64) {
    let server = name_server();
    for turn in 0..count {
        let name = format!("{prefix}{turn}.example.org");
        let began = Instant::now();
        query(&server, 2, &name);
        println!("{}", began.elapsed().as_nanos());
        thread::sleep(PAUSE);
    }
}

/// Returns a socket to the name server of this system.
fn name_server() -> UdpSocket {
    let settings = fs::read_to_string("/etc/resolv.conf").unwrap();
    let server = settings.lines().find_map(|line| line.strip_prefix("nameserver ")).expect("a name server");
    let server: Ipv4Addr = server.trim().parse().unwrap();
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.connect((server, 53)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Asks for the IPv4 address of a name (RFC 1035, section 4).
fn query(server: &UdpSocket, id: u16, name: &str) -> Ipv4Addr {
    let mut query: Vec<u8> = [id, 0x100, 1, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, 1, 0, 1]);
    server.send(&query).unwrap();
    let mut answer = [0; 512];
    let length = server.recv(&mut answer).unwrap();
    assert_eq!(answer[..2], id.to_be_bytes());
    assert_eq!(answer[6..8], [0, 1], "{name} has no address");
    // The one record is at the end, and the address at its end.
    let (_, address) = answer[..length].split_last_chunk::<4>().unwrap();
    Ipv4Addr::from(*address)
}
