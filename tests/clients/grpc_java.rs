//! The real grpc-java with netty, as Debian has it, with default options.
//!
//! Debian's netty lacks two things that grpc-java's own releases have. Without the native transport there are no Unix
//! sockets: what grpc-java sends on one goes over a relay here, with the authority that it gives to a socket. Without ALPN
//! there is no TLS, so that TCP is in the clear. Each test that meets this says so, and where a later netty has it, the
//! same test connects.

use std::path::{Path, PathBuf};

use harness::{Certificates, Daemon, RunHandle, Setup, v1};
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);
/// Where Debian and Ubuntu have what Java programs are made with.
const JARS: &str = "/usr/share/java";
const NEEDED: [&str; 23] = [
    "grpc-api",
    "grpc-context",
    "grpc-core",
    "grpc-netty",
    "grpc-protobuf",
    "grpc-protobuf-lite",
    "grpc-stub",
    "gson",
    "guava",
    "jctools-core",
    "netty-buffer",
    "netty-codec",
    "netty-codec-http",
    "netty-codec-http2",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-native-epoll",
    "netty-transport-native-unix-common",
    "opencensus-api",
    "perfmark-api",
    "protobuf",
];

const SAID: &str = "1\nread\nread\nread\nread\nread\nstreamed\n";

/// The client, compiled.
struct Client {
    class_path: String,
    _compiled: TempDir,
}

impl Client {
    async fn compile() -> Self {
        let compiled = tempfile::tempdir().unwrap();
        let jars = NEEDED.map(|name| jar(name).display().to_string()).join(":");
        let class_path = format!("{}:{jars}", compiled.path().display());
        let mut ecj = Command::new("ecj");
        ecj.args(["-11", "-proc:none", "-cp", &jars, "-d"]).arg(compiled.path());
        ecj.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/clients/java/GrpcJava.java"));
        said(ecj).await;
        Self { class_path, _compiled: compiled }
    }

    /// What it prints.
    async fn says(&self, endpoint: &str, run: &RunHandle, further: &[&str]) -> String {
        let mut java = Command::new("java");
        java.args(["-cp", &self.class_path, "GrpcJava"]);
        java.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/wire/src/generated/descriptors.bin"));
        java.args([endpoint, run.id()]).args(further);
        said(java).await
    }
}

fn jar(name: &str) -> PathBuf {
    let jar = Path::new(JARS).join(name).with_extension("jar");
    assert!(jar.exists(), "grpc-java is not installed: tests/run.sh does it, on Debian and Ubuntu");
    jar
}

async fn said(mut command: Command) -> String {
    let output = tokio::time::timeout(PATIENCE, command.kill_on_drop(true).output()).await;
    let output = output.expect("it does not end").expect("tests/run.sh installs ecj and java");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Passes every connection on to a socket. Returns where it listens.
async fn relayed(socket: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut daemon = UnixStream::connect(&socket).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut daemon).await });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_java_lists_calls_and_streams_by_socket() {
    let (daemon, client) = (Daemon::start().await, Client::compile().await);
    let workspace = daemon.workspace("w", &[("a.txt", "read\n")]);
    let run = daemon.run("open", &workspace).await;
    let socket = format!("unix:{}", daemon.socket().display());
    let relay = relayed(daemon.socket().clone()).await;
    assert_eq!(client.says(&relay, &run, &[&socket]).await, SAID);
    let directly = client.says(&socket, &run, &[]).await;
    assert!([SAID, "no native transport: UnsatisfiedLinkError\n"].contains(&directly.as_str()), "{directly}");
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_java_lists_calls_and_streams_over_tcp() {
    let client = Client::compile().await;
    let certificates = Certificates::make(&[]);
    for tcp in
        ["address: '127.0.0.1:0', plaintext: true, tokens: {}".to_owned(), certificates.listen("tokens: {}")]
    {
        let in_the_clear = tcp.contains("plaintext");
        let daemon = Daemon::start_with(Setup { tcp, ..Default::default() }).await;
        let workspace = daemon.workspace("w", &[("a.txt", "read\n")]);
        let run = daemon.run("open", &workspace).await;
        let token = v1::Token { name: "ci".into(), roles: vec!["operator".into()], ..Default::default() };
        let (_, secret) = daemon.token(token, None).await;
        if in_the_clear {
            let endpoint = daemon.url("http").replace("http://", "");
            assert_eq!(client.says(&endpoint, &run, &[&secret]).await, SAID);
            continue;
        }
        let endpoint = daemon.url("https").replace("https://", "");
        let authority = certificates.authority().display().to_string();
        let secured = client.says(&endpoint, &run, &[&secret, &authority]).await;
        let without = "no TLS: JDK provider does not support ALPN protocol\n";
        assert!([SAID, without].contains(&secured.as_str()), "{secured}");
    }
}
