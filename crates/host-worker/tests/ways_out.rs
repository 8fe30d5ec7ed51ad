//! Calls that reach servers, in the real jail: over streams that the daemon gives, and no others.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use host_launch::dialing::{Wish, answer, pair};
use host_launch::numbered;
use operations::{Git, GitFetch, GitRemote};
use support::{Hand, Scratch};

const REFUSAL: &str =
    "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 8\r\n\r\nno rule\n";

fn fetch() -> Git {
    let remote = GitRemote::Url("https://git.example.org/org/app".to_owned());
    Git::Fetch(GitFetch { remote, refs: Vec::new(), tags: false, depth: None })
}

/// Gives the next call a way out whose questions are answered so. Returns the questions.
fn way_out(
    hand: &mut Hand,
    number: u64,
    with: impl Fn(&Wish) -> Result<OwnedFd, String> + Send + 'static,
) -> thread::JoinHandle<Vec<Wish>> {
    let (ours, theirs) = pair().unwrap();
    numbered::send(hand.process.handles.as_ref().unwrap(), number, theirs.as_fd()).unwrap();
    hand.way_out = number;
    thread::spawn(move || {
        let mut wishes = Vec::new();
        loop {
            match Wish::receive(&ours) {
                Ok(Some(asked)) => {
                    answer(&ours, with(&asked).as_ref().map(|stream| stream.as_fd()).map_err(String::as_str))
                        .unwrap();
                    wishes.push(asked);
                }
                Ok(None) => return wishes,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
    })
}

fn repository() -> (Scratch, Hand) {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write("a", "a");
    scratch.commit_all("one");
    scratch.own();
    let hand = scratch.host_worker();
    (scratch, hand)
}

#[test]
fn a_call_reaches_a_server_over_a_stream_of_the_daemon() {
    let (_scratch, mut hand) = repository();
    let wishes = way_out(&mut hand, 1, |_| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                theirs.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            let request = String::from_utf8(request).unwrap();
            assert!(
                request.starts_with("GET /org/app/info/refs?service=git-upload-pack HTTP/1.1\r\n"),
                "{request}"
            );
            theirs.write_all(REFUSAL.as_bytes()).unwrap();
        });
        Ok(ours.into())
    });
    let failure = hand.git(fetch()).unwrap_err();
    assert!(failure.message.contains("no rule"), "{failure:?}");
    assert_eq!(wishes.join().unwrap(), [Wish { host: "git.example.org".to_owned(), port: 443 }]);
}

#[test]
fn a_call_shows_why_it_has_no_stream() {
    let (_scratch, mut hand) = repository();
    let wishes = way_out(&mut hand, 1, |wish| Err(format!("{} is not for this run", wish.host)));
    let failure = hand.git(fetch()).unwrap_err();
    assert!(failure.message.contains("git.example.org is not for this run"), "{failure:?}");
    assert_eq!(wishes.join().unwrap().len(), 1);
    // A handle that was not sent, and none at all.
    for number in [9, 0] {
        hand.way_out = number;
        let failure = hand.git(fetch()).unwrap_err();
        assert!(failure.message.contains("no way to servers"), "{failure:?}");
    }
    assert_eq!(hand.status(), "## main\n");
}

#[test]
fn a_handle_is_for_one_call_and_another_message_ends_the_host_worker() {
    let (_scratch, mut hand) = repository();
    let first = way_out(&mut hand, 1, |_| Err("first".to_owned()));
    let second = way_out(&mut hand, 2, |_| Err("second".to_owned()));
    assert!(hand.git(fetch()).unwrap_err().message.contains("second"));
    hand.way_out = 1;
    assert!(hand.git(fetch()).unwrap_err().message.contains("first"));
    assert_eq!((first.join().unwrap().len(), second.join().unwrap().len()), (1, 1));
    let handles = hand.process.handles.as_ref().unwrap();
    rustix::io::write(handles, b"hello").unwrap();
    hand.way_out = 3;
    let operation = operations::Operation::Git(fetch());
    hand.begin(&operation, support::DEADLINE, false);
    assert!(hand.receive().is_none());
}
