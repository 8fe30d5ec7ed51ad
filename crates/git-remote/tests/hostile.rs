//! Servers that attack: each answer ends in a named error, and changes no ref.
#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use git_remote::{Bounds, Fetched, Outcome, Refspec, RemoteError, RemoteUrl, Update, fetch, list, push};
use git2::{Oid, Repository, Signature};
use parking_lot::Mutex;
use tempfile::TempDir;

const A: &str = "1111111111111111111111111111111111111111";
const CAPABILITIES: &str =
    "side-band-64k ofs-delta thin-pack multi_ack_detailed shallow symref=HEAD:refs/heads/main";

fn bounds() -> Bounds {
    Bounds { max_bytes: 8 << 20, deadline: Instant::now() + Duration::from_secs(20), max_refs: 1_000 }
}

fn url() -> RemoteUrl {
    RemoteUrl::parse("https://git.example.org/org/app").unwrap()
}

/// Reads a request: its head, and its body by its length or in chunks.
fn read_request(stream: &mut UnixStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let end = |bytes: &[u8]| bytes.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4);
    loop {
        if let Some(at) = end(&bytes) {
            let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
            let is_whole = if head.contains("Transfer-Encoding: chunked") {
                bytes.ends_with(b"\r\n0\r\n\r\n")
            } else {
                bytes.len() >= at + length.unwrap_or(0_usize)
            };
            if is_whole {
                return Some(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        match stream.read(&mut piece) {
            Ok(read @ 1..) => bytes.extend_from_slice(&piece[..read]),
            _ => return None,
        }
    }
}

/// Streams to a server that gives these answers, one to each request, and then closes.
struct Played {
    answers: Mutex<Vec<Vec<u8>>>,
}

impl Played {
    fn new(answers: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self { answers: Mutex::new(answers.into_iter().collect()) }
    }

    fn dial(&self) -> impl Fn(&str, u16) -> io::Result<UnixStream> + '_ {
        |host, port| {
            assert_eq!((host, port), ("git.example.org", 443));
            let (ours, mut theirs) = UnixStream::pair()?;
            let answers = std::mem::take(&mut *self.answers.lock());
            thread::spawn(move || {
                for answer in answers {
                    if read_request(&mut theirs).is_none() || theirs.write_all(&answer).is_err() {
                        return;
                    }
                }
            });
            Ok(ours)
        }
    }
}

fn packet(data: impl AsRef<[u8]>) -> Vec<u8> {
    let data = data.as_ref();
    [format!("{:04x}", data.len() + 4).as_bytes(), data].concat()
}

fn response(content_type: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-{content_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// The list of refs of a service, from the lines after the first part.
fn listed(service: &str, lines: &[u8]) -> Vec<u8> {
    let body = [&packet(format!("# service=git-{service}\n"))[..], b"0000", lines].concat();
    response(&format!("{service}-advertisement"), &body)
}

/// One ref of a server.
fn one_ref(name: &str) -> Vec<u8> {
    [&packet(format!("{A} {name}\0{CAPABILITIES}\n"))[..], b"0000"].concat()
}

fn list_of(lines: &[u8]) -> Result<git_remote::Advertised, RemoteError> {
    let played = Played::new([listed("upload-pack", lines)]);
    list(&url(), &played.dial(), bounds())
}

/// A repository with one commit on `main`.
fn repository() -> (TempDir, Repository, Oid) {
    let directory = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(directory.path()).unwrap();
    let signature = Signature::now("a", "a@example.org").unwrap();
    let tree = repository.treebuilder(None).unwrap().write().unwrap();
    let commit = {
        let tree = repository.find_tree(tree).unwrap();
        repository.commit(Some("refs/heads/main"), &signature, &signature, "one", &tree, &[]).unwrap()
    };
    (directory, repository, commit)
}

/// Fetches from a server that answers the request with these packets. No ref may change.
fn fetched(packets: &[u8], depth: Option<u32>) -> Result<Fetched, RemoteError> {
    let (_directory, repository, commit) = repository();
    let played = Played::new([
        listed("upload-pack", &one_ref("refs/heads/main")),
        response("upload-pack-result", packets),
    ]);
    let wanted = [Refspec::parse("+refs/heads/main:refs/heads/main").unwrap()];
    let fetched = fetch(&repository, &url(), &wanted, depth, &played.dial(), bounds());
    assert_eq!(repository.refname_to_id("refs/heads/main").unwrap(), commit);
    assert!(!repository.path().join("shallow").exists());
    fetched
}

fn band(band: u8, data: impl AsRef<[u8]>) -> Vec<u8> {
    packet([&[band], data.as_ref()].concat())
}

fn pack_of(bytes: &[u8]) -> Vec<u8> {
    [&packet("NAK\n")[..], &band(1, bytes), b"0000"].concat()
}

#[test]
fn a_list_is_read() {
    let lines = [
        &packet(format!("{A} HEAD\0{CAPABILITIES} object-format=sha1\n"))[..],
        &packet(format!("{A} refs/heads/main\n")),
        &packet(format!("{A} refs/tags/v1\n")),
        &packet(format!("{A} refs/tags/v1^{{}}\n")),
        &packet(format!("{A} refs/heads/..odd\n")),
        b"0000",
    ];
    let list = list_of(&lines.concat()).unwrap();
    let names: Vec<_> = list.refs.iter().map(|known| known.name.as_str()).collect();
    assert_eq!(names, ["refs/heads/main", "refs/tags/v1"]);
    assert_eq!((list.head.as_deref(), list.left_out), (Some("refs/heads/main"), 1));
    assert_eq!(list.head_id.unwrap().to_string(), A);
    assert!(list_of(b"0000").unwrap().refs.is_empty());
}

#[test]
fn malformed_lists_are_errors() {
    let zero = "0".repeat(40);
    let second = |line: &str| {
        [&one_ref("refs/heads/a")[..one_ref("refs/heads/a").len() - 4], &packet(line)[..], b"0000"].concat()
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("no capabilities", [&packet(format!("{A} refs/heads/a\n"))[..], b"0000"].concat()),
        ("no flush", packet(format!("{A} refs/heads/a\0{CAPABILITIES}\n"))),
        ("cut packet", b"00ff".to_vec()),
        ("length 3", b"0003".to_vec()),
        ("no length", b"zzzz".to_vec()),
        ("upper case", b"00FF".to_vec()),
        ("too long", b"fff5".to_vec()),
        ("delimiter", b"0001".to_vec()),
        ("bytes after", [&one_ref("refs/heads/a")[..], b"0000"].concat()),
        ("short id", second("1234 refs/heads/b\n")),
        ("no digits", second(&format!("{} refs/heads/b\n", "g".repeat(40)))),
        ("zero id", second(&format!("{zero} refs/heads/b\n"))),
        ("no name", second(A)),
        ("twice", second(&format!("{A} refs/heads/a\n"))),
        ("empty line", second("")),
        ("no utf-8", [&packet([A.as_bytes(), b" refs/heads/a\0\xff"].concat())[..], b"0000"].concat()),
        ("sha256", [&packet(format!("{A} refs/heads/a\0object-format=sha256\n"))[..], b"0000"].concat()),
    ];
    for (name, lines) in cases {
        assert!(list_of(&lines).is_err(), "{name}");
    }
}

#[test]
fn a_list_says_an_error_and_its_words_are_cleaned() {
    let error = list_of(&packet("ERR go away\u{1b}[2J\n")).unwrap_err().to_string();
    assert!(error.contains("go away") && !error.contains('\u{1b}'), "{error}");
    let long = list_of(&packet(format!("ERR {}", "x".repeat(60_000)))).unwrap_err().to_string();
    assert!(long.len() < 2_000, "{}", long.len());
}

#[test]
fn a_hundred_thousand_refs_are_too_many() {
    let lines = |odd: &str| {
        let mut lines = packet(format!("{A} refs/heads/first\0{CAPABILITIES}\n"));
        for number in 0..100_000 {
            lines.extend(packet(format!("{A} refs/heads/{odd}{number}\n")));
        }
        lines
    };
    for odd in ["a", ".."] {
        assert!(matches!(list_of(&lines(odd)), Err(RemoteError::TooManyRefs(1_000))), "{odd}");
    }
}

#[test]
fn answers_that_are_not_of_a_git_server_are_named() {
    let answer = |text: &str| {
        let played = Played::new([text.as_bytes().to_vec()]);
        list(&url(), &played.dial(), bounds()).unwrap_err()
    };
    let refused = answer("HTTP/1.1 403 No\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\nno rule");
    assert!(matches!(refused, RemoteError::Denied { status: 403, words } if words == "no rule"));
    let refused = answer("HTTP/1.1 401 No\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n<p>");
    assert!(matches!(refused, RemoteError::Denied { status: 401, words } if words.is_empty()));
    assert!(matches!(answer("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"), RemoteError::NotFound { .. }));
    let elsewhere =
        answer("HTTP/1.1 302 Go\r\nLocation: https://evil.example.org/\r\nContent-Length: 0\r\n\r\n");
    assert!(matches!(elsewhere, RemoteError::Redirect(302)));
    assert!(matches!(answer("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), RemoteError::Status { .. }));
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n";
    assert!(matches!(answer(page), RemoteError::NotGit(_)));
    let packed = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n";
    assert!(matches!(answer(packed), RemoteError::NotGit(_)));
    assert!(matches!(answer("SSH-2.0-x\r\n\r\n"), RemoteError::Malformed(_)));
    assert!(matches!(answer("HTTP/1.1 200 OK\r\n"), RemoteError::Closed));
    let switched = "HTTP/1.1 101 Switch\r\nUpgrade: x\r\n\r\n";
    assert!(matches!(answer(switched), RemoteError::Malformed(_)));
    assert!(matches!(answer(&"HTTP/1.1 100 Continue\r\n\r\n".repeat(9)), RemoteError::Malformed(_)));
    let fields = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(200));
    assert!(matches!(answer(&fields), RemoteError::Malformed(_)));
    let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(100_000));
    assert!(matches!(answer(&endless), RemoteError::Malformed(_)));
}

#[test]
fn bodies_are_read_in_each_framing_and_in_no_other() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n";
    let body = String::from_utf8(
        [&packet("# service=git-upload-pack\n")[..], b"0000", &one_ref("refs/heads/a")].concat(),
    )
    .unwrap();
    let answer = |text: String| {
        let played = Played::new([text.into_bytes()]);
        list(&url(), &played.dial(), bounds())
    };
    let (first, rest) = body.split_at(30);
    let chunks = format!("{:x};a=b\r\n{first}\r\n{:X}\r\n{rest}\r\n", first.len(), rest.len());
    for good in [
        format!("{head}\r\n{body}"),
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\nX: y\r\n\r\n"),
    ] {
        assert_eq!(answer(good).unwrap().refs.len(), 1);
    }
    for bad in [
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len() + 1),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n-1\r\n"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n\r\n"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{}\r\n", "f".repeat(17)),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefg\r\n"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n1;{}", "a".repeat(5_000)),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n{}", "X: y\r\n".repeat(100)),
    ] {
        assert!(answer(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn a_server_that_sends_without_end_or_not_at_all_is_left() {
    let endless = |host: &str, _: u16| {
        assert_eq!(host, "git.example.org");
        let (ours, mut theirs) = UnixStream::pair()?;
        thread::spawn(move || {
            read_request(&mut theirs)?;
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n";
            theirs.write_all(head.as_bytes()).ok()?;
            while theirs.write_all(&packet("# x\n")).is_ok() {}
            Some(())
        });
        Ok(ours)
    };
    let small = Bounds { max_bytes: 1 << 20, ..bounds() };
    assert!(matches!(list(&url(), &endless, small), Err(RemoteError::TooMuch(_))));

    let kept = Mutex::new(Vec::new());
    let silent = |_: &str, _: u16| {
        let (ours, theirs) = UnixStream::pair()?;
        kept.lock().push(theirs);
        Ok(ours)
    };
    let short = Bounds { deadline: Instant::now() + Duration::from_millis(50), ..bounds() };
    assert!(matches!(list(&url(), &silent, short), Err(RemoteError::TimedOut)));

    let none = |_: &str, _: u16| Err(io::Error::other("no rule has this host"));
    let error = list(&url(), &none, bounds()).unwrap_err();
    assert!(error.to_string().contains("no rule has this host"), "{error}");
}

#[test]
fn attacks_on_a_fetch_are_errors_and_change_no_ref() {
    let header = |count: u32| [&b"PACK\0\0\0\x02"[..], &count.to_be_bytes()].concat();
    // An object that is a delta of one that does not exist.
    let delta =
        [&header(1)[..], &[0x70], &[0x11; 20], b"\x78\x9c\x03\x00\x00\x00\x00\x01", &[0; 20]].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("only an answer", packet("NAK\n")),
        ("no end", [&packet("NAK\n")[..], &band(1, header(0))].concat()),
        ("an error", packet("ERR not our ref\n")),
        ("band 3", [&packet("NAK\n")[..], &band(3, "out of memory")].concat()),
        ("band 4", [&packet("NAK\n")[..], &band(1, header(1)), &band(4, "x")].concat()),
        ("an empty packet", [&packet("NAK\n")[..], &packet("")].concat()),
        ("an odd answer", packet("MAYBE\n")),
        ("a flush first", b"0000".to_vec()),
        ("a delimiter", b"0001".to_vec()),
        ("ends that were not asked for", packet(format!("shallow {A}\n"))),
        ("packets after the end", [&pack_of(&header(0))[..], &band(1, "x")].concat()),
        ("no pack", pack_of(b"JUNKJUNKJUNK")),
        ("a cut header", pack_of(b"PACK")),
        ("another version", pack_of(b"PACK\0\0\0\x09\0\0\0\0")),
        ("too many objects", pack_of(&header(u32::MAX))),
        ("no objects", pack_of(&header(0))),
        ("a cut pack", pack_of(&header(1))),
        (
            "a wrong sum",
            pack_of(&[&header(1)[..], b"\x30\x78\x9c\x03\x00\x00\x00\x00\x01", &[0; 20]].concat()),
        ),
        ("a delta of nothing", pack_of(&delta)),
        ("garbage", pack_of(&[&header(3)[..], &[0xff; 4_000]].concat())),
        ("answers without end", packet(format!("ACK {A} common\n")).repeat(300_000)),
    ];
    for (name, packets) in cases {
        let ended = fetched(&packets, None);
        assert!(ended.is_err(), "{name}: {ended:?}");
    }
    let many: Vec<u8> = (0..150_000).flat_map(|number| packet(format!("shallow {number:040x}\n"))).collect();
    assert!(matches!(fetched(&many, Some(1)), Err(RemoteError::Malformed(_) | RemoteError::TooMuch(_))));
    assert!(matches!(fetched(&packet("shallow 12\n"), Some(1)), Err(RemoteError::Malformed(_))));
}

#[test]
fn a_fetch_needs_what_the_server_has() {
    let (_directory, repository, _) = repository();
    let attempt = |capabilities: &str, wanted: &str, depth| {
        let lines = [&packet(format!("{A} refs/heads/main\0{capabilities}\n"))[..], b"0000"].concat();
        let played = Played::new([listed("upload-pack", &lines)]);
        let wanted = [Refspec::parse(wanted).unwrap()];
        fetch(&repository, &url(), &wanted, depth, &played.dial(), bounds()).unwrap_err()
    };
    let all = "refs/heads/*:refs/remotes/origin/*";
    assert!(matches!(attempt("ofs-delta", all, None), RemoteError::Lacks("side-band-64k")));
    assert!(matches!(attempt("side-band-64k", all, Some(1)), RemoteError::Lacks("shallow")));
    let missing = attempt(CAPABILITIES, "refs/heads/other:refs/heads/other", None);
    assert!(matches!(missing, RemoteError::NoRef(name) if name == "refs/heads/other"));
    let lines = [
        &one_ref("refs/heads/main")[..one_ref("refs/heads/main").len() - 4],
        &packet(format!("shallow {A}"))[..],
        b"0000",
    ];
    let played = Played::new([listed("upload-pack", &lines.concat())]);
    let wanted = [Refspec::parse(all).unwrap()];
    let cut = fetch(&repository, &url(), &wanted, None, &played.dial(), bounds());
    assert!(matches!(cut, Err(RemoteError::Shallow)), "{cut:?}");
}

fn pushed(
    capabilities: &str,
    answer: Vec<u8>,
    update: impl Fn(Oid) -> Update,
) -> Result<Outcome, RemoteError> {
    let (_directory, repository, commit) = repository();
    let lines = [&packet(format!("{A} refs/heads/old\0{capabilities}\n"))[..], b"0000"].concat();
    let played = Played::new([listed("receive-pack", &lines), answer]);
    let mut ended = push(&repository, &url(), &[update(commit)], &played.dial(), bounds())?;
    assert_eq!(ended.len(), 1);
    Ok(ended.remove(0).outcome)
}

fn new(name: &str) -> impl Fn(Oid) -> Update {
    let ref_name = name.to_owned();
    move |commit| Update { ref_name: ref_name.clone(), expected_old: None, new: Some(commit) }
}

#[test]
fn reports_of_a_push_are_read_as_the_server_wrote_them() {
    let report = |lines: &[&str]| {
        let lines: Vec<u8> = lines.iter().flat_map(packet).collect();
        response("receive-pack-result", &[&lines[..], b"0000"].concat())
    };
    let name = "refs/heads/new";
    let attempt = |lines: &[&str]| pushed("report-status", report(lines), new(name));
    assert_eq!(attempt(&["unpack ok\n", "ok refs/heads/new\n"]).unwrap(), Outcome::Updated);
    let refused = attempt(&["unpack ok\n", "ng refs/heads/new no\u{1b} rule\n"]).unwrap();
    assert!(matches!(refused, Outcome::Rejected(why) if why.starts_with("no") && !why.contains('\u{1b}')));
    let unpacked = attempt(&["unpack index-pack failed\n", "ok refs/heads/new\n"]).unwrap();
    assert!(matches!(unpacked, Outcome::Rejected(why) if why.contains("index-pack failed")));
    let silent = attempt(&["unpack ok\n", "ok refs/heads/other\n"]).unwrap();
    assert!(matches!(silent, Outcome::Rejected(why) if why.contains("reports nothing")));
    for lines in
        [&["ok refs/heads/new\n"][..], &[], &["unpack ok\n", "perhaps refs/heads/new\n"], &["unpack"]]
    {
        assert!(attempt(lines).is_err(), "{lines:?}");
    }
    // Within a band, in pieces, with words for people.
    let inner = [&packet("unpack ok\n")[..], &packet("ng refs/heads/new hook declined\n"), b"0000"].concat();
    let (first, rest) = inner.split_at(7);
    let body = [&band(1, first)[..], &band(2, "too large\n"), &band(1, rest), b"0000"].concat();
    let answer = response("receive-pack-result", &body);
    let refused = pushed("report-status side-band-64k", answer, new(name)).unwrap();
    assert_eq!(refused, Outcome::Rejected("hook declined; it says: too large".to_owned()));
}

#[test]
fn a_push_is_compared_with_the_server_before_it_is_sent() {
    let old = Oid::from_str(A).unwrap();
    let other = Oid::from_str(&"2".repeat(40)).unwrap();
    let attempt = |capabilities: &str, name: &str, expected_old, new| {
        // A request would get no answer.
        let ref_name = name.to_owned();
        let update = move |_| Update { ref_name: ref_name.clone(), expected_old, new };
        pushed(capabilities, Vec::new(), update)
    };
    let full = "report-status delete-refs";
    for (name, expected_old, new, why) in [
        ("refs/heads/old", Some(other), None, "another value"),
        ("refs/heads/old", None, Some(other), "another value"),
        ("refs/heads/none", Some(other), Some(old), "no longer"),
        ("refs/heads/none", None, Some(other), "lacks the new object"),
        ("main", None, Some(other), "no full name"),
    ] {
        let refused = attempt(full, name, expected_old, new).unwrap();
        assert!(matches!(&refused, Outcome::Rejected(said) if said.contains(why)), "{refused:?}");
    }
    let deleted = attempt("report-status", "refs/heads/old", Some(old), None).unwrap();
    assert!(matches!(deleted, Outcome::Rejected(why) if why.contains("no deletions")));
    assert_eq!(attempt(full, "refs/heads/old", Some(other), Some(old)).unwrap(), Outcome::UpToDate);
    assert!(matches!(
        pushed("ofs-delta", Vec::new(), new("refs/heads/new")),
        Err(RemoteError::Lacks("report-status"))
    ));
}

#[test]
fn a_refusal_of_a_push_that_comes_early_is_read() {
    let answer = b"HTTP/1.1 403 No\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\nno rule".to_vec();
    let refused = pushed("report-status", answer, new("refs/heads/new")).unwrap_err();
    assert!(matches!(refused, RemoteError::Denied { status: 403, words } if words == "no rule"));
    assert!(matches!(pushed("report-status", Vec::new(), new("refs/heads/new")), Err(RemoteError::Closed)));
}
