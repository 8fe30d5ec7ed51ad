//! Requests of git on opened connections.

use std::io::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::git_asked::Kind;
use wire::worker::v1::request_answer::Decision;
use wire::worker::v1::to_egress::Body as To;
use wire::worker::v1::{GitAsked, RequestAnswer, RequestRefusal};

use super::*;

const COMMAND: &str = "1111111111111111111111111111111111111111 2222222222222222222222222222222222222222 refs/heads/x\0 report-status";

/// Returns the commands of a push.
pub(super) fn commands() -> String {
    format!("{:04x}{COMMAND}0000", COMMAND.len() + 4)
}

/// Returns the head of a push whose body has so many bytes.
fn head(length: usize) -> String {
    format!(
        "POST /org/app.git/git-receive-pack HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Basic own\r\n\
         Content-Type: application/x-git-receive-pack-request\r\nContent-Length: {length}\r\n\r\n"
    )
}

fn for_git(script: Script) -> Script {
    let mut script = granting(script, 443);
    script.ports.get_mut(&443).unwrap().inspect.as_mut().unwrap().git = true;
    script
}

/// A server that keeps the heads and the bodies of all requests.
fn keeping(ca: &Ca) -> (SocketAddr, Arc<Mutex<String>>) {
    let kept = Arc::<Mutex<String>>::default();
    let all = Arc::clone(&kept);
    let address = tls_server(ca.good(&["http/1.1"]), move |stream| {
        while let Some(head) = read_head(stream) {
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            std::io::Read::read_exact(stream, &mut body).unwrap();
            all.lock().push_str(&(head + &String::from_utf8_lossy(&body)));
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    (address, kept)
}

fn asked(egress: &mut Egress) -> GitAsked {
    let message = egress.wait("a question", |message| matches!(message.body, Some(From::Asked(_))));
    let Some(From::Asked(asked)) = message.body else { unreachable!() };
    asked.git.unwrap()
}

#[test]
fn a_granted_push_reaches_the_server_whole_and_with_the_secret() {
    let ca = Ca::new();
    let (address, kept) = keeping(&ca);
    let mut egress = Egress::start(for_git(opened(&ca, address)));
    let mut stream = connect(&mut egress);
    let body = commands() + "PACK" + &"p".repeat(200_000);
    stream.write_all(head(body.len()).as_bytes()).unwrap();
    for piece in [&body[..3], &body[3..80], &body[80..]] {
        stream.write_all(piece.as_bytes()).unwrap();
        stream.flush().unwrap();
        std::thread::sleep(PAUSE);
    }
    let (head, answer) = response(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200 OK") && answer == "ok", "{head}{answer}");
    let asked = asked(&mut egress);
    assert_eq!((asked.kind(), asked.repository.as_str()), (Kind::Push, "org/app"));
    assert_eq!(asked.commands, commands().into_bytes());
    let kept = kept.lock().clone();
    assert!(kept.ends_with(&body) && kept.contains(&format!("Bearer {SECRET}\r\n")), "{}", kept.len());
    assert!(!kept.contains("Basic own"));
}

#[test]
fn a_refused_push_is_answered_after_its_body_and_nothing_of_it_reaches_the_server() {
    let ca = Ca::new();
    let (address, kept) = keeping(&ca);
    let mut script = for_git(opened(&ca, address));
    let content_type = "application/x-git-receive-pack-result".to_owned();
    script.ports.get_mut(&443).unwrap().decision = Some(Decision::Refusal(RequestRefusal {
        status: 200,
        content_type,
        body: b"0000".to_vec(),
        retry_after_s: 0,
    }));
    let mut egress = Egress::start(script);
    let mut stream = connect(&mut egress);
    // More than all buffers on the way hold.
    let body = commands() + "PACK" + &"p".repeat(16 * 1024 * 1024);
    stream.write_all(head(body.len()).as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let (head, answer) = response(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("receive-pack-result"), "{head}");
    assert_eq!((answer.as_str(), kept.lock().as_str()), ("0000", ""));
    drop(stream);
    assert_eq!(egress.cause(), Cause::RequestRefused);
}

#[test]
fn a_request_that_is_none_of_git_is_refused_without_a_question() {
    for (request, status) in [
        (format!("GET /api/v1/user HTTP/1.1\r\nHost: {NAME}\r\n\r\n"), 403),
        (format!("GET /org/app.git/HEAD HTTP/1.1\r\nHost: {NAME}\r\n\r\n"), 403),
        (head(0), 403),
        (head(4 + COMMAND.len()) + &commands()[..4 + COMMAND.len()], 403),
    ] {
        let ca = Ca::new();
        let (address, kept) = keeping(&ca);
        let mut egress = Egress::start(for_git(opened(&ca, address)));
        let mut stream = connect(&mut egress);
        stream.write_all(request.as_bytes()).unwrap();
        let (head, body) = response(&mut stream);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {head}{body}");
        drop(stream);
        assert_eq!(egress.cause(), Cause::NotGit, "{request}");
        assert_eq!(kept.lock().as_str(), "");
        let statuses: Vec<u32> = requests(&egress).iter().map(|request| request.status).collect();
        assert_eq!(statuses, [0, status], "{request}");
    }
}

#[test]
fn a_push_whose_server_has_not_waited_for_the_decision_is_told_to_come_again() {
    let ca = Ca::new();
    let (close, closes) = std::sync::mpsc::channel();
    let closes = Mutex::new(closes);
    let address = tls_server(ca.good(&["http/1.1"]), move |stream| {
        stream.flush().unwrap();
        closes.lock().recv().unwrap();
    });
    let mut script = for_git(opened(&ca, address));
    let decision = script.ports.get_mut(&443).unwrap().decision.take();
    let mut egress = Egress::start(script);
    let mut stream = connect(&mut egress);
    let body = commands() + "PACK";
    stream.write_all((head(body.len()) + &body).as_bytes()).unwrap();
    let asked = egress.wait("a question", |message| matches!(message.body, Some(From::Asked(_))));
    close.send(()).unwrap();
    // The process does not say when it has seen the end.
    std::thread::sleep(PAUSE * 50);
    egress.send(asked.id, To::Answer(RequestAnswer { request: 1, decision }));
    let (head, answer) = response(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("receive-pack-result"), "{head}");
    assert!(
        answer.contains("unpack the server closed the connection") && answer.contains("push again"),
        "{answer}"
    );
    drop(stream);
    assert_eq!(egress.cause(), Cause::Closed);
}

#[test]
fn a_secret_in_the_refs_or_the_bands_of_an_answer_to_a_push_is_hidden() {
    let band = format!("\u{2}remote: your key is {SECRET}\n");
    let packet = format!("{:04x}{band}0000", band.len() + 4);
    let answers = [("advertisement", packet.clone()), ("result", packet.clone())];
    let ca = Ca::new();
    let address = tls_server(ca.good(&["http/1.1"]), move |stream| {
        for (kind, body) in &answers {
            let head = read_head(stream).unwrap();
            let length = if head.starts_with("POST ") { commands().len() + 4 } else { 0 };
            std::io::Read::read_exact(stream, &mut vec![0; length]).unwrap();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-receive-pack-{kind}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
        }
    });
    let mut egress = Egress::start(for_git(opened(&ca, address)));
    let mut stream = connect(&mut egress);
    let begin =
        format!("GET /org/app.git/info/refs?service=git-receive-pack HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    let push = commands() + "PACK";
    for request in [begin, head(push.len()) + &push] {
        stream.write_all(request.as_bytes()).unwrap();
        let (head, body) = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}{body}");
        // The lengths of packets stay right.
        assert_eq!(body, packet.replace(SECRET, &"*".repeat(SECRET.len())), "{request}");
    }
}
