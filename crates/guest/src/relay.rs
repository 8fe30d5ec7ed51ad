//! `coffer-guest relay`: holds the engine's streams for the guest, on a kernel that lets processes of one user open each other's
//! descriptors. gVisor's kernel does so through `/proc/PID/fd`, even for a non-dumpable process.
//!
//! The relay has a separate user, so no command can open its descriptors, or end it. The guest exchanges the engine's streams for a socket
//! to the relay, and `/proc` opens no socket. See [`worker_protocol::relay`].

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use worker_protocol::relay::{Key, LISTENS, SECRET};

use crate::fault::Fault;

/// Time for the guest to connect. After that the daemon did not give it the key, or is gone.
const COME: Duration = Duration::from_secs(30);
/// Time for a connected process to send the secret.
const SAY: Duration = Duration::from_secs(1);
const CHUNK: usize = 64 * 1024;

/// Copies bytes between descriptors 0 and 1 and the guest, until either side ends.
pub(crate) fn run() -> Result<(), Fault> {
    crate::sys::ignore_signals();
    let key = read_key()?;
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(key.name())?)?;
    let mut output = io::stdout();
    output.write_all(&[LISTENS])?;
    output.flush()?;
    let guest = admit(&listener, &key, Instant::now() + COME)?;
    drop(listener);
    let to_guest = guest.try_clone()?;
    std::thread::Builder::new().spawn(move || {
        let _ = pass(io::stdin().lock(), &to_guest);
        let _ = to_guest.shutdown(Shutdown::Write);
    })?;
    pass(&guest, output.lock())?;
    Ok(())
}

/// Returns the first connection that sends the secret.
fn admit(listener: &UnixListener, key: &Key, until: Instant) -> io::Result<UnixStream> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let wait = Timespec::try_from(left).map_err(io::Error::other)?;
        if poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&wait))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(SAY))?;
        let mut said = [0; SECRET];
        if stream.read_exact(&mut said).is_ok() && said == key.secret() {
            stream.set_read_timeout(None)?;
            return Ok(stream);
        }
    }
}

fn pass(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                to.write_all(&bytes[..count])?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the guest's stream through the relay. Afterwards descriptors 0 and 1 are `/dev/null`.
pub(crate) fn join() -> io::Result<UnixStream> {
    let key = read_key()?;
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(key.name())?)?;
    stream.write_all(key.secret())?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(stream)
}

/// Reads the key from standard input, and not a byte more. [`io::stdin`] would read more.
fn read_key() -> io::Result<Key> {
    let mut bytes = [0; Key::LENGTH];
    let mut read = 0;
    while read < bytes.len() {
        match rustix::io::read(rustix::stdio::stdin(), &mut bytes[read..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => read += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Key::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_requires_the_key() {
        let mut bytes = [7; Key::LENGTH];
        bytes[..4].copy_from_slice(&std::process::id().to_ne_bytes());
        let key = Key::new(bytes);
        let address = SocketAddr::from_abstract_name(key.name()).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let mut intruders = Vec::new();
        for said in [&[8_u8; SECRET][..], b"short"] {
            let mut intruder = UnixStream::connect_addr(&address).unwrap();
            intruder.write_all(said).unwrap();
            intruder.shutdown(Shutdown::Write).unwrap();
            intruders.push(intruder);
        }
        let mut guest = UnixStream::connect_addr(&address).unwrap();
        guest.write_all(key.secret()).unwrap();
        guest.write_all(b"hello").unwrap();
        let mut admitted = admit(&listener, &key, Instant::now() + COME).unwrap();
        let mut hello = [0; 5];
        admitted.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"hello");
        for mut intruder in intruders {
            assert_eq!(intruder.read(&mut [0; 1]).unwrap_or(0), 0, "hung up on");
        }
        assert_eq!(admit(&listener, &key, Instant::now()).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
