//! Reads the answer of a jailed process, and waits for its end.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use crate::spawn::finish;

/// Most bytes of an answer.
const MOST: usize = 3 * 1024 * 1024;

/// The end of a process, and its answer.
pub(crate) struct Answered {
    /// `None`: it was killed, because it took too long or answered too much.
    pub(crate) status: Option<ExitStatus>,
    /// Its line on standard error.
    pub(crate) words: String,
    /// An error of the kind `FileTooLarge`: it answered too much.
    pub(crate) answer: io::Result<Vec<u8>>,
}

impl Answered {
    /// Returns true for a process that was killed because it answered too much.
    pub(crate) fn is_too_large(&self) -> bool {
        self.status.is_none()
            && matches!(&self.answer, Err(error) if error.kind() == io::ErrorKind::FileTooLarge)
    }
}

/// Reads while the process writes, because an answer may be larger than the socket's buffer, and then waits for its end until `deadline`.
///
/// A process closes its end of the channel some time before it has ended. If it has not taken its handles, that resets the channel.
pub(crate) fn answered(channel: &UnixStream, child: &mut Child, deadline: Instant) -> io::Result<Answered> {
    let answer = read_all(channel, deadline);
    let ends = match &answer {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    };
    let left = if ends { deadline.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
    let (status, words) = finish(child, left)?;
    Ok(Answered { status, words, answer })
}

/// Reads until the end. Returns an error if there is too much or it comes too late.
fn read_all(mut channel: &UnixStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut part = vec![0; 64 * 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // A timeout of zero would mean to wait forever.
        channel.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match channel.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(read) if answer.len() + read <= MOST => answer.extend_from_slice(&part[..read]),
            Ok(_) => return Err(io::ErrorKind::FileTooLarge.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs a script whose standard input is its end of the channel, which has a line that it need not read.
    fn ran(script: &str, time: Duration) -> Answered {
        let (channel, theirs) = UnixStream::pair().unwrap();
        (&channel).write_all(b"x\n").unwrap();
        let theirs = Stdio::from(OwnedFd::from(theirs));
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(theirs).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(command); // and this process's copy of the other end
        answered(&channel, &mut child, Instant::now() + time).unwrap()
    }

    #[test]
    fn a_process_that_leaves_its_channel_unread_is_not_killed_before_its_end() {
        let done = ran("exec 0<&-; sleep 0.3; echo why >&2; exit 3", Duration::from_secs(60));
        assert_eq!(done.status.and_then(|status| status.code()), Some(3));
        assert_eq!((done.words.as_str(), done.is_too_large()), ("why", false));
        assert_eq!(done.answer.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_process_that_answers_too_much_or_too_late_is_killed() {
        let much = ran("exec head -c 4000000 /dev/zero >&0", Duration::from_secs(60));
        assert!(much.is_too_large());
        let late = ran("exec sleep 60", Duration::from_millis(50));
        assert!(late.status.is_none() && !late.is_too_large());
        // It closes its end, and goes on.
        let goes_on = ran("read x; exec sleep 60 0<&-", Duration::from_millis(300));
        assert!(goes_on.status.is_none() && !goes_on.is_too_large());
    }
}
