//! A git server over HTTP that asks the rules first. Its repository is served by git itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};

use cofferdam_git_wire::{
    Ancestry, Command, CommandList, CommandReader, Decision, Head, NotServed, Refusal, Request, Rules,
    Service, Step,
};

use super::git::git;

/// Words for people in each refusal of a push.
pub(crate) const WORDS: &str = "The policy refused this push, and nothing of it was sent.";

/// How a server answers.
#[derive(Clone)]
pub(crate) struct Site {
    /// The bare repository, whatever its path in the URL.
    pub(crate) repository: PathBuf,
    /// The client's repository, which has the new commits.
    pub(crate) work: PathBuf,
    pub(crate) rules: Rules,
    /// The begin of a fetch is possible even if the fetch is not.
    pub(crate) is_late: bool,
}

/// A server on the loopback, and the commands of each push that it was sent.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) pushes: Receiver<CommandList>,
}

impl Server {
    pub(crate) fn start(site: Site) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/org/app.git", listener.local_addr().unwrap());
        let (sender, pushes) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (site, sender) = (site.clone(), sender.clone());
                std::thread::spawn(move || serve(&stream.unwrap(), &site, &sender));
            }
        });
        Self { url, pushes }
    }
}

struct Asked {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn parse(&self) -> Result<Request, NotServed> {
        Request::parse(&Head {
            method: &self.method,
            target: &self.target,
            content_type: self.header("content-type"),
            content_encoding: self.header("content-encoding"),
            git_protocol: self.header("git-protocol"),
        })
    }
}

fn serve(stream: &TcpStream, site: &Site, sender: &Sender<CommandList>) {
    let mut reader = BufReader::new(stream);
    let Some(asked) = read_head(&mut reader) else { return };
    let body = read_body(&mut reader, stream, &asked);
    let answer = answer(site, &asked, &body, sender);
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {} X\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.content_type,
        answer.body.len()
    )
    .unwrap();
    stream.write_all(&answer.body).unwrap();
}

fn read_line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn read_head(reader: &mut impl BufRead) -> Option<Asked> {
    let first = read_line(reader);
    let mut words = first.split(' ').map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let lines = std::iter::from_fn(|| Some(read_line(reader)).filter(|line| !line.is_empty()));
    let header = |line: String| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_lowercase(), value.trim().to_owned())
    };
    let headers = lines.map(header).collect();
    Some(Asked { method, target, headers })
}

fn read_body(reader: &mut impl BufRead, mut stream: &TcpStream, asked: &Asked) -> Vec<u8> {
    if asked.header("expect").is_some() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
    }
    let mut body = Vec::new();
    if asked.header("transfer-encoding").is_none() {
        let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
        reader.by_ref().take(length).read_to_end(&mut body).unwrap();
        return body;
    }
    loop {
        let length = u64::from_str_radix(&read_line(reader), 16).unwrap();
        reader.by_ref().take(length).read_to_end(&mut body).unwrap();
        read_line(reader);
        if length == 0 {
            return body;
        }
    }
}

fn answer(site: &Site, asked: &Asked, body: &[u8], sender: &Sender<CommandList>) -> Refusal {
    let request = match asked.parse() {
        Ok(request) => request,
        Err(kind) => return Refusal::plain(&kind.to_string()),
    };
    let protocol = asked.header("git-protocol");
    match request {
        Request::Discover { service, repository, .. } => {
            match site.rules.judge_discovery(service, &repository) {
                (Decision::Deny, Some(why)) if !site.is_late => {
                    Refusal::of_discovery(service, &why.to_string())
                }
                _ => advertise(&site.repository, service, protocol),
            }
        }
        Request::Fetch { repository, .. } => match site.rules.judge_fetch(&repository) {
            (Decision::Allow, _) => call(&site.repository, Service::UploadPack, protocol, body),
            (_, why) => Refusal::of_fetch(&why.unwrap().to_string()),
        },
        Request::Push { repository } => {
            let mut reader = CommandReader::default();
            for part in body.chunks(7) {
                match reader.push(part) {
                    Ok(Step::More) => {}
                    Ok(Step::Complete(_)) => break,
                    Err(fault) => return Refusal::of_fault(reader.capabilities(), &fault.to_string()),
                }
            }
            let (list, raw) = reader.finish().unwrap();
            assert!(body.starts_with(&raw));
            assert_eq!(body[raw.len()..].starts_with(b"PACK"), list.has_pack());
            let judgement = site.rules.judge(&repository, &list);
            let ruling = judgement.settle(&list, |command| ancestry(&site.work, command));
            let answer = if ruling.decision == Decision::Allow {
                call(&site.repository, Service::ReceivePack, protocol, body)
            } else {
                Refusal::of_push(&list, &ruling.whys(), WORDS)
            };
            sender.send(list).unwrap();
            answer
        }
    }
}

fn ancestry(work: &Path, command: &Command) -> Ancestry {
    let arguments = ["merge-base", "--is-ancestor", command.old().as_str(), command.new_id().as_str()];
    match git(work).args(arguments).output().unwrap().status.code() {
        Some(0) => Ancestry::FastForward,
        Some(1) => Ancestry::Forced,
        _ => Ancestry::Unknown,
    }
}

/// Has git list the refs, as the first answer of a smart server.
fn advertise(repository: &Path, service: Service, protocol: Option<&str>) -> Refusal {
    let mut command = git(repository);
    command.envs(protocol.map(|protocol| ("GIT_PROTOCOL", protocol)));
    command.args([&service.as_str()[4..], "--stateless-rpc", "--http-backend-info-refs", "."]);
    let name = format!("# service={}\n", service.as_str());
    let begin = format!("{:04x}{name}0000", name.len() + 4);
    let body = [begin.as_bytes(), &command.output().unwrap().stdout].concat();
    Refusal { status: 200, content_type: service.advertisement_type(), body }
}

/// Has git answer a request.
fn call(repository: &Path, service: Service, protocol: Option<&str>, body: &[u8]) -> Refusal {
    let mut command = git(repository);
    command.envs(protocol.map(|protocol| ("GIT_PROTOCOL", protocol)));
    command.args([&service.as_str()[4..], "--stateless-rpc", "."]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut input, bytes) = (child.stdin.take().unwrap(), body.to_owned());
    let writer = std::thread::spawn(move || drop(input.write_all(&bytes)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Refusal { status: 200, content_type: service.result_type(), body: output.stdout }
}
