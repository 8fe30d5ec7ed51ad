//! The remote mode of an editor: sessions over one connection, a server that it uploads, and ports that lead to it.

use std::process::{Output, Stdio};
use std::time::Duration;

use harness::RunHandle;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use super::{User, Way, daemon, run_of, text};

/// An event that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers each line with its own process id and the line.
const SERVER: &str = "\
import os, socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b'%d %s' % (os.getpid(), line))
server = socketserver.ThreadingTCPServer(('127.0.0.1', 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
";

/// Starts the server, which stays after the session, and prints its port.
const START: &str = "\
#!/bin/sh
cd \"$(dirname \"$0\")\" || exit
setsid python3 server.py >port 2>log </dev/null &
until [ -s port ]; do sleep 0.1; done
cat port
";

/// An editor, whose sessions share the connection of a master.
struct Editor<'a> {
    user: &'a User<'a>,
    alias: String,
    options: [String; 4],
}

impl<'a> Editor<'a> {
    async fn of(user: &'a User<'a>, run: &RunHandle) -> Self {
        let Way { file, alias } = user.way_into(run).await;
        let control = format!("ControlPath={}", user.home.join("control").display());
        Self { user, alias, options: ["-F".to_owned(), file.display().to_string(), "-o".to_owned(), control] }
    }

    fn arguments<'b>(&'b self, options: &[&'b str], command: &[&'b str]) -> Vec<&'b str> {
        let own = self.options.iter().map(String::as_str);
        own.chain(options.iter().copied())
            .chain([self.alias.as_str()])
            .chain(command.iter().copied())
            .collect()
    }

    /// Starts the master, and waits until sessions can use it.
    async fn connect(&self) -> Child {
        let options =
            ["-N", "-o", "ControlMaster=auto", "-o", "PermitLocalCommand=yes", "-o", "LocalCommand=echo up"];
        let mut master = self.spawn(&options, &[]);
        let mut said = BufReader::new(master.stdout.take().unwrap()).lines();
        let up = tokio::time::timeout(PATIENCE, said.next_line()).await.expect("no connection").unwrap();
        assert_eq!(up.as_deref(), Some("up"));
        master
    }

    fn spawn(&self, options: &[&str], command: &[&str]) -> Child {
        let command = self.user.command("ssh".as_ref(), &self.arguments(options, command));
        let mut command = Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
    }

    /// Runs a session with this command and this standard input.
    async fn session(&self, command: &str, input: &[u8]) -> Output {
        self.user.feeds("ssh", &self.arguments(&["-T"], &[command]), input).await
    }

    /// Uploads the server and starts it. Returns its port.
    async fn upload(&self) -> u16 {
        let mut archive = tar::Builder::new(Vec::new());
        let filler = vec![7_u8; 3_000_000];
        for (name, content, mode) in [
            ("server/filler", filler.as_slice(), 0o644),
            ("server/server.py", SERVER.as_bytes(), 0o644),
            ("server/start", START.as_bytes(), 0o755),
        ] {
            let mut header = tar::Header::new_ustar();
            header.set_size(u64::try_from(content.len()).unwrap());
            header.set_mode(mode);
            archive.append_data(&mut header, name, content).unwrap();
        }
        let archive = archive.into_inner().unwrap();
        let command = "mkdir -p ~/.editor && tar -x -C ~/.editor && ~/.editor/server/start";
        let started = self.session(command, &archive).await;
        text(&started.stdout).trim().parse().unwrap_or_else(|_| panic!("no port: {started:?}"))
    }

    /// Adds local ports that lead to a port of the run: directly, and by a SOCKS proxy. Returns both.
    async fn forward(&self, port: u16) -> [u16; 2] {
        let listeners = [
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        ];
        let [direct, socks] = listeners.map(|listener| listener.local_addr().unwrap().port());
        for [option, value] in
            [["-L", &format!("127.0.0.1:{direct}:127.0.0.1:{port}")], ["-D", &format!("127.0.0.1:{socks}")]]
        {
            let options = self.arguments(&["-O", "forward", option, value], &[]);
            let added = self.user.runs("ssh".as_ref(), &options).await;
            assert!(added.status.success(), "{}", text(&added.stderr));
        }
        [direct, socks]
    }
}

/// Asks the server over a local port and over the SOCKS proxy. Returns its process id.
async fn ask([direct, socks]: [u16; 2], port: u16) -> String {
    let direct = TcpStream::connect(("127.0.0.1", direct)).await.unwrap();
    let pid = exchange(direct, "one").await;
    // SOCKS 5 (RFC 1928): no authentication, then a name and a port.
    let mut stream = TcpStream::connect(("127.0.0.1", socks)).await.unwrap();
    stream.write_all(&[5, 1, 0]).await.unwrap();
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await.unwrap();
    let request = [&[5, 1, 0, 3, 9][..], b"localhost", &port.to_be_bytes()].concat();
    stream.write_all(&request).await.unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!((chosen, reply[1]), ([5, 0], 0));
    assert_eq!(exchange(stream, "two").await, pid);
    pid
}

