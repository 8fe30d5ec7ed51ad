//! Asks the daemon for streams to servers.
//!
//! The process of one call or of one task has one end of a pair of sockets, and the daemon the other. A question is a host and a port, such
//! as `git.example.org:443`. The answer is a stream, or the reason why there is none. There is one question at a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, retry_on_intr, write};

use crate::numbered::{self, receive_message};

/// Most bytes of a question.
const QUESTION: usize = 512;
/// Most bytes of a reason.
const REASON: usize = 2_048;
/// Number of a stream. There is only one at a time.
const STREAM: u64 = 0;

/// Returns the daemon's end and that of the process. Neither of them waits.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    numbered::pair()
}

/// A question of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// As the process wrote it.
    pub host: String,
    pub port: u16,
}

impl Wish {
    /// Receives a question. `None` if the process is over. The error is `WouldBlock` if there is none, and `InvalidData` for another message.
    pub fn receive(from: impl AsFd) -> io::Result<Option<Self>> {
        let mut bytes = [0; QUESTION + 1];
        let length = match retry_on_intr(|| read(&from, &mut bytes)) {
            Ok(0) | Err(Errno::CONNRESET) => return Ok(None),
            read => read?,
        };
        let text = bytes.get(..length).filter(|bytes| bytes.len() <= QUESTION);
        let text = text.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let wish = text.and_then(|text| text.rsplit_once(':'));
        let wish =
            wish.and_then(|(host, port)| Some(Self { host: host.to_owned(), port: port.parse().ok()? }));
        wish.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Answers the question of a process: with a stream, or with a reason that it shows to an agent.
pub fn answer(to: impl AsFd, stream: Result<BorrowedFd<'_>, &str>) -> io::Result<()> {
    match stream {
        Ok(stream) => numbered::send(to, STREAM, stream),
        Err(why) => {
            let end = (0..=REASON.min(why.len())).rev().find(|end| why.is_char_boundary(*end)).unwrap_or(0);
            let why = if end == 0 { "there is no stream" } else { &why[..end] };
            retry_on_intr(|| write(&to, why.as_bytes()))?;
            Ok(())
        }
    }
}

/// The end of a process.
#[derive(Debug)]
pub struct Dialer {
    socket: OwnedFd,
    deadline: Instant,
}

impl Dialer {
    pub fn new(socket: OwnedFd, deadline: Instant) -> Self {
        Self { socket, deadline }
    }

    /// Asks for a stream to a server, and waits for it until the deadline. The error is fit for an agent.
    pub fn dial(&self, host: &str, port: u16) -> io::Result<UnixStream> {
        let question = format!("{host}:{port}");
        if question.len() > QUESTION {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of the host is too long"));
        }
        retry_on_intr(|| write(&self.socket, question.as_bytes()))?;
        let mut bytes = [0; REASON];
        loop {
            match receive_message(&self.socket, &mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(error),
                Ok((length, mut handles, _)) => {
                    return match (handles.pop(), length) {
                        (Some(stream), _) => Ok(UnixStream::from(stream)),
                        (None, 0) => Err(io::ErrorKind::ConnectionAborted.into()),
                        (None, length) => {
                            let why = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default());
                            Err(io::Error::other(why.into_owned()))
                        }
                    };
                }
            }
        }
    }

    fn wait(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::time::Duration;

    use super::*;

    fn ends() -> (OwnedFd, Dialer) {
        let (daemon, process) = pair().unwrap();
        (daemon, Dialer::new(process, Instant::now() + Duration::from_secs(20)))
    }

    /// Answers one question in a thread. Returns the question.
    fn answering(daemon: OwnedFd, with: Result<OwnedFd, String>) -> std::thread::JoinHandle<Wish> {
        std::thread::spawn(move || {
            loop {
                match Wish::receive(&daemon) {
                    Ok(asked) => {
                        answer(&daemon, with.as_ref().map(AsFd::as_fd).map_err(String::as_str)).unwrap();
                        return asked.unwrap();
                    }
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    }

    #[test]
    fn a_process_gets_the_stream_that_it_asks_for() {
        let (daemon, dialer) = ends();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let answering = answering(daemon, Ok(theirs.into()));
        let mut stream = dialer.dial("git.example.org", 8443).unwrap();
        assert_eq!(answering.join().unwrap(), Wish { host: "git.example.org".to_owned(), port: 8443 });
        stream.write_all(b"hello").unwrap();
        drop(stream);
        let mut read = String::new();
        ours.read_to_string(&mut read).unwrap();
        assert_eq!(read, "hello");
    }

    #[test]
    fn a_process_gets_the_reason_why_there_is_no_stream() {
        for (why, shown) in [
            ("no rule", "no rule".to_owned()),
            ("", "there is no stream".to_owned()),
            (&"ä".repeat(REASON), "ä".repeat(REASON / 2)),
        ] {
            let (daemon, dialer) = ends();
            let answering = answering(daemon, Err(why.to_owned()));
            assert_eq!(dialer.dial("[2001:db8::7]", 443).unwrap_err().to_string(), shown);
            assert_eq!(answering.join().unwrap().host, "[2001:db8::7]");
        }
        let (daemon, dialer) = ends();
        drop(daemon);
        assert!(dialer.dial("git.example.org", 443).is_err());
        let (_daemon, dialer) = ends();
        assert!(dialer.dial(&"a".repeat(QUESTION), 443).unwrap_err().to_string().contains("too long"));
    }

    #[test]
    fn a_process_waits_until_its_deadline() {
        let (_daemon, process) = pair().unwrap();
        let dialer = Dialer::new(process, Instant::now() + Duration::from_millis(20));
        assert_eq!(dialer.dial("git.example.org", 443).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn other_questions_are_refused() {
        for bad in [
            &b"git.example.org"[..],
            b"git.example.org:",
            b"git.example.org:65536",
            b"\xff:443",
            &[b'1'; 600],
        ] {
            let (daemon, process) = pair().unwrap();
            write(&process, bad).unwrap();
            assert_eq!(Wish::receive(&daemon).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        let (daemon, process) = pair().unwrap();
        drop(process);
        assert_eq!(Wish::receive(&daemon).unwrap(), None);
    }
}