/// Sends a line. Returns the process id before it in the answer.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, word: &str) -> String {
    stream.write_all(format!("{word}\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    BufReader::new(&mut stream).read_line(&mut answer).await.unwrap();
    let (pid, line) = answer.split_once(' ').unwrap_or_else(|| panic!("{answer:?}"));
    assert_eq!(line, format!("{word}\n"));
    pid.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn fw16_sessions_scripts_uploads_and_sftp_share_one_connection() {
    let daemon = daemon().await;
    let mut run = run_of(&daemon, "in").await;
    let home = tempfile::tempdir().unwrap();
    let user = User::new(&daemon, home.path());
    let editor = Editor::of(&user, &run).await;
    let _master = editor.connect().await;

    // Each script waits for the others, so that they run at once.
    let script = |number: u8| {
        format!(
            "cd /workspace && touch at.{number}\nuntil [ \"$(ls at.* | wc -l)\" -ge 3 ]; do sleep 0.05; done\n\
             echo session {number}; exit 1{number}\n"
        )
        .into_bytes()
    };
    let [one, two, three] = [1, 2, 3].map(script);
    let all =
        tokio::join!(editor.session("sh", &one), editor.session("sh", &two), editor.session("sh", &three));
    for (number, ended) in [all.0, all.1, all.2].iter().enumerate() {
        let number = i32::try_from(number).unwrap() + 1;
        assert_eq!(ended.status.code(), Some(10 + number), "{ended:?}");
        assert_eq!(text(&ended.stdout), format!("session {number}\n"));
    }

    // A program that reads and writes for a long time.
    let double = "python3 -uc 'import sys\nfor line in iter(sys.stdin.readline, \"\"): print(int(line) * 2)'";
    let mut program = editor.spawn(&["-T"], &[double]);
    let mut say = program.stdin.take().unwrap();
    let mut heard = BufReader::new(program.stdout.take().unwrap()).lines();
    for number in 0..200 {
        say.write_all(format!("{number}\n").as_bytes()).await.unwrap();
        let answer = tokio::time::timeout(PATIENCE, heard.next_line()).await.expect("no answer").unwrap();
        assert_eq!(answer, Some((number * 2).to_string()));
    }
    drop(say);
    let ended = tokio::time::timeout(PATIENCE, program.wait()).await.expect("it stays").unwrap();
    assert_eq!(ended.code(), Some(0));

    let content: Vec<u8> = (0..3_000_000_u32).map(|byte| (byte % 251) as u8).collect();
    std::fs::write(home.path().join("up"), &content).unwrap();
    let local = home.path().display();
    let batch = format!(
        "put {local}/up /workspace/new\nchmod 640 /workspace/new\nrename /workspace/new /workspace/name\n\
         ln -s name /workspace/link\nget /workspace/link {local}/down\n"
    );
    let copied = user.feeds("sftp", &editor.arguments(&["-q", "-b", "-"], &[]), batch.as_bytes()).await;
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    assert!(std::fs::read(home.path().join("down")).unwrap() == content);
    let listed = editor.session("stat -c '%a %s' /workspace/name && readlink /workspace/link", b"").await;
    assert_eq!(text(&listed.stdout), "640 3000000\nname\n", "{}", text(&listed.stderr));

    let id = run.id().to_owned();
    assert_eq!(run.clients.events(&id, "forward_intent").await.len(), 1, "one connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn fw17_an_editor_finds_its_server_again_after_lost_connections() {
    let mut daemon = daemon().await;
    let mut run = run_of(&daemon, "in").await;
    let home = tempfile::tempdir().unwrap();
    let user = User::new(&daemon, home.path());
    let editor = Editor::of(&user, &run).await;
    let mut master = editor.connect().await;
    let port = editor.upload().await;
    let local = editor.forward(port).await;
    let pid = ask(local, port).await;

    master.kill().await.unwrap();
    let id = run.id().to_owned();
    let ended = run.clients.events_when(&id, "forward_receipt", |found| !found.is_empty()).await;
    assert_eq!(ended.len(), 1);
    assert!(TcpStream::connect(("127.0.0.1", local[0])).await.is_err(), "the port ends with its connection");
    let mut master = editor.connect().await;
    assert_eq!(ask(editor.forward(port).await, port).await, pid);

    // The run outlives a daemon, and so does its server.
    daemon.kill().await;
    tokio::time::timeout(PATIENCE, master.wait()).await.expect("the connection stays").unwrap();
    daemon.launch().await;
    let _master = editor.connect().await;
    assert_eq!(ask(editor.forward(port).await, port).await, pid);
}
